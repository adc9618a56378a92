package browser

import (
	"context"
	"strings"
	"testing"

	"github.com/handlerd/handler/sandbox"
)

// TestWindow: a browser can be watched while it is there, if it was started so, and says why it ended.
func TestWindow(t *testing.T) {
	r := newRig(t, Limits{})
	if _, err := r.b.Window("r"); err != ErrNotOpen {
		t.Errorf("before the first call: %v", err)
	}
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
	if _, err := r.b.Window("r"); err != ErrNoWindow || r.worker().spec.Window {
		t.Errorf("a browser without: %v", err)
	}
	r.b.RunEnded("r")
	r.setPolicy(func(p *Policy) { p.Window = true })
	r.b.TurnStarted("r", "s")
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
	w, err := r.b.Window("r")
	if err != nil || w.Session != "s" || !r.worker().spec.Window || w.Context.Err() != nil {
		t.Fatalf("a browser with one: %+v, %v", w, err)
	}
	r.b.RunEnded("r")
	<-w.Context.Done()
	if err := context.Cause(w.Context); err.Error() != "the browser is gone: its session is over" {
		t.Errorf("it ended: %v", err)
	}
	if _, err := r.b.Window("r"); err != ErrNotOpen {
		t.Errorf("after its end: %v", err)
	}
}

// TestLatestWindow: of several browsers of a run it is the one that was used last.
func TestLatestWindow(t *testing.T) {
	r := newRig(t, Limits{Sessions: 3})
	r.setPolicy(func(p *Policy) { p.Window = true })
	for _, session := range []string{"s", "two", "s"} {
		r.b.TurnStarted("r", session)
		if res := r.callAs("r", session, "browser_navigate", `{"url":"http://shop.example.org/"}`); res.IsError {
			t.Fatal(text(res))
		}
		if w, err := r.b.Window("r"); err != nil || w.Session != session {
			t.Errorf("after a call of %s: %+v, %v", session, w, err)
		}
	}
	r.b.SessionClosed("r", "s")
	if w, err := r.b.Window("r"); err != nil || w.Session != "two" {
		t.Errorf("after the end of s: %+v, %v", w, err)
	}
}

// TestWindowSandbox: with a window the sandbox has a display of its own for it, and else differs in nothing.
func TestWindowSandbox(t *testing.T) {
	with, without := sandboxSpec(WorkerSpec{Window: true}), sandboxSpec(WorkerSpec{})
	if d := with.Display; d == nil || *d != (sandbox.Display{Mode: sandbox.DisplayVNC, Width: 1280, Height: 807}) {
		t.Errorf("%+v", d)
	}
	if with.Env["HANDLER_SETTING_HEADLESS"] != "0" || without.Env["HANDLER_SETTING_HEADLESS"] != "1" || len(with.Env) != len(without.Env) {
		t.Errorf("%v, %v", with.Env, without.Env)
	}
	if strings.Join(with.Command, " ") != strings.Join(without.Command, " ") || with.Limits != without.Limits {
		t.Error("they differ in more")
	}
}
