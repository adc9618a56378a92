package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/cmd/internal/dirs"
)

// MaxLogFile is the size at which the log of a daemon that a command started is put aside, over the one that was put
// aside before: what names in it an agent chooses is no way to fill a disk.
const MaxLogFile = 4 << 20

// A logFile is that log. Standard error goes to it too, so that a crash of Go's runtime is in it.
type logFile struct {
	path string
	max  int64

	mu   sync.Mutex
	file *os.File // protected by mu
	size int64    // protected by mu
}

// openLog gives what the daemon logs to: standard error where no path is given.
func openLog(path string) (io.Writer, error) {
	if path == "" {
		return os.Stderr, nil
	}
	l := &logFile{path: path, max: MaxLogFile}
	if err := l.open(); err != nil {
		return nil, err
	}
	if err := l.takeStderr(); err != nil {
		return nil, err
	}
	return l, nil
}

// open opens the file; the caller holds mu, or has the only reference.
func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("handlerd's log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("handlerd's log: %w", err)
	}
	l.file, l.size = f, info.Size()
	return nil
}

func (l *logFile) takeStderr() error {
	if err := unix.Dup3(int(l.file.Fd()), int(os.Stderr.Fd()), 0); err != nil {
		return fmt.Errorf("handlerd's log: %w", err)
	}
	return nil
}

// Write appends a line, turning the file first where it would grow over its bound.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > l.max && l.size > 0 {
		l.turn()
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// turn puts the file aside and begins a new one. Where that fails, such as on a full disk, the old one goes on from its
// beginning: a log within its bound matters more than what it said.
func (l *logFile) turn() {
	old := l.file
	err := os.Rename(l.path, l.path+dirs.OldLog)
	if err == nil {
		err = l.open()
	}
	if err != nil {
		_ = old.Truncate(0)
		l.file, l.size = old, 0
		return
	}
	_ = l.takeStderr()
	_ = old.Close()
}
