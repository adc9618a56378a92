package main

import (
	"context"
	"errors"
	"net"
	"os"
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

// failed says what went wrong and, behind a NUL, what to do.
func (r *readiness) failed(err error) {
	f := fault.Of(err)
	r.say(f.Text + "\x00" + f.Hint)
}

// endTimeout bounds the orderly end of everything.
const endTimeout = 45 * time.Second

// serve answers until ctx is done, the API asks for the end, or nothing has happened for idle.
func (w *wired) serve(ctx context.Context, l net.Listener, startedBy string, idle time.Duration, ready *readiness) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	activity := newActivity(idle, cancel)
	defer activity.close()
	if err := w.wireDoor(activity.begin); err != nil {
		return err
	}
	defer w.door.Close()
	options := w.apiOptions(cancel, activity.begin)
	options.StartedBy = startedBy
	talking := w.newTalk(activity.begin)
	setTalk(&options, talking)
	server := api.New(options)

	w.door.Start(server.Handler())

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
	wg.Go(func() {
		// Not before listen, whose umask would be that of the store's folders too.
		if err := w.artifacts.Ready(ctx); err != nil {
			w.log.Error("no artifacts are kept", "error", err)
		}
	})
	wg.Go(func() { watchdog(ctx) })
	wg.Go(func() { w.watchSocket(ctx, l, cancel) })
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
	var talkErr error
	if talking != nil {
		talkErr = talking.Close(end)
	}
	return errors.Join(err, w.door.Close(), talkErr, w.runs.Close(end), server.Close(end))
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
