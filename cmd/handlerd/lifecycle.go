package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// errLocked says that another daemon of this user lives in the same runtime folder: it is the one that was wanted.
var errLocked = errors.New("another handlerd runs")

// locks are what keeps two daemons from using one folder. The kernel drops them with the process, however it ends, so
// a file that a killed one left means nothing.
type locks []*os.File

func (l locks) close() {
	for _, f := range slices.Backward(l) {
		f.Close()
	}
}

// takeLocks takes the lock of each of Handler's folders: of the runtime folder first, where errLocked tells of a daemon
// that answers there, and of those that a daemon with another runtime folder would share with us.
func takeLocks(d dirs.Dirs) (held locks, err error) {
	defer func() {
		if err != nil {
			held.close()
		}
	}()
	for _, dir := range []string{d.Run, d.Data, d.State} {
		f, err := takeLock(dir, d.XDGRun)
		if err != nil {
			return held, err
		}
		held = append(held, f)
	}
	return held, nil
}

// takeLock makes a folder and takes its lock, in which it writes who holds it.
func takeLock(dir, xdgRun string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Failed, err, "handler doctor", "handlerd's folder")
	}
	f, err := os.OpenFile(filepath.Join(dir, "handlerd.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "handler doctor", "handlerd's lock")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.Wrap(fault.Failed, err, "handler doctor", "handlerd's lock")
		}
		other, _ := io.ReadAll(io.LimitReader(f, 4<<10)) // it may not have written it yet
		if dir == filepath.Join(xdgRun, "handler") {
			return nil, errLocked
		}
		return nil, fault.New(fault.Failed, "end it: XDG_RUNTIME_DIR="+cmp.Or(strings.TrimSpace(string(other)), "…")+" handler daemon stop",
			"another handlerd, with another runtime folder, uses %s", dir)
	}
	if err := f.Truncate(0); err != nil {
		return f, nil // only an error's text would be the poorer
	}
	_, _ = f.WriteAt([]byte(xdgRun+"\n"), 0)
	return f, nil
}

// lockWait is how long a daemon waits for another one that holds the lock to listen or to end.
const (
	lockWait  = 25 * time.Second
	lockPause = 50 * time.Millisecond
)

// waitLocks takes the locks; or gives errLocked when another daemon has the runtime folder's and listens. One that has
// it and does not is about to listen or to end, so that whoever wants a daemon would find none yet.
func waitLocks(ctx context.Context, d dirs.Dirs) (locks, error) {
	end := time.NewTimer(lockWait)
	defer end.Stop()
	pause := time.NewTicker(lockPause)
	defer pause.Stop()
	for {
		held, err := takeLocks(d)
		if !errors.Is(err, errLocked) {
			return held, err
		}
		if conn, err := net.DialTimeout("unix", d.Socket(), time.Second); err == nil {
			conn.Close()
			return nil, errLocked
		}
		select {
		case <-pause.C:
		case <-end.C:
			return nil, fault.New(fault.Failed, "handler daemon logs", "another handlerd neither listens nor ends")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// listen gives the socket that systemd hands over (K.4), or makes it, 0600 in a folder 0700. Whoever holds the lock
// may remove a socket that a killed predecessor left.
func listen(d dirs.Dirs) (l net.Listener, startedBy string, err error) {
	listeners, err := activation.Listeners()
	if err != nil {
		return nil, "", fault.Wrap(fault.Failed, err, "systemctl --user restart handlerd.socket", "the socket from systemd")
	}
	for _, l := range listeners {
		if l != nil {
			return l, types.BySystemd, nil
		}
	}
	if err := os.Remove(d.Socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", fault.Wrap(fault.Failed, err, "", "the API socket")
	}
	old := unix.Umask(0o177)
	l, err = net.Listen("unix", d.Socket())
	unix.Umask(old)
	if err != nil {
		return nil, "", fault.Wrap(fault.Failed, err, "set a shorter XDG_RUNTIME_DIR if its path is long", "the API socket")
	}
	return l, "", nil
}

// readiness tells whoever started us that we listen, or why not.
type readiness struct {
	once sync.Once
	file *os.File // nil when nobody asked
}

func newReadiness(fd int) *readiness {
	if fd <= 2 {
		return &readiness{}
	}
	unix.CloseOnExec(fd)
	return &readiness{file: os.NewFile(uintptr(fd), "ready")}
}

func (r *readiness) say(text string) {
	r.once.Do(func() {
		if r.file != nil {
			_, _ = r.file.WriteString(text) // who asked may be gone
			r.file.Close()
		}
	})
}

func (r *readiness) ok() { r.say("ready\n") }

func (r *readiness) failed(err error) { r.say(fault.Of(err).Text) }

// endTimeout bounds the orderly end of everything.
const endTimeout = 45 * time.Second

// serve answers until ctx is done, the API asks for the end, or nothing has happened for idle.
func (w *wired) serve(ctx context.Context, l net.Listener, startedBy string, idle time.Duration, ready *readiness) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	activity := newActivity(idle, cancel)
	defer activity.close()
	options := w.apiOptions(cancel, activity.begin)
	options.StartedBy = startedBy
	server := api.New(options)

	var wg sync.WaitGroup
	defer wg.Wait()
	served := make(chan error, 1)
	wg.Go(func() { served <- server.Serve(l) })
	// A predecessor's leavings go first; a start that comes meanwhile waits for it.
	wg.Go(func() {
		if err := w.runs.Sweep(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("what a predecessor left was not swept; the next start tries again", "error", err)
		}
	})
	wg.Go(func() { watchdog(ctx) })
	ready.ok()
	_, _ = sd.SdNotify(false, sd.SdNotifyReady)

	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		cancel()
	}
	_, _ = sd.SdNotify(false, sd.SdNotifyStopping)
	end, done := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer done()
	return errors.Join(err, w.runs.Close(end), server.Close(end))
}

// watchdog tells systemd that we live, where it asks.
func watchdog(ctx context.Context) {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = sd.SdNotify(false, sd.SdNotifyWatchdog)
		case <-ctx.Done():
			return
		}
	}
}

// An activity ends a daemon that the command line started, once nothing was asked of it for a while. A run counts as
// long as it lives.
type activity struct {
	idle time.Duration
	end  func()

	mu     sync.Mutex
	active int         // protected by mu
	timer  *time.Timer // protected by mu; runs while active is 0
}

func newActivity(idle time.Duration, end func()) *activity {
	a := &activity{idle: idle, end: end}
	if idle > 0 {
		a.timer = time.AfterFunc(idle, a.expire)
	}
	return a
}

// begin marks the beginning of a request; done is called once, at its end.
func (a *activity) begin() (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active++
	if a.timer != nil {
		a.timer.Stop()
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.active--
		if a.active == 0 && a.timer != nil {
			a.timer.Reset(a.idle)
		}
	}
}

func (a *activity) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.active == 0 {
		a.end()
	}
}

func (a *activity) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}

// close ends what wire began, the last thing first.
func (w *wired) close() {
	for i := len(w.closers) - 1; i >= 0; i-- {
		if err := w.closers[i](); err != nil {
			w.log.Error("not closed", "error", err)
		}
	}
}

func (w *wired) closing(f func() error) { w.closers = append(w.closers, f) }
