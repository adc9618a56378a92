package talk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/handlerd/handler/handlerd/acp/acpclient"
	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// A conversation is one session in its run.
type conversation struct {
	t     *Talk
	id    string // the session's; "" until it has begun
	run   string
	of    Run // the run itself
	agent string
	peer  *jsonrpc.Peer
	init  jsonrpc.InitializeResult

	over chan struct{} // closed when the run has ended and nothing of it is left
	err  error         // why the run ended; read after over
	gone bool          // it is taken out of Talk.live, or will not come into it; protected by Talk.mu

	mu        sync.Mutex
	acp       string               // the agent's id of the session; "" until it has said it; protected by mu
	turn      chan struct{}        // closed when the turn that is under way has ended; nil for none; protected by mu
	cancelled bool                 // the person has cancelled that turn; protected by mu
	questions map[string]*question // those that wait for an answer, by id; protected by mu
	asked     chan struct{}        // closed and made anew at each question; protected by mu
}

// session gives the agent's id of the session.
func (c *conversation) session() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acp
}

// setSession says what the agent calls the session.
func (c *conversation) setSession(acp string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acp = acp
}

// handle gets what the agent sends, in order. Updates are for the recorder, which has seen them.
func (c *conversation) handle(_ context.Context, req *jsonrpc.Request) {
	switch req.Method {
	case jsonrpc.MethodRequestPermission, jsonrpc.MethodElicitation:
		c.ask(req)
	default:
		if req.Notification() {
			return
		}
		req.Refuse(jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "handlerd has no method %q", req.Method))
	}
}

// A callError is an error of the agent's, or of the connection's, with what was asked.
type callError struct {
	method string
	err    error
}

func (e *callError) Error() string { return e.method + ": " + e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// call asks the agent.
func (c *conversation) call(ctx context.Context, method string, params, result any) error {
	if err := c.peer.Call(ctx, method, params, result); err != nil {
		return &callError{method, err}
	}
	return nil
}

// end closes our end, so that the run ends in good order, and returns when nothing of it is left or ctx is done.
func (c *conversation) end(ctx context.Context) error {
	_ = c.peer.Close() // a run that has gone first is what we want
	select {
	case <-c.over:
		return nil
	case <-ctx.Done():
		return fault.Wrap(fault.Failed, ctx.Err(), "handler kill "+c.run, "run %s has not ended yet", c.run)
	}
}

// explain turns an error of a call into one that a person can use: a *fault.Fault.
func (c *conversation) explain(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f
	}
	what := jsonrpc.MethodInitialize
	if call, ok := errors.AsType[*callError](err); ok {
		what = call.method
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return c.explainAnswer(what, e)
	}
	if errors.Is(err, jsonrpc.ErrClosed) {
		return c.explainEnd(ctx, what)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fault.Wrap(fault.Failed, err, "handler logs "+c.run, "%s", what)
}

// explainAnswer is explain for an error that was answered.
func (c *conversation) explainAnswer(what string, e *jsonrpc.Error) error {
	if v, ok := acpclient.Refusal(e); ok {
		v.Rule, v.Reason, v.Hint = clip(v.Rule), clip(v.Reason), clip(v.Hint)
		hint := v.Hint
		v.Hint = ""
		return fault.New(fault.Refused, hint, "%s", v.String())
	}
	if text, hint, ok := acpclient.Ended(e); ok {
		return fault.New(fault.Failed, clip(hint), "%s", clip(text))
	}
	if e.Code == jsonrpc.CodeAuthRequired {
		return fault.New(fault.Failed, c.t.opts.LoginHint(c.agent), "%s wants a login first: %s%s", c.agent, clip(e.Message), c.logins())
	}
	text := clip(e.Message)
	if more := acpclient.Detail(e); more != "" {
		text += ": " + clip(more)
	}
	return fault.New(fault.Failed, "handler logs "+c.run, "%s answered %s with an error: %s (error %d)", c.agent, what, text, e.Code)
}

// logins names the ways to log in that the agent has.
func (c *conversation) logins() string {
	var names []string
	for _, m := range c.init.AuthMethods {
		names = append(names, m.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return " (it offers: " + clip(strings.Join(names, ", ")) + ")"
}

// explainEnd is explain for an agent that is gone: the run says why, a moment later.
func (c *conversation) explainEnd(ctx context.Context, what string) error {
	select {
	case <-c.over:
		if c.err != nil {
			return fault.Of(c.err)
		}
	case <-ctx.Done():
	}
	return fault.New(fault.Failed, "handler logs "+c.run, "%s ended before it answered %s", c.agent, what)
}

// maxMessage bounds what is shown of a text of the other end, in bytes.
const maxMessage = 2000

// clip bounds a text of the other end.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// MaxTitle bounds a session's title, in bytes.
const MaxTitle = 200

// checkTitle wants a title of one line.
func checkTitle(title string) error {
	if len(title) > MaxTitle || !utf8.ValidString(title) || strings.ContainsFunc(title, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fault.New(fault.Usage, "", "a title is one line of at most %d bytes", MaxTitle)
	}
	return nil
}

// Option sets a mode, or a configuration option of the agent's.
func (t *Talk) Option(ctx context.Context, id string, o types.SessionOption) error {
	s, c, err := t.mine(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, StartTimeout, fmt.Errorf("%s did not answer within %v", c.agent, StartTimeout))
	defer cancel()
	method, params, change, err := setting(s, c.session(), o)
	if err != nil {
		return err
	}
	var result optionsResult
	if err := c.call(ctx, method, params, &result); err != nil {
		return c.explain(ctx, err)
	}
	return t.opts.History.Change(ctx, s.ID, func(s *types.Session) { change(s, result) })
}
