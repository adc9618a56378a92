package main

import (
	"context"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/sessions"
	"github.com/handlerd/handler/handlerd/talk"
)

// newTalk makes the sessions whose client is the daemon itself, for its page; nil where no sessions are kept.
func (w *wired) newTalk(busy func() (done func())) *talk.Talk {
	if w.history == nil {
		return nil
	}
	return talk.New(talk.Options{
		Runs: talkRuns{w.runs}, History: w.history, Cwd: w.catalog.Cwd, LoginHint: w.keeper.LoginHint, Busy: busy,
		Logger: w.log.With("part", "talk"),
	})
}

// talkRuns gives sessions.Manager talk's words.
type talkRuns struct{ *sessions.Manager }

func (r talkRuns) Start(ctx context.Context, req types.RunRequest) (talk.Run, error) {
	run, err := r.Manager.Start(ctx, req)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// setTalk gives the API its talk, and no typed nil.
func setTalk(o *api.Options, t *talk.Talk) {
	if t != nil {
		o.Talk = t
	}
}
