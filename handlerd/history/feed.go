package history

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// Bounds of a Feed.
const (
	MaxFeeds    = 64   // who follows it at one time
	maxChanges  = 4096 // that wait for one of them, which is given up then
	feedBetween = 100 * time.Millisecond
)

// ErrSlow ends a following that does not keep up. Who comes again asks for the whole first.
var ErrSlow = errors.New("the changes come faster than they are read")

// A Feed tells whoever follows it what is new in the lists of sessions, runs and approvals (K.2). It is safe for
// concurrent use and starts nothing.
type Feed struct {
	mu       sync.Mutex
	watchers map[*watcher]bool // protected by mu
}

// A watcher is one who follows. Of what changed twice it is told once.
type watcher struct {
	wake    chan struct{}  // holds a token while changes are there
	changes []types.Change // protected by the feed's mu
	at      map[string]int // protected by the feed's mu; indexes of changes by what they are about
	slow    bool           // protected by the feed's mu
}

// NewFeed makes a feed that nobody follows.
func NewFeed() *Feed { return &Feed{watchers: map[*watcher]bool{}} }

// Announce tells of a change. It is quick, and never waits.
func (f *Feed) Announce(c types.Change) {
	about := subject(c)
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		w.add(c, about)
	}
}

// subject says what a change is about, the same for those of which only the youngest counts.
func subject(c types.Change) string {
	switch {
	case c.Session != nil:
		return "session " + c.Session.ID
	case c.Removed != "":
		return "session " + c.Removed
	case c.Run != nil:
		return "run " + c.Run.ID
	case c.Ended != "":
		return "run " + c.Ended
	case c.Approval != nil && c.Approval.Approval != nil:
		return "approval " + c.Approval.Approval.ID
	case c.Agents:
		return "agents"
	}
	return ""
}

func (w *watcher) add(c types.Change, about string) {
	switch i, known := w.at[about]; {
	case known:
		w.changes[i] = c
	case len(w.changes) >= maxChanges:
		w.slow = true
	default:
		w.at[about] = len(w.changes)
		w.changes = append(w.changes, c)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Follow calls each once with nothing, when it misses nothing from there on, and then with what is new, a few at a time and
// at most ten times a second, until ctx is done or each fails. A
// session, a run or an approval is in it as it was when it changed last. Errors: ctx's, each's, ErrSlow, and a *fault.Fault
// where too many follow already.
func (f *Feed) Follow(ctx context.Context, each func([]types.Change) error) error {
	w := &watcher{wake: make(chan struct{}, 1), at: map[string]int{}}
	f.mu.Lock()
	if len(f.watchers) >= MaxFeeds {
		f.mu.Unlock()
		return fault.New(fault.Failed, "close a page or a terminal that watches", "%d follow what changes already, the most there can be", MaxFeeds)
	}
	f.watchers[w] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, w)
		f.mu.Unlock()
	}()
	if err := each(nil); err != nil { // who follows learns that nothing is missed from here on
		return err
	}
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		f.mu.Lock()
		changes, slow := w.changes, w.slow
		w.changes = nil
		clear(w.at)
		f.mu.Unlock()
		if slow {
			return ErrSlow
		}
		if len(changes) == 0 {
			continue // they were taken with those before, after a waking that came in between
		}
		if err := each(changes); err != nil {
			return err
		}
		select {
		case <-time.After(feedBetween):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
