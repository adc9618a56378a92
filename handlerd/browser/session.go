package browser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/policy"
)

// Why a call is ended from outside.
var (
	errTurnOver    = errors.New("the turn that this call belongs to is over (F.2): nothing acts between turns")
	errSessionOver = errors.New("the session is over")
)

// A session is the browser of one caller: at most one worker, and what is known of its pages.
type session struct {
	b   *Browser
	key key

	// busy is held by the one call that is under way: playwright-mcp does one at a time.
	busy chan struct{}

	// Protected by b.mu.
	agent   string
	holding bool // a place among Limits.Sessions is its own: from before the worker starts until it is gone
	worker  Worker
	window  *Window                        // of the worker; nil where it has none
	hold    *Hold                          // of the person who has it in hand; nil where nobody has
	handed  time.Duration                  // for how long somebody had, until the agent has been told
	local   func(host string) http.Handler // nil without a worker
	done    func()                         // of local; nil for none
	since   time.Time
	calls   map[*context.CancelCauseFunc]struct{} // of calls under way
	idle    time.Time                             // since when no call is
	timers  []*time.Timer

	idleTime time.Duration // of the policy of the call that came last; 0 for the default

	entered []policy.Rule // hosts that the person let this browser go to, though its rules ask about them
	near    bool          // a page of the workspace may be open: see near.go
	served  int           // answers of the workspace's hosts
	lost    string        // why the browser before is gone, until the agent has been told

	// Of the call that holds busy.
	snapshot map[string]node // the newest snapshot's references; nil if none was read or it is used up (F.3)
	allowed  map[string]bool // origins that the person allowed in this browser
	masks    []string        // values of secret fields that were seen in this browser
	lookups  map[string]lookup
	frames   []string          // sites of frames that are not their page's own, as they were last
	events   []string          // downloads that upstream told of and that are not artifacts yet
	kept     int               // downloads that became artifacts
	pdfs     map[string]string // where artifacts lie in the sandbox of pdfsIn, by their ids
	pdfsIn   Worker
}

// session gives the caller's, made where there is none.
func (b *Browser) session(c gateway.Call) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errSessionOver
	}
	k := key{c.Caller.Run, c.Session}
	s := b.sessions[k]
	if s == nil {
		s = &session{b: b, key: k, busy: make(chan struct{}, 1), calls: map[*context.CancelCauseFunc]struct{}{}}
		b.sessions[k] = s
	}
	s.agent = c.Caller.Agent
	return s, nil
}

// begin checks the grant (F.2) and ties ctx to it: when the turn ends, so does ctx.
func (s *session) begin(ctx context.Context) (context.Context, func(), Policy, error) {
	policy, err := s.grant()
	if err != nil {
		return nil, nil, Policy{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.live(s.key) || b.sessions[s.key] != s {
		cancel(nil)
		return nil, nil, Policy{}, noTurn()
	}
	if taken := s.taken(); taken != nil {
		cancel(nil)
		return nil, nil, Policy{}, taken
	}
	s.calls[&cancel] = struct{}{}
	s.idleTime = policy.Idle
	s.stopTimers()
	if s.worker != nil {
		s.worker.AllowNetwork()
	}
	end := func() {
		cancel(nil)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(s.calls, &cancel)
		if len(s.calls) == 0 {
			s.idle = time.Now()
			s.startIdle()
		}
	}
	return ctx, end, policy, nil
}

// grant says whether the session may act now: the run is there, and a turn is under way.
func (s *session) grant() (Policy, error) {
	policy, there := s.b.o.Policy(s.key.run)
	if !there {
		return Policy{}, refuse("F.2", "the run is over", "")
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if !s.b.live(s.key) || s.b.sessions[s.key] != s {
		return Policy{}, noTurn()
	}
	if taken := s.taken(); taken != nil {
		return Policy{}, taken
	}
	return policy, nil
}

func noTurn() error {
	return refuse("F.2", "no turn of your session is under way", "The browser acts only between a prompt and its answer")
}

// interrupt ends the calls under way. The caller holds b.mu.
func (s *session) interrupt(cause error) {
	for cancel := range s.calls {
		(*cancel)(cause)
	}
}

// startIdle lets the browser end when it is idle long enough. The caller holds b.mu.
func (s *session) startIdle() {
	if s.worker == nil || s.hold != nil {
		return
	}
	idle, w := s.idleTime, s.worker
	if idle <= 0 {
		idle = s.b.o.Limits.Idle
	}
	s.timers = append(s.timers, time.AfterFunc(idle, func() {
		s.expire(w, fmt.Sprintf("nothing was asked of it for %v", idle), true)
	}))
}

// startLife bounds the life of an unattended run's browser, in use or not. The caller holds b.mu.
func (s *session) startLife(w Worker, life time.Duration) *time.Timer {
	if life <= 0 {
		life = s.b.o.Limits.Life
	}
	life = min(life, MaxLife)
	return time.AfterFunc(life, func() {
		s.expire(w, fmt.Sprintf("an unattended run's lives %v", life), false)
	})
}

// expire closes the worker w, if it is still the session's; ifIdle only where no call is under way.
func (s *session) expire(w Worker, why string, ifIdle bool) {
	s.b.mu.Lock()
	due := s.worker == w && (!ifIdle || len(s.calls) == 0) && !s.b.closed
	if due {
		s.b.wg.Add(1)
	}
	s.b.mu.Unlock()
	if due {
		defer s.b.wg.Done()
		s.closeThis(w, why)
	}
}

func (s *session) stopTimers() {
	for _, t := range s.timers {
		t.Stop()
	}
	s.timers = nil
}

// open gives the worker, started where there is none (F.1).
func (s *session) open(ctx context.Context, p Policy) (Worker, error) {
	b := s.b
	b.mu.Lock()
	if w := s.worker; w != nil {
		b.mu.Unlock()
		return w, nil
	}
	if !s.holding {
		if full := b.full(); full != nil {
			b.mu.Unlock()
			return nil, full
		}
	}
	s.holding, s.since = true, time.Now()
	b.mu.Unlock()
	w, err := s.launch(ctx, p)
	if err != nil {
		return nil, err
	}
	s.forget()
	return w, nil
}

// launch starts a worker for a session that holds a place, and gives the place back if that fails.
func (s *session) launch(ctx context.Context, p Policy) (Worker, error) {
	b := s.b
	var local func(string) http.Handler
	var done func()
	if b.o.Hosts != nil {
		local, done = b.o.Hosts(s.key.run, s.key.session)
	}
	begun, cancel := context.WithTimeout(ctx, LaunchTime)
	defer cancel()
	w, err := b.o.Launcher.Launch(begun, WorkerSpec{
		Run: s.key.run, Agent: p.Agent, Session: s.key.session, Network: s.network, Local: s.asLocal(local), Window: p.Window, Limits: p.Worker.over(b.o.Limits.Worker),
	})
	b.mu.Lock()
	gone := b.closed || b.sessions[s.key] != s || !b.live(s.key)
	if err == nil && !gone {
		s.worker, s.local, s.done = w, local, done
		s.openWindow(p.Window)
		var life *time.Timer
		if p.Unattended {
			life = s.startLife(w, p.Life)
		}
		b.wg.Go(func() { s.watch(w, life) })
		b.mu.Unlock()
		return w, nil
	}
	b.mu.Unlock()
	if err == nil {
		err = noTurn()
		s.closeLog(w)
	} else if cause := context.Cause(ctx); cause == nil {
		err = refuse("F.1", "the browser could not be started: "+err.Error(), "This is nothing that you can change: tell your person")
	} else {
		err = cause
	}
	if done != nil {
		done()
	}
	b.mu.Lock()
	s.holding = false
	b.mu.Unlock()
	return nil, err
}

// network is what the worker may reach, as of now: nothing, once the run is gone. Where the agent's rules ask about what
// they do not name, the hosts that the person let this browser go to are let through; a deny rule still wins.
func (s *session) network() network {
	p, _ := s.b.o.Policy(s.key.run)
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	switch {
	case s.near && p.Network.Unknown == policy.UnknownPublic:
		return s.nearNetwork(p)
	case p.Network.Unknown == policy.UnknownAsk:
		p.Network.Rules = append(p.Network.Rules[:len(p.Network.Rules):len(p.Network.Rules)], s.entered...)
	}
	return p.Network
}

// maxEntered bounds the hosts that one browser was let go to.
const maxEntered = 500

// enter remembers a place that the person let this browser go to. The caller holds busy.
func (s *session) enter(p place) {
	s.allowed[p.origin] = true
	s.let(p)
}

// let lets the worker reach a place.
func (s *session) let(p place) {
	rule, err := policy.ParseRule(policy.KindAllow, net.JoinHostPort(p.host, strconv.Itoa(int(p.port))), "you, for this browser")
	if err != nil {
		return // an address that is not public, which only a rule of the person's lets through
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if len(s.entered) < maxEntered && !slices.Contains(s.entered, rule) {
		s.entered = append(s.entered, rule)
	}
}

// Recheck cuts what a run's browsers have open and the rules refuse by now.
func (b *Browser) Recheck(run string) {
	b.mu.Lock()
	var workers []Worker
	for k, s := range b.sessions {
		if k.run == run && s.worker != nil {
			workers = append(workers, s.worker)
		}
	}
	b.mu.Unlock()
	for _, w := range workers {
		w.RecheckNetwork()
	}
}

// watch waits for the worker's end, whoever brings it about.
func (s *session) watch(w Worker, life *time.Timer) {
	<-w.Done()
	if life != nil {
		life.Stop()
	}
	s.closeThis(w, ended(w))
}

// closeWorker ends what the session has, and returns when it is gone.
func (s *session) closeWorker(why string) {
	s.b.mu.Lock()
	w := s.worker
	s.b.mu.Unlock()
	if w != nil {
		s.closeThis(w, why)
	}
}

// closeThis ends w, and if it was the session's, says why it is gone to the next call.
func (s *session) closeThis(w Worker, why string) {
	b := s.b
	b.mu.Lock()
	mine := s.worker == w
	done := s.done
	if mine {
		s.worker, s.local, s.done, s.lost = nil, nil, nil, why
		s.closeWindow(why)
		s.dropHold(why)
		s.stopTimers()
	}
	b.mu.Unlock()
	s.closeLog(w)
	if !mine {
		return
	}
	if done != nil {
		done()
	}
	b.mu.Lock()
	s.holding = false
	b.mu.Unlock()
}

func (s *session) closeLog(w Worker) {
	if err := w.Close(); err != nil {
		s.b.log.Error("a browser was not closed whole", "run", s.key.run, "error", err)
	}
}

// forget drops what was known of the browser before. The caller holds busy.
func (s *session) forget() {
	s.b.mu.Lock()
	s.entered, s.near = nil, false
	s.b.mu.Unlock()
	s.snapshot, s.allowed, s.masks, s.lookups, s.events, s.kept = nil, map[string]bool{}, nil, map[string]lookup{}, nil, 0
}

// tell gives, once, why the browser before is gone; "" if none is.
func (s *session) tell() string {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	why := s.lost
	s.lost = ""
	return why
}

// full is the error where there is room for no more browsers. The caller holds mu.
func (b *Browser) full() error {
	holders := b.holders()
	if len(holders) < b.o.Limits.Sessions {
		return nil
	}
	var by []string
	for _, h := range holders {
		text := fmt.Sprintf("run %s of agent %s", shorten(h.Run, 40), shorten(h.Agent, 40))
		if h.Idle > 0 {
			text += fmt.Sprintf(", idle for %v", h.Idle.Round(time.Second))
		}
		by = append(by, text)
	}
	return refuse("F.8", fmt.Sprintf("there are %d browsers already, and no more may be: %s", len(holders), strings.Join(by, "; ")),
		"Wait until one is idle, or tell your person: handler kill RUN, or HANDLER_BROWSER_MAX_SESSIONS (at most 8) of the daemon")
}

// holders is Holders with mu held.
func (b *Browser) holders() []holder {
	var all []holder
	for _, s := range b.sessions {
		if !s.holding {
			continue
		}
		h := holder{Run: s.key.run, Agent: s.agent, Session: s.key.session, Since: s.since}
		if len(s.calls) == 0 {
			h.Idle = time.Since(s.idle)
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(x, y holder) int { return x.Since.Compare(y.Since) })
	return all
}
