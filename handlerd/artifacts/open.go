package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/handlerd/store"
)

// Options of a Store; zero fields are the defaults.
type Options struct {
	Total  int64 // MaxTotal
	Count  int   // MaxCount
	PerRun int   // MaxPerRun
	Now    func() time.Time
	Logger *slog.Logger
	// Changed is told of every artifact that was added or removed, in order, when that is on the disk. It must be quick,
	// and must not use the store.
	Changed func(a Artifact, removed bool)
}

// An IndexError says that the store cannot be used as it lies on the disk. Nothing of it was changed.
type IndexError struct {
	Dir    string
	Reason string
	Err    error // may be nil
}

func (e *IndexError) Error() string {
	text := fmt.Sprintf("the artifacts in %s cannot be used: %s", e.Dir, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the cause.
func (e *IndexError) Unwrap() error { return e.Err }

// Hint is what a person does: the files stay where they can be looked at, under the names they had.
func (e *IndexError) Hint() string {
	return fmt.Sprintf("put it aside, and a new one is made: mv %s %s.old; the files are then in %s.old/runs", e.Dir, e.Dir, e.Dir)
}

// New gives the store in dir. It is opened when it is first used, or by Ready, so that a store that is broken keeps
// nothing else from working; until it has been mended every call gives the error anew.
func New(dir string, opts Options) *Store {
	s := &Store{dir: dir, opts: opts, log: opts.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opts.Total <= 0 {
		s.opts.Total = MaxTotal
	}
	if s.opts.Count <= 0 {
		s.opts.Count = MaxCount
	}
	if s.opts.PerRun <= 0 {
		s.opts.PerRun = MaxPerRun
	}
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	if s.opts.Changed == nil {
		s.opts.Changed = func(Artifact, bool) {}
	}
	return s
}

// Open is New and Ready.
func Open(ctx context.Context, dir string, opts Options) (*Store, error) {
	s := New(dir, opts)
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Ready opens the store if it is not open yet: makes its folder 0700, takes its lock, and takes away what a crash left,
// which is content that no entry names and half-saved files. Errors: *IndexError, *store.VersionError, and those of the
// file system.
func (s *Store) Ready(ctx context.Context) error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	switch {
	case s.closed:
		return errors.New("artifacts: the store is closed")
	case s.db != nil:
		return nil
	}
	// Whoever comes first may go again; who comes next wants it all the same.
	if err := s.open(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("artifacts: %w", err)
	}
	return nil
}

func (s *Store) open(ctx context.Context) (err error) {
	for _, d := range []string{s.dir, s.contentDir(), s.tempDir(), s.viewDir()} {
		// Whatever the umask is, or a person has made of it.
		if err := errors.Join(os.MkdirAll(d, 0o700), os.Chmod(d, 0o700)); err != nil {
			return err
		}
	}
	lock, err := s.takeLock()
	if err != nil {
		return err
	}
	var db *store.DB
	defer func() {
		if err == nil {
			s.db, s.lock = db, lock
			return
		}
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		lock.Close()
	}()
	if s.indexGone() {
		return &IndexError{Dir: s.dir, Reason: "its index.db is gone, and only that knows whose the files are"}
	}
	if db, err = store.Open(ctx, filepath.Join(s.dir, "index.db"), migrations); err != nil {
		return s.indexError(err)
	}
	var check string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&check); err != nil {
		return s.indexError(err)
	}
	if check != "ok" {
		return &IndexError{Dir: s.dir, Reason: "its index.db is damaged: " + strings.Join(strings.Fields(check), " ")}
	}
	if err := s.sweep(ctx, db); err != nil {
		return s.indexError(err)
	}
	s.keepRoom()
	return nil
}

// roomBytes is what is kept free on the disk for an artifact's removal, which has to be written down too: a disk that
// artifacts have filled could not be freed of them otherwise.
const roomBytes = 1 << 20

func (s *Store) room() string { return filepath.Join(s.dir, "room") }

// keepRoom takes the room, as far as there is some.
func (s *Store) keepRoom() {
	f, err := os.OpenFile(s.room(), os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	// A file system that cannot promise blocks has none to give back either.
	if err := unix.Fallocate(int(f.Fd()), 0, 0, roomBytes); err != nil {
		_ = f.Truncate(0)
	}
}

// giveRoom gives it back.
func (s *Store) giveRoom() { _ = os.Remove(s.room()) }

// takeLock keeps another process from sweeping away what this one is about to name. The kernel drops the lock with the
// process, however it ends.
func (s *Store) takeLock() (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another process uses %s", s.dir)
		}
		return nil, err
	}
	return lock, nil
}

// indexGone tells that there is content and nothing that could name it: a new index would have all of it swept away.
func (s *Store) indexGone() bool {
	for _, name := range []string{"index.db", "index.db-wal"} {
		if info, err := os.Lstat(filepath.Join(s.dir, name)); err == nil && info.Size() > 0 {
			return false
		}
	}
	gone := false
	_ = filepath.WalkDir(s.contentDir(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			gone = true
			return filepath.SkipAll
		}
		return nil
	})
	return gone
}

// indexError tells what is wrong with the index from what is wrong with the disk.
func (s *Store) indexError(err error) error {
	var version *store.VersionError
	if err == nil || errors.As(err, &version) || !store.Damaged(err) {
		return err
	}
	return &IndexError{Dir: s.dir, Reason: "its index.db is damaged", Err: err}
}

// Close closes the index. Files that Open gave stay open. It is idempotent.
func (s *Store) Close() error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if s.closed || s.db == nil {
		s.closed = true
		return nil
	}
	s.closed = true
	s.mu.Lock() // a change that is under way is done first
	defer s.mu.Unlock()
	return errors.Join(s.db.Close(), s.lock.Close())
}

func (s *Store) contentDir() string { return filepath.Join(s.dir, "content") }
func (s *Store) tempDir() string    { return filepath.Join(s.dir, "tmp") }

func (s *Store) content(sum string) string { return filepath.Join(s.contentDir(), sum[:2], sum) }
