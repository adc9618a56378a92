package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// A Filter says which sessions a list has; zero fields ask nothing.
type Filter struct {
	Agent string
	ACP   string // the agent's id of it
	Cwd   string
	Query string // in title, agent, folder, id or a prompt, whatever the case
	Live  bool
	// Before is the id of a session: only those that come after it in the list, the ones unused for longer.
	Before string
	Limit  int // MaxList if 0 or more
}

// List gives sessions, the last used first. Errors: ctx's and *fault.Fault.
func (s *Store) List(ctx context.Context, f Filter) ([]types.Session, error) {
	where, args := []string{"1"}, []any{}
	and := func(clause string, values ...any) {
		where, args = append(where, clause), append(args, values...)
	}
	if f.Agent != "" {
		and("agent = ?", f.Agent)
	}
	if f.ACP != "" {
		and("acp = ?", f.ACP)
	}
	if f.Cwd != "" {
		and("cwd = ?", f.Cwd)
	}
	if f.Live {
		and("run <> ''")
	}
	if f.Query != "" {
		like := "%" + strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(f.Query) + "%"
		and(`(title LIKE ? ESCAPE '\' OR agent LIKE ? ESCAPE '\' OR cwd LIKE ? ESCAPE '\' OR id LIKE ? ESCAPE '\' OR EXISTS (`+
			`SELECT 1 FROM events WHERE session = sessions.n AND kind = 'prompt' AND data LIKE ? ESCAPE '\'))`, like, like, like, like, like)
	}
	if f.Before != "" {
		id, err := s.find(ctx, f.Before)
		if err != nil {
			return nil, err
		}
		and("(updated, n) < (SELECT updated, n FROM sessions WHERE id = ?)", id)
	}
	limit := f.Limit
	if limit <= 0 || limit > MaxList {
		limit = MaxList
	}
	rows, err := s.db.QueryContext(ctx, "SELECT sessions.n, updated, events, bytes, data FROM sessions JOIN details USING (n) WHERE "+
		strings.Join(where, " AND ")+" ORDER BY updated DESC, sessions.n DESC LIMIT ?", append(args, limit)...)
	if err != nil {
		return nil, storeFault(err)
	}
	defer rows.Close()
	list := []types.Session{}
	for rows.Next() {
		e, err := scan(rows)
		if err != nil {
			return nil, storeFault(err)
		}
		list = append(list, e.view())
	}
	if err := rows.Err(); err != nil {
		return nil, storeFault(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		if e := s.held[list[i].ID]; e != nil { // what is in memory is younger
			list[i] = e.view()
		}
	}
	return list, nil
}

// scan reads a session of a query for n, updated, events, bytes, data.
func scan(from interface{ Scan(...any) error }) (*entry, error) {
	e := &entry{changed: make(chan struct{}), used: time.Now()}
	var updated, events, bytes int64
	var data string
	if err := from.Scan(&e.n, &updated, &events, &bytes, &data); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(data), &e.row); err != nil {
		return nil, fmt.Errorf("a session's row: %w", err)
	}
	e.row.Updated, e.row.Events, e.row.Bytes = time.UnixMilli(updated).UTC(), events, bytes
	e.said = e.row.Left
	return e, nil
}

// read reads a session from the file.
func (s *Store) read(ctx context.Context, id string) (*entry, error) {
	e, err := scan(s.db.QueryRowContext(ctx, "SELECT sessions.n, updated, events, bytes, data FROM sessions JOIN details USING (n) WHERE id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, noSession(id)
	}
	return e, err
}

// load has a session in memory, where it stays a while.
func (s *Store) load(ctx context.Context, id string) error {
	s.mu.Lock()
	e := s.held[id]
	if e != nil {
		e.used = time.Now()
	}
	s.mu.Unlock()
	if e != nil {
		return nil
	}
	e, err := s.read(ctx, id)
	if err != nil {
		return storeFault(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[id] == nil {
		s.held[id] = e
		s.forget()
	}
	return nil
}

// forget lets go of sessions that nobody uses. The caller holds mu.
func (s *Store) forget() {
	var idle []*entry
	for _, e := range s.held {
		if e.row.Run == "" && e.refs == 0 && !e.dirty && e.lost == 0 {
			idle = append(idle, e)
		}
	}
	if len(idle) <= maxIdle {
		return
	}
	for _, j := range s.queue {
		idle = slices.DeleteFunc(idle, func(e *entry) bool { return e == j.e })
	}
	slices.SortFunc(idle, func(a, b *entry) int { return a.used.Compare(b.used) })
	for _, e := range idle[:max(0, len(idle)-maxIdle)] {
		delete(s.held, e.row.ID)
	}
}

// find gives the id that begins with prefix.
func (s *Store) find(ctx context.Context, prefix string) (string, error) {
	if prefix == "" {
		return "", noSession("")
	}
	ids, err := s.ids(ctx, "SELECT id FROM sessions WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT 9", len(prefix), prefix)
	switch {
	case err != nil:
		return "", storeFault(err)
	case len(ids) == 0:
		return "", noSession(prefix)
	case len(ids) > 1 && ids[0] != prefix:
		return "", fault.New(fault.Usage, "type more of it: "+strings.Join(ids, ", "), "%q is the beginning of several sessions' ids", prefix)
	}
	return ids[0], nil
}

// Get gives the session whose id begins with prefix. Errors: ctx's and *fault.Fault.
func (s *Store) Get(ctx context.Context, prefix string) (types.Session, error) {
	id, err := s.find(ctx, prefix)
	if err != nil {
		return types.Session{}, err
	}
	if err := s.load(ctx, id); err != nil {
		return types.Session{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.held[id]
	if e == nil {
		return types.Session{}, noSession(id)
	}
	return e.view(), nil
}

// Events gives a session's events with numbers above after, in order: as many as are read at once, or at most limit
// where that is over 0; none for the end. id is a whole one. Errors: ctx's and *fault.Fault.
func (s *Store) Events(ctx context.Context, id string, after int64, limit int) ([]types.Event, error) {
	if err := s.load(ctx, id); err != nil {
		return nil, err
	}
	s.mu.Lock()
	e := s.held[id]
	if e == nil {
		s.mu.Unlock()
		return nil, noSession(id)
	}
	n := e.n
	s.mu.Unlock()
	events, err := s.events(ctx, n, after, limit)
	return events, storeFault(err)
}

func (s *Store) events(ctx context.Context, n, after int64, limit int) ([]types.Event, error) {
	if limit <= 0 || limit > readAtOnce {
		limit = readAtOnce
	}
	rows, err := s.db.QueryContext(ctx, "SELECT seq, time, kind, said, data FROM events WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?", n, after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var events []types.Event
	size := 0
	for size < readBytes && rows.Next() {
		var e types.Event
		var at int64
		var data []byte
		if err := rows.Scan(&e.Seq, &at, &e.Kind, &e.Update, &data); err != nil {
			return nil, err
		}
		e.Time, e.Data = time.UnixMilli(at).UTC(), data
		size += len(data)
		events = append(events, e)
	}
	return events, rows.Err()
}

// Follow calls each with a session's events with numbers above after, some at a time, and then with those that come, until
// ctx is done, each fails, or the session is removed, which is no error. id is a whole one. Whoever is slow gets them
// later, and holds up nobody. Errors: ctx's, each's, ErrClosed and *fault.Fault.
func (s *Store) Follow(ctx context.Context, id string, after int64, each func([]types.Event) error) error {
	e, err := s.hold(ctx, id)
	if err != nil {
		return err
	}
	defer s.release(e)
	for {
		events, changed, err := s.next(ctx, e, after)
		switch {
		case errors.Is(err, errRemoved):
			return nil
		case err != nil:
			return err
		case len(events) > 0:
			if err := each(events); err != nil {
				return err
			}
			after = events[len(events)-1].Seq
		default:
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// hold has a session in memory until release.
func (s *Store) hold(ctx context.Context, id string) (*entry, error) {
	if err := s.load(ctx, id); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.held[id]
	switch {
	case e == nil:
		return nil, noSession(id)
	case s.closed:
		return nil, ErrClosed
	case s.followers >= MaxFollowers:
		return nil, fault.New(fault.Failed, "close a page or a terminal that follows one", "%d follow sessions already, the most there can be", MaxFollowers)
	}
	s.followers++
	e.refs++
	return e, nil
}

func (s *Store) release(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers--
	e.refs--
}

var errRemoved = errors.New("the session was removed")

// next gives the events above after, or what to wait for.
func (s *Store) next(ctx context.Context, e *entry, after int64) ([]types.Event, <-chan struct{}, error) {
	s.mu.Lock()
	last, changed := e.row.Events, e.changed
	var events []types.Event
	if n := len(e.recent); n > 0 && after+1 >= e.recent[0].Seq {
		events = e.recent[min(int64(n), max(0, after+1-e.recent[0].Seq)):]
	}
	removed, closed := e.removed, s.closed
	s.mu.Unlock()
	switch {
	case removed:
		return nil, nil, errRemoved
	case closed:
		return nil, nil, ErrClosed
	case after > last || after < 0:
		return nil, nil, fault.New(fault.Usage, "ask from the beginning", "the session has %d events, and what comes after number %d was asked for", last, after)
	case len(events) > 0 || after == last:
		return events, changed, nil
	}
	events, err := s.events(ctx, e.n, after, 0)
	if err == nil && len(events) == 0 {
		err = errRemoved // meanwhile
	}
	if errors.Is(err, errRemoved) {
		return nil, nil, err
	}
	return events, changed, storeFault(err)
}

// harmless tells characters that neither hide nor reorder others.
func harmless(c rune) bool {
	return unicode.IsPrint(c) && !unicode.Is(unicode.Bidi_Control, c)
}
