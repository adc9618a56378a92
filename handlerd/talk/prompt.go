package talk

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// turnPause is how long a prompt waits for a turn that has ended already to be gone.
const turnPause = 5 * time.Second

// promptParams of session/prompt; the prompt goes as the person's program wrote it.
type promptParams struct {
	SessionID string          `json:"sessionId"`
	Prompt    json.RawMessage `json:"prompt"`
}

// Prompt begins a turn and returns when the prompt is written down; what the agent answers comes as events. A session
// that has no run and can be continued is, first. Errors are *fault.Fault.
func (t *Talk) Prompt(ctx context.Context, id string, p types.Prompt) (types.PromptTaken, error) {
	blocks, err := parsePrompt(p.Content)
	if err != nil {
		return types.PromptTaken{}, err
	}
	s, c, err := t.find(ctx, id)
	if err == nil && c == nil {
		if s, err = t.Continue(ctx, id, types.ContinueSession{}); err == nil {
			s, c, err = t.mine(ctx, s.ID)
		}
	}
	if err != nil {
		return types.PromptTaken{}, err
	}
	if err := c.takes(blocks); err != nil {
		return types.PromptTaken{}, err
	}
	turn, err := c.beginTurn(ctx, s)
	if err != nil {
		return types.PromptTaken{}, err
	}
	failed := make(chan error, 1)
	began := t.spawn(func() {
		err := c.call(context.Background(), jsonrpc.MethodSessionPrompt, promptParams{c.session(), p.Content}, nil)
		c.mu.Lock()
		c.turn, c.cancelled = nil, false
		c.mu.Unlock()
		close(turn)
		c.hint(err)
		failed <- err
	})
	if !began {
		return types.PromptTaken{}, fault.New(fault.Failed, "try again", "handlerd is ending")
	}
	seq, err := t.written(ctx, s, failed)
	if err != nil {
		return types.PromptTaken{}, c.explain(ctx, err)
	}
	return types.PromptTaken{Seq: seq}, nil
}

// beginTurn takes the session's one turn.
func (c *conversation) beginTurn(ctx context.Context, s types.Session) (chan struct{}, error) {
	busy := fault.New(fault.Conflict, "stop it first, or wait for its end", "%s is still at work in session %s", c.agent, s.ID)
	pause := time.NewTimer(turnPause)
	defer pause.Stop()
	for {
		c.mu.Lock()
		other := c.turn
		if other == nil {
			turn := make(chan struct{})
			c.turn, c.cancelled = turn, false
			c.mu.Unlock()
			return turn, nil
		}
		c.mu.Unlock()
		if s.Turn == "working" {
			return nil, busy
		}
		// What is written down is a moment ahead of us.
		select {
		case <-other:
		case <-pause.C:
			return nil, busy
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// errWritten ends the search for a prompt.
var errWritten = errors.New("found")

// written gives the number of the prompt that comes behind the events of s. A turn may end before that is seen, or
// without its prompt having been written down: then its error is given.
func (t *Talk) written(ctx context.Context, s types.Session, ended <-chan error) (seq int64, err error) {
	look := func(ctx context.Context) error {
		return t.opts.History.Follow(ctx, s.ID, s.Events, func(events []types.Event) error {
			for _, e := range events {
				if e.Kind == types.EventPrompt {
					seq = e.Seq
					return errWritten
				}
			}
			return nil
		})
	}
	following, stop := context.WithCancel(ctx)
	found := make(chan error, 1)
	go func() { found <- look(following) }()
	var turn error
	over := false
	select {
	case err = <-found:
	case turn = <-ended:
		over = true
		last := time.AfterFunc(lastLook, stop) // whatever was written is there already
		defer last.Stop()
		err = <-found
	}
	stop()
	switch {
	case errors.Is(err, errWritten):
		return seq, nil
	case over && turn != nil:
		return 0, turn
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case over:
		return 0, fault.New(fault.Failed, "handler logs "+s.Run, "the prompt of session %s was not written down", s.ID)
	}
	return 0, err
}

// lastLook bounds the look for a prompt whose turn has ended.
const lastLook = time.Second

// hint writes what to do into the session where the agent wants a login: the agent itself cannot know.
func (c *conversation) hint(err error) {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Code != jsonrpc.CodeAuthRequired {
		return
	}
	text := c.agent + " wants a login first"
	if more := c.t.opts.LoginHint(c.agent); more != "" {
		text += "; " + more
	}
	if _, err := c.t.opts.History.Append(c.t.ctx, c.id, types.EventNotice, "", types.EventNoticeData{Text: text}); err != nil {
		c.t.log.Warn("what to do about a login was not written down", "session", c.id, "error", err)
	}
}

// Cancel asks the agent to end its turn. The turn's end comes as an event. Without a turn nothing happens.
func (t *Talk) Cancel(ctx context.Context, id string) error {
	_, c, err := t.mine(ctx, id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	working := c.turn != nil
	c.cancelled = working
	c.mu.Unlock()
	if !working {
		return nil
	}
	if err := c.peer.Notify(ctx, jsonrpc.MethodSessionCancel, jsonrpc.SessionParams{SessionID: c.session()}); err != nil {
		return c.explain(ctx, &callError{jsonrpc.MethodSessionCancel, err})
	}
	c.withdraw()
	return nil
}
