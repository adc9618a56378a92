package runner

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
)

// An attendance is a person at the terminal of a Viewer, who answers what a live session asks.
type attendance struct {
	leave context.CancelFunc
	past  int64           // events up to this one were there before
	open  map[string]bool // questions among them that wait
	over  context.Context

	mu     sync.Mutex
	asking map[string]context.CancelCauseFunc // the dialogues, by the questions' ids; protected by mu
	mine   map[string]bool                    // questions that were answered here; protected by mu
}

// Before tells the Viewer of an event that is there already, before Attend: what was answered is not asked again.
func (v *Viewer) Before(e types.Event) {
	v.at.past = e.Seq
	switch e.Kind {
	case types.EventQuestion, types.EventAnswered:
		var q struct {
			ID   string `json:"id"`
			Ours bool   `json:"ours"`
		}
		if json.Unmarshal(e.Data, &q) != nil {
			return
		}
		delete(v.at.open, q.ID)
		if q.Ours && len(v.at.open) < maxTools {
			v.at.open[q.ID] = true
		}
	case types.EventRun:
		clear(v.at.open)
	case types.EventTurn:
		if turnEnded(e) {
			clear(v.at.open)
		}
	}
}

func turnEnded(e types.Event) bool {
	var t types.EventTurnData
	return json.Unmarshal(e.Data, &t) == nil && t.State == "ended"
}

// Attend lets the person at Options.Stdin answer from here on, until ctx is done, the terminal ends or Leave is called: the
// agent's questions by Options.Reply, and Handler's own about the run by Options.Watch and Options.Answer.
func (v *Viewer) Attend(ctx context.Context) {
	ctx, v.at.leave = context.WithCancel(ctx)
	v.at.over = ctx
	v.at.asking, v.at.mine = map[string]context.CancelCauseFunc{}, map[string]bool{}
	v.r.over, v.r.asking = ctx, make(chan struct{}, 1)
	v.r.term = newTerminal(v.r.opts.Stdin, v.r.opts.Stderr)
	v.r.watchApprovals(ctx)
}

// Leave ends what Attend began. What is asked stays open.
func (v *Viewer) Leave() {
	if v.at.leave != nil {
		v.at.leave()
		v.r.approving.Wait()
		v.r.term.close()
	}
}

// attends says whether somebody answers what an event asks, so that it needs no telling.
func (v *Viewer) attends(e types.Event) bool {
	return v.at.over != nil && v.at.over.Err() == nil && e.Seq > v.at.past
}

// askHere asks a question of the agent's at the terminal, unless it is another client's or over already.
func (v *Viewer) askHere(e types.Event, q types.EventQuestionData) bool {
	if v.at.over == nil || v.at.over.Err() != nil || !q.Ours || v.r.opts.Reply == nil || e.Seq <= v.at.past && !v.at.open[q.ID] {
		return false
	}
	ask := v.dialogueOf(q)
	if ask == nil {
		return false
	}
	ctx, end := context.WithCancelCause(v.at.over)
	v.at.mu.Lock()
	v.at.asking[q.ID] = end
	v.at.mu.Unlock()
	v.r.approving.Go(func() {
		defer end(nil)
		answer, err := ask(ctx)
		switch {
		case errors.Is(err, errNobody):
			v.at.leave()
			return
		case err != nil || answer == nil:
			return // it is over, or nobody said anything
		}
		answer.ID, answer.By = q.ID, v.r.opts.By
		v.at.mu.Lock()
		v.at.mine[q.ID] = true
		v.at.mu.Unlock()
		// The question's context ends with the news of this very answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
		defer cancel()
		if err := v.r.opts.Reply(ctx, *answer); err != nil {
			v.r.remark(err.Error())
		}
	})
	return true
}

// dialogueOf gives what asks a question: its error is errNobody when the terminal has ended. It is nil for a question that
// cannot be asked.
func (v *Viewer) dialogueOf(q types.EventQuestionData) func(context.Context) (*types.QuestionAnswer, error) {
	r := v.r
	if q.Method == jsonrpc.MethodRequestPermission {
		var p jsonrpc.PermissionParams
		if json.Unmarshal(q.Params, &p) != nil || len(choices(p.Options)) == 0 {
			return nil
		}
		t := &tool{}
		r.mu.Lock()
		if known := r.tools[p.ToolCall.ToolCallID]; known != nil {
			known.merge(p.ToolCall.ToolCall)
			if !known.shown {
				r.show(known)
			}
			*t = *known
		} else {
			t.merge(p.ToolCall.ToolCall)
			r.flushTools()
		}
		r.mu.Unlock()
		return func(ctx context.Context) (*types.QuestionAnswer, error) {
			option, err := r.askPermission(ctx, t, p.Options)
			if err != nil || option == nil {
				return nil, err
			}
			return &types.QuestionAnswer{Option: option.OptionID}, nil
		}
	}
	var p elicitationParams
	if json.Unmarshal(q.Params, &p) != nil {
		return nil
	}
	return func(ctx context.Context) (*types.QuestionAnswer, error) {
		res := elicitationResult{}
		var err error
		if p.Mode == "url" {
			res, err = r.askURL(ctx, p)
		} else {
			res, err = r.askForm(ctx, p)
		}
		switch {
		case err != nil:
			return nil, err
		case res.Action == elicitDecline:
			return &types.QuestionAnswer{Option: types.OptionDecline}, nil
		case res.Action != elicitAccept:
			return nil, nil
		}
		if res.Content == nil {
			res.Content = map[string]any{}
		}
		content, err := json.Marshal(res.Content)
		return &types.QuestionAnswer{Content: content}, err
	}
}

// endAsking ends the dialogue of a question, or of all with "", and says whether it was answered here.
func (v *Viewer) endAsking(id string) (mine bool) {
	v.at.mu.Lock()
	defer v.at.mu.Unlock()
	for key, end := range v.at.asking {
		if key == id || id == "" {
			end(nil)
			delete(v.at.asking, key)
		}
	}
	mine = v.at.mine[id]
	delete(v.at.mine, id)
	return mine
}
