package policy

import (
	"github.com/handlerd/handler/policy/rawjson"
)

// SetsUpSession tells the methods that P1, P3, P6 and P8 are about.
func SetsUpSession(method string) bool {
	switch method {
	case "session/new", "session/load", "session/resume", "session/fork":
		return true
	}
	return false
}

// SetUpSession judges the params of session/new, load, resume or fork: folders (P1), then servers: the plan's are
// added, and take the place of a client's of the same folded name (P8); what is left of the client's (P6); where
// those of all reach (P3).
func (c *Config) SetUpSession(method string, b []byte, caps Caps) Ruling {
	var r Ruling
	err := func() error {
		o, err := params(b, method, "cwd", "additionalDirectories", "mcpServers", "sessionId")
		if err != nil {
			return err
		}
		if err := c.directories(b, o, &r); err != nil {
			return err
		}
		return c.servers(method, b, o, caps, &r)
	}()
	return ruled(r, err)
}

func (c *Config) servers(method string, b []byte, o rawjson.Object, caps Caps, r *Ruling) error {
	at := o.Get("mcpServers")
	elements, err := array(b, at, "mcpServers", MaxServers)
	if err != nil {
		return err
	}
	var theirs []server
	for i, at := range elements {
		s, err := readServer(b, at, i)
		if err != nil {
			return err
		}
		theirs = append(theirs, s)
	}
	all, changed, err := c.merge(theirs, r)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := c.allowServer(s, caps); err != nil {
			return err
		}
	}
	there := at.Present() && !rawjson.IsNull(b, at)
	needed := method == "session/new" || method == "session/load" // where ACP requires the array
	if !changed && (there || !needed) {
		return nil
	}
	parts := make([][]byte, len(all))
	for i, s := range all {
		parts[i] = s.json
	}
	list := string(rawjson.Join('[', ']', parts))
	if at.Present() {
		r.edit("P8", describe(all, theirs), replace(at, list))
	} else {
		r.edit("P8", describe(all, theirs), insert(o, `"mcpServers":`+list))
	}
	return nil
}

// merge gives the servers that the agent is to get, and whether they are others than the client gave.
func (c *Config) merge(theirs []server, r *Ruling) (all []server, changed bool, err error) {
	planned := make(map[string]string, len(c.Servers))
	for _, m := range c.Servers {
		planned[FoldName(m.Name)] = m.Name
	}
	seen := make(map[string]string, len(theirs))
	for _, s := range theirs {
		folded := FoldName(s.name)
		if other, twice := seen[folded]; twice {
			return nil, false, refuse("P8", "the client's MCP servers "+quote(other)+" and "+quote(s.name)+" have one name to agents", "rename one of them in the client's settings")
		}
		seen[folded] = s.name
		if ours, ok := planned[folded]; ok {
			changed = true
			r.edit("P8", "the client's MCP server "+quote(s.name)+" is replaced by the agent's own "+quote(ours))
			continue
		}
		changed = changed || s.changed
		all = append(all, s)
	}
	for _, m := range c.Servers {
		raw, err := m.MarshalJSON()
		if err != nil {
			return nil, false, err
		}
		all = append(all, server{json: raw, ours: true, name: m.Name, kind: m.Type, command: m.Command, args: m.Args, url: m.URL})
	}
	if len(all) > MaxServers {
		return nil, false, malformed("mcpServers", &rawjson.BoundError{Limit: MaxServers})
	}
	return all, changed || len(c.Servers) > 0, nil
}

// describe says what P8 did, for the audit log: names only, since env and headers hold secrets.
func describe(all, theirs []server) string {
	added, whole := "", false
	for _, s := range all {
		if s.ours {
			added += ", " + quote(s.name)
		}
		whole = whole || s.changed
	}
	switch {
	case added != "":
		return "MCP servers of the agent were added: " + added[2:]
	case whole:
		return "the client's MCP servers were written as agents want them"
	case len(theirs) == 0:
		return "an empty list of MCP servers was added"
	}
	return "the list of MCP servers was changed"
}
