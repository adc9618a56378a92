package catalog

import (
	"errors"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
)

// SaveRule adds a network rule to an agent's file for good, and keeps the rest of it, comments too. Kind is one of
// package policy's; the same words of the opposite kind are taken out. An agent that is only a harness's own name gets
// a file of its own, and created says so. Errors are *fault.Fault. Two calls at a time for one agent are the caller's
// to keep apart.
//
// With server it is the rule of the hosted server of that addon, which the agent's file has to bind.
func (c Catalog) SaveRule(name, server, kind, rule string) (file string, created bool, err error) {
	change := func(n *agents.Network) error {
		switch kind {
		case policy.KindDeny:
			return n.Denies(rule)
		case policy.KindPrivate:
			return n.AllowsPrivate(rule)
		}
		return n.Allows(rule)
	}
	edit := func(a *agents.Agent) error {
		if server == "" {
			return change(&a.Network)
		}
		b, bound := a.Bindings[server]
		if !bound {
			return fault.New(fault.NotFound, "handler agent edit "+name+" --placement "+server+"=hosted", "agent %s binds no addon %s in its file", name, server)
		}
		if err := change(&b.Network); err != nil {
			return err
		}
		a.Bindings[server] = b
		return nil
	}
	a, err := c.Agent(name)
	if err != nil {
		return "", false, err
	}
	if a.File != "" {
		saved, err := agents.SaveRules(c.AgentsDir(), name, edit, c.Check)
		if err != nil {
			return "", false, ruleFault(name, err)
		}
		return saved.File, false, nil
	}
	if err := edit(a); err != nil {
		return "", false, ruleFault(name, err)
	}
	if err := c.Check(a); err != nil {
		return "", false, ruleFault(name, err)
	}
	if err := agents.Save(c.AgentsDir(), a, false); err != nil {
		return "", false, ruleFault(name, err)
	}
	return a.File, true, nil
}

// ruleFault says that a rule was not saved, and keeps the kind and the hint of a fault.
func ruleFault(name string, err error) error {
	kind, hint := fault.Usage, ""
	var f *fault.Fault
	if errors.As(err, &f) {
		kind, hint = f.Kind, f.Hint
	}
	return fault.Wrap(kind, err, hint, "the rule of agent %s is not saved", name)
}
