package sessions

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/sandbox"
)

// Bounds and rates of the watchdog (A.4).
const (
	WarnPercent = 80 // of a limit, at which a run is told of it

	watchRate     = 2 << 30 // bytes a second: faster than programs take memory, so that the next look comes before they could
	watchSoonest  = 20 * time.Millisecond
	watchLatest   = time.Second
	watchStale    = time.Second // after which an exact number that the cheap one contradicts is asked for anew
	watchShare    = 4           // times of what a Stats took, that pass before the next one
	glanceShare   = 10          // the same of a Glance
	warnAgain     = 10 * time.Minute
	lifetimeWarn  = 5 * time.Minute // before the end of a run's lifetime, or a fifth of it if that is less
	tickEvery     = time.Second     // between looks at the times and the state
	stateEvery    = time.Minute     // between walks of the state when its file system says that nothing is written
	stateSoonest  = time.Second
	statePerShare = 4 // parts of what is left, of which one that is written causes a walk
)

// A limitError says that a run was ended at one of its limits. Its text is what the client, the log and the audit show.
type limitError struct {
	Limit         string // "memory", "state", "lifetime", "idle", "process", "disk" or "machine"
	Used, Allowed string
	Why           string // instead of used and allowed; "" for these
	Hint          string
}

func (e *limitError) Error() string {
	if e.Why != "" {
		return e.Limit + " limit: " + e.Why
	}
	return fmt.Sprintf("%s limit: used %s of %s", e.Limit, e.Used, e.Allowed)
}

// A memoryWatch keeps a run's memory and process limits where the kernel does not. It measures cheaply and often
// (Glance), more often the sooner the run could be at its limit, and exactly (Stats) only when the cheap and too high
// number has come near.
type memoryWatch struct {
	memory, processes sandbox.Limit
	glance, stats     func(context.Context) (sandbox.Stats, error)
	warn              func(text string)
	stop              func(*limitError)
	hint              func(limit, unlimited string) string
	seen              func(sandbox.Stats) // every exact number, and every glance that is below one

	exact     int64 // of the last Stats
	glanced   int64 // what Glance gave at the same time
	measured  time.Time
	took      time.Duration
	known     bool
	wrong     int // how often in a row the cheap number was at the limit and the exact one nowhere near
	warnedFor map[string]time.Time
	telling   sync.WaitGroup
	oneTells  sync.Mutex
}

// run watches until ctx is done or a limit is met, and returns when what it warned of is told.
func (w *memoryWatch) run(ctx context.Context) {
	defer w.telling.Wait()
	w.warnedFor = map[string]time.Time{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next, ended := w.look(ctx)
		if ended {
			return
		}
		timer.Reset(next)
	}
}

// look measures once. It gives when to look again, and whether the run was ended.
func (w *memoryWatch) look(ctx context.Context) (next time.Duration, ended bool) {
	began := time.Now()
	s, err := w.glance(ctx)
	if err != nil || ctx.Err() != nil {
		return watchLatest, false // the sandbox is ending, or is so busy that the next look may be luckier
	}
	cost := time.Since(began)
	if w.processesOver(s.Processes) {
		return 0, true
	}
	limit := w.memory.Value
	if limit <= 0 {
		w.seen(s)
		return max(watchLatest, glanceShare*cost), false
	}
	used := s.MemoryBytes
	if w.known {
		used = min(used, w.exact+max(0, used-w.glanced))
	}
	// At the limit by the cheap number there is no time to lose, unless that was wrong again and again.
	pressing := used >= limit && w.wrong < watchShare
	// What is subtracted, shared memory that was counted twice, may have become memory of its own without the cheap number
	// having grown: near the limit by that number alone, what is known grows old.
	stale := s.MemoryBytes*100 >= limit*WarnPercent && time.Since(w.measured) >= watchStale
	if pressing || (stale || used*100 >= limit*WarnPercent) && time.Since(w.measured) >= watchShare*w.took {
		glanced := s.MemoryBytes
		start := time.Now()
		if s, err = w.stats(ctx); err != nil || ctx.Err() != nil {
			return watchSoonest, false
		}
		w.exact, w.glanced, w.measured, w.took, w.known = s.MemoryBytes, glanced, start, time.Since(start), true
		used = s.MemoryBytes
		if used >= limit && w.memory.Watched {
			w.seen(s)
			w.stop(&limitError{Limit: "memory", Used: agents.Amount(used, limit), Allowed: agents.Amount(limit, limit), Hint: w.hint("memory", "")})
			return 0, true
		}
		if pressing {
			w.wrong++
		}
		if used*100 >= limit*WarnPercent {
			w.wrong = 0
			w.warnOnce("memory", fmt.Sprintf("memory: %s of %s used%s", agents.Amount(used, limit), agents.Amount(limit, limit), endsAt(w.memory.Watched)))
		}
	}
	s.MemoryBytes = used
	w.seen(s)
	next = time.Duration(float64(limit-used) / watchRate * float64(time.Second))
	return max(watchSoonest, glanceShare*cost, min(next, watchLatest)), false
}

// processesOver ends a run with more processes than its limit, where no kernel refuses them, and warns near it.
func (w *memoryWatch) processesOver(n int) bool {
	limit := w.processes.Value
	switch {
	case limit <= 0:
	case int64(n) > limit && w.processes.Watched:
		w.stop(&limitError{Limit: "process", Used: fmt.Sprint(n), Allowed: fmt.Sprint(limit), Hint: w.hint("processes", "")})
		return true
	case int64(n)*100 >= limit*WarnPercent:
		w.warnOnce("process", fmt.Sprintf("processes: %d of %d", n, limit))
	}
	return false
}

// warnOnce warns of a limit, at most every warnAgain.
func (w *memoryWatch) warnOnce(limit, text string) {
	if last, ok := w.warnedFor[limit]; ok && time.Since(last) < warnAgain {
		return
	}
	w.warnedFor[limit] = time.Now()
	w.telling.Go(func() { // a disk that the agent keeps busy must not keep the watch from looking
		w.oneTells.Lock()
		defer w.oneTells.Unlock()
		w.warn(text)
	})
}

func endsAt(watched bool) string {
	if watched {
		return "; the limit ends a run"
	}
	return ""
}

// A timeWatch keeps a run's lifetime, its idle time, the size of its state, and an eye on the machine.
type timeWatch struct {
	lifetime, idle time.Duration
	state          int64
	born           time.Time
	active         func() time.Time                                        // when the run last said or was told something; now, within a turn
	measure        func(ctx context.Context, most int64) (stateUse, error) // walks the state
	free           func() int64                                            // bytes that the state's file system has left; -1 for unknown
	machine        func() *limitError                                      // what is wrong with the machine so that this run must end
	warn           func(text string)
	stop           func(*limitError)
	hint           func(limit, unlimited string) string
	seen           func(state int64)

	warnedLife, warnedState bool
	used                    int64
	walked                  time.Time
	took                    time.Duration
	freeThen                int64
}

// run watches until ctx is done or a limit is met. Its times are of the monotonic clock: a clock that is set, or a
// machine that slept, ends nothing early.
func (w *timeWatch) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := w.look(ctx); err != nil {
			w.stop(err)
			return
		}
		timer.Reset(w.next())
	}
}

// next is how long nothing can come of a look: until a tick, the warning before the end, or the end.
func (w *timeWatch) next() time.Duration {
	next := tickEvery
	if left := w.lifetime - time.Since(w.born); w.lifetime > 0 {
		next = min(next, left)
		if !w.warnedLife {
			next = min(next, left-w.warnLife())
		}
	}
	if w.idle > 0 {
		next = min(next, w.idle-time.Since(w.active()))
	}
	return max(next, time.Millisecond)
}

// warnLife is how long before the end of its lifetime a run is told of it.
func (w *timeWatch) warnLife() time.Duration { return min(lifetimeWarn, w.lifetime/5) }

func (w *timeWatch) look(ctx context.Context) *limitError {
	for _, check := range []func(context.Context) *limitError{w.lookLife, w.lookIdle, w.lookState, func(context.Context) *limitError { return w.machine() }} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *timeWatch) lookLife(context.Context) *limitError {
	if w.lifetime <= 0 {
		return nil
	}
	left := w.lifetime - time.Since(w.born)
	if left <= 0 {
		return &limitError{Limit: "lifetime", Why: "the run is " + timeText(w.lifetime) + " old, which is all it was given", Hint: w.hint("lifetime", "none")}
	}
	if left <= w.warnLife() && !w.warnedLife {
		w.warnedLife = true
		w.warn("lifetime: " + timeText(left) + " left")
	}
	return nil
}

func (w *timeWatch) lookIdle(context.Context) *limitError {
	if w.idle <= 0 || time.Since(w.active()) < w.idle {
		return nil
	}
	return &limitError{Limit: "idle", Why: "nothing was asked or answered for " + timeText(w.idle), Hint: w.hint("idle", "none")}
}

// lookState walks the state when it could have grown near its limit: at once when a part of what is left was written
// to its file system, by whomever, else now and then.
func (w *timeWatch) lookState(ctx context.Context) *limitError {
	if w.state <= 0 {
		return nil
	}
	free := w.free()
	since := time.Since(w.walked)
	wrote := free >= 0 && w.freeThen-free > (w.state-w.used)/statePerShare
	if !w.walked.IsZero() && !(wrote && since >= max(stateSoonest, watchShare*w.took)) && since < max(stateEvery, 100*w.took) {
		return nil
	}
	began := time.Now()
	use, err := w.measure(ctx, w.state)
	if err != nil {
		return nil // such as a folder that goes away: the next walk sees
	}
	w.walked, w.took, w.used, w.freeThen = began, time.Since(began), use.bytes, free
	w.seen(use.bytes)
	switch {
	case use.tooMany != "":
		return &limitError{Limit: "state", Why: use.tooMany, Hint: w.hint("state", "none")}
	case use.bytes >= w.state:
		return &limitError{Limit: "state", Used: agents.Amount(use.bytes, w.state), Allowed: agents.Amount(w.state, w.state), Hint: w.hint("state", "none")}
	case use.bytes*100 < w.state*WarnPercent:
		w.warnedState = false
	case !w.warnedState:
		w.warnedState = true
		w.warn(fmt.Sprintf("state: %s of %s used; the limit ends a run", agents.Amount(use.bytes, w.state), agents.Amount(w.state, w.state)))
	}
	return nil
}

// timeText writes a time in the units that people use of it.
func timeText(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d >= time.Hour:
		if m := int(d.Minutes()) % 60; m != 0 {
			return fmt.Sprintf("%d h %d min", int(d.Hours()), m)
		}
		return fmt.Sprintf("%d h", int(d.Hours()))
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}
