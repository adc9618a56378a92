// Package rundir is the host's side of a run directory: the sockets that a sandbox finds at sandbox.RunDirTarget,
// all of them ours. A Dir takes the guest's one connection on guest.sock and hands out the one on acp.sock;
// ServeFiles gives a Spec's files to the guest. Only peers with our own uid are heard.
//
// What comes from inside is not trusted: the agent has the guest's uid and may imitate it.
package rundir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// MaxSocketPath is the most bytes that a unix socket's path can have (sun_path without its final NUL).
const MaxSocketPath = 107

// ErrClosed is what waiting methods return after Close.
var ErrClosed = errors.New("run directory is closed")

// Options of New. The zero value works.
type Options struct {
	// Logger hears of refused peers and of guests that break the protocol; nil for none.
	Logger *slog.Logger
	// StderrLine, if not nil, is called with every line of the command's standard error, without its newline and
	// at most MaxLine bytes at a time, in order, from one goroutine. It must not keep the slice and must not
	// call Close. While it blocks the guest drops what comes.
	StderrLine func(line []byte)
	// StderrBytes is how much of the end of standard error Stderr returns; 0 for 64 KiB.
	StderrBytes int
}

// A Dir is one open run directory. Its methods may be called concurrently.
type Dir struct {
	path   string
	log    *slog.Logger
	stderr tail
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup

	acp *one
	ctl *one
	wmu sync.Mutex // held while a frame is written to the guest
	mu  sync.Mutex // guards what follows
	lns []net.Listener
	res Result
	err error // of Close
	guestEvents
	door    door          // shell.sock
	dialing chan struct{} // has an entry for every connection that Dial has asked for and that has not come
}

// guestEvents are closed as the guest tells of them.
type guestEvents struct {
	started chan struct{}
	done    chan struct{}
}

// A Result is what the guest said up to its end. It is for showing and for deciding nothing of weight: the engine's
// own Driver.Wait says how the sandbox ended.
type Result struct {
	Started bool
	PID     int    // of the command, as the sandbox sees it
	Exited  bool   // the guest told how the command ended
	Code    int    // 128 + signal number when a signal ended it
	Signal  string // such as "KILL", or ""
	Failed  string // why the command could not be started, or ""; not trusted text
	Err     error  // the guest broke the protocol or its connection failed; nil for a plain end
}

// New makes parent/name, 0700, with acp.sock and guest.sock in it and waits for the guest. parent is made if it is
// not there; name is one path element and must not exist yet. A path too long for its sockets is an error that says
// so. The caller closes the Dir.
func New(parent, name string, o Options) (*Dir, error) {
	path := filepath.Join(parent, name)
	if err := checkPath(path, name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	d := &Dir{path: path, log: o.Logger, closed: make(chan struct{}), dialing: make(chan struct{}, MaxDialing),
		guestEvents: guestEvents{started: make(chan struct{}), done: make(chan struct{})}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.stderr = newTail(o.StderrBytes, o.StderrLine)
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// checkPath refuses names that leave the parent and paths on which no socket fits.
func checkPath(path, name string) error {
	if name == "" || name == "." || name == ".." || filepath.Base(name) != name {
		return fmt.Errorf("run directory name %q is not one path element", name)
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("run directory %s: the path is not absolute", path)
	}
	return checkSocket(filepath.Join(path, sandbox.SocketEgress)) // the longest of the sockets' names
}

func checkSocket(path string) error {
	if len(path) > MaxSocketPath {
		return fmt.Errorf("socket path %s has %d bytes, a unix socket can have %d; use a shorter runtime folder",
			path, len(path), MaxSocketPath)
	}
	return nil
}

func (d *Dir) open() error {
	if err := os.Chmod(d.path, 0o700); err != nil { // whatever the umask took away
		return err
	}
	acp, err := d.Listen(sandbox.SocketACP)
	if err != nil {
		return err
	}
	ctl, err := d.Listen(sandbox.SocketGuest)
	if err != nil {
		return err
	}
	d.acp, d.ctl = newOne(), newOne()
	d.wg.Go(func() { d.acp.accept(acp) })
	d.wg.Go(func() { d.ctl.accept(ctl); d.listenToGuest() })
	return nil
}

// Path returns the directory, for Spec.RunDir.
func (d *Dir) Path() string { return d.path }

// Listen adds a listener at name, for egress.sock and mcp.sock. It hears only peers of our own uid, and it is
// closed with the Dir. Its connections are *net.UnixConn. It may be closed and opened anew.
func (d *Dir) Listen(name string) (net.Listener, error) {
	select {
	case <-d.closed:
		return nil, ErrClosed
	default:
	}
	if filepath.Base(name) != name || name == "." || name == ".." {
		return nil, fmt.Errorf("socket name %q is not one path element", name)
	}
	l, err := listen(filepath.Join(d.path, name), d.log)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.closed: // while we made it
		return nil, errors.Join(ErrClosed, l.Close())
	default:
	}
	d.lns = append(d.lns, l)
	return l, nil
}

// ACP waits for the guest's connection on acp.sock and hands it out; it is the caller's then. There is one: a later
// call returns an error, and a later connect from inside is refused. It is joined to the command's standard input and
// output: CloseWrite ends the command's input, and its read end ends when the command has closed its output. The
// connection is a *net.UnixConn.
func (d *Dir) ACP(ctx context.Context) (net.Conn, error) {
	select {
	case <-d.acp.ready:
	case <-d.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn := d.acp.take()
	if conn == nil {
		select {
		case <-d.closed:
			return nil, ErrClosed
		default:
		}
		return nil, errors.New("the run's agent connection is taken or closed")
	}
	return conn, nil
}

// Started is closed when the guest says that the command runs.
func (d *Dir) Started() <-chan struct{} { return d.started }

// Done is closed when the guest's connection has ended, for whatever reason, or the Dir was closed. Result is final
// then, and Stderr whole.
func (d *Dir) Done() <-chan struct{} { return d.done }

// Result returns what the guest has said until now.
func (d *Dir) Result() Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.res
}

// Stderr returns the end of the command's standard error, and how many bytes before or within it were lost.
func (d *Dir) Stderr() (end []byte, lost int64) { return d.stderr.snapshot() }

// Signal asks the guest to send a signal: TERM and KILL to every process of the sandbox, INT, HUP, USR1 and USR2 to
// the command. After TERM nothing is killed by force: that is Driver.Stop's. It fails when no guest is connected or it does not read within a second.
func (d *Dir) Signal(name string) error {
	return d.tell(guestwire.Frame{Kind: guestwire.Signal, Signal: name})
}

// Close ends all connections and listeners, waits for the Dir's goroutines and removes the directory, following no
// symbolic link. The guest ends its sandbox when it sees this. Close is idempotent.
func (d *Dir) Close() error {
	d.once.Do(func() {
		d.mu.Lock()
		close(d.closed)
		lns := d.lns
		d.mu.Unlock()
		for _, l := range lns {
			_ = l.Close() // closing twice is no harm
		}
		d.door.close()
		for _, o := range []*one{d.acp, d.ctl} {
			if o != nil {
				o.close()
			}
		}
		d.wg.Wait()
		d.err = Remove(filepath.Dir(d.path), filepath.Base(d.path))
	})
	return d.err
}

// Remove removes the run directory parent/name that some earlier daemon left, following no symbolic link. What is
// gone is no error.
func Remove(parent, name string) error {
	root, err := os.OpenRoot(parent)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("remove run directory: %w", err)
	}
	defer root.Close()
	if err := root.RemoveAll(name); err != nil {
		return fmt.Errorf("remove run directory: %w", err)
	}
	return nil
}
