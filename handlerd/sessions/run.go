package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/display"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// Why a run was ended from outside.
var (
	errKilled     = outsideError{"kill", "the run was killed (handler kill)"}
	errDaemonEnds = outsideError{"daemon", "handlerd was told to end"}
	errAborted    = errors.New("the client was gone before the run began")
)

// An outsideError is that a person ended the run: its client is told as it is of a limit (handlerd/acp), since the agent
// answered nothing wrong.
type outsideError struct{ what, text string }

func (e outsideError) Error() string { return e.text }

// Ended is what a client is told that waits for an answer.
func (e outsideError) Ended() (text string, data []byte) {
	return e.text, fmt.Appendf(nil, `{"ended":%q,"reason":%q}`, e.what, e.text) // plain ASCII, which JSON quotes as Go does
}

// A Run is one life of one sandbox and its ACP connection. It is made by Manager.Start; exactly one of Serve and
// Abort is called then.
type Run struct {
	m     *Manager
	id    string
	plan  *render.Plan
	since time.Time
	env   []policy.Pair // what the engine adds to the environment of the plan's MCP servers
	log   *runLog

	ctx    context.Context // done when the run must end; its cause says why
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when nothing of the run is left
	once   sync.Once     // of end

	// Set by start, in this order, and not changed after; end takes apart what is there.
	answers       *policy.Answers
	rulesOfScopes scopes.Config
	scopes        []openScope
	neverAsk      bool
	desk          *desk // nil unless the client is asked what Handler asks (H)
	egress        *egress.Server
	dir           *rundir.Dir
	hosted        hosted
	display       *display.Context
	screen        bool   // the sandbox has a display of its own
	sandbox       string // the engine's id
	agent         net.Conn
	browser       string

	state     atomic.Value // of types.State*
	working   atomic.Int32 // turns under way
	toolCalls atomic.Int64
	refused   atomic.Int64 // by the rules on messages

	memoryLimit, procLimit, cpuLimit types.Limit    // set by start, with who keeps them
	watching                         sync.WaitGroup // of the watchdog; the run's end waits for it
	memoryUsed, stateUsed            atomic.Int64   // bytes, as the watchdog saw them last
	touched                          atomic.Int64   // when the last ACP byte went either way: nanoseconds after since

	mu      sync.Mutex
	notices []string // protected by mu

	network   *liveNetwork
	verdicts  *limiter // of what the agent can have written down
	allowed   *limiter // of the questions that were answered yes
	calls     *limiter // of its calls of hosted tools
	troubles  troubles // of its connections
	shells    shells
	ports     ports
	takeovers takeovers
	pictures  *keeper
	recorder  *recorder
}

func newRun(m *Manager, id string, plan *render.Plan, log *runLog) *Run {
	// The run's context is nobody's request: it ends by cancel alone.
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &Run{m: m, id: id, plan: plan, since: time.Now(), log: log, ctx: ctx, cancel: cancel, gone: make(chan struct{}),
		verdicts: newLimiter(time.Now), allowed: newLimiter(time.Now), calls: newLimiter(time.Now), troubles: troubles{now: time.Now}, network: &liveNetwork{}}
	r.pictures = newKeeper(r)
	r.recorder = newRecorder(r)
	r.state.Store(types.StateStarting)
	return r
}

// ID is the run's short name.
func (r *Run) ID() string { return r.id }

// notice is something that the person should know of this run.
func (r *Run) notice(format string, args ...any) {
	text := printable(fmt.Sprintf(format, args...), maxNotice)
	r.log.add("handlerd", text)
	r.recorder.notice(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch n := len(r.notices); {
	case n < maxNotices-1:
		r.notices = append(r.notices, text)
	case n == maxNotices-1:
		r.notices = append(r.notices, "there are more notices: handler logs "+r.id)
	}
}

// start makes everything of the run, in the order of the fields above. What it has made when it fails is taken
// apart by end.
func (r *Run) start(ctx context.Context, req types.RunRequest) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()

	r.recorder.client = cmp.Or(req.Client, types.ClientEditor)
	// Before anything of it acts: a run that cannot be written down is none.
	if err := r.record(audit.Record{Kind: audit.KindStart, Subject: r.plan.Harness}); err != nil {
		return err
	}
	spec := r.plan.Sandbox
	for _, step := range []func(context.Context, types.RunRequest, *sandbox.Spec) error{
		r.readAnswers, r.openScopes, r.readSecrets, r.openNetwork, r.openDir, r.openHosted, r.openDisplay, r.finishSpec, r.startSandbox,
	} {
		if err := step(ctx, req, &spec); err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
				return fault.New(fault.Failed, "", "the start was given up: %v", cause)
			}
			return err
		}
	}
	r.state.Store(types.StateRunning)
	return nil
}

// startSandbox starts the sandbox and waits for its agent.
func (r *Run) startSandbox(ctx context.Context, _ types.RunRequest, spec *sandbox.Spec) error {
	id, err := r.m.opts.Driver.Start(ctx, *spec)
	if err != nil {
		return startFault(err, r.plan)
	}
	r.sandbox = id
	r.watch(spec.Limits, spec.Volumes)
	ctx, cancel := context.WithTimeoutCause(ctx, ConnectTimeout,
		fault.New(fault.Failed, "handler logs "+r.id, "the sandbox started but its agent did not connect within %v", ConnectTimeout))
	defer cancel()
	// A guest that ends before it connects would be waited for in vain.
	go func() {
		select {
		case <-r.dir.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	agent, err := r.dir.ACP(ctx)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return r.agentEnded(ctx)
	}
	r.agent = &activeConn{agent, r.touch}
	r.touch()
	return nil
}

// Serve joins client, a stream of ACP lines, to the agent until either ends or the run is killed. It returns when
// nothing of the run is left; client is closed.
func (r *Run) Serve(ctx context.Context, client net.Conn) error {
	defer context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })()
	err := r.relay(client)
	r.end(err)
	client.Close()
	return err
}

// Abort ends the run without a client.
func (r *Run) Abort() { r.end(errAborted) }

// end takes the run apart, in the reverse order of its making, and returns when nothing of it is left. It is
// idempotent; its own work is bounded by teardownLimit and not by anybody's context, since nothing may be left.
func (r *Run) end(cause error) {
	r.once.Do(func() {
		defer close(r.gone)
		defer r.m.forget(r)
		r.state.Store(types.StateStopping)
		r.cancel(cause)
		r.shells.end()
		r.ports.end()
		ctx, cancel := context.WithTimeout(context.Background(), teardownLimit)
		defer cancel()
		if r.agent != nil {
			r.agent.Close()
		}
		r.closeHosted()
		if r.sandbox != "" {
			r.warn("the sandbox was not stopped", r.m.opts.Driver.Stop(ctx, r.sandbox, StopGrace))
			err := r.m.opts.Driver.Remove(ctx, r.sandbox)
			r.warn("the sandbox was not removed", err)
			r.m.owe(r.sandbox, err)
		}
		if r.egress != nil {
			r.warn("the proxy was not closed", r.egress.Close())
			r.tellTrafficOf("", "", r.egress.Snapshot())
		}
		if r.display != nil {
			r.warn("the compositor's socket for the run was not closed", r.display.Close())
		}
		if r.dir != nil {
			r.warn("the run directory was not removed", r.dir.Close())
		}
		r.watching.Wait()
		r.pictures.close()
		r.recorder.end(cause)
		r.closeScopes()
		r.tellMissed(r.verdicts.rest() + r.allowed.rest() + r.calls.rest())
		text := "ended"
		if cause != nil {
			text = "ended: " + fault.Of(cause).Text
		}
		r.log.end(text, cause)
		short, _, _ := strings.Cut(text, "\n") // the rest is what the agent said, which may be anything
		r.audit(audit.Record{Kind: audit.KindStop, Subject: r.plan.Harness, Reason: short})
		r.log.close()
	})
	<-r.gone
}

func (r *Run) warn(what string, err error) {
	if err != nil {
		r.m.log.Error("run not taken apart", "run", r.id, "what", what, "error", err)
		r.log.add("handlerd", what+": "+err.Error())
	}
}

// agentEnded says that the agent has ended, how, and what it said last. It waits for the guest to tell, at most
// until ctx is done.
func (r *Run) agentEnded(ctx context.Context) *fault.Fault {
	select {
	case <-r.dir.Done():
	case <-ctx.Done():
	}
	res := r.dir.Result()
	f := &fault.Fault{Kind: fault.Failed, Hint: "handler logs " + r.id}
	switch {
	case strings.HasPrefix(res.Failed, "display: "):
		f.Text = "the sandbox's own display did not come up: " + strings.TrimPrefix(res.Failed, "display: ")
		f.Hint = "build the toolbox again (handler toolbox build), or run it without --display=vnc; handler logs " + r.id
	case res.Failed != "":
		f.Text = "the agent could not be started: " + res.Failed
	case res.Exited && res.Signal != "":
		f.Text = fmt.Sprintf("the agent %s was ended by signal %s", r.plan.Agent, res.Signal)
	case res.Exited:
		f.Text = fmt.Sprintf("the agent %s ended with exit code %d", r.plan.Agent, res.Code)
	default:
		f.Text = fmt.Sprintf("the sandbox of agent %s ended", r.plan.Agent)
	}
	if tail := lastLines(r.dir, 8); tail != "" {
		f.Text += "; it said last:\n" + tail
	}
	return f
}

// lastLines gives the last n lines of the agent's standard error.
func lastLines(dir *rundir.Dir, n int) string {
	end, _ := dir.Stderr()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(end), "·")), "\n")
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-n):], "\n"))
}

// audit writes down what was decided. A verdict that cannot be written ends the run: what follows it would not be
// written either, and an agent may be what filled the disk.
func (r *Run) audit(rec audit.Record) {
	if err := r.record(rec); err != nil {
		r.cancel(err)
	}
}

// record writes a line to the audit log. Whoever lets something happen that must be in it refuses when this fails.
func (r *Run) record(rec audit.Record) error {
	rec.Run, rec.Agent = r.id, r.plan.Agent
	err := r.m.opts.Audit.Append(rec)
	if err == nil {
		return nil
	}
	r.m.log.Error("audit line not written", "run", r.id, "kind", rec.Kind, "error", err)
	return fault.Wrap(fault.Failed, err, "free some space or mend the disk, then: handler audit verify",
		"nothing runs that cannot be written down")
}

// status describes the run now.
func (r *Run) status(ctx context.Context) types.Run {
	s := r.brief()
	if s.State == types.StateStarting {
		return s
	}
	stats, err := r.m.opts.Driver.Stats(ctx, r.sandbox)
	if err != nil {
		stats = sandbox.Stats{} // it is ending
	}
	r.usage(&s, stats)
	r.measureParts(ctx, s.Parts)
	return s
}

// announce tells the feed how the run is, without what it uses.
func (r *Run) announce() {
	if r.m.opts.Feed != nil {
		s := r.brief()
		r.m.opts.Feed.Announce(types.Change{Run: &s})
	}
}

// brief is status without what the sandbox uses, which takes time to find out.
func (r *Run) brief() types.Run {
	s := types.Run{
		ID: r.id, Agent: r.plan.Agent, Harness: r.plan.Harness, State: r.state.Load().(string), Turn: "idle", Since: r.since,
		Browser: r.browser, ToolCalls: int(r.toolCalls.Load()), Refused: r.refused.Load(), Parts: []types.Part{},
	}
	if r.working.Load() > 0 {
		s.Turn = "working"
	}
	r.mu.Lock()
	s.Notices = append([]string{}, r.notices...)
	r.mu.Unlock()
	if s.State == types.StateStarting {
		return s // start may be writing the fields below
	}
	switch {
	case r.screen:
		s.Display = types.DisplayVNC
	case r.display != nil:
		s.Display = types.DisplayWayland
	}
	for _, sc := range r.scopes {
		s.Scopes = append(s.Scopes, types.Scope{Path: sc.path, Mode: sc.mode()})
	}
	s.Asks = r.network.asks() && !r.neverAsk
	for _, rule := range r.network.get().Rules {
		if rule.Kind != policy.KindDeny {
			s.Hosts++
		}
	}
	for _, u := range r.plan.Upstreams {
		s.Providers = append(s.Providers, u.URL)
	}
	s.Parts = r.parts()
	if r.egress != nil {
		count := r.egress.Snapshot()
		s.Allowed += count.Allowed
		s.Refused += count.Refused
		s.Failed = count.Failed
		s.Traffic, _ = traffic(count, MaxTraffic)
	}
	return s
}
