package browser

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// TestLazy: nothing of a browser exists before the first call that needs one, and a refused call is none.
func TestLazy(t *testing.T) {
	r := newRig(t, Limits{})
	r.refused("browser_snapshot", `{}`, "F.3", "browser_navigate")
	r.refused("browser_click", `{"target":"e2"}`, "F.3")
	for url, says := range map[string]string{
		"http://10.0.0.1:8080/":         "handler agent edit web --browser-network rules --private 10.0.0.1:8080",
		"http://localhost:5173/":        "opened as http://NAME.workspace.invalid/. A page of your person's own network they can allow: handler agent edit web --browser-network rules --private 127.0.0.1:5173",
		"http://[::1]/":                 "--private [::1]:80",
		"http://169.254.169.254/latest": "!--private",
	} {
		r.refused("browser_navigate", `{"url":"`+url+`"}`, "F.5", says)
	}
	r.refused("browser_nonsense", `{}`, "there is no tool", "tools/list")
	if n := r.started(); n != 0 {
		t.Fatalf("%d browsers were started", n)
	}
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`, `- button "Buy" [ref=e2]`, "written by the page", "http://shop.example.org")
	r.ok("browser_snapshot", `{}`)
	if n := r.started(); n != 1 {
		t.Fatalf("%d browsers were started", n)
	}
}

// TestGrant: nothing is served outside of a turn, in another session, or in a run that is over (F.2).
func TestGrant(t *testing.T) {
	r, w := atShop(t)
	r.b.TurnEnded("r", "s")
	if !w.isCut() {
		t.Error("the turn is over and the network is not cut")
	}
	r.refused("browser_snapshot", `{}`, "F.2", "no turn")
	r.b.TurnStarted("r", "s")
	r.ok("browser_snapshot", `{}`, "Buy")
	if w.isCut() {
		t.Error("the network is cut in a turn")
	}
	if got := text(r.callAs("r", "other", "browser_snapshot", `{}`)); !strings.Contains(got, "F.2") {
		t.Error(got)
	}
	r.b.TurnStarted("r", "other")
	if got := text(r.callAs("r", "other", "browser_click", `{"target":"e2"}`)); !strings.Contains(got, "there is no page yet") {
		t.Errorf("another session's page: %s", got)
	}
	r.mu.Lock()
	delete(r.policies, "r")
	r.mu.Unlock()
	r.refused("browser_snapshot", `{}`, "F.2", "the run is over")
}

// TestUnknownSession: where the session is not known, any turn of the run counts.
func TestUnknownSession(t *testing.T) {
	r := newRig(t, Limits{})
	if got := r.callAs("r", "", "browser_navigate", `{"url":"http://shop.example.org/"}`); got.IsError {
		t.Fatal(text(got))
	}
	r.b.TurnStarted("r", "second")
	r.b.TurnEnded("r", "s")
	if got := r.callAs("r", "", "browser_snapshot", `{}`); got.IsError {
		t.Fatal(text(got))
	}
	r.b.TurnEnded("r", "second")
	if got := text(r.callAs("r", "", "browser_snapshot", `{}`)); !strings.Contains(got, "F.2") || !r.worker().isCut() {
		t.Fatal(got)
	}
}

// TestCancel: a turn's end ends the call that is under way; a cancelled turn closes the browser, and everything of it is
// gone when TurnEnded returns.
func TestCancel(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		r, w := atShop(t)
		hanging := make(chan struct{})
		w.change(func(w *fakeWorker) { w.hang, w.hangTool = hanging, "browser_wait_for" })
		var wg sync.WaitGroup
		var got *mcp.CallToolResult
		wg.Go(func() { got = r.call("browser_wait_for", `{"text":"never"}`) })
		<-hanging
		if cancelled {
			r.b.TurnCancelled("r", "s")
			<-w.Done()
		} else {
			r.b.TurnEnded("r", "s")
		}
		wg.Wait()
		if !got.IsError || !strings.Contains(text(got), "turn") {
			t.Errorf("cancelled %v: %s", cancelled, text(got))
		}
		if closed := w.Err() != nil; closed != cancelled {
			t.Errorf("cancelled %v: the browser is closed: %v", cancelled, closed)
		}
		r.b.TurnStarted("r", "s")
		if cancelled {
			r.refused("browser_snapshot", `{}`, "its turn was cancelled", "browser_navigate")
		} else {
			r.ok("browser_snapshot", `{}`)
		}
	}
}

func TestEnds(t *testing.T) {
	r, w := atShop(t)
	r.b.SessionClosed("r", "s")
	if w.Err() == nil || r.gone != 1 {
		t.Error("the session is closed and its browser is not")
	}
	r.b.TurnStarted("r", "s")
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
	w = r.worker()
	r.b.RunEnded("r")
	if w.Err() == nil || len(r.holders()) != 0 {
		t.Error("the run is over and its browser is not")
	}
	r.refused("browser_snapshot", `{}`, "F.2")
	if err := r.b.Close(); err != nil {
		t.Fatal(err)
	}
	r.b.TurnStarted("r", "s")
	r.refused("browser_navigate", `{"url":"http://shop.example.org/"}`)
}

// TestCrash: it is told once, whether it came in the middle of a call or between two, and the next call starts afresh.
func TestCrash(t *testing.T) {
	r, w := atShop(t)
	hanging := make(chan struct{})
	w.change(func(w *fakeWorker) { w.hang, w.hangTool = hanging, "browser_wait_for" })
	go func() { <-hanging; w.die(errors.New("out of memory: 2 GiB of 2 GiB")) }()
	r.refused("browser_wait_for", `{"text":"x"}`, "F.8", "out of memory", "is not known", "browser_navigate")
	got := r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`, "Buy")
	if strings.Contains(got, "out of memory") || r.started() != 2 {
		t.Errorf("%d browsers; %s", r.started(), got)
	}
	w = r.worker()
	w.die(errors.New("playwright-mcp ended: exit status 1"))
	r.refused("browser_click", `{"target":"e2"}`, "exit status 1", "browser_navigate")
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`, "Buy", "!exit status")
	r.worker().die(errors.New("killed"))
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`, "The browser before is gone (killed)")
}

// TestCrashTakesTime: a worker is not gone at once when its playwright-mcp is; a call meanwhile waits for that and is told
// the same, and the next one starts afresh.
func TestCrashTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := atShop(t)
		why := errors.New("playwright-mcp ended with exit code 137")
		w.change(func(w *fakeWorker) { w.ending = why })
		time.AfterFunc(time.Second, func() { w.die(why) })
		r.refused("browser_wait_for", `{"text":"x"}`, "refused by F.8: the browser is gone: playwright-mcp ended with exit code 137", "is not known")
		r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`, "Buy", "!137")
		r.b.Close()
	})
}

func TestLaunchFails(t *testing.T) {
	r := newRig(t, Limits{Sessions: 1})
	r.failing = errors.New("no usable sandbox")
	r.refused("browser_navigate", `{"url":"http://shop.example.org/"}`, "F.1", "no usable sandbox", "tell your person")
	if n := len(r.holders()); n != 0 || r.gone != 1 {
		t.Errorf("%d places are held by what did not start, %d hosts given back", n, r.gone)
	}
	r.failing = nil
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
}

// TestCapacity: one browser too many is refused with who holds the places, and closing one makes room.
func TestCapacity(t *testing.T) {
	r := newRig(t, Limits{Sessions: 1})
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
	r.mu.Lock()
	r.policies["r2"] = r.policies["r"]
	r.mu.Unlock()
	r.b.TurnStarted("r2", "s")
	got := text(r.callAs("r2", "s", "browser_navigate", `{"url":"http://shop.example.org/"}`))
	r.has(got, "F.8", "1 browsers already", "run r of agent web", "idle for", "HANDLER_BROWSER_MAX_SESSIONS")
	r.ok("browser_close", `{}`)
	if got := r.callAs("r2", "s", "browser_navigate", `{"url":"http://shop.example.org/"}`); got.IsError {
		t.Error(text(got))
	}
}

// TestIdle: an attended browser ends when nothing was asked of it for long enough, and not while something is.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{Idle: time.Minute})
		r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
		w := r.worker()
		time.Sleep(50 * time.Second) // the bubble's clock: it takes no time
		r.ok("browser_snapshot", `{}`)
		time.Sleep(59 * time.Second) // the bubble's clock: it takes no time
		synctest.Wait()
		if w.Err() != nil {
			t.Fatal("it was ended too early")
		}
		time.Sleep(2 * time.Second) // the bubble's clock: it takes no time
		synctest.Wait()
		if w.Err() == nil || len(r.holders()) != 0 {
			t.Fatal("it was not ended")
		}
		r.refused("browser_snapshot", `{}`, "nothing was asked of it for 1m0s", "browser_navigate")
		r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
		r.b.Close()
	})
}

// TestLife: an unattended one ends at the end of its life, in use or not.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		r.setPolicy(func(p *Policy) { p.Unattended = true; p.Rules = allow("shop.example.org") })
		r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
		w := r.worker()
		for range 4 {
			time.Sleep(time.Minute) // the bubble's clock: it takes no time
			r.ok("browser_snapshot", `{}`)
		}
		hanging := make(chan struct{})
		w.change(func(w *fakeWorker) { w.hang, w.hangTool = hanging, "read" })
		time.Sleep(50 * time.Second) // the bubble's clock: it takes no time
		r.refused("browser_snapshot", `{}`, "browser")
		synctest.Wait()
		if w.Err() == nil {
			t.Fatal("it was not ended")
		}
		r.b.Close()
	})
}

// TestStuck: what takes too long is ended; a browser that answers nothing afterwards is closed, one that does is not.
func TestStuck(t *testing.T) {
	for _, dead := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Limits{})
			r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
			w := r.worker()
			w.change(func(w *fakeWorker) {
				w.hang, w.hangTool = make(chan struct{}), "browser_navigate"
				if dead {
					w.on["browser_navigate"] = nil
					w.deaf = true
				}
			})
			began := time.Now()
			if dead {
				r.refused("browser_navigate", `{"url":"http://shop.example.org/"}`, "F.8", "did not answer any more", "browser_navigate")
				r.refused("browser_snapshot", `{}`, "there is no page yet")
			} else {
				r.refused("browser_navigate", `{"url":"http://shop.example.org/"}`, "F.8", "did not load within 30s", "browser_snapshot")
				r.ok("browser_snapshot", `{}`)
			}
			if took := time.Since(began); took > OpTime+StuckTime {
				t.Errorf("it took %v", took)
			}
			if (w.Err() != nil) != dead {
				t.Errorf("deaf %v: the browser is closed: %v", dead, w.Err())
			}
			r.b.Close()
		})
	}
}

func TestLimits(t *testing.T) {
	got := Limits{Sessions: 99, Tabs: 99, Life: time.Hour}.whole()
	if got.Sessions != MaxSessions || got.Tabs != MaxTabs || got.Life != MaxLife || got.Idle != DefaultIdle {
		t.Errorf("%+v", got)
	}
	if got := (Limits{}).whole(); got.Sessions != DefaultSessions || got.Tabs != DefaultTabs || got.Life != DefaultLife {
		t.Errorf("%+v", got)
	}
}

// TestPersonsLimits: what the policy says of idle time and the sandbox counts over what the daemon says.
func TestPersonsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{Idle: time.Hour, Worker: WorkerLimits{Memory: 1, Storage: 2}})
		r.setPolicy(func(p *Policy) { p.Idle, p.Worker = time.Minute, WorkerLimits{Memory: 3 << 30, Processes: 7} })
		r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
		w := r.worker()
		if got := w.spec.Limits; got != (WorkerLimits{Memory: 3 << 30, Storage: 2, Processes: 7}) {
			t.Errorf("%+v", got)
		}
		time.Sleep(61 * time.Second) // the bubble's clock: it takes no time
		synctest.Wait()
		if w.Err() == nil {
			t.Error("it was not ended")
		}
		r.b.Close()
	})
}
