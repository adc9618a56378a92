package sessions

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/view"
	"github.com/handlerd/handler/sandbox/fake"
)

// windows are those of a guarded browser that a test plays.
type windows struct {
	window *browser.Window
	err    error
	taking error // of TakeOver
}

func (w *windows) TakeOver(context.Context, string) (*browser.Hold, error) { return nil, w.taking }

func (w *windows) Window(string) (*browser.Window, error) { return w.window, w.err }

// TestViewRefused: what cannot be watched says so, and what to do.
func TestViewRefused(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	if _, err := w.m.Start(t.Context(), types.RunRequest{Agent: "web", Cwd: w.scope, Display: true, VNC: true}); err == nil ||
		fault.Of(err).Kind != fault.Usage || !strings.Contains(err.Error(), "not on both") {
		t.Errorf("both displays: %v", err)
	}
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	join(t, r)
	ask := func(what, says, hint string) {
		t.Helper()
		_, viewed := w.m.View(t.Context(), r.ID(), types.ViewRequest{What: what}, "")
		_, kept := w.m.Still(t.Context(), r.ID(), types.ViewRequest{What: what})
		for _, err := range []error{viewed, kept} {
			if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(fault.Of(err).Hint, hint) {
				t.Errorf("%q: %v, %q", what, err, fault.Of(err).Hint)
			}
		}
	}
	ask("screen", "nothing that can be watched", types.ViewBrowser)
	ask(types.ViewDisplay, "has no display of its own", "--display=vnc")
	ask(types.ViewBrowser, "has no guarded browser", "--placement playwright=hosted")
	played := &windows{err: browser.ErrNotOpen}
	w.m.opts.Browser, r.browser = played, types.BrowserGuarded
	ask(types.ViewBrowser, "is not open yet", "try again")
	played.err = browser.ErrNoWindow
	ask(types.ViewBrowser, "without a window", "--browser-view")
	if _, err := w.m.View(t.Context(), "none", types.ViewRequest{What: types.ViewDisplay}, ""); fault.Of(err).Kind != fault.NotFound {
		t.Errorf("no run: %v", err)
	}
	if _, err := w.m.Visit("AAAAAAAAAAAAAAAAAAAAAAAAAA", ""); fault.Of(err).Kind != fault.Refused {
		t.Errorf("no ticket: %v", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	played.err = nil
	played.window = &browser.Window{Context: ctx, Dial: func(context.Context) (net.Conn, error) { return nil, net.ErrClosed }}
	ticket, err := w.m.View(t.Context(), r.ID(), types.ViewRequest{What: types.ViewBrowser}, "ana")
	if err != nil || !ticket.ViewOnly || ticket.Path != types.PathView || ticket.Says == "" {
		t.Fatalf("%+v, %v", ticket, err)
	}
	if _, err := w.m.Visit(ticket.Ticket, "eva"); fault.Of(err).Kind != fault.Refused {
		t.Errorf("another's ticket: %v", err)
	}
	if ticket, err = w.m.View(t.Context(), r.ID(), types.ViewRequest{What: types.ViewBrowser}, "ana"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := w.m.Visit(ticket.Ticket, "ana"); err == nil {
		t.Error("a browser that is gone was visited")
	}
	if err := w.m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := w.m.views.Ticket(view.Grant{}); err != view.ErrClosed {
		t.Errorf("views outlive their manager: %v", err)
	}
}

// TestTakeoverRefused: what cannot be taken over says so, and what to do; giving back what nobody has is no error.
func TestTakeoverRefused(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	join(t, r)
	ask := func(kind fault.Kind, says, hint string) {
		t.Helper()
		_, err := w.m.Takeover(t.Context(), r.ID(), true, "")
		if err == nil || fault.Of(err).Kind != kind || !strings.Contains(err.Error(), says) || !strings.Contains(fault.Of(err).Hint, hint) {
			t.Errorf("%v, %q", err, fault.Of(err).Hint)
		}
	}
	ask(fault.Failed, "has no guarded browser", "--placement playwright=hosted")
	played := &windows{err: browser.ErrNotOpen}
	w.m.opts.Browser, r.browser, r.plan.Browser.View = played, types.BrowserGuarded, true
	ask(fault.Failed, "is not open yet", "try again")
	played.err = nil
	played.window = &browser.Window{Context: t.Context()}
	played.taking = &browser.TakenError{Since: time.Now().Add(-time.Minute)}
	ask(fault.Refused, "taken over 1m0s ago", "on the page that took it over")
	played.taking = browser.ErrNotOpen // it went in between
	ask(fault.Failed, "just opening", "try again")
	played.taking = errors.New("it did not answer\x1b[2J")
	ask(fault.Failed, "it did not answer", "try again")
	if _, err := w.m.Takeover(t.Context(), r.ID(), true, ""); strings.ContainsRune(err.Error(), '\x1b') {
		t.Errorf("an escape in %q", err)
	}
	if got, err := w.m.Takeover(t.Context(), r.ID(), false, ""); err != nil || got.On || !strings.Contains(got.Says, "Nobody had") {
		t.Errorf("given back by nobody: %+v, %v", got, err)
	}
	for _, on := range []bool{true, false} {
		if _, err := w.m.Takeover(t.Context(), "none", on, ""); fault.Of(err).Kind != fault.NotFound {
			t.Errorf("no run: %v", err)
		}
	}
}
