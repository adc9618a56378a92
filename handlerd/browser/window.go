package browser

import (
	"context"
	"errors"
	"net"
)

// Errors of Browser.Window.
var (
	// ErrNotOpen: the run has no browser now. One starts with the agent's first call.
	ErrNotOpen = errors.New("no browser is open")
	// ErrNoWindow: its browser was started without a window (Policy.Window).
	ErrNoWindow = errors.New("the browser has no window")
)

// A Window is the display of one browser, for whoever watches it.
type Window struct {
	Session string // whose browser it is; "" where that is not known
	// Dial connects to the display's VNC server. What it says comes from a sandbox with pages in it: it is not believed.
	Dial func(ctx context.Context) (net.Conn, error)
	// Context is done when the browser is gone; its cause says why.
	Context context.Context

	cancel context.CancelCauseFunc
}

// Window gives the window of a run's browser; where the run has several, that of the one that was used last. Errors are
// ErrNotOpen and ErrNoWindow.
func (b *Browser) Window(run string) (*Window, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.windowed(run)
	if err != nil {
		return nil, err
	}
	return s.window, nil
}

// windowed is the session whose window Window gives. The caller holds mu.
func (b *Browser) windowed(run string) (*session, error) {
	s := b.latest(run)
	switch {
	case s == nil:
		return nil, ErrNotOpen
	case s.window == nil:
		return nil, ErrNoWindow
	}
	return s, nil
}

// latest is the session of a run whose browser a person has in hand, else that is in use, or was last; nil where none has
// a browser. The caller holds mu.
func (b *Browser) latest(run string) *session {
	var last *session
	for _, s := range b.sessions {
		if s.key.run != run || s.worker == nil {
			continue
		}
		if s.hold != nil {
			return s
		}
		if last == nil || len(s.calls) > 0 && len(last.calls) == 0 || (len(s.calls) > 0) == (len(last.calls) > 0) && s.idle.After(last.idle) {
			last = s
		}
	}
	return last
}

// openWindow makes the window of the session's worker. The caller holds b.mu.
func (s *session) openWindow(has bool) {
	if !has {
		return
	}
	// Nobody's request: it ends with the worker.
	ctx, cancel := context.WithCancelCause(context.Background())
	s.window = &Window{Session: s.key.session, Dial: s.worker.DialScreen, Context: ctx, cancel: cancel}
}

// closeWindow ends it. The caller holds b.mu.
func (s *session) closeWindow(why string) {
	if s.window != nil {
		s.window.cancel(errors.New("the browser is gone: " + shorten(why, 300)))
		s.window = nil
	}
}
