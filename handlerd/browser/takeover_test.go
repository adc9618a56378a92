package browser

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// taken is a rig whose browser shows the shop and has a window.
func taken(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, Limits{})
	r.setPolicy(func(p *Policy) { p.Window = true })
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
	r.ok("browser_snapshot", `{}`)
	return r
}

func (r *rig) takeOver() *Hold {
	r.t.Helper()
	h, err := r.b.TakeOver(context.Background(), "r")
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// TestTakeOver: meanwhile every tool is refused, nobody else can take it, and afterwards no reference counts and the agent is
// told once; what was typed into a field for a secret is masked, in whatever tab.
func TestTakeOver(t *testing.T) {
	r := taken(t)
	h := r.takeOver()
	for _, tool := range []string{"browser_snapshot", "browser_navigate", "browser_take_screenshot", "browser_tabs"} {
		if got := text(r.call(tool, `{}`)); !strings.Contains(got, "your person took this browser over") || !strings.Contains(got, "refused by F.2") {
			t.Errorf("%s: %s", tool, got)
		}
	}
	var by *TakenError
	if _, err := r.b.TakeOver(context.Background(), "r"); !errors.As(err, &by) {
		t.Errorf("taken twice: %v", err)
	}
	r.worker().change(func(w *fakeWorker) {
		w.tabs = append(w.tabs, fakePage{url: "http://other.example.org/login", fields: []field{{element{Tag: "input", Type: "password"}, "correct horse"}}})
		w.current.title = "You wrote correct horse"
	})
	h.GiveBack()
	h.GiveBack()
	if h.Context.Err() == nil || context.Cause(h.Context) != ErrGivenBack {
		t.Errorf("its end: %v", context.Cause(h.Context))
	}
	r.worker().change(func(w *fakeWorker) { w.tabs = nil })
	got := text(r.call("browser_click", `{"target":"e2"}`))
	if !strings.Contains(got, "e2 is used up") || !strings.Contains(got, "has given it back") {
		t.Errorf("a reference from before: %s", got)
	}
	if got := text(r.call("browser_snapshot", `{}`)); strings.Contains(got, "given it back") || strings.Contains(got, "correct horse") || !strings.Contains(got, "You wrote "+masked) {
		t.Errorf("the next call: %s", got)
	}
	r.takeOver().GiveBack()
}

// TestTakeOverInterrupts: a call under way ends at once, with its question, and says why; what waits behind it is refused.
func TestTakeOverInterrupts(t *testing.T) {
	r := taken(t)
	asked, over := make(chan struct{}), make(chan error, 1)
	r.b.o.Ask = func(ctx context.Context, _ Question) (bool, error) {
		close(asked)
		<-ctx.Done()
		over <- context.Cause(ctx)
		return false, context.Cause(ctx)
	}
	said := make(chan string, 2)
	go func() { said <- text(r.call("browser_click", `{"target":"e2"}`)) }()
	<-asked
	go func() { said <- text(r.call("browser_snapshot", `{}`)) }()
	h := r.takeOver()
	defer h.GiveBack()
	if err := <-over; err != errTaken {
		t.Errorf("the question ended with %v", err)
	}
	for range 2 {
		if got := <-said; !strings.Contains(got, "taken this browser over") && !strings.Contains(got, "took this browser over") {
			t.Errorf("a call: %s", got)
		}
	}
	if r.worker().called("browser_click") > 0 {
		t.Error("it was clicked")
	}
}

// TestTakeOverBetweenTurns: a person has the network without a turn, keeps it when one ends or is cancelled, and gives it back.
func TestTakeOverBetweenTurns(t *testing.T) {
	r := taken(t)
	r.b.TurnEnded("r", "s")
	w := r.worker()
	if !w.isCut() {
		t.Fatal("between turns it has a network")
	}
	h := r.takeOver()
	if w.isCut() {
		t.Error("the person has no network")
	}
	r.b.TurnStarted("r", "s")
	r.b.TurnEnded("r", "s")
	r.b.TurnStarted("r", "s")
	r.b.TurnCancelled("r", "s")
	if w.isCut() || w.Err() != nil || h.Context.Err() != nil {
		t.Errorf("a turn's end: cut %v, %v, %v", w.isCut(), w.Err(), context.Cause(h.Context))
	}
	h.GiveBack()
	if !w.isCut() || w.Err() != nil {
		t.Errorf("given back between turns: cut %v, %v", w.isCut(), w.Err())
	}
	r.b.TurnStarted("r", "s")
	h = r.takeOver()
	h.GiveBack()
	if w.isCut() {
		t.Error("given back in a turn it has no network")
	}
}

// TestTakeOverIdle: a browser in a person's hands does not end as an idle one, and does once it is given back.
func TestTakeOverIdle(t *testing.T) {
	r := taken(t)
	timers := func() int {
		r.b.mu.Lock()
		defer r.b.mu.Unlock()
		return len(r.b.sessions[key{"r", "s"}].timers)
	}
	if timers() != 1 {
		t.Fatalf("%d timers of an idle browser", timers())
	}
	h := r.takeOver()
	if timers() != 0 {
		t.Error("it ends as an idle one, though somebody has it")
	}
	r.call("browser_snapshot", `{}`)
	if timers() != 0 {
		t.Error("and so after a call that was refused")
	}
	h.GiveBack()
	if timers() != 1 {
		t.Error("given back it does not end")
	}
}

// TestTakeOverEnds: a browser that goes takes the hold along, and its end says why; the agent's next call begins anew.
func TestTakeOverEnds(t *testing.T) {
	r := taken(t)
	h := r.takeOver()
	_ = r.worker().die(errors.New("out of memory"))
	<-h.Context.Done()
	if err := context.Cause(h.Context); !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("its end: %v", err)
	}
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
	h.GiveBack() // of a browser that is gone: the new one is nobody's
	r.ok("browser_snapshot", `{}`)
	if r.worker().called("typed") > 0 || r.worker().isCut() {
		t.Error("the new browser was treated as the old one")
	}

	h = r.takeOver()
	r.b.RunEnded("r")
	if err := context.Cause(h.Context); err == nil || !strings.Contains(err.Error(), "its session is over") {
		t.Errorf("the run's end: %v", err)
	}
	if _, err := r.b.TakeOver(context.Background(), "r"); err != ErrNotOpen {
		t.Errorf("after it: %v", err)
	}
}

// TestTakeOverFails: one that does not answer, or is where it must not be, stays the agent's.
func TestTakeOverFails(t *testing.T) {
	r := taken(t)
	r.worker().change(func(w *fakeWorker) { w.hang, w.hangTool = make(chan struct{}), "look" })
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, errors.New("late"))
	defer cancel()
	if _, err := r.b.TakeOver(ctx, "r"); err == nil || err.Error() != "late" {
		t.Errorf("a browser that hangs: %v", err)
	}
	r.ok("browser_snapshot", `{}`)
	r.worker().change(func(w *fakeWorker) { w.current.url = "http://10.0.0.1/" })
	if _, err := r.b.TakeOver(context.Background(), "r"); err == nil || !strings.Contains(err.Error(), "private") {
		t.Errorf("one at a private address: %v", err)
	}
	if _, err := r.b.TakeOver(context.Background(), "r"); err != ErrNotOpen {
		t.Errorf("after it was closed: %v", err)
	}
}
