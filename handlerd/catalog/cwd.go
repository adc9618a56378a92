package catalog

import (
	"path/filepath"
	"strings"

	"github.com/handlerd/handler/handlerd/fault"
)

// CheckCwd refuses a folder that a run of an agent was asked to start in and that the agent does not see: the run would
// start elsewhere, and do there what was meant for this folder. What there is to say of the agent itself the start says.
// It gives the agent's scopes, whether or not they are there; none where it sees what it is started in.
func (c Catalog) CheckCwd(agent, cwd string) (scopes []string, err error) {
	resolved, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "", "the folder to start in")
	}
	a, err := c.Agent(agent)
	if err != nil || len(a.Scopes) == 0 {
		return nil, nil
	}
	for _, s := range a.Scopes {
		path := c.Expand(s.Path)
		scopes = append(scopes, path)
		if there, err := filepath.EvalSymlinks(path); err == nil {
			path = there
		}
		if rel, err := filepath.Rel(path, resolved); err == nil && filepath.IsLocal(rel) {
			return scopes, nil
		}
	}
	return scopes, fault.New(fault.Refused, "start it in one of them, or let it see the folder: handler agent edit "+agent+" --scope "+cwd,
		"%s lies outside the scopes of agent %s: %s", cwd, agent, strings.Join(scopes, ", "))
}

// Cwd gives the folder that a session of an agent begins in: the one that was asked for, which the agent must see, or
// for "" its first scope. It is absolute and its symlinks are resolved.
func (c Catalog) Cwd(agent, cwd string) (string, error) {
	if cwd == "" {
		a, err := c.Agent(agent)
		if err != nil {
			return "", err
		}
		if len(a.Scopes) == 0 {
			return "", fault.New(fault.Usage, "choose one", "agent %s sees the folder that it is started in, and none was named", agent)
		}
		cwd = c.Expand(a.Scopes[0].Path)
	}
	cwd = c.Expand(cwd)
	if !filepath.IsAbs(cwd) {
		return "", fault.New(fault.Usage, "", "the folder %q is not absolute", cwd)
	}
	if _, err := c.CheckCwd(agent, cwd); err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return "", fault.Wrap(fault.Usage, err, "", "the folder to start in")
	}
	return resolved, nil
}
