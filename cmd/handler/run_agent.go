package main

import (
	"context"
	"errors"
	"strings"

	"github.com/handlerd/handler/handlerd/fault"
)

// checkCwd refuses a folder that was asked for with -C and that the agent does not see.
func (u *ui) checkCwd(agent, cwd string) error {
	c, err := u.catalog()
	if err != nil {
		return err
	}
	scopes, err := c.CheckCwd(agent, cwd)
	if f := (*fault.Fault)(nil); errors.As(err, &f) && f.Kind == fault.Refused && len(scopes) > 0 {
		return fault.New(f.Kind, "leave -C out, or let it see the folder: handler agent edit "+agent+" --scope "+cwd, "%s", f.Text)
	} else if err != nil {
		return fault.Wrap(fault.Usage, errors.Unwrap(err), "", "--cwd")
	}
	return nil
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
