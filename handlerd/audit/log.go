package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Log appends to one file. Its methods may be called concurrently. One file has one Log: who writes it holds the
// daemon's lock.
type Log struct {
	path string
	max  int64 // MaxFile; smaller in tests
	now  func() time.Time
	head *headFile

	mu      sync.Mutex // guards the fields below and the file's order of lines
	file    *os.File   // nil when closed
	size    int64
	written int64   // lines written so far
	last    link    // the last line written
	marker  *Record // goes in front of the next line, where the chain begins or a torn line is to be named
	anew    bool    // the marker begins a chain
	ragged  bool    // the file does not end in a newline
	failed  error   // the file can no longer be trusted to hold what was written to it

	syncMu sync.Mutex // held during an fsync; taken before mu
	synced int64      // lines known to be on the disk; guarded by syncMu
}

// ErrClosed is returned by Append after Close.
var ErrClosed = errors.New("the audit log is closed")

// Open opens the log at path, made 0600 in a folder made 0700 if they are not there, and its head beside it. A file
// that others can read is closed to them; one that is no regular file is refused. A line that a crash cut short is
// ended, and named in the chain with the first Append; so is an end that is not the one the head says. Open itself
// appends nothing.
func Open(path string) (*Log, error) {
	l, err := openLog(path)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return l, nil
}

func openLog(path string) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l := &Log{path: path, max: MaxFile, now: time.Now}
	if err := l.openFile(); err != nil {
		return nil, err
	}
	head, known, err := openHead(path, func() time.Time { return l.now() })
	if err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	l.head = head
	if err := l.resume(known); err != nil {
		return nil, errors.Join(err, l.file.Close(), head.close())
	}
	return l, nil
}

// resume finds where the chain goes on.
func (l *Log) resume(known bool) error {
	t, err := findTail(l.path, l.head.state, known)
	if err != nil {
		return err
	}
	l.last, l.ragged = t.last, t.ragged
	text := ""
	switch {
	case t.broken != "":
		text, l.anew = "the log was not as it was left: "+t.broken, true
	case t.last.n == 0 && t.older:
		text, l.anew = "the chain begins; the lines before it are of version 1 and have none", true
	case t.last.n == 0:
		text, l.anew = "the chain begins", true
	case t.torn > 0:
		text = "the line before this one was cut short, as by a crash or a power cut"
	default:
		return nil
	}
	l.marker = &Record{Kind: KindChain, Reason: text}
	if t.torn > 0 && !l.anew {
		l.marker.Torn, l.marker.TornSum = t.torn, t.tornSum.String()
	}
	if known {
		return nil
	}
	first := firstKept{n: l.last.n + 1}
	if t.first.n > 0 {
		first = firstOf(t.first)
	}
	return errors.Join(l.head.prune(first), syncDir(filepath.Dir(l.path)))
}

func firstOf(t told) firstKept {
	if t.begin {
		return firstKept{n: t.n}
	}
	return firstKept{t.n, t.prev.String()}
}

// openFile opens the file at l.path for appending, and takes its room on the disk beforehand where the file system can:
// an agent that fills the disk is still written down.
func (l *Log) openFile() error {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file; move it away", l.path)
	}
	if err == nil && info.Mode().Perm() != 0o600 {
		err = file.Chmod(0o600)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	_ = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, l.max) // where there is no room, the write says so
	l.file, l.size = file, info.Size()
	return nil
}

// Append writes r as one line and returns when it is on the disk.
func (l *Log) Append(r Record) error {
	body, err := encode(r, l.now)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	number, err := l.write(body)
	if err != nil {
		return fmt.Errorf("audit log %s: %w", l.path, err)
	}
	if err := l.sync(number); err != nil {
		return fmt.Errorf("audit log %s: %w", l.path, err)
	}
	return nil
}

// write puts one line into the file, in one write with the marker that may have to go before it, and gives its number.
func (l *Log) write(body []byte) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.file == nil:
		return 0, ErrClosed
	case l.failed != nil:
		return 0, l.failed
	}
	text, last, err := l.place(body)
	if err != nil {
		return 0, err
	}
	if l.size > 0 && l.size+int64(len(text)) > l.max && l.marker == nil {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(text)
	if err != nil {
		if n > 0 { // what no caller was told of is taken back
			if undo := l.file.Truncate(l.size); undo != nil {
				l.failed = fmt.Errorf("a line was cut short and could not be taken back; mend the disk and restart handlerd: %w", err)
			}
		}
		return 0, err
	}
	l.size += int64(n)
	l.last, l.marker, l.anew, l.ragged = last, nil, false, false
	l.written++
	return l.written, nil
}

// place gives a line its place in the chain, behind the marker if there is one. The caller holds mu.
func (l *Log) place(body []byte) ([]byte, link, error) {
	var text []byte
	last := l.last
	if l.ragged {
		text = append(text, '\n')
	}
	if l.marker != nil {
		marker, err := encode(*l.marker, l.now)
		if err != nil {
			return nil, last, err
		}
		marker, last = chained(marker, last, l.anew)
		text = append(text, marker...)
	}
	line, last := chained(body, last, false)
	return append(text, line...), last, nil
}

// sync returns when line number is on the disk. Whoever waits here while another's fsync runs finds, most often,
// that the next one has covered its line too. The head follows the lines, never the other way round.
func (l *Log) sync(number int64) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.synced >= number {
		return nil
	}
	l.mu.Lock()
	file, written, last, failed := l.file, l.written, l.last, l.failed
	l.mu.Unlock()
	if failed != nil {
		return failed
	}
	if file == nil { // Close has synced
		return nil
	}
	if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // put aside meanwhile: synced then
		l.mu.Lock()
		defer l.mu.Unlock()
		// The kernel tells of an error once and may have dropped the page: a later fsync would promise too much.
		l.failed = fmt.Errorf("the disk did not take a line; mend it and restart handlerd: %w", err)
		return l.failed
	}
	l.synced = written
	if err := l.head.advance(last); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// rotate puts the file aside and begins a new one. l.mu is held. The old file is synced before it is closed, and the
// head knows the oldest line that stays before the oldest file goes.
func (l *Log) rotate() error {
	if err := l.file.Sync(); err != nil {
		return err
	}
	if err := l.prune(); err != nil {
		return err
	}
	for i := KeepFiles - 1; i >= 1; i-- {
		err := os.Rename(aside(l.path, i), aside(l.path, i+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.path, aside(l.path, 1)); err != nil {
		return err
	}
	old := l.file
	if err := l.openFile(); err != nil {
		return errors.Join(err, os.Rename(aside(l.path, 1), l.path)) // goes on in the old one
	}
	return errors.Join(old.Close(), syncDir(filepath.Dir(l.path)))
}

// syncDir puts on the disk what names a folder has.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// prune tells the head which line will be the oldest, where the next rotation removes a file.
func (l *Log) prune() error {
	if _, err := os.Stat(aside(l.path, KeepFiles)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for i := KeepFiles - 1; i >= 0; i-- {
		t, err := firstIn(fileName(l.path, i))
		if errors.Is(err, fs.ErrNotExist) || err == nil && t.n == 0 {
			continue
		} else if err != nil {
			return err
		}
		return l.head.prune(firstOf(t))
	}
	return nil
}

// aside is the name of the i-th youngest file that was put aside.
func aside(path string, i int) string { return fmt.Sprintf("%s.%d", path, i) }

// Head says how far the log has come: the last line that is on the disk. It is zero where there is none.
func (l *Log) Head() Head {
	l.head.mu.Lock()
	defer l.head.mu.Unlock()
	return Head{l.head.state.N, l.head.state.Digest}
}

// Close syncs and closes the log. It is idempotent.
func (l *Log) Close() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Sync()
	if err == nil && l.failed == nil && l.written > l.synced {
		l.synced = l.written
		err = l.head.advance(l.last)
	}
	err = errors.Join(err, l.file.Close(), l.head.close())
	l.file = nil
	return err
}
