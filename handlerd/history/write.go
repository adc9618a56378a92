package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/store"
)

// A job is an event that waits to be written, or with no kind a session's changes alone.
type job struct {
	e      *entry
	event  types.Event     // Seq is set by the writer
	bytes  int             // what it takes in the queue
	result chan<- int64Err // nil where nobody waits
}

type int64Err struct {
	seq int64
	err error
}

// Queue records an event that nobody waits for. It never waits, and never fails: what cannot be kept is counted, and the
// session says so (types.EventCut). data is what the kind says, or its JSON as json.RawMessage, which must be valid; it is
// not copied. A session that is not known is no error.
func (s *Store) Queue(id, kind, update string, data any) { s.add(id, kind, update, data, nil) }

// Append records an event and returns its number when it is on the disk. Errors: ctx's, ErrClosed, and *fault.Fault where
// there is no such session or the disk does not take it; the event is then left out.
func (s *Store) Append(ctx context.Context, id, kind, update string, data any) (int64, error) {
	if err := s.load(ctx, id); err != nil {
		return 0, err
	}
	result := make(chan int64Err, 1)
	s.add(id, kind, update, data, result)
	select {
	case r := <-result:
		return r.seq, storeFault(r.err)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *Store) add(id, kind, update string, data any, result chan<- int64Err) {
	raw, ok := data.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(data); err != nil {
			s.log.Error("an event is not JSON", "kind", kind, "error", err)
			raw = json.RawMessage("{}")
		}
	}
	raw = Shorten(raw, MaxEventBytes)
	j := job{event: types.Event{Time: s.now(), Kind: kind, Update: cut(update, maxField), Data: raw}, bytes: len(raw) + 200, result: result}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.held[id]
	switch {
	case e == nil || e.removed:
		j.reply(0, noSession(id))
		return
	case s.closed:
		j.reply(0, ErrClosed)
		return
	case result == nil && s.queued+j.bytes > MaxQueueBytes:
		e.lose("events came faster than they could be written")
		return
	}
	j.e = e
	s.push(j)
}

// push queues a job. The caller holds mu.
func (s *Store) push(j job) {
	s.queue = append(s.queue, j)
	s.queued += j.bytes
	signal := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	signal(s.wake)
	if j.result != nil {
		signal(s.urgent)
	}
}

func (j *job) reply(seq int64, err error) {
	if j.result != nil {
		j.result <- int64Err{seq, err} // has room for it
	}
}

// lose counts an event that is left out. The caller holds mu.
func (e *entry) lose(why string) {
	e.lost++
	e.why = why
}

// write is the writer: it ends when the store was closed and nothing is queued any more.
func (s *Store) write() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			s.commit()
			return
		}
		timer.Reset(commitEvery)
		select {
		case <-timer.C:
		case <-s.urgent:
		case <-s.stop:
		}
		s.commit()
	}
}

// A batch is what one transaction writes.
type batch struct {
	jobs    []job
	entries []*entry
	plans   map[*entry]*plan
	durable bool
}

// A plan is what becomes of one session.
type plan struct {
	events  []types.Event
	row     row    // as it will be
	details []byte // of a row that changed; nil for none
	lost    int64  // of entry.lost that this says
}

// commit writes what is queued, in one transaction.
func (s *Store) commit() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	b := s.plan()
	s.mu.Unlock()
	if len(b.entries) == 0 {
		for _, j := range b.jobs {
			j.reply(0, noSession(""))
		}
		return
	}
	err := s.store(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(b, err)
}

// plan takes what is queued and numbers it. The caller holds writing and mu.
func (s *Store) plan() *batch {
	b := &batch{jobs: s.queue, plans: map[*entry]*plan{}}
	s.queue, s.queued = nil, 0
	for i := range b.jobs {
		j := &b.jobs[i]
		if j.e.removed {
			continue
		}
		p := b.plans[j.e]
		if p == nil {
			p = &plan{row: j.e.row, lost: j.e.lost}
			b.plans[j.e] = p
			b.entries = append(b.entries, j.e)
			p.row.Left += p.lost
		}
		b.durable = b.durable || j.result != nil || j.event.Kind == types.EventTurn || j.event.Kind == types.EventRun
		if j.event.Kind == "" {
			continue
		}
		if !s.fits(&p.row, j.event) {
			p.row.Left++
			if j.e.why == "" {
				j.e.why = "the session has as many events as are kept of one"
			}
			continue
		}
		p.add(&j.event)
	}
	for e, p := range b.plans {
		// The first of what is left out is said at once, the rest when a turn ends.
		if p.row.Left > e.said && (e.said == 0 || p.endsTurn()) && p.row.Events < s.opts.MaxEvents+lateEvents {
			said := types.EventCutData{Events: p.row.Left, Reason: e.why}
			data, _ := json.Marshal(said) // plain fields
			p.add(&types.Event{Time: s.now(), Kind: types.EventCut, Data: data})
		}
		if e.dirty {
			p.details, _ = json.Marshal(&p.row) // what it is made of was JSON or is plain
			e.dirty = false
		}
	}
	return b
}

// fits tells whether a session has room for an event.
func (s *Store) fits(r *row, e types.Event) bool {
	if r.Events < s.opts.MaxEvents && r.Bytes < s.opts.MaxSessionBytes {
		return true
	}
	switch e.Kind {
	case types.EventPrompt, types.EventTurn, types.EventRun:
		return r.Events < s.opts.MaxEvents+lateEvents
	}
	return false
}

func (p *plan) add(e *types.Event) {
	p.row.Events++
	e.Seq = p.row.Events
	p.row.Bytes += int64(len(e.Data))
	p.row.Updated = e.Time
	p.events = append(p.events, *e)
}

func (p *plan) endsTurn() bool {
	for _, e := range p.events {
		if e.Kind == types.EventTurn || e.Kind == types.EventRun {
			return true
		}
	}
	return false
}

// store writes a batch.
func (s *Store) store(b *batch) error {
	ctx := context.Background() // nobody's request
	mode := "PRAGMA synchronous = normal"
	if b.durable {
		mode = "PRAGMA synchronous = full" // brings what was written before to the disk, too
	}
	if _, err := s.db.ExecContext(ctx, mode); err != nil {
		return err
	}
	return s.db.Do(ctx, func(tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, "INSERT INTO events VALUES (?,?,?,?,?,?)")
		if err != nil {
			return err
		}
		defer insert.Close()
		for e, p := range b.plans {
			for _, event := range p.events {
				if _, err := insert.ExecContext(ctx, e.n, event.Seq, event.Time.UnixMilli(), event.Kind, event.Update, string(event.Data)); err != nil {
					return err
				}
			}
			if err := writeRow(ctx, tx, e.n, &p.row, p.details); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeRow updates a session's row, and with details what else is kept of it.
func writeRow(ctx context.Context, tx *sql.Tx, n int64, r *row, details []byte) error {
	v := r.view()
	_, err := tx.ExecContext(ctx, "UPDATE sessions SET cwd = ?, title = ?, run = ?, turn = ?, updated = ?, events = ?, bytes = ? WHERE n = ?",
		v.Cwd, v.Title, v.Run, v.Turn, v.Updated.UnixMilli(), r.Events, r.Bytes, n)
	if err != nil || details == nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO details VALUES (?,?) ON CONFLICT (n) DO UPDATE SET data = excluded.data", n, string(details))
	return err
}

// settle makes true in memory what is in the file, and answers who waits. The caller holds writing and mu.
func (s *Store) settle(b *batch, err error) {
	if err != nil {
		s.unwritten(b, err)
		return
	}
	if s.failing {
		s.failing = false
		s.log.Info("the sessions' history is written again")
	}
	for _, e := range b.entries {
		p := b.plans[e]
		s.total += p.row.Bytes - e.row.Bytes
		e.row.Events, e.row.Bytes, e.row.Updated, e.row.Left = p.row.Events, p.row.Bytes, p.row.Updated, p.row.Left
		e.lost -= p.lost
		e.remember(p.events)
		tell := p.details != nil
		for _, event := range p.events {
			switch event.Kind {
			case types.EventCut:
				e.said = e.row.Left
			case types.EventTurn, types.EventRun, types.EventPrompt:
				tell = true
			}
		}
		if len(p.events) > 0 {
			e.tell()
		}
		if tell {
			v := e.view()
			s.opts.Feed.Announce(types.Change{Session: &v})
		}
	}
	for i := range b.jobs {
		b.jobs[i].answer()
	}
}

// answer says what became of a job of a batch that is in the file.
func (j *job) answer() {
	switch {
	case j.e.removed && j.event.Seq == 0:
		j.reply(0, noSession(j.e.row.ID))
	case j.event.Kind != "" && j.event.Seq == 0:
		j.reply(0, boundError{})
	default:
		j.reply(j.event.Seq, nil)
	}
}

// unwritten drops a batch that the file did not take: what it had is counted, and is said when it takes something
// again. The caller holds mu.
func (s *Store) unwritten(b *batch, err error) {
	if !s.failing {
		s.failing = true
		s.log.Error("the sessions' history is not written", "error", err)
	}
	why := "they could not be written"
	if store.Full(err) {
		why = "the disk was full"
	}
	for i := range b.jobs {
		j := &b.jobs[i]
		if j.event.Kind != "" && !j.e.removed {
			j.e.lose(why)
		}
		j.reply(0, err)
	}
	for _, e := range b.entries {
		e.dirty = e.dirty || b.plans[e].details != nil
	}
}

// remember keeps the youngest events for who follows. The caller holds mu.
func (e *entry) remember(events []types.Event) {
	for _, event := range events {
		e.bytes += len(event.Data) + 200
	}
	e.recent = append(e.recent, events...)
	drop := 0
	for e.bytes > recentBytes && drop < len(e.recent)-1 {
		e.bytes -= len(e.recent[drop].Data) + 200
		drop++
	}
	if drop > 0 {
		e.recent = append([]types.Event(nil), e.recent[drop:]...)
	}
}

// boundError: a session is at its bounds.
type boundError struct{}

func (boundError) Error() string { return "the session has as many events as are kept of one" }
