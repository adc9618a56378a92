// Package artifacts keeps the files that agents make for their person (contract I): pictures, downloads, PDFs. The
// content lies in files named by its digest below the private state folder, an SQLite index binds each to its owner,
// run and session, and quotas bound both. Possession of an id grants nothing: every call names the owner.
package artifacts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gabriel-vasile/mimetype"

	"github.com/handlerd/handler/handlerd/store"
)

// Bounds of the store.
const (
	MaxBytes  = 50 << 20 // of one artifact
	MaxTotal  = 1 << 30  // of all of one owner, each counted once an artifact
	MaxCount  = 20_000   // artifacts of one owner
	MaxPerRun = 100      // artifacts of one run
	MaxName   = 200      // bytes of a name
	maxField  = 512      // bytes of what else is said of one: its session, the tool
)

// Principal is the owner of what the runs of a user of this machine make. There is no other way to write it.
func Principal(uid int) string { return fmt.Sprintf("user:%d", uid) }

// An Artifact is one entry of the index.
type Artifact struct {
	ID      string // 26 characters, random
	Owner   string // the principal it belongs to
	Run     string
	Session string // the ACP session in it; "" for none
	Agent   string
	Name    string // a plain file name, see cleanName
	Source  string // what made it: a tool's name
	Type    string // media type by its content, never by its name or by what anybody said
	Bytes   int64
	SHA256  string // of the content, hex
	Created time.Time
}

// Meta is what whoever adds an artifact says of it. Owner is required. Session, Name and Source may be an agent's words:
// they are made harmless, a session that is too long is kept by its digest.
type Meta struct{ Owner, Run, Session, Agent, Name, Source string }

// A Store keeps artifacts. Its methods may be called concurrently.
type Store struct {
	dir  string
	opts Options
	log  *slog.Logger

	openMu sync.Mutex
	db     *store.DB // protected by openMu until Ready has succeeded, and not changed then
	lock   *os.File  // with db
	closed bool      // protected by openMu

	mu sync.Mutex // one change of content and index at a time

	steps func(string) // of tests, told of each step of a change; nil outside them
}

// migrations of the index.
var migrations = []string{`
CREATE TABLE artifacts (
	id TEXT PRIMARY KEY, owner TEXT NOT NULL, run TEXT NOT NULL, session TEXT NOT NULL, agent TEXT NOT NULL,
	name TEXT NOT NULL, source TEXT NOT NULL, type TEXT NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL,
	created INTEGER NOT NULL
) STRICT;
CREATE INDEX artifacts_owner ON artifacts (owner, run, agent, bytes);
CREATE INDEX artifacts_content ON artifacts (sha256);
CREATE TABLE saves (id INTEGER PRIMARY KEY, folder TEXT NOT NULL, temp TEXT NOT NULL) STRICT;
`}

// A NotFoundError says that the owner has no such artifact; another's is not told from none.
type NotFoundError struct{ ID string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no artifact %q", e.ID) }

// Add reads r to its end and keeps it. It is on the disk when Add returns. Errors: *TooLargeError, *QuotaError,
// *IndexError, and those of r and of the file system.
func (s *Store) Add(ctx context.Context, m Meta, r io.Reader) (Artifact, error) {
	if m.Owner == "" {
		return Artifact{}, errors.New("an artifact without an owner")
	}
	if err := s.Ready(ctx); err != nil {
		return Artifact{}, err
	}
	a := Artifact{
		ID: strings.ToLower(rand.Text()), Owner: m.Owner, Run: m.Run, Session: sessionField(m.Session), Agent: m.Agent,
		Name: cleanName(m.Name), Source: cut(printable(m.Source), maxField), Created: s.opts.Now().UTC().Truncate(time.Millisecond),
	}
	// A store that is full is not written to first.
	if err := s.db.Do(ctx, func(tx *sql.Tx) error { return s.checkQuota(ctx, tx, a) }); err != nil {
		return Artifact{}, s.indexError(err)
	}
	temp, err := s.receive(&a, r)
	if err != nil {
		return Artifact{}, err
	}
	defer os.Remove(temp) // it is not there any more where all went well
	s.step("received")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.place(temp, a.SHA256); err != nil {
		return Artifact{}, fmt.Errorf("artifact %s: %w", a.Name, err)
	}
	s.step("placed")
	err = s.db.Do(ctx, func(tx *sql.Tx) error {
		if err := s.checkQuota(ctx, tx, a); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO artifacts VALUES (?,?,?,?,?,?,?,?,?,?,?)", a.ID, a.Owner, a.Run, a.Session,
			a.Agent, a.Name, a.Source, a.Type, a.Bytes, a.SHA256, a.Created.UnixMilli())
		s.step("inserted")
		return err
	})
	if err != nil {
		s.dropContent(context.WithoutCancel(ctx), a.SHA256)
		return Artifact{}, s.indexError(err)
	}
	s.step("committed")
	s.show(a)
	s.opts.Changed(a, false)
	return a, nil
}

// sessionField is how a session is kept: ids are the agents' to choose.
func sessionField(session string) string {
	if len(session) <= maxField && utf8.ValidString(session) {
		return session
	}
	sum := sha256.Sum256([]byte(session))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// receive writes r to a file of its own and learns its size, digest and type.
func (s *Store) receive(a *Artifact, r io.Reader) (temp string, err error) {
	f, err := os.CreateTemp(s.tempDir(), "in-")
	if err != nil {
		return "", fmt.Errorf("artifact %s: %w", a.Name, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	defer f.Close()
	sum := sha256.New()
	a.Bytes, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(r, MaxBytes+1))
	if err == nil && a.Bytes > MaxBytes {
		return "", &TooLargeError{Name: a.Name, Limit: MaxBytes}
	}
	if err == nil {
		err = f.Chmod(0o400) // nobody writes to what is named by its digest
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", fmt.Errorf("artifact %s: %w", a.Name, err)
	}
	kind, err := mimetype.DetectReader(f)
	if err != nil {
		return "", fmt.Errorf("artifact %s: %w", a.Name, err)
	}
	a.SHA256, a.Type = hex.EncodeToString(sum.Sum(nil)), kind.String()
	return f.Name(), nil
}

// place puts received content where its digest says. s.mu is held.
func (s *Store) place(temp, sum string) error {
	to := s.content(sum)
	if _, err := os.Lstat(to); err == nil {
		return nil // the same content is there already
	}
	switch err := os.Mkdir(filepath.Dir(to), 0o700); {
	case err == nil:
		if err := syncDir(s.contentDir()); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	if err := os.Rename(temp, to); err != nil {
		return err
	}
	s.step("renamed")
	return syncDir(filepath.Dir(to))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// dropContent removes content that no entry names any more. s.mu is held. What it cannot remove the next Open does.
func (s *Store) dropContent(ctx context.Context, sum string) {
	var n int
	err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM artifacts WHERE sha256 = ?", sum).Scan(&n)
	if err == nil && n == 0 {
		err = os.Remove(s.content(sum))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("content of an artifact was not removed", "error", err)
	}
}

const columns = "id, owner, run, session, agent, name, source, type, bytes, sha256, created"

func scan(row interface{ Scan(...any) error }) (Artifact, error) {
	var a Artifact
	var created int64
	err := row.Scan(&a.ID, &a.Owner, &a.Run, &a.Session, &a.Agent, &a.Name, &a.Source, &a.Type, &a.Bytes, &a.SHA256, &created)
	a.Created = time.UnixMilli(created).UTC()
	return a, err
}

// A Filter narrows List; zero fields narrow nothing.
type Filter struct{ Run, Session, Agent string }

// List gives an owner's artifacts, oldest first.
func (s *Store) List(ctx context.Context, owner string, f Filter) ([]Artifact, error) {
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	if f.Session != "" {
		f.Session = sessionField(f.Session)
	}
	query, args := "SELECT "+columns+" FROM artifacts WHERE owner = ?", []any{owner}
	for _, c := range []struct{ column, value string }{{"run", f.Run}, {"session", f.Session}, {"agent", f.Agent}} {
		if c.value != "" {
			query, args = query+" AND "+c.column+" = ?", append(args, c.value)
		}
	}
	return s.query(ctx, s.db, query+" ORDER BY created, rowid", args...)
}

// querier is the index, or a transaction on it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query gives the artifacts that a query over columns does.
func (s *Store) query(ctx context.Context, db querier, query string, args ...any) ([]Artifact, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("artifacts: %w", s.indexError(err))
	}
	defer rows.Close()
	all := []Artifact{}
	for rows.Next() {
		a, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("artifacts: %w", s.indexError(err))
		}
		all = append(all, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("artifacts: %w", s.indexError(err))
	}
	return all, nil
}

// An id is this long; a person names it by its beginning.
const (
	idLength    = 26
	leastPrefix = 4
)

// Get gives the owner's artifact whose id begins with id: the whole of it, or at least four characters that no other
// begins with. Errors: *NotFoundError, *AmbiguousError.
func (s *Store) Get(ctx context.Context, owner, id string) (Artifact, error) {
	if len(id) < leastPrefix || len(id) > idLength || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return Artifact{}, &NotFoundError{id}
	}
	if err := s.Ready(ctx); err != nil {
		return Artifact{}, err
	}
	found, err := s.query(ctx, s.db, "SELECT "+columns+" FROM artifacts WHERE +owner = ? AND id >= ? AND id < ? LIMIT 9", owner, id, id+"~") // by id, not by owner
	switch {
	case err != nil:
		return Artifact{}, err
	case len(found) == 0:
		return Artifact{}, &NotFoundError{id}
	case len(found) > 1:
		return Artifact{}, &AmbiguousError{id, found}
	}
	return found[0], nil
}

// Find gives an artifact of a run that has this content. Errors: *NotFoundError.
func (s *Store) Find(ctx context.Context, owner, run, sum string) (Artifact, error) {
	if err := s.Ready(ctx); err != nil {
		return Artifact{}, err
	}
	found, err := s.query(ctx, s.db, "SELECT "+columns+" FROM artifacts WHERE owner = ? AND run = ? AND sha256 = ? LIMIT 1", owner, run, sum)
	if err == nil && len(found) == 0 {
		err = &NotFoundError{sum}
	}
	if err != nil {
		return Artifact{}, err
	}
	return found[0], nil
}

// Runs gives the runs whose id begins with prefix and that have artifacts, at most nine.
func (s *Store) Runs(ctx context.Context, owner, prefix string) ([]string, error) {
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT DISTINCT run FROM artifacts WHERE owner = ? AND run >= ? AND substr(run, 1, length(?)) = ? LIMIT 9",
		owner, prefix, prefix, prefix)
	if err != nil {
		return nil, fmt.Errorf("artifacts: %w", s.indexError(err))
	}
	defer rows.Close()
	var runs []string
	for rows.Next() {
		var run string
		if err := rows.Scan(&run); err != nil {
			return nil, fmt.Errorf("artifacts: %w", s.indexError(err))
		}
		runs = append(runs, run)
	}
	return runs, rows.Err()
}

// An AmbiguousError says that several artifacts' ids begin so.
type AmbiguousError struct {
	ID    string
	Found []Artifact
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is the beginning of several artifacts' ids: type more of it", e.ID)
}

// Open gives an artifact and its content, which the caller closes. It stays readable when the artifact is removed.
func (s *Store) Open(ctx context.Context, owner, id string) (Artifact, *os.File, error) {
	a, err := s.Get(ctx, owner, id)
	if err != nil {
		return Artifact{}, nil, err
	}
	f, err := os.Open(s.content(a.SHA256))
	if errors.Is(err, fs.ErrNotExist) {
		if _, again := s.Get(ctx, owner, id); again != nil {
			return Artifact{}, nil, again // it was removed just now
		}
		return Artifact{}, nil, fmt.Errorf("the content of artifact %s is gone from the disk", a.Name)
	}
	if err != nil {
		return Artifact{}, nil, fmt.Errorf("artifact %s: %w", a.Name, err)
	}
	return a, f, nil
}

// Remove removes one artifact.
func (s *Store) Remove(ctx context.Context, owner, id string) (Artifact, error) {
	a, err := s.Get(ctx, owner, id)
	if err != nil {
		return Artifact{}, err
	}
	n, err := s.remove(ctx, "owner = ? AND id = ?", owner, a.ID)
	if err == nil && n == 0 {
		err = &NotFoundError{id}
	}
	return a, err
}

// RemoveRun removes all of one run's, and RemoveSession all of one session's; they say how many there were.
func (s *Store) RemoveRun(ctx context.Context, owner, run string) (int, error) {
	return s.remove(ctx, "owner = ? AND run = ?", owner, run)
}

// RemoveSession removes all artifacts of an ACP session: they do not outlive it (I).
func (s *Store) RemoveSession(ctx context.Context, owner, agent, session string) (int, error) {
	return s.remove(ctx, "owner = ? AND agent = ? AND session = ?", owner, agent, sessionField(session))
}

func (s *Store) remove(ctx context.Context, where string, args ...any) (int, error) {
	if err := s.Ready(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []Artifact
	try := func() error {
		return s.db.Do(ctx, func(tx *sql.Tx) (err error) {
			gone, err = s.query(ctx, tx, "DELETE FROM artifacts WHERE "+where+" RETURNING "+columns, args...)
			return err
		})
	}
	err := try()
	if store.Full(err) {
		s.giveRoom()
		err = try()
	}
	defer s.keepRoom()
	if err != nil {
		return 0, fmt.Errorf("artifacts: %w", s.indexError(err))
	}
	for _, a := range gone {
		s.hide(a)
		s.dropContent(context.WithoutCancel(ctx), a.SHA256)
		s.opts.Changed(a, true)
	}
	return len(gone), nil
}

// step is where a test ends the process.
func (s *Store) step(name string) {
	if s.steps != nil {
		s.steps(name)
	}
}
