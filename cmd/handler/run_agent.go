package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/handlerd/handler/handlerd/fault"
)

// checkCwd refuses a folder that was asked for with -C and that the agent does not see: the run would start elsewhere,
// and do there what was meant for this folder. What there is to say of the agent itself the start says.
func (u *ui) checkCwd(agent, cwd string) error {
	resolved, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return fault.Wrap(fault.Usage, err, "", "--cwd")
	}
	c, err := u.catalog()
	if err != nil {
		return err
	}
	a, err := c.Agent(agent)
	if err != nil || len(a.Scopes) == 0 {
		return nil
	}
	var scopes []string
	for _, s := range a.Scopes {
		path := c.Expand(s.Path)
		scopes = append(scopes, path)
		if there, err := filepath.EvalSymlinks(path); err == nil {
			path = there
		}
		if rel, err := filepath.Rel(path, resolved); err == nil && filepath.IsLocal(rel) {
			return nil
		}
	}
	return fault.New(fault.Refused, "leave -C out, or let it see the folder: handler agent edit "+agent+" --scope "+cwd,
		"%s lies outside the scopes of agent %s: %s", cwd, agent, strings.Join(scopes, ", "))
}

// knowAgent gives an error for a name that no agent has; "" is none.
func (u *ui) knowAgent(name string) error {
	if name == "" {
		return nil
	}
	c, err := u.catalog()
	if err == nil {
		_, err = c.Agent(name)
	}
	if err != nil && fault.Of(err).Kind == fault.NotFound {
		return err
	}
	return nil
}

// orEnded gives the error about a run that is not live, as of one that has ended where there is its log.
func (u *ui) orEnded(err error, id string) error {
	if err == nil || fault.Of(err).Kind != fault.NotFound || id == "" {
		return err
	}
	_, d, ok := u.daemon()
	if !ok {
		return err
	}
	for _, run := range endedRuns(d) {
		if strings.HasPrefix(run.id, id) {
			return fault.New(fault.NotFound, "handler logs "+run.id, "run %s has ended", run.id)
		}
	}
	return err
}

func (u *ui) sayAll(texts []string) {
	for _, text := range texts {
		u.say("%s", text)
	}
}

// sayLive says which runs go on with what the agent was before it was edited.
func (u *ui) sayLive(ctx context.Context, agent string) {
	c, _, ok := u.daemon()
	if !ok {
		return
	}
	runs, err := c.Runs(ctx)
	if err != nil {
		return // no daemon, no runs
	}
	var live []string
	for _, r := range runs {
		if r.Agent == agent {
			live = append(live, r.ID)
		}
	}
	if len(live) > 0 {
		u.say("live runs of %s go on as they were started: %s\n  for a network rule there, too: handler policy deny %s HOST, or: handler policy allow %s HOST",
			agent, strings.Join(live, ", "), agent, agent)
	}
}
