package sessions

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/sandbox/fake"
)

// startSteps are the moments at which the engine can fail a start.
var startSteps = []fake.Step{fake.StepCheck, fake.StepFolders, fake.StepVolumes, fake.StepExec, fake.StepInfo, fake.StepList}

// TestStartGivenUp gives a start up at every step of the engine's, as a client does that goes away, and as handler kill
// does. Nothing is left, no goroutine and no descriptor, and the next start works.
func TestStartGivenUp(t *testing.T) {
	for how, giveUp := range map[string]func(w *world, cancel context.CancelFunc){
		"client": func(_ *world, cancel context.CancelFunc) { cancel() },
		"kill": func(w *world, _ context.CancelFunc) {
			w.m.mu.Lock()
			defer w.m.mu.Unlock()
			for _, r := range w.m.runs {
				r.cancel(errKilled)
			}
		},
	} {
		for _, step := range startSteps {
			t.Run(how+" at "+string(step), func(t *testing.T) {
				var w *world
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var armed atomic.Bool
				w = newWorld(t, fake.Options{Fault: func(s fake.Step, _ string) error {
					if s == step && armed.CompareAndSwap(true, false) {
						giveUp(w, cancel)
					}
					return nil
				}}, map[string]string{"web": plain})
				before := held(t)
				armed.Store(true)
				r, err := w.m.Start(ctx, types.RunRequest{Agent: "web", Cwd: w.scope})
				if err == nil {
					r.Abort() // it stood before it was given up, or the engine was asked before there was a run to kill
				}
				w.nothingLeft(t)
				if r, err = w.start(t, "web"); err != nil {
					t.Fatal(err)
				}
				r.Abort()
				w.nothingLeft(t)
				before.want(t)
			})
		}
	}
}

// TestStartRollsBackOurs fails every step of a start that is not the engine's. Nothing is left of it.
func TestStartRollsBackOurs(t *testing.T) {
	for name, c := range map[string]struct {
		agent string
		req   types.RunRequest
		spoil func(w *world)
	}{
		"scope gone":    {plain + "[[scopes]]\npath = \"~/nowhere\"\n", types.RunRequest{}, nil},
		"no display":    {plain, types.RunRequest{Display: true}, nil},
		"run folder":    {plain, types.RunRequest{}, func(w *world) { write(t, w.runRoot, "a file where a folder belongs") }},
		"agent unknown": {"harness = \"nobody\"\n", types.RunRequest{}, nil},
		"agent dies":    {"harness = \"dies\"\nbindings = {}\n", types.RunRequest{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fake.Options{}, map[string]string{"web": c.agent})
			before := held(t)
			if c.spoil != nil {
				c.spoil(w)
			}
			c.req.Agent, c.req.Cwd = "web", w.scope
			r, err := w.m.Start(t.Context(), c.req)
			switch {
			case err == nil && name != "agent dies":
				t.Error("it started")
			case err == nil:
				r.Abort()
			}
			if c.spoil != nil {
				if err := os.Remove(w.runRoot); err != nil {
					t.Error(err)
				}
			}
			w.nothingLeft(t)
			before.want(t)
		})
	}
}

// TestOwed has an engine that cannot remove a sandbox at first. The next start removes it.
func TestOwed(t *testing.T) {
	var broken atomic.Bool
	w := newWorld(t, fake.Options{Fault: func(s fake.Step, _ string) error {
		if s == fake.StepRemove && broken.Load() {
			return errors.New("broken on purpose")
		}
		return nil
	}}, map[string]string{"web": plain})
	broken.Store(true)
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	r.Abort()
	if list, err := w.driver.List(t.Context(), nil); err != nil || len(list) != 1 {
		t.Fatalf("the engine removed it all the same: %v %v", list, err)
	}
	broken.Store(false)
	if r, err = w.start(t, "web"); err != nil {
		t.Fatal(err)
	}
	if list, err := w.driver.List(t.Context(), nil); err != nil || len(list) != 1 {
		t.Errorf("the first one's sandbox is still there: %v %v", list, err)
	}
	r.Abort()
	w.nothingLeft(t)
}

// A holding is what this process holds.
type holding struct{ goroutines, descriptors int }

func held(t *testing.T) holding {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return holding{runtime.NumGoroutine(), len(entries)}
}

// want waits until there is no more than before: a goroutine ends a moment after it was told to.
func (h holding) want(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); ; <-tick.C {
		now := held(t)
		if now.goroutines <= h.goroutines && now.descriptors <= h.descriptors {
			return
		}
		if time.Now().After(end) {
			t.Errorf("before %+v, after %+v", h, now)
			return
		}
	}
}
