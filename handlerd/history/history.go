// Package history keeps the sessions of agents and what happened in them (contract K.2): for each session a row, and
// events that are numbered from 1 without a gap, in SQLite. Whoever records queues events ([Store.Queue]) or waits until
// one is kept ([Store.Append]); whoever shows a session reads them by number, and follows what comes ([Store.Follow]).
// What a follower was told is in the file: a daemon that is killed forgets nothing that somebody has seen.
//
// One writer commits what was queued in the last ten milliseconds together. A prompt, an end of a turn and whatever is
// waited for is on the disk when it is told; the rest of an answer reaches the disk with it, at the latest, so that a
// machine that loses its power may lose the end of an answer, and no question to it.
package history

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/store"
)

// Bounds of the store.
const (
	MaxEventBytes   = 256 << 10 // of one event's data; longer strings in it are cut
	MaxEvents       = 100_000   // of one session; then only its prompts, its turns and its runs are kept
	MaxSessionBytes = 128 << 20 // of one session's events; the same
	MaxSessions     = 2000      // kept; the ones without a run that are unused for longest go
	MaxTotalBytes   = 2 << 30   // of all sessions' events; the same
	MaxQueueBytes   = 64 << 20  // of events that wait to be written; what comes then is left out, and said
	MaxFollowers    = 256       // at one time
	MaxList         = 500       // sessions of one answer

	commitEvery = 10 * time.Millisecond // what comes meanwhile is written together
	readAtOnce  = 1000                  // events of one reading
	readBytes   = 4 << 20               // about as many bytes of them
	recentBytes = 1 << 20               // of one session's youngest events, which followers get without a reading
	lateEvents  = 1000                  // prompts, turns and runs that are kept of a session at its bounds
	maxIdle     = 64                    // sessions without a run that are held in memory
	maxTitle    = 200                   // bytes of a title
	maxField    = 1024                  // bytes of an agent's or a client's word, such as a session's id
	maxSaid     = 64 << 10              // bytes of what an agent says of itself, such as its commands
)

// Options of a Store; all may be zero.
type Options struct {
	Feed   *Feed // is told of what changes
	Now    func() time.Time
	Logger *slog.Logger
	// Smaller bounds; 0 for the constants.
	MaxEvents, MaxSessionBytes, MaxSessions, MaxTotalBytes int64
}

// A Store keeps sessions. Its methods may be called concurrently.
type Store struct {
	db   *store.DB
	opts Options
	log  *slog.Logger

	writing sync.Mutex // one change of the file at a time; taken before mu

	mu        sync.Mutex
	held      map[string]*entry // protected by mu; sessions in memory, by id
	queue     []job             // protected by mu
	queued    int               // protected by mu; bytes of queue
	followers int               // protected by mu
	total     int64             // protected by mu; bytes of all sessions' events
	failing   bool              // protected by mu; the last commit failed
	closed    bool              // protected by mu

	wake   chan struct{} // holds a token while something is queued
	urgent chan struct{} // holds a token while somebody waits for it
	stop   chan struct{} // closed by Close
	done   chan struct{} // closed when the writer has ended
}

// A row is what is kept of a session besides its events.
type row struct {
	types.Session
	// Where its title comes from, the first that is there.
	Given, Said, Asked string
	Prompts            int64 // taken in all
	Bytes              int64 // of its events
	Left               int64 // events that are left out
}

// An entry is a session in memory.
type entry struct {
	n       int64 // of its row in the file
	row     row
	dirty   bool          // row has what the file has not
	recent  []types.Event // the youngest, which are in the file
	bytes   int           // of recent
	lost    int64         // events that could not be written, and were not said yet
	why     string        // of lost or Left
	said    int64         // of Left, in the last EventCut
	changed chan struct{} // closed and made anew by every commit
	refs    int           // who uses it
	used    time.Time
	removed bool
}

// ErrClosed says that the store was closed.
var ErrClosed = errors.New("the sessions' history is closed")

// Open opens the store in the file at path, which is made where it is not. What a daemon that was killed left as live is
// ended in it. Errors are those of handlerd/store.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	s := &Store{
		opts: o, log: o.Logger, held: map[string]*entry{}, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	if s.opts.Feed == nil {
		s.opts.Feed = NewFeed()
	}
	for _, b := range []struct {
		bound *int64
		most  int64
	}{{&s.opts.MaxEvents, MaxEvents}, {&s.opts.MaxSessionBytes, MaxSessionBytes}, {&s.opts.MaxSessions, MaxSessions}, {&s.opts.MaxTotalBytes, MaxTotalBytes}} {
		if *b.bound <= 0 {
			*b.bound = b.most
		}
	}
	db, err := store.Open(ctx, path, migrations())
	if err != nil {
		return nil, err
	}
	s.db = db
	if err := s.recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("history: %w", err), db.Close())
	}
	go s.write()
	return s, nil
}

// Close writes what is queued and closes the file. It is idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	for _, e := range s.held {
		e.tell()
	}
	s.mu.Unlock()
	close(s.stop)
	<-s.done
	return s.db.Close()
}

func migrations() []string {
	return []string{`
CREATE TABLE sessions (
	n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, acp TEXT NOT NULL, cwd TEXT NOT NULL,
	title TEXT NOT NULL, run TEXT NOT NULL, turn TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
	events INTEGER NOT NULL, bytes INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX sessions_acp ON sessions (agent, acp);
CREATE INDEX sessions_updated ON sessions (updated, n);
CREATE TABLE details (n INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE, data TEXT NOT NULL) STRICT;
CREATE TABLE events (
	session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, seq INTEGER NOT NULL, time INTEGER NOT NULL,
	kind TEXT NOT NULL, said TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX events_prompts ON events (session, seq) WHERE kind = 'prompt';
`}
}

// newID makes six characters that people can read out: no vowels, so no words.
func newID() string {
	const letters = "bcdfghjkmnpqrstvwxz0123456789"
	var b [6]byte
	for i := range b {
		for {
			var c [1]byte
			rand.Read(c[:]) // never fails (crypto/rand)
			if n := int(c[0]); n < 256/len(letters)*len(letters) {
				b[i] = letters[n%len(letters)]
				break
			}
		}
	}
	return string(b[:])
}

func noSession(id string) error {
	return fault.New(fault.NotFound, "see: handler sessions list", "there is no session %.40q", id)
}

// storeFault says what an error of the file means to the person.
func storeFault(err error) error {
	var f *fault.Fault
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrClosed):
		return err
	case store.Full(err):
		return fault.Wrap(fault.Failed, err, "free some space on the disk of Handler's state", "the sessions' history cannot be written")
	case store.Damaged(err):
		return fault.Wrap(fault.Failed, err, "put sessions.db in Handler's state folder aside, then: handler daemon stop", "the sessions' history is damaged")
	}
	return fault.Wrap(fault.Failed, err, "", "the sessions' history")
}

// now is the time as it is kept.
func (s *Store) now() time.Time { return s.opts.Now().UTC().Truncate(time.Millisecond) }

// tell wakes who follows. The caller holds mu.
func (e *entry) tell() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// view is the session as others see it. The caller holds mu.
func (e *entry) view() types.Session { return e.row.view() }

func (r *row) view() types.Session {
	v := r.Session
	for _, title := range []string{r.Given, r.Said, r.Asked} {
		if v.Title = title; title != "" {
			break
		}
	}
	return v
}
