package podman

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A service is our own `podman system service`, a child of this process (A.10). It dies with this process, whoever
// kills it, and leaves a pause process and perhaps monitors of sandboxes behind, which stop, or the next start, ends.
type service struct {
	opts Options
	l    layout
	log  *slog.Logger

	mu     sync.Mutex // held while the service starts and stops
	child  *child     // nil when none was started, or it was stopped
	lock   *os.File   // held from the first start until stop
	closed bool
}

// A child is one life of podman's service.
type child struct {
	process *os.Process
	done    chan struct{} // closed when it has ended
	output  *os.File
	copied  chan struct{} // closed when all of output was read, or it was closed
	said    *tail
}

const (
	serviceStartTime = 60 * time.Second // the first start of a storage makes it; a slow disk is no reason to give up
	serviceStopTime  = 10 * time.Second
)

func newService(o Options, log *slog.Logger) *service {
	return &service{opts: o, l: layout{state: o.StateDir, run: o.RunDir}, log: log}
}

// ensure starts the service unless it runs, and says whether it started one: then what was known of the old one is
// void. m must not be nil.
func (s *service) ensure(ctx context.Context, m *machine) (started bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, setupError(ErrClosed, "")
	}
	if s.child != nil {
		select {
		case <-s.child.done:
			s.child.release()
			s.log.Warn("podman's service ended by itself and is started again", "said", s.child.said.String())
			s.child = nil
		default:
			return false, nil
		}
	}
	podman, err := s.opts.findPodman()
	if err != nil {
		return false, err
	}
	if err := checkSubIDs(s.opts); err != nil {
		return false, err
	}
	if err := s.takeLock(); err != nil {
		return false, err
	}
	if err := prepare(s.opts, s.l, m); err != nil {
		return false, err
	}
	// A predecessor that was killed may have left a service that holds the same storage.
	if err := endAll(ctx, s.l.xdg(), isService); err != nil {
		return false, setupError(fmt.Errorf("ending a service that a predecessor left: %w", err), "")
	}
	if err := os.Remove(s.l.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, folderError(s.l.socket(), err)
	}
	s.removeTemporary()
	s.child, err = startChild(podman, []string{"--log-level=warn", "system", "service", "--time=0", "unix://" + s.l.socket()},
		environ(s.opts, s.l, m.systemd), s.log)
	if err != nil {
		return false, setupError(fmt.Errorf("starting %s: %w", podman, err), "")
	}
	if err := s.ready(ctx); err != nil {
		s.child.stop(serviceStopTime)
		said := s.child.said.String()
		s.child = nil
		return false, s.startError(ctx, podman, err, said)
	}
	return true, nil
}

func (o Options) findPodman() (string, error) {
	name := o.Podman
	if name == "" {
		name = "podman"
	}
	path, err := lookPath(o.Path, name)
	if err != nil {
		return "", setupError(fmt.Errorf("%w: %v", ErrPodmanMissing, err), installHint("podman"))
	}
	return path, nil
}

// takeLock keeps a second daemon from using the same podman runtime folder at once.
func (s *service) takeLock() error {
	if s.lock != nil {
		return nil
	}
	if err := ownFolder(s.l.run); err != nil {
		return err
	}
	f, err := os.OpenFile(s.l.lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return folderError(s.l.lock(), err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return setupError(fmt.Errorf("%w: %s", ErrBusy, s.l.run), "end the other one: handler daemon stop")
	}
	s.lock = f
	return nil
}

// ready waits until the service takes connections.
func (s *service) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serviceStartTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("unix", s.l.socket())
		if err == nil {
			return c.Close()
		}
		select {
		case <-s.child.done:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("it took no connection: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// removeTemporary removes the files that a service which was killed was writing. None runs now.
func (s *service) removeTemporary() {
	found, err := filepath.Glob(filepath.Join(s.l.storage(), "overlay-*", ".tmp-*.json*"))
	if err != nil {
		return
	}
	for _, path := range found {
		if err := os.Remove(path); err != nil {
			s.log.Warn("a file that podman's service was writing was not removed", "error", err)
		}
	}
}

// restart ends the service, so that the next ensure starts one.
func (s *service) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		s.child.stop(serviceStopTime)
		s.child = nil
	}
}

// startError finds out why podman did not start: an old version, ids, the disk, or what it said.
func (s *service) startError(ctx context.Context, podman string, err error, said string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("sandbox engine: set-up: %w", ctx.Err())
	}
	if line, verr := firstLine(ctx, podman, "--version"); verr == nil {
		fields := strings.Fields(line) // "podman version 4.3.1"
		if len(fields) >= 3 && !atLeast(fields[2], 4, 3) {
			return setupError(fmt.Errorf("%w: this is %s", ErrPodmanOld, fields[2]), installHint("podman"))
		}
	}
	if isDiskFull(errors.New(said)) {
		return setupError(fmt.Errorf("%w: %s", ErrDiskFull, s.l.state), diskHint(s.l.state))
	}
	if strings.Contains(said, "newuidmap") || strings.Contains(said, "newgidmap") {
		return setupError(fmt.Errorf("%w: %s", ErrServiceFailed, said), "look at /etc/subuid and /etc/subgid, and that newuidmap is setuid: "+installHint("uidmap"))
	}
	return setupError(fmt.Errorf("%w: %w: %s", ErrServiceFailed, err, said), "see whether podman works for you at all: podman info")
}

// stop ends the service and every process that it left in our runtime folder: its pause process, and monitors of
// sandboxes that are not there any more. It is idempotent, and nothing starts after it.
func (s *service) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.child != nil {
		s.child.stop(serviceStopTime)
		s.child = nil
	}
	if s.lock == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), serviceStopTime)
	defer cancel()
	err := endAll(ctx, s.l.xdg(), func(ownProc) bool { return true })
	for _, path := range []string{s.l.socket(), s.l.pausePID()} {
		if rerr := os.Remove(path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	err = errors.Join(err, s.lock.Close())
	s.lock = nil
	return err
}

// startChild starts a process that gets TERM when this one dies. The kernel sends that when the thread that forked
// ends, so a thread stays for it.
func startChild(name string, args, env []string, log *slog.Logger) (*child, error) {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	c := &child{done: make(chan struct{}), output: out, copied: make(chan struct{}), said: &tail{}}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := cmd.Start()
		in.Close()
		c.process = cmd.Process
		started <- err
		if err == nil {
			err = cmd.Wait()
			log.Debug("podman's service ended", "status", cmd.ProcessState.String(), "error", err)
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		out.Close()
		return nil, err
	}
	go func() {
		defer close(c.copied)
		c.said.copy(out, func(line string) { log.Debug("podman says", "line", line) })
	}()
	return c, nil
}

// stop sends TERM, and KILL after grace, and returns when the process has ended and what it said was read.
func (c *child) stop(grace time.Duration) {
	_ = c.process.Signal(syscall.SIGTERM) // an error says that it has ended
	select {
	case <-c.done:
	case <-time.After(grace):
		_ = c.process.Kill()
		<-c.done
	}
	c.release()
}

// release ends the reading of what an ended child says. Processes that it left, such as the pause process, may hold
// the other end of the pipe for long.
func (c *child) release() {
	select {
	case <-c.copied:
	case <-time.After(100 * time.Millisecond):
	}
	c.output.Close()
	<-c.copied
}

// A tail keeps the last lines of a stream, for an error that must say why.
type tail struct {
	mu    sync.Mutex
	lines []string
}

const (
	tailLines    = 8
	tailLineSize = 512
)

// copy reads r to its end, a line at a time, each cut to tailLineSize.
func (t *tail) copy(r io.Reader, each func(string)) {
	in := bufio.NewReaderSize(r, tailLineSize)
	for {
		line, more, err := in.ReadLine()
		if err != nil {
			return
		}
		text := strings.TrimSpace(string(line))
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		if text == "" {
			continue
		}
		each(text)
		t.add(text)
	}
}

func (t *tail) add(line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines = append(t.lines, line[:min(len(line), tailLineSize)]); len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

// String is what was said last.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "; ")
}
