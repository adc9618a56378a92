package rundir

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// Bounds of what comes to shell.sock.
const (
	MaxKnocks = 16              // connections that have not said their token yet; more are closed at once
	KnockTime = 5 * time.Second // to say it
)

var errEnded = errors.New("the sandbox has ended")

// A door is shell.sock: it pairs what the daemon asked for with the connections that the guest makes. A token tells
// them apart, and is used once. It is no proof of who speaks: everything inside has the same uid.
type door struct {
	mu      sync.Mutex
	open    bool                     // the listener is there
	waiting map[string]chan net.Conn // by token
	knocks  map[net.Conn]bool        // connections without a token yet
	closed  bool
}

// awaitStarted waits until the command runs, at most until ctx is done.
func (d *Dir) awaitStarted(ctx context.Context) error {
	select {
	case <-d.started:
		return nil
	case <-d.closed:
		return ErrClosed
	case <-d.done:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask sends the guest a frame with a fresh token and gives the connection that comes with it.
func (d *Dir) ask(ctx context.Context, f guestwire.Frame) (net.Conn, error) {
	if err := d.openDoor(); err != nil {
		return nil, err
	}
	f.Token = rand.Text()
	came := make(chan net.Conn, 1)
	d.door.mu.Lock()
	if d.door.closed {
		d.door.mu.Unlock()
		return nil, ErrClosed
	}
	d.door.waiting[f.Token] = came
	d.door.mu.Unlock()
	err := d.tell(f)
	if err == nil {
		select {
		case conn := <-came:
			return conn, nil
		case <-d.closed:
			err = ErrClosed
		case <-d.done:
			err = errEnded
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	d.door.mu.Lock()
	delete(d.door.waiting, f.Token)
	d.door.mu.Unlock()
	select {
	case conn := <-came: // at the last moment
		_ = conn.Close()
	default:
	}
	return nil, err
}

// openDoor makes shell.sock the first time that it is wanted.
func (d *Dir) openDoor() error {
	d.door.mu.Lock()
	defer d.door.mu.Unlock()
	if d.door.open {
		return nil
	}
	l, err := d.Listen(sandbox.SocketShell)
	if err != nil {
		return err
	}
	d.door.open = true
	d.door.waiting, d.door.knocks = map[string]chan net.Conn{}, map[net.Conn]bool{}
	d.wg.Go(func() { d.watchDoor(l) })
	return nil
}

// watchDoor takes connections until the listener is closed.
func (d *Dir) watchDoor(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !d.door.knock(conn) {
			_ = conn.Close()
			continue
		}
		d.wg.Go(func() {
			if err := d.door.admit(conn); err != nil {
				d.log.Debug("run directory: connection to the shell socket refused", "dir", d.path, "err", err)
				_ = conn.Close()
			}
		})
	}
}

// knock counts a connection that has yet to say its token.
func (o *door) knock(conn net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.knocks) >= MaxKnocks {
		return false
	}
	o.knocks[conn] = true
	return true
}

// admit reads a connection's token and gives it to who waits for it.
func (o *door) admit(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(KnockTime))
	f, err := guestwire.NewShellReader(conn).Next()
	if err == nil && f.Kind != guestwire.ShellToken {
		err = errors.New("it does not begin with a token")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.knocks, conn)
	if err != nil {
		return err
	}
	if o.closed {
		return ErrClosed
	}
	for token, came := range o.waiting {
		if subtle.ConstantTimeCompare([]byte(token), f.Data) == 1 {
			delete(o.waiting, token)
			_ = conn.SetReadDeadline(time.Time{})
			came <- conn // it has room for the one there is
			return nil
		}
	}
	return errors.New("nobody waits for its token")
}

// close ends what has not been admitted yet.
func (o *door) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for conn := range o.knocks {
		_ = conn.Close()
	}
}

// tell sends a frame to the guest. It fails when no guest is connected or it does not read within a second.
func (d *Dir) tell(f guestwire.Frame) error {
	line, err := guestwire.Append(nil, f)
	if err != nil {
		return err
	}
	conn := d.ctl.peek()
	if conn == nil {
		return errors.New("no guest is connected")
	}
	d.wmu.Lock()
	defer d.wmu.Unlock()
	if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("speak to the guest: %w", err)
	}
	if _, err := conn.Write(line); err != nil {
		return fmt.Errorf("speak to the guest: %w", err)
	}
	return nil
}
