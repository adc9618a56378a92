package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/acp/acpclient"
	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/policy"
)

// A run is one Run. What updates change is under mu, since questions read it from goroutines of their own.
type run struct {
	opts    Options
	peer    *jsonrpc.Peer
	screen  *screen
	term    *terminal
	began   time.Time
	asking  chan struct{}      // holds one token: one question at a time
	over    context.Context    // ends when questions are to be withdrawn: a cancelled turn
	endTurn context.CancelFunc // of over

	noTerminal bool // nobody is asked because of that, and not because somebody said so

	approving sync.WaitGroup // the questions of Handler's own

	mu      sync.Mutex
	session string
	tools   map[string]*tool
	order   []string // ids of tools, oldest first
	waiting []string // ids of tools that are not shown yet
	album   album
	calls   int
	refused int
}

// Run makes a session over conn, sends the prompt and returns when the turn has ended, ctx has, or the person
// interrupted it twice. It closes conn. The Outcome is whole whatever the error. The error is nil whenever the turn
// ended, even if by a limit or a cancel; one that is not has been said on Stderr already.
func Run(ctx context.Context, conn io.ReadWriteCloser, opts Options) (Outcome, error) {
	err := opts.complete()
	images, aerr := attach(opts.Images)
	if err = errors.Join(err, aerr); err != nil {
		_, _ = fmt.Fprintf(opts.Stderr, "handler: %v\n", err)
		return Outcome{Status: StatusFailed}, errors.Join(err, conn.Close())
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	r := &run{
		opts: opts, began: opts.Now(), asking: make(chan struct{}, 1), tools: map[string]*tool{},
		screen: newScreen(opts, abort), term: newTerminal(opts.Stdin, opts.Stderr),
	}
	defer r.term.close()
	r.over, r.endTurn = context.WithCancel(ctx)
	defer r.endTurn()
	if !opts.Terminal && !opts.Unattended && !opts.Yes && !opts.ReadOnly {
		r.opts.Unattended, r.noTerminal = true, true
		r.remark("no terminal to ask on: what the agent asks will be refused; choose with --yes, --read-only or --unattended")
	}
	// The peer is closed by hand below: it must outlive ctx by the moment that a last session/cancel needs.
	r.peer = jsonrpc.New(context.WithoutCancel(ctx), conn, jsonrpc.Options{Handler: r.handle, Garbage: func([]byte, *jsonrpc.Error) {}})
	prompting := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.watchInterrupts(ctx, abort, prompting)
	}()
	r.watchApprovals(ctx)
	stop, err := r.talk(ctx, images, prompting)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	r.endTurn()
	abort(nil)
	<-stopped
	r.approving.Wait()
	_ = r.peer.Close() // the agent may have gone first
	return r.finish(stop, err)
}

// talk is the conversation: initialize, session/new, session/prompt. It gives the stop reason.
func (r *run) talk(ctx context.Context, images []jsonrpc.ContentBlock, prompting chan<- struct{}) (string, error) {
	starting, cancel := context.WithTimeoutCause(ctx, r.opts.StartTimeout,
		fmt.Errorf("the agent did not start a session within %s", r.opts.StartTimeout))
	defer cancel()
	// What Handler's rules answer without asking us is to be seen, too.
	meta := map[string]json.RawMessage{policy.MetaAnswered: json.RawMessage("true")}
	init, err := acpclient.Greet(starting, r.peer, r.opts.Terminal && !r.opts.Unattended, meta)
	if err != nil {
		return "", r.explain(starting, "initialize", err, nil)
	}
	if len(images) > 0 && !init.AgentCapabilities.PromptCapabilities.Image {
		return "", fmt.Errorf("%s takes no pictures: leave --image out", r.opts.Agent)
	}
	session, err := r.open(starting, init)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	r.session = session
	r.mu.Unlock()
	r.screen.emit(event{Event: evStart, Agent: r.opts.Agent, Run: r.opts.Run, Session: session, Cwd: r.opts.Cwd})
	prompt := images
	if r.opts.Prompt != "" {
		prompt = append(prompt, jsonrpc.Text(r.opts.Prompt))
	}
	close(prompting)
	var result jsonrpc.PromptResult
	err = r.peer.Call(ctx, jsonrpc.MethodSessionPrompt, jsonrpc.PromptParams{SessionID: session, Prompt: prompt}, &result)
	if err != nil {
		return "", r.explain(ctx, "the prompt", err, init.AuthMethods)
	}
	return result.StopReason, nil
}

// open begins a session, or takes up the one that goes on, and gives the agent's id of it. What an agent tells again of
// that one is not shown.
func (r *run) open(ctx context.Context, init jsonrpc.InitializeResult) (string, error) {
	if r.opts.Session == "" {
		var session jsonrpc.NewSessionResult
		err := r.peer.Call(ctx, jsonrpc.MethodSessionNew, jsonrpc.NewSessionParams{Cwd: r.opts.Cwd, MCPServers: []jsonrpc.MCPServer{}}, &session)
		if err != nil {
			return "", r.explain(ctx, "session/new", err, init.AuthMethods)
		}
		if session.SessionID == "" {
			return "", errors.New("the agent's answer to session/new has no sessionId")
		}
		return session.SessionID, nil
	}
	method := jsonrpc.MethodSessionLoad
	if !init.AgentCapabilities.LoadSession {
		if method = jsonrpc.MethodSessionResume; init.AgentCapabilities.SessionCapabilities.Resume == nil {
			return "", fmt.Errorf("%s can go on with no earlier session: leave --continue out", r.opts.Agent)
		}
	}
	params := jsonrpc.LoadSessionParams{SessionID: r.opts.Session, Cwd: r.opts.Cwd, MCPServers: []jsonrpc.MCPServer{}}
	if err := r.peer.Call(ctx, method, params, nil); err != nil {
		return "", r.explain(ctx, method, err, init.AuthMethods)
	}
	return r.opts.Session, nil
}

// watchInterrupts turns the first Ctrl-C into session/cancel and the second, or silence after the first, into the end.
func (r *run) watchInterrupts(ctx context.Context, abort context.CancelCauseFunc, prompting <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-r.opts.Interrupt:
	}
	select {
	case <-prompting:
	default: // nothing is going on that could be cancelled
		abort(ErrInterrupted)
		return
	}
	r.endTurn()
	r.remark("stopping the agent; Ctrl-C again ends at once")
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	// An agent that has gone ends the prompt by itself.
	_ = r.peer.Notify(ctx, jsonrpc.MethodSessionCancel, jsonrpc.SessionParams{SessionID: session})
	grace := time.NewTimer(r.opts.CancelGrace)
	defer grace.Stop()
	select {
	case <-ctx.Done():
	case <-r.opts.Interrupt:
		abort(ErrInterrupted)
	case <-grace.C:
		abort(ErrInterrupted)
	}
}

// finish prints the last line and makes the Outcome.
func (r *run) finish(stop string, err error) (Outcome, error) {
	r.mu.Lock()
	r.flushTools()
	out := Outcome{
		Status: StatusDone, StopReason: Line(stop), Session: r.session, Elapsed: r.opts.Now().Sub(r.began),
		ToolCalls: r.calls, Refused: r.refused, Images: r.album.saved,
	}
	r.mu.Unlock()
	if err != nil || stop != jsonrpc.StopEndTurn {
		out.Status = StatusFailed
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		out.Status, out.Verdict = StatusRefused, &refused.verdict
	}
	if err != nil {
		r.remark(err.Error())
	}
	seconds := round(out.Elapsed)
	images := len(out.Images)
	e := event{
		Event: evDone, Run: r.opts.Run, Status: out.Status, StopReason: out.StopReason, Seconds: &seconds, ToolCalls: &out.ToolCalls,
		Refused: &out.Refused, Images: &images, Error: describe(err), summary: r.summary(out, err),
	}
	if perr := r.screen.emit(e); perr != nil && err == nil {
		out.Status, err = StatusFailed, fmt.Errorf("write the output: %w", perr)
	}
	return out, err
}

// endings are the stop reasons in words.
var endings = map[string]string{
	jsonrpc.StopEndTurn:         "done in ",
	jsonrpc.StopMaxTokens:       "stopped at the model's limit of tokens after ",
	jsonrpc.StopMaxTurnRequests: "stopped at the agent's limit of requests after ",
	jsonrpc.StopRefusal:         "the model refused after ",
	jsonrpc.StopCancelled:       "cancelled after ",
}

func (r *run) summary(out Outcome, err error) []string {
	head := endings[out.StopReason]
	switch {
	case err != nil:
		head = "failed after "
	case head == "":
		head = fmt.Sprintf("stopped (%s) after ", out.StopReason)
	}
	parts := []string{head + duration(out.Elapsed), count(out.ToolCalls, "tool call", "tool calls")}
	if out.Refused > 0 {
		parts = append(parts, count(out.Refused, "question refused", "questions refused"))
	}
	if n := len(out.Images); n > 0 {
		parts = append(parts, count(n, "picture kept", "pictures kept"))
	}
	if r.opts.Summary != nil {
		parts = append(parts, r.opts.Summary(out)...)
	}
	return parts
}

func round(d time.Duration) float64 { return float64(d.Round(time.Millisecond)) / float64(time.Second) }

// remark says something of our own to the person, on standard error.
func (r *run) remark(s string) { r.screen.aside("handler: " + s + "\n") }

// A refusedError is a refusal by policy: an error whose data names a rule.
type refusedError struct{ verdict policy.Verdict }

func (e *refusedError) Error() string { return e.verdict.String() }
