package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
)

// byElsewhere says that a question was answered in another place than this terminal.
const byElsewhere = "elsewhere"

// Answers that hold for the run, as events name them beside ACP's kinds.
const (
	allowRun  = "allow_run"
	rejectRun = "reject_run"
)

// answerLimit bounds how long the daemon may take to make an answer true.
const answerLimit = 15 * time.Second

// An endedError is why a question's dialogue is over: what became of the question elsewhere.
type endedError struct{ event types.ApprovalEvent }

func (e *endedError) Error() string { return "the question is over: " + e.event.State }

// watchApprovals asks on the terminal what Handler itself asks about the run, from when it returns until ctx is done.
// Without a person at the terminal it does nothing: then nobody counts as being there.
func (r *run) watchApprovals(ctx context.Context) {
	if r.opts.Watch == nil || r.opts.Answer == nil || !r.opts.Terminal || r.opts.Unattended {
		return
	}
	ready := make(chan struct{})
	r.approving.Go(func() {
		var once sync.Once
		begun := func() { once.Do(func() { close(ready) }) }
		defer begun()
		// A terminal that has ended has nobody behind it, who would be waited for in vain.
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		open := map[string]context.CancelCauseFunc{}
		defer func() {
			for _, end := range open {
				end(nil)
			}
		}()
		err := r.opts.Watch(ctx, func(e types.ApprovalEvent) error {
			if e.State == types.ApprovalWatching || e.Approval == nil {
				begun()
				return nil
			}
			id := e.Approval.ID
			if e.State == types.ApprovalAsked {
				question, end := context.WithCancelCause(ctx)
				open[id] = end
				r.approving.Go(func() {
					if errors.Is(r.approve(question, *e.Approval), errNobody) {
						leave()
					}
				})
			} else if end := open[id]; end != nil {
				end(&endedError{e})
				delete(open, id)
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			r.remark("you are no longer asked what Handler asks, which is refused instead: " + Line(err.Error()))
		}
	})
	select {
	case <-ready:
	case <-ctx.Done():
	}
}

// A scopeChoice is one answer to a question of Handler's own.
type scopeChoice struct {
	keys   []string
	label  string
	answer types.ApprovalAnswer
	event  string // as events name it
}

// scopeChoices gives the answers that a question takes.
func scopeChoices(a types.Approval, by string) []scopeChoice {
	all := []scopeChoice{
		{[]string{"y", "yes"}, "[y]es, once", types.ApprovalAnswer{Allow: true, Scope: types.ScopeOnce}, jsonrpc.AllowOnce},
		{[]string{"r", "run"}, "yes, this [r]un", types.ApprovalAnswer{Allow: true, Scope: types.ScopeRun}, allowRun},
		{[]string{"a", "always"}, "[a]lways", types.ApprovalAnswer{Allow: true, Scope: types.ScopeAlways}, jsonrpc.AllowAlways},
		{[]string{"n", "no"}, "[n]o", types.ApprovalAnswer{Scope: types.ScopeOnce}, jsonrpc.RejectOnce},
		{[]string{"v", "never"}, "ne[v]er in this run", types.ApprovalAnswer{Scope: types.ScopeRun}, rejectRun},
	}
	var fit []scopeChoice
	for _, c := range all {
		for _, scope := range a.Scopes {
			if c.answer.Scope == scope {
				c.answer.By = by
				fit = append(fit, c)
			}
		}
	}
	return fit
}

// approve asks one question and answers it; or says what became of it elsewhere.
func (r *run) approve(ctx context.Context, a types.Approval) error {
	e := event{Event: evQuestion, Name: cmp.Or(a.Kind, types.ApprovalNetwork), Detail: a.Subject, Answer: "cancelled", By: byNobody}
	list := scopeChoices(a, r.opts.By)
	var labels []string
	for _, c := range list {
		labels = append(labels, c.label)
	}
	keys := "  " + strings.Join(labels, "  ") + thenEnter
	question := fmt.Sprintf("? %s  (refused in %d s)\n%s\n%s", Line(a.Text), max(0, int(time.Until(a.Expires).Seconds())), indented(Details(a), "    "), keys)
	err := r.dialogue(ctx, func(ctx context.Context) error {
		if r.opts.Picture != nil && a.Browser != nil && a.Browser.Picture != nil {
			r.term.say(r.opts.Picture(ctx, a))
		}
		for {
			line, err := r.term.ask(ctx, question)
			if err != nil {
				return err
			}
			c := chosen(list, line)
			if c == nil {
				question = "  one of:" + keys
				continue
			}
			// The question's context ends with the news of this very answer.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
			done, err := r.opts.Answer(ctx, a.ID, c.answer)
			cancel()
			if err != nil {
				r.term.say("  " + Line(err.Error()) + "\n")
				return nil
			}
			if done.Note != "" {
				r.term.say("  " + Line(done.Note) + "\n")
			}
			e.Answer, e.By = c.event, byPerson
			return nil
		}
	})
	if ended, ok := errors.AsType[*endedError](context.Cause(ctx)); ok && e.By != byPerson {
		e.Answer, e.By = endedAs(ended.event)
	}
	r.answered(e)
	return err
}

func chosen(list []scopeChoice, line string) *scopeChoice {
	line = strings.ToLower(strings.TrimSpace(line))
	for i, c := range list {
		for _, key := range c.keys {
			if key == line {
				return &list[i]
			}
		}
	}
	return nil
}

// endedAs puts the end of a question elsewhere into the words of events.
func endedAs(e types.ApprovalEvent) (answer, by string) {
	switch {
	case e.State == types.ApprovalAnswered && e.Answer != nil && e.Answer.Allow:
		return jsonrpc.AllowOnce, byElsewhere
	case e.State == types.ApprovalAnswered:
		return jsonrpc.RejectOnce, byElsewhere
	case e.State == types.ApprovalExpired:
		return jsonrpc.RejectOnce, byNobody
	}
	return "cancelled", byNobody
}
