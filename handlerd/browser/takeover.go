package browser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/gateway"
)

// Bounds of a take-over.
const (
	takeTime  = 15 * time.Second // for what is under way to end, and for the browser to answer
	typedTime = 5 * time.Second  // for the browser to say what was typed into its fields for secrets
)

// Why a call is ended, and a Hold.
var (
	errTaken = refuse("F.2", "your person has just taken this browser over. Whether this call did something is not known", takenHint)
	// ErrGivenBack is the cause of a Hold's end that GiveBack brought about.
	ErrGivenBack = errors.New("the browser was given back")
)

const takenHint = "Go on with what needs no browser, or end your turn and say what you wait for. Once it is given back, begin with browser_tabs and browser_snapshot"

// A TakenError says that somebody has the browser's mouse and keyboard already.
type TakenError struct{ Since time.Time }

func (e *TakenError) Error() string {
	return fmt.Sprintf("this browser was taken over %v ago, and was not given back", time.Since(e.Since).Round(time.Second))
}

// A Hold is a person's hold of one browser: its mouse and keyboard are theirs alone, and every tool of the agent's is
// refused. It lasts until GiveBack, or until the browser is gone.
type Hold struct {
	Session string // whose browser it is; "" where that is not known
	// Dial connects to the VNC server of its display, which takes pointer and keys. See Window.Dial.
	Dial func(ctx context.Context) (net.Conn, error)
	// Context is done when it ends; its cause says why.
	Context context.Context
	Since   time.Time

	s      *session
	worker Worker
	cancel context.CancelCauseFunc
	once   sync.Once
}

// TakeOver takes the browser of a run over, the one that Window gives. The calls under way are ended and their questions
// withdrawn; when it returns, nothing acts in the browser, no reference of the agent's counts any more, and the browser
// has its network, whether or not a turn is under way. Errors are those of Window, a *TakenError, or that the browser does
// not answer, or is where it must not be: then nobody has taken it over.
func (b *Browser) TakeOver(ctx context.Context, run string) (*Hold, error) {
	h, err := b.hold(run)
	if err != nil {
		return nil, err
	}
	timed, cancel := context.WithTimeoutCause(ctx, takeTime, fmt.Errorf("the browser did not answer within %v: try again, or wait until the agent has closed what hangs", takeTime))
	defer cancel()
	if err := h.quiet(timed); err != nil {
		h.drop(err)
		return nil, err
	}
	return h, nil
}

// hold takes the browser from the agent.
func (b *Browser) hold(run string) (*Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.windowed(run)
	switch {
	case err != nil:
		return nil, err
	case s.hold != nil:
		return nil, &TakenError{s.hold.Since}
	}
	// Nobody's request: it ends when it is given back.
	h := &Hold{Session: s.key.session, Dial: s.worker.DialHands, Since: time.Now(), s: s, worker: s.worker}
	h.Context, h.cancel = context.WithCancelCause(context.Background())
	s.hold = h
	s.stopTimers()
	s.interrupt(errTaken)
	return h, nil
}

// quiet waits until nothing acts in the browser any more: playwright-mcp does one thing at a time, so what it answers now
// is behind what was under way.
func (h *Hold) quiet(ctx context.Context) error {
	s := h.s
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.snapshot = nil
	u, err := h.use()
	if err != nil {
		return err
	}
	var modal *modalError
	if _, err := u.look(ctx, false); err != nil && !errors.As(err, &modal) { // the person answers a dialog themselves
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.hold == h {
		h.worker.AllowNetwork()
	}
	return context.Cause(h.Context)
}

// use is one of our own, and not of a call.
func (h *Hold) use() (*use, error) {
	p, there := h.s.b.o.Policy(h.s.key.run)
	if !there {
		return nil, errors.New("the run is over")
	}
	return &use{s: h.s, call: gateway.Call{Session: h.s.key.session}, policy: p, worker: h.worker}, nil
}

// GiveBack gives the browser back to the agent, once: between turns it has no network again. What stands in fields for
// secrets by then is masked in everything that the agent reads.
func (h *Hold) GiveBack() {
	h.once.Do(func() {
		// Its own time: whoever took it over may be gone.
		ctx, cancel := context.WithTimeout(h.s.b.ctx, typedTime)
		h.learn(ctx)
		cancel()
		h.drop(ErrGivenBack)
	})
}

// learn remembers what stands in fields for secrets. What cannot be looked at now is looked at by the agent's next call.
func (h *Hold) learn(ctx context.Context) {
	select {
	case h.s.busy <- struct{}{}:
		defer func() { <-h.s.busy }()
	case <-ctx.Done():
		return
	}
	h.s.b.mu.Lock()
	mine := h.s.hold == h
	h.s.b.mu.Unlock()
	u, err := h.use()
	if err != nil || !mine {
		return
	}
	var typed struct{ Fields []field }
	if u.probe(ctx, "typed", map[string]any{"tabs": MaxTabs}, &typed) == nil {
		h.s.remember(typed.Fields)
	}
}

// End makes Context done, for whoever shows the browser, while the agent's tools are still refused: GiveBack is to follow.
func (h *Hold) End() { h.cancel(ErrGivenBack) }

// drop ends the hold.
func (h *Hold) drop(why error) {
	b, s := h.s.b, h.s
	h.cancel(why)
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.hold != h {
		return // the browser is gone
	}
	s.hold = nil
	s.handed = time.Since(h.Since)
	if !b.live(s.key) {
		s.worker.CutNetwork()
	}
	if len(s.calls) == 0 {
		s.idle = time.Now()
		s.startIdle()
	}
}

// dropHold ends it with the browser. The caller holds b.mu.
func (s *session) dropHold(why string) {
	if s.hold != nil {
		s.hold.cancel(errors.New("the browser is gone: " + shorten(why, 300)))
		s.hold = nil
	}
}

// taken refuses what is asked of a browser that a person has. The caller holds b.mu.
func (s *session) taken() error {
	if s.hold == nil {
		return nil
	}
	return refuse("F.2", fmt.Sprintf("your person took this browser over %v ago and has not given it back yet", time.Since(s.hold.Since).Round(time.Second)), takenHint)
}

// back tells, once, that the browser was in a person's hands; "" if it was not.
func (s *session) back() string {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	handed := s.handed
	s.handed = 0
	if handed == 0 {
		return ""
	}
	return fmt.Sprintf("Your person had this browser in hand for %v and has given it back: its tabs and pages may be others, and references from before do not count.", handed.Round(time.Second))
}
