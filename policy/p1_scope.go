package policy

import (
	"path"
	"strconv"
	"strings"

	"github.com/handlerd/handler/policy/rawjson"
)

// directories is P1: cwd and additionalDirectories lie inside a scope, symlinks resolved. Scopes are mounted under
// their resolved path alone, so a folder that was named through a symlink is given to the agent resolved.
func (c *Config) directories(b []byte, o rawjson.Object, r *Ruling) error {
	cwd := o.Get("cwd")
	if !cwd.Present() || rawjson.IsNull(b, cwd) {
		return refuse("P1", "cwd is missing", "")
	}
	if err := c.directory(b, cwd, "cwd", r); err != nil {
		return err
	}
	more, err := array(b, o.Get("additionalDirectories"), "additionalDirectories", MaxDirectories)
	if err != nil {
		return err
	}
	for i, s := range more {
		if err := c.directory(b, s, "additionalDirectories["+strconv.Itoa(i)+"]", r); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) directory(b []byte, s rawjson.Span, what string, r *Ruling) error {
	given, ok, err := text(b, s, what)
	if err != nil {
		return err
	}
	if !ok {
		return wrongType(what, "a string")
	}
	resolved, _, err := c.inScope("P1", what, given)
	if err != nil {
		return err
	}
	if resolved != given {
		r.edit("P1", what+" "+quote(given)+" is given to the agent resolved, as "+quote(resolved),
			rawjson.Edit{Span: s, New: rawjson.AppendString(nil, resolved)})
	}
	return nil
}

// inScope resolves a path and gives it with the scope it lies in.
func (c *Config) inScope(rule, what, given string) (string, Scope, error) {
	if !path.IsAbs(given) {
		return "", Scope{}, refuse(rule, what+" "+quote(given)+" is not an absolute path", "")
	}
	if strings.ContainsRune(given, 0) || c.Resolve == nil {
		return "", Scope{}, refuse(rule, what+" "+quote(given)+" cannot be resolved", "")
	}
	resolved, err := c.Resolve(given)
	if err != nil {
		return "", Scope{}, refuse(rule, what+" "+quote(given)+" cannot be resolved", "name a folder that exists, inside a scope of the agent")
	}
	if s, ok := c.scopeOf(resolved); ok {
		return resolved, s, nil
	}
	reason := what + " " + quote(given) + " is outside of the agent's scopes"
	if resolved != path.Clean(given) {
		reason = what + " " + quote(given) + " leads to " + quote(resolved) + ", outside of the agent's scopes"
	}
	return "", Scope{}, refuse(rule, reason, c.editAgent("add the folder as a scope"))
}

// scopeOf gives the innermost scope that holds a resolved path.
func (c *Config) scopeOf(resolved string) (Scope, bool) {
	best, found := Scope{}, false
	for _, s := range c.Scopes {
		inside := resolved == s.Path || strings.HasPrefix(resolved, strings.TrimSuffix(s.Path, "/")+"/")
		if inside && path.IsAbs(resolved) && path.Clean(resolved) == resolved && len(s.Path) >= len(best.Path) {
			best, found = s, true
		}
	}
	return best, found
}
