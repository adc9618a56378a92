package policy

import "github.com/handlerd/handler/policy/rawjson"

// hostFS is P2: with host_fs, fs/* requests stay inside scopes, symlinks resolved, and writes where the scope is rw
// and the path is not one that the person's tools run (A.9). The client gets the resolved path, which narrows the
// race between this check and what the client does, but does not close it: the agent can change its scopes meanwhile
// (docs/handlers/policy.md says so).
func (c *Config) hostFS(method string, b []byte) (Ruling, error) {
	var r Ruling
	if !c.HostFS {
		return r, notFound(method+" would act on the host", c.editAgent("host_fs = true allows it"))
	}
	o, err := params(b, method, "path", "sessionId", "content", "line", "limit")
	if err != nil {
		return r, err
	}
	at := o.Get("path")
	given, ok, err := text(b, at, "path")
	if err != nil {
		return r, err
	}
	if !ok {
		return r, refuse("P2", method+" names no path", "")
	}
	resolved, scope, err := c.inScope("P2", "path", given)
	if err != nil {
		return r, err
	}
	if method != "fs/read_text_file" {
		if !scope.RW {
			return r, refuse("P2", "path "+quote(given)+" lies in "+quote(scope.Path)+", which the agent may only read", c.editAgent("make the scope rw"))
		}
		if c.ReadOnly != nil && c.ReadOnly(resolved) {
			return r, refuse("P2", "path "+quote(given)+" is a file that your own tools would run, and is read-only to the agent", "")
		}
	}
	if resolved != given {
		r.edit("P2", "path "+quote(given)+" is given to the client resolved, as "+quote(resolved),
			rawjson.Edit{Span: at, New: rawjson.AppendString(nil, resolved)})
	}
	return r, nil
}
