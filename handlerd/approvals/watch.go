package approvals

import (
	"context"
	"errors"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// ErrSlow ends a watcher that does not read what it is told; it no longer counts as somebody who is there.
var ErrSlow = errors.New("the watcher does not keep up with the questions")

// A Watcher is somebody who is there: while it is open, questions of its run, or of every run, are asked.
type Watcher struct {
	q      *Queue
	run    string
	wake   chan struct{}         // holds one token while events are there
	events []types.ApprovalEvent // protected by q.mu
	err    error                 // protected by q.mu
}

// Watch begins to watch a run, or with "" every run. The first event is types.ApprovalWatching, then what waits now.
// Whoever watches calls Close.
func (q *Queue) Watch(run string) (*Watcher, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.watchers) >= MaxWatchers {
		return nil, fault.New(fault.Failed, "close a page or a terminal that watches", "%d watch the approvals already, the most there can be", MaxWatchers)
	}
	w := &Watcher{q: q, run: run, wake: make(chan struct{}, 1)}
	w.add(types.ApprovalEvent{State: types.ApprovalWatching})
	for _, a := range q.list(run) {
		w.add(types.ApprovalEvent{State: types.ApprovalAsked, Approval: &a})
	}
	q.watchers[w] = true
	return w, nil
}

// Next gives the next event. It fails with ctx's error, and with ErrSlow when too many events waited.
func (w *Watcher) Next(ctx context.Context) (types.ApprovalEvent, error) {
	for {
		e, ok, err := w.pop()
		if ok || err != nil {
			return e, err
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return types.ApprovalEvent{}, ctx.Err()
		}
	}
}

func (w *Watcher) pop() (types.ApprovalEvent, bool, error) {
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	if len(w.events) == 0 {
		return types.ApprovalEvent{}, false, w.err
	}
	e := w.events[0]
	w.events = w.events[1:]
	return e, true, nil
}

// Close ends it. It is idempotent.
func (w *Watcher) Close() {
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	delete(w.q.watchers, w)
}

// add queues an event. The caller holds q.mu.
func (w *Watcher) add(e types.ApprovalEvent) {
	if len(w.events) >= maxEvents {
		w.events, w.err = nil, ErrSlow
		delete(w.q.watchers, w)
	} else {
		w.events = append(w.events, e)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// tell gives an event to who watches the entry's run. The caller holds mu.
func (q *Queue) tell(e *entry, event types.ApprovalEvent) {
	view := e.view()
	event.Approval = &view
	if q.opts.Changed != nil {
		q.opts.Changed(event)
	}
	for w := range q.watchers {
		if w.run == "" || w.run == e.q.Run {
			w.add(event)
		}
	}
}

// watched says whether anybody is there for a run. The caller holds mu.
func (q *Queue) watched(run string) bool {
	for w := range q.watchers {
		if w.run == "" || w.run == run {
			return true
		}
	}
	return false
}
