package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/fault"
)

// errLocked says that another daemon of this user lives in the same runtime folder: it is the one that was wanted.
var errLocked = errors.New("another handlerd runs")

// How soon a daemon sees that nobody can reach it any more, and how long another waits for its end.
const (
	socketCheck = time.Second
	lockWait    = 25 * time.Second
	lockPause   = 50 * time.Millisecond
)

// locks are what keeps two daemons from using one folder. The kernel drops them with the process, however it ends, so
// a file that a killed one left means nothing.
type locks []*os.File

func (l locks) close() {
	for _, f := range slices.Backward(l) {
		f.Close()
	}
}

// takeLocks takes the lock of each of Handler's folders: of the runtime folder first, where errLocked tells of a daemon
// that answers there, and of those that a daemon with another runtime folder would share with us. activated says that
// systemd holds the socket: then a daemon that has the lock cannot be the one that was wanted.
//
// A daemon of our own runtime folder that does not listen is about to listen or to end; one that nobody can reach, since
// its folder was emptied at a logout or its socket replaced by systemd's, ends soon (watchSocket). Either is waited for.
func takeLocks(ctx context.Context, d dirs.Dirs, activated bool) (held locks, err error) {
	defer func() {
		if err != nil {
			held.close()
		}
	}()
	for _, dir := range []string{d.Run, d.Data, d.State} {
		f, err := openLock(dir)
		if err != nil {
			return held, err
		}
		held = append(held, f)
		if err := lock(ctx, f, d, dir == d.Run, activated); err != nil {
			return held, err
		}
		// Only an error's text would be the poorer without it.
		if f.Truncate(0) == nil {
			_, _ = f.WriteAt(fmt.Appendf(nil, "%s\n%d\n", d.XDGRun, os.Getpid()), 0)
		}
	}
	return held, nil
}

func openLock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Failed, err, "handler doctor", "handlerd's folder")
	}
	f, err := os.OpenFile(filepath.Join(dir, "handlerd.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "handler doctor", "handlerd's lock")
	}
	return f, nil
}

// lock takes one lock; of the runtime folder's, errLocked says that it is taken.
func lock(ctx context.Context, f *os.File, d dirs.Dirs, runtime, activated bool) error {
	tick := time.NewTicker(lockPause)
	defer tick.Stop()
	for end := time.Now().Add(lockWait); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fault.Wrap(fault.Failed, err, "handler doctor", "handlerd's lock")
		}
		if runtime && !activated && listens(d.Socket()) {
			return errLocked
		}
		xdgRun, pid := holder(f)
		switch {
		case xdgRun != d.XDGRun && xdgRun != "" && !runtime:
			return fault.New(fault.Failed, "end it: XDG_RUNTIME_DIR="+xdgRun+" handler daemon stop",
				"another handlerd, with another runtime folder, uses %s", filepath.Dir(f.Name()))
		case time.Now().After(end):
			return fault.New(fault.Failed, "handler daemon logs; to end it: kill "+pid, "another handlerd neither listens nor ends, and uses %s",
				filepath.Dir(f.Name()))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listens says whether somebody takes connections at a socket.
func listens(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// holder reads who wrote its name into a lock; both are empty where it has not yet.
func holder(f *os.File) (xdgRun, pid string) {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 4<<10))
	xdgRun, pid, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
	return xdgRun, pid
}

// watchSocket ends a daemon that nobody can reach any more. If the runtime folder went, as at a logout, it ends at
// once: the sockets of its runs went too. Another daemon may have made the folder anew meanwhile, so the lock in it
// tells. If only the API's socket went, or another lies there, such as systemd's, it ends when no run lives.
func (w *wired) watchSocket(ctx context.Context, l net.Listener, end func()) {
	unixL, ok := l.(*net.UnixListener)
	socket, err := lookAt(w.dirs.Socket())
	lockFile := filepath.Join(w.dirs.Run, "handlerd.lock")
	own, lerr := lookAt(lockFile)
	if !ok || err != nil || lerr != nil {
		return
	}
	tick := time.NewTicker(socketCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now, err := lookAt(w.dirs.Socket()); err == nil && now == socket {
			continue
		}
		unixL.SetUnlinkOnClose(false) // what lies there is not ours
		if now, err := lookAt(lockFile); err != nil || now != own || w.runs.Count() == 0 {
			w.log.Warn("the socket is gone or another's, so nobody can reach this handlerd, and it ends", "socket", w.dirs.Socket())
			end()
			return
		}
	}
}

// An inode is a file's identity, as long as somebody holds it open.
type inode struct{ dev, ino uint64 }

func lookAt(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return inode{}, err
	}
	return inode{st.Dev, st.Ino}, nil
}
