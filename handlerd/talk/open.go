package talk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/handlerd/handler/handlerd/acp/acpclient"
	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// StartTimeout bounds the time from an agent's start to its session: initialize, and session/new, load or resume.
const StartTimeout = 2 * time.Minute

// endTimeout bounds how long is waited for the end of a run that came to nothing.
const endTimeout = 30 * time.Second

// Create begins a session in a run of its own. When it fails, or ctx ends first, nothing of the run is left. Errors are
// *fault.Fault.
func (t *Talk) Create(ctx context.Context, req types.NewSession) (types.Session, error) {
	cwd, err := t.opts.Cwd(req.Agent, req.Cwd)
	if err != nil {
		return types.Session{}, err
	}
	run := types.RunRequest{Agent: req.Agent, Cwd: cwd, Display: req.Display, VNC: req.VNC, Wayland: req.Wayland, Limits: req.Limits}
	return t.open(ctx, run, func(ctx context.Context, c *conversation) error {
		var made jsonrpc.NewSessionResult
		err := c.call(ctx, jsonrpc.MethodSessionNew, jsonrpc.NewSessionParams{Cwd: cwd, MCPServers: []jsonrpc.MCPServer{}}, &made)
		if err == nil && made.SessionID == "" {
			err = fault.New(fault.Failed, "handler logs "+c.run, "%s answered session/new without a session's id", c.agent)
		}
		c.setSession(made.SessionID)
		return err
	})
}

// Continue lets handlerd go on, in a fresh run, with a session that has none. Errors are *fault.Fault.
func (t *Talk) Continue(ctx context.Context, id string, req types.ContinueSession) (types.Session, error) {
	s, c, err := t.find(ctx, id)
	if err != nil || c != nil {
		return s, err // it goes on already
	}
	free, err := t.reserve(ctx, s.ID)
	if err != nil {
		return s, err
	}
	defer free()
	if s, c, err = t.find(ctx, s.ID); err != nil || c != nil {
		return s, err // somebody else continued it meanwhile
	}
	if s.Run != "" || s.Continues == "" {
		return s, notOurs(s)
	}
	run := types.RunRequest{Agent: s.Agent, Cwd: s.Cwd, Display: req.Display, VNC: req.VNC, Wayland: req.Wayland, Limits: req.Limits}
	return t.open(ctx, run, func(ctx context.Context, c *conversation) error {
		method := map[string]string{"load": jsonrpc.MethodSessionLoad, "resume": jsonrpc.MethodSessionResume}[s.Continues]
		c.setSession(s.ACP)
		err := c.call(ctx, method, jsonrpc.LoadSessionParams{SessionID: s.ACP, Cwd: s.Cwd, MCPServers: []jsonrpc.MCPServer{}}, nil)
		if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == jsonrpc.CodeResourceNotFound {
			return fault.New(fault.NotFound, "begin a new one", "%s knows session %s no more: %s", c.agent, s.ID, clip(e.Message))
		}
		return err
	})
}

// reserve lets one caller at a time continue a session; the others wait for it.
func (t *Talk) reserve(ctx context.Context, id string) (free func(), err error) {
	for {
		t.mu.Lock()
		other := t.opening[id]
		if other == nil {
			mine := make(chan struct{})
			t.opening[id] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.opening, id)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// open starts a run, greets its agent and lets begin begin or continue the session.
func (t *Talk) open(ctx context.Context, req types.RunRequest, begin func(context.Context, *conversation) error) (types.Session, error) {
	req.Client, req.AsksItself = types.ClientPage, true
	run, err := t.opts.Runs.Start(ctx, req)
	if err != nil {
		return types.Session{}, err
	}
	c, err := t.join(run, req.Agent)
	if err != nil {
		run.Abort()
		return types.Session{}, err
	}
	s, err := t.begin(ctx, c, begin)
	if err == nil {
		return s, nil
	}
	err = c.explain(ctx, err)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if left := c.end(ending); left != nil {
		t.log.Error("a run that came to nothing is still there", "run", c.run, "error", left)
	}
	return types.Session{}, err
}

// begin is the conversation up to its session.
func (t *Talk) begin(ctx context.Context, c *conversation, begin func(context.Context, *conversation) error) (types.Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, StartTimeout,
		fault.New(fault.Failed, "handler logs "+c.run, "%s did not start a session within %v", c.agent, StartTimeout))
	defer cancel()
	var err error
	if c.init, err = acpclient.Greet(ctx, c.peer, true, nil); err != nil {
		return types.Session{}, fmt.Errorf("initialize: %w", err)
	}
	if err := begin(ctx, c); err != nil {
		return types.Session{}, err
	}
	s, err := t.opened(ctx, c)
	if err != nil {
		return types.Session{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.id = s.ID
	if c.gone {
		return types.Session{}, jsonrpc.ErrClosed
	}
	t.live[s.ID] = c
	return s, nil
}

// opened gives the session that the conversation is about.
func (t *Talk) opened(ctx context.Context, c *conversation) (types.Session, error) {
	id, err := t.opts.History.Known(ctx, c.agent, c.session())
	if err != nil {
		return types.Session{}, err
	}
	if id == "" {
		return types.Session{}, fault.New(fault.Failed, "handler logs "+c.run, "the session was not written down")
	}
	return t.opts.History.Get(ctx, id)
}

// join makes the conversation of a run, whose other end runs until the run has ended.
func (t *Talk) join(run Run, agent string) (*conversation, error) {
	ours, theirs := net.Pipe()
	c := &conversation{t: t, run: run.ID(), of: run, agent: agent, questions: map[string]*question{}, asked: make(chan struct{}), over: make(chan struct{})}
	done := t.opts.Busy()
	c.peer = jsonrpc.New(context.Background(), ours, jsonrpc.Options{
		Handler: c.handle, Garbage: func([]byte, *jsonrpc.Error) {}, MaxServing: MaxQuestions, Logger: t.log.With("run", c.run),
	})
	if t.spawn(func() {
		defer done()
		defer close(c.over)
		c.err = run.Serve(t.ctx, theirs)
		_ = c.peer.Close() // the run has closed the other end
		t.mu.Lock()
		defer t.mu.Unlock()
		c.gone = true
		if t.live[c.id] == c {
			delete(t.live, c.id)
		}
	}) {
		return c, nil
	}
	_ = c.peer.Close()
	_ = theirs.Close()
	done()
	return nil, fault.New(fault.Failed, "try again", "handlerd is ending")
}
