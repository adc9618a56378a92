package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// Begin says that a session is open in a run: a new one, or one that is known by its agent and the agent's id of it and
// goes on. Of a known one it keeps the id, the title, the time of its making and its events. It returns when the session
// is in the file, and tells whether it was known. Errors are *fault.Fault.
func (s *Store) Begin(ctx context.Context, session types.Session) (_ types.Session, known bool, _ error) {
	if session.Agent == "" || session.ACP == "" || len(session.ACP) > maxField || !utf8.ValidString(session.ACP) {
		return types.Session{}, false, fault.New(fault.Usage, "", "a session whose id is empty, no text, or longer than %d bytes is not kept", maxField)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	id, err := s.idOf(ctx, session.Agent, session.ACP)
	if err != nil {
		return types.Session{}, false, storeFault(err)
	}
	session.Cwd, session.Title = cut(session.Cwd, 4*maxField), ""
	session.Turn = cmp.Or(session.Turn, "idle")
	session.Modes, session.Options, session.Commands, session.Usage = said(session.Modes), said(session.Options), said(session.Commands), said(session.Usage)
	session.Updated = s.now()
	if id == "" {
		v, err := s.insert(ctx, session)
		return v, false, storeFault(err)
	}
	if err := s.load(ctx, id); err != nil {
		return types.Session{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.held[id]
	if e == nil {
		return types.Session{}, false, noSession(id)
	}
	r := &e.row
	session.ID, session.Created, session.Events, session.Title = r.ID, r.Created, r.Events, r.Title
	session.Cwd = cmp.Or(session.Cwd, r.Cwd)
	if session.Commands == nil {
		session.Commands = r.Commands
	}
	if session.Usage == nil {
		session.Usage = r.Usage
	}
	r.Session = session
	s.changedRow(e, nil)
	return e.view(), true, nil
}

// idOf gives the id of the session that an agent knows by its own id; "" for none.
func (s *Store) idOf(ctx context.Context, agent, acp string) (id string, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT id FROM sessions WHERE agent = ? AND acp = ?", agent, acp).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, err
}

// Known gives the id of the session that an agent knows by its own id; "" for none. It reads the file.
func (s *Store) Known(ctx context.Context, agent, acp string) (string, error) {
	id, err := s.idOf(ctx, agent, acp)
	return id, storeFault(err)
}

// insert makes a session. The caller holds writing.
func (s *Store) insert(ctx context.Context, session types.Session) (types.Session, error) {
	if err := s.prune(ctx); err != nil {
		return types.Session{}, err
	}
	session.Created, session.Events = session.Updated, 0
	var n int64
	for range 100 {
		session.ID = newID()
		r := row{Session: session}
		details, err := json.Marshal(&r)
		if err != nil {
			return types.Session{}, err
		}
		taken := false
		err = s.db.Do(ctx, func(tx *sql.Tx) error {
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sessions WHERE id = ?", session.ID).Scan(&taken); err != nil || taken {
				return err
			}
			res, err := tx.ExecContext(ctx, "INSERT INTO sessions (id, agent, acp, cwd, title, run, turn, created, updated, events, bytes) VALUES (?,?,?,?,'','','',?,0,0,0)",
				session.ID, session.Agent, session.ACP, session.Cwd, session.Created.UnixMilli())
			if err != nil {
				return err
			}
			if n, err = res.LastInsertId(); err != nil {
				return err
			}
			return writeRow(ctx, tx, n, &r, details)
		})
		if err != nil {
			return types.Session{}, err
		}
		if taken {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		e := &entry{n: n, row: r, changed: make(chan struct{}), used: time.Now()}
		s.held[session.ID] = e
		v := e.view()
		s.opts.Feed.Announce(types.Change{Session: &v})
		return v, nil
	}
	return types.Session{}, errors.New("no free id of a session was found")
}

// prune makes room for a session: those without a run that were unused for longest go. The caller holds writing.
func (s *Store) prune(ctx context.Context) error {
	for {
		var count int64
		if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM sessions").Scan(&count); err != nil {
			return err
		}
		s.mu.Lock()
		total := s.total
		s.mu.Unlock()
		if count < s.opts.MaxSessions && total < s.opts.MaxTotalBytes {
			return nil
		}
		var id, title string
		err := s.db.QueryRowContext(ctx, "SELECT id, title FROM sessions WHERE run = '' ORDER BY updated, n LIMIT 1").Scan(&id, &title)
		if errors.Is(err, sql.ErrNoRows) {
			if count < s.opts.MaxSessions {
				return nil // live ones have bounds of their own
			}
			return fault.New(fault.Refused, "end some: handler ps, handler kill RUN", "%d sessions are live, the most that are kept", count)
		}
		if err != nil {
			return err
		}
		s.log.Info("the oldest session is removed to make room for a new one", "session", id, "title", title, "sessions", count, "bytes", total)
		if err := s.remove(ctx, id); err != nil {
			return err
		}
	}
}

// Change changes a session and returns when that is on the disk. Of what f changes, its id, its agent's id and how many
// events it has stay as they were; a title goes by [Store.Rename]. f must be quick. Errors: ctx's, ErrClosed, *fault.Fault.
func (s *Store) Change(ctx context.Context, id string, f func(*types.Session)) error {
	return s.change(ctx, id, func(r *row) { f(&r.Session) })
}

// Rename gives a session the person's title; "" goes back to the agent's. Errors are as those of [Store.Change].
func (s *Store) Rename(ctx context.Context, id, title string) error {
	if len(title) > maxTitle {
		return fault.New(fault.Usage, "", "a title has at most %d bytes", maxTitle)
	}
	return s.change(ctx, id, func(r *row) { r.Given = line(title) })
}

func (s *Store) change(ctx context.Context, id string, f func(*row)) error {
	if err := s.load(ctx, id); err != nil {
		return err
	}
	result := make(chan int64Err, 1)
	s.mu.Lock()
	if err := s.edit(id, f, result); err != nil {
		s.mu.Unlock()
		return err
	}
	s.mu.Unlock()
	select {
	case r := <-result:
		return storeFault(r.err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// edit changes a session that is in memory. The caller holds mu.
func (s *Store) edit(id string, f func(*row), result chan<- int64Err) error {
	e := s.held[id]
	switch {
	case e == nil || e.removed:
		return noSession(id)
	case s.closed:
		return ErrClosed
	}
	kept := e.row
	f(&e.row)
	r := &e.row
	r.ID, r.Agent, r.ACP, r.Created, r.Events, r.Title = kept.ID, kept.Agent, kept.ACP, kept.Created, kept.Events, kept.Title
	r.Modes, r.Options, r.Commands, r.Usage = said(r.Modes), said(r.Options), said(r.Commands), said(r.Usage)
	s.changedRow(e, result)
	return nil
}

// changedRow has a session's row written. The caller holds mu.
func (s *Store) changedRow(e *entry, result chan<- int64Err) {
	e.dirty = true
	s.push(job{e: e, result: result})
}

// Note changes a session that is open in a run, without waiting: it is in the file with the next events. A session that
// is not known is no error.
func (s *Store) Note(id string, f func(*types.Session)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.edit(id, func(r *row) { f(&r.Session) }, nil) // a session that was removed needs no change
}

// NoteTitle is Note for the agent's title.
func (s *Store) NoteTitle(id, title string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.edit(id, func(r *row) { r.Said = line(title) }, nil)
}

// NotePrompt is Note for a prompt: how the first one begins is a session's title until it has another.
func (s *Store) NotePrompt(id, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.edit(id, func(r *row) {
		r.Prompts++
		if r.Asked == "" {
			r.Asked = line(text)
		}
	}, nil)
}

// Prompts gives how many prompts a session in memory has had.
func (s *Store) Prompts(id string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.held[id]; e != nil {
		return e.row.Prompts
	}
	return 0
}

// Remove removes a session and its events, of a live one too. It returns when it is gone. Errors: ctx's and *fault.Fault.
func (s *Store) Remove(ctx context.Context, id string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return storeFault(s.remove(ctx, id))
}

// remove is Remove. The caller holds writing.
func (s *Store) remove(ctx context.Context, id string) error {
	var bytes int64
	err := s.db.Do(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT bytes FROM sessions WHERE id = ?", id).Scan(&bytes)
		if errors.Is(err, sql.ErrNoRows) {
			return noSession(id)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM sessions WHERE id = ?", id)
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total -= bytes
	if e := s.held[id]; e != nil {
		e.removed = true
		e.tell()
		delete(s.held, id)
	}
	s.opts.Feed.Announce(types.Change{Removed: id})
	return nil
}

// recover ends what a daemon that was killed left as live, and counts what there is.
func (s *Store) recover(ctx context.Context) error {
	if err := s.db.QueryRowContext(ctx, "SELECT coalesce(sum(bytes), 0) FROM sessions").Scan(&s.total); err != nil {
		return err
	}
	ids, err := s.ids(ctx, "SELECT id FROM sessions WHERE run <> '' OR turn <> 'idle'")
	if err != nil {
		return err
	}
	ended := &types.Error{Kind: "failed", Message: "handlerd ended while the session was open", Hint: "handler daemon logs"}
	for _, id := range ids {
		e, err := s.read(ctx, id)
		if err != nil {
			return err
		}
		var p plan
		p.row = e.row
		add := func(kind string, data any) {
			raw, _ := json.Marshal(data) // plain fields
			p.add(&types.Event{Time: s.now(), Kind: kind, Data: raw})
		}
		if p.row.Turn == "working" {
			add(types.EventTurn, types.EventTurnData{State: "ended", Error: ended})
		}
		if p.row.Run != "" {
			add(types.EventRun, types.EventRunData{Run: p.row.Run, State: "ended", Error: ended})
		}
		p.row.Run, p.row.Turn, p.row.Ours, p.row.Questions = "", "idle", false, 0
		if p.details, err = json.Marshal(&p.row); err != nil {
			return err
		}
		if err := s.store(&batch{plans: map[*entry]*plan{e: &p}, durable: true}); err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
		s.total += p.row.Bytes - e.row.Bytes
	}
	return nil
}

func (s *Store) ids(ctx context.Context, query string, args ...any) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// line makes one line of a text, fit to be a title.
func line(text string) string {
	var b []rune
	for _, c := range text {
		switch {
		case c == '\n' || c == '\r' || c == '\t' || c == ' ':
			if len(b) > 0 && b[len(b)-1] != ' ' {
				b = append(b, ' ')
			}
		case harmless(c):
			b = append(b, c)
		}
		if len(b) >= maxTitle {
			break
		}
	}
	return cut(string(trimRight(b)), maxTitle)
}

func trimRight(b []rune) []rune {
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b
}
