package sessions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/fake"
)

// watched runs f in a bubble of its own time until it returns, and gives what it warned of and stopped for.
type watched struct {
	warnings []string
	stopped  *limitError
	at       time.Duration
}

// TestMemoryWatch has programs that take memory in their ways, in a time of the test's own.
func TestMemoryWatch(t *testing.T) {
	const limit = 300 << 20
	for name, c := range map[string]struct {
		used  func(time.Duration) int64 // exact
		extra func(time.Duration) int64 // what a glance has too much
		life  time.Duration
		// what must come of it
		stopped        bool
		over           int64 // most over the limit when it is stopped
		warned         int
		glances, stats int64 // most of them
	}{
		"idle":     {used: func(time.Duration) int64 { return 20 << 20 }, life: time.Minute, glances: 500},
		"steady":   {used: func(time.Duration) int64 { return 200 << 20 }, life: time.Minute, glances: 1500},
		"fastest":  {used: func(d time.Duration) int64 { return int64(d) * (2 << 30) / int64(time.Second) }, life: time.Second, stopped: true, over: 64 << 20, glances: 50, stats: 20},
		"creeping": {used: func(d time.Duration) int64 { return int64(d) * (10 << 20) / int64(time.Second) }, life: time.Minute, stopped: true, over: 1 << 20, warned: 1, glances: 2000, stats: 400},
		// A glance counts shared memory once a process: what it says is far over the limit, and wrong.
		"shared": {used: func(time.Duration) int64 { return 100 << 20 }, extra: func(time.Duration) int64 { return 500 << 20 }, life: time.Minute, glances: 1500, stats: 70},
		// Shared memory that a glance counts many times becomes memory of its own at the same speed.
		"exchanged": {used: func(d time.Duration) int64 { return 50<<20 + int64(d)*(100<<20)/int64(time.Second) }, extra: func(d time.Duration) int64 { return 8<<30 - int64(d)*(100<<20)/int64(time.Second) }, life: time.Minute, stopped: true, over: 110 << 20, warned: 1, glances: 1500, stats: 70},
		"near":      {used: func(time.Duration) int64 { return 290 << 20 }, life: 11 * time.Minute, warned: 2, glances: 1e6, stats: 1e6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.life)
				defer cancel()
				var got watched
				var glances, stats int64
				born := time.Now()
				w := &memoryWatch{
					memory: sandbox.Limit{Value: limit, Watched: true},
					glance: func(context.Context) (sandbox.Stats, error) {
						glances++
						s := sandbox.Stats{MemoryBytes: c.used(time.Since(born))}
						if c.extra != nil {
							s.MemoryBytes += c.extra(time.Since(born))
						}
						time.Sleep(100 * time.Microsecond) // of the bubble's time: what a look costs
						return s, nil
					},
					stats: func(context.Context) (sandbox.Stats, error) {
						stats++
						time.Sleep(2 * time.Millisecond) // of the bubble's time: what an exact look costs
						return sandbox.Stats{MemoryBytes: c.used(time.Since(born))}, nil
					},
					warn: func(text string) { got.warnings = append(got.warnings, text) },
					stop: func(e *limitError) { got.stopped = e; got.at = time.Since(born) },
					hint: func(string, string) string { return "" }, seen: func(sandbox.Stats) {},
				}
				w.run(ctx)
				if (got.stopped != nil) != c.stopped || len(got.warnings) != c.warned {
					t.Errorf("stopped %v, warnings %q", got.stopped, got.warnings)
				}
				if c.stopped && c.used(got.at) > limit+c.over {
					t.Errorf("stopped %d MiB over the limit", (c.used(got.at)-limit)>>20)
				}
				if glances > c.glances || stats > c.stats {
					t.Errorf("%d glances, %d exact looks", glances, stats)
				}
			})
		})
	}
}

// A warning that cannot be written for long, since the agent keeps the disk busy, does not keep the run from being ended.
func TestMemoryWatchLooksOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		born, limit := time.Now(), int64(300<<20)
		used := func(context.Context) (sandbox.Stats, error) {
			time.Sleep(time.Millisecond) // of the bubble's time: what a look costs
			return sandbox.Stats{MemoryBytes: int64(time.Since(born)) * (100 << 20) / int64(time.Second)}, nil
		}
		var stopped time.Duration
		(&memoryWatch{
			memory: sandbox.Limit{Value: limit, Watched: true}, glance: used, stats: used,
			warn: func(string) { time.Sleep(time.Minute) }, // of the bubble's time
			stop: func(*limitError) { stopped = time.Since(born) },
			hint: func(string, string) string { return "" }, seen: func(sandbox.Stats) {},
		}).run(t.Context())
		if stopped == 0 || stopped > 4*time.Second {
			t.Errorf("stopped after %v", stopped)
		}
	})
}

// What the kernel keeps is told of and not stopped.
func TestMemoryWatchWarnsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		full := func(context.Context) (sandbox.Stats, error) {
			return sandbox.Stats{MemoryBytes: 400 << 20, Processes: 90}, nil
		}
		warnings := 0
		(&memoryWatch{
			memory: sandbox.Limit{Value: 300 << 20}, processes: sandbox.Limit{Value: 100}, glance: full, stats: full,
			warn: func(string) { warnings++ }, stop: func(e *limitError) { t.Errorf("stopped: %v", e) },
			hint: func(string, string) string { return "" }, seen: func(sandbox.Stats) {},
		}).run(ctx)
		if warnings != 2 {
			t.Errorf("%d warnings, want one of memory and one of processes", warnings)
		}
	})
}

func TestProcessesWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stopped *limitError
		(&memoryWatch{
			processes: sandbox.Limit{Value: 100, Watched: true},
			glance:    func(context.Context) (sandbox.Stats, error) { return sandbox.Stats{Processes: 101}, nil },
			warn:      func(string) {}, stop: func(e *limitError) { stopped = e },
			hint: func(string, string) string { return "" }, seen: func(sandbox.Stats) {},
		}).run(t.Context())
		if stopped == nil || stopped.Error() != "process limit: used 101 of 100" {
			t.Errorf("%v", stopped)
		}
	})
}

func TestTimeWatch(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *timeWatch, born time.Time)
		after  time.Duration // when it is stopped; 0 for not within a day
		says   string
		warned string
	}{
		"nothing asked for": {func(*timeWatch, time.Time) {}, 0, "", ""},
		"lifetime":          {func(w *timeWatch, _ time.Time) { w.lifetime = 2 * time.Hour }, 2 * time.Hour, "lifetime limit: the run is 2 h old", "lifetime: 5 min left"},
		"idle": {func(w *timeWatch, born time.Time) {
			w.idle = 30 * time.Minute
			w.active = func() time.Time { return born.Add(time.Hour) }
		}, 90 * time.Minute, "idle limit: nothing was asked or answered for 30 min", ""},
		"in a turn all day": {func(w *timeWatch, _ time.Time) { w.idle, w.active = time.Minute, time.Now }, 0, "", ""},
		"state": {func(w *timeWatch, born time.Time) {
			w.state = 100 << 20
			w.measure = func(context.Context, int64) (stateUse, error) {
				return stateUse{bytes: int64(time.Since(born)/time.Minute) << 20}, nil
			}
		}, 100 * time.Minute, "state limit: used 100 MiB of 100 MiB", "state: 80 MiB of 100 MiB"},
		"state that is written fast": {func(w *timeWatch, born time.Time) {
			w.state = 1 << 30
			written := func() int64 { return int64(time.Since(born)/time.Second) * (200 << 20) }
			w.free = func() int64 { return 1<<40 - written() }
			w.measure = func(context.Context, int64) (stateUse, error) { return stateUse{bytes: written()}, nil }
		}, 6 * time.Second, "state limit: used 1.2 GiB of 1 GiB", ""},
		"too many files": {func(w *timeWatch, _ time.Time) {
			w.state = 1 << 30
			w.measure = func(context.Context, int64) (stateUse, error) { return stateUse{tooMany: "it has too many"}, nil }
		}, time.Nanosecond, "state limit: it has too many", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				born := time.Now()
				var stopped *limitError
				var warnings []string
				w := &timeWatch{born: born, active: func() time.Time { return born }, free: func() int64 { return -1 },
					machine: func() *limitError { return nil }, warn: func(s string) { warnings = append(warnings, s) },
					stop: func(e *limitError) { stopped = e }, hint: func(string, string) string { return "" }, seen: func(int64) {}}
				c.change(w, born)
				w.run(ctx)
				took := time.Since(born)
				if (stopped != nil) != (c.after > 0) || stopped != nil && (!strings.HasPrefix(stopped.Error(), c.says) || took > c.after+stateEvery) || took < c.after-time.Second {
					t.Errorf("after %v: %v", took, stopped)
				}
				if c.warned != "" && (len(warnings) != 1 || !strings.HasPrefix(warnings[0], c.warned)) {
					t.Errorf("warnings: %q", warnings)
				}
			})
		})
	}
}

// TestMeasureState has what an agent might leave to deceive: sparse files, many names of one, links out, closed folders.
func TestMeasureState(t *testing.T) {
	outside := t.TempDir()
	big := func(path string) {
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	big(filepath.Join(outside, "big"))
	dir := t.TempDir()
	big(filepath.Join(dir, "a"))
	for i := range 5 {
		if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, fmt.Sprint("a", i))); err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	closed := filepath.Join(dir, "closed")
	if err := errors.Join(sparse.Truncate(1<<40), os.Symlink(outside, filepath.Join(dir, "out")), os.Symlink(".", filepath.Join(dir, "loop")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Mkdir(closed, 0o700)); err != nil {
		t.Fatal(err)
	}
	big(filepath.Join(closed, "b"))
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) }) // so that it can be removed
	use, err := measureState(t.Context(), []string{dir}, 1<<40)
	if err != nil || use.tooMany != "" || use.bytes < 2<<20 || use.bytes > 2<<20+128<<10 {
		t.Errorf("%+v %v, want two files of 1 MiB and little more", use, err)
	}
	if use, err := measureState(t.Context(), []string{dir}, 1<<20); err != nil || use.bytes < 1<<20 {
		t.Errorf("stopped early: %+v %v", use, err)
	}
	deep := filepath.Join(t.TempDir(), strings.Repeat("d/", MaxStateDepth+2))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if use, err := measureState(t.Context(), []string{strings.Split(deep, "/d/")[0]}, 1<<40); err != nil || !strings.Contains(use.tooMany, "deep") {
		t.Errorf("deep: %+v %v", use, err)
	}
}

func TestMachineWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var memory, disk atomic.Int64
		memory.Store(8 << 30)
		disk.Store(8 << 30)
		m := newMachineWatch("/state")
		m.memory = func() (int64, int64, error) { return memory.Load(), 24 << 30, nil }
		m.disk = func(string) (int64, int64, error) { return disk.Load(), 100 << 30, nil }
		yes, no := func() bool { return true }, func() bool { return false }
		if end, warning := m.check(yes); end != nil || warning != "" || m.refuse() != nil {
			t.Errorf("all is well: %v %q", end, warning)
		}
		time.Sleep(machineEvery) // of the bubble's time
		memory.Store(100 << 20)
		if end, _ := m.check(no); end != nil {
			t.Errorf("a small run is ended: %v", end)
		}
		if end, _ := m.check(yes); end == nil || end.Limit != "machine" || m.refuse() == nil {
			t.Errorf("the biggest run is not ended: %v", end)
		}
		if end, _ := m.check(yes); end != nil {
			t.Errorf("the next is ended before the memory of the first could come back: %v", end)
		}
		time.Sleep(machineGrace) // of the bubble's time
		if end, _ := m.check(yes); end == nil {
			t.Error("the next is not ended")
		}
		time.Sleep(machineEvery) // of the bubble's time
		memory.Store(8 << 30)
		disk.Store(200 << 20)
		if end, warning := m.check(yes); end != nil || !strings.Contains(warning, "200 MiB is left") {
			t.Errorf("%v %q", end, warning)
		}
		time.Sleep(machineEvery) // of the bubble's time
		disk.Store(1 << 20)
		if end, _ := m.check(no); end == nil || end.Limit != "disk" || m.refuse() == nil {
			t.Errorf("%v", end)
		}
	})
}

// TestMemoryLimitReachesTheClient has a run whose sandbox grows in mid-turn, over the fake engine.
func TestMemoryLimitReachesTheClient(t *testing.T) {
	var used atomic.Int64
	used.Store(10 << 20)
	w := newWorld(t, fake.Options{Measure: func(_ string, s sandbox.Stats) sandbox.Stats {
		s.MemoryBytes = used.Load()
		return s
	}}, map[string]string{"web": plain})
	r, err := w.m.Start(t.Context(), types.RunRequest{Agent: "web", Cwd: w.scope, Limits: types.Limits{Memory: "300M"}})
	if err != nil {
		t.Fatal(err)
	}
	peer, done := join(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := peer.Call(ctx, "initialize", map[string]any{"protocolVersion": 1}, nil); err != nil {
		t.Fatal(err)
	}
	var session jsonrpc.NewSessionResult
	if err := peer.Call(ctx, "session/new", map[string]any{"cwd": w.scope, "mcpServers": []any{}}, &session); err != nil {
		t.Fatal(err)
	}
	used.Store(320 << 20)
	prompt := []map[string]any{{"type": "text", "text": "wait 300 s"}}
	err = peer.Call(ctx, "session/prompt", map[string]any{"sessionId": session.SessionID, "prompt": prompt}, nil)
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) || refused.Message != "the run was ended: memory limit: used 320 MiB of 300 MiB" || !strings.Contains(string(refused.Data), `"ended":"memory"`) {
		t.Errorf("the prompt's answer: %v", err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "memory limit") {
		t.Errorf("Serve: %v", err)
	}
	w.nothingLeft(t)
	w.audited(t, audit.KindStart, audit.KindLimit, audit.KindStop)
}

// TestIdleRunEnds has a client that says nothing.
func TestIdleRunEnds(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain + "[limits]\nidle = \"1s\"\n"})
	r, err := w.start(t, "web")
	if err == nil { // else the start took longer than that: a slow machine
		_, done := join(t, r)
		err = <-done
	}
	if err == nil || !strings.Contains(err.Error(), "idle limit") || !strings.Contains(err.Error(), "--idle") {
		t.Errorf("the run ended with %v", err)
	}
	w.nothingLeft(t)
}

func TestBadOverride(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	for _, l := range []types.Limits{{Memory: "300"}, {Memory: "1M"}, {Lifetime: "2 hours"}, {Idle: "-1s"}, {CPUs: -1}, {State: "x"}} {
		if _, err := w.m.Start(t.Context(), types.RunRequest{Agent: "web", Cwd: w.scope, Limits: l}); err == nil || !strings.Contains(err.Error(), "limits.") {
			t.Errorf("%+v: %v", l, err)
		}
	}
	w.nothingLeft(t)
}
