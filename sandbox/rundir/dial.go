package rundir

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/handlerd/handler/sandbox/guestwire"
)

// MaxDialing is how many connections of Dial may be asked for at one time; further ones wait for their turn. It leaves
// room below MaxKnocks, so that a guest which answers many at once is not turned away.
const MaxDialing = 8

// A DialError is the guest's answer that it does not reach the port or the display, and why. The text is the guest's, or of whoever
// imitates it: clean it before it is shown.
type DialError struct{ Text string }

func (e *DialError) Error() string { return e.Text }

// Dial asks the guest to connect to a port of the sandbox's loopback, 1 to 65535, and returns the connection, whose
// bytes are the port's; it is the caller's then. It waits until the command runs and the guest has answered, at most
// until ctx is done. An error that the guest itself gave is a *DialError. What answers may be anything of the sandbox's:
// the agent may imitate the guest.
func (d *Dir) Dial(ctx context.Context, port int) (*net.UnixConn, error) {
	return d.dial(ctx, guestwire.Frame{Kind: guestwire.Dial, Port: port})
}

// DialScreen is Dial of the VNC server of the display that the sandbox has to itself (A.6). The connection's bytes are
// RFB's. A sandbox without such a display answers with a *DialError.
func (d *Dir) DialScreen(ctx context.Context) (*net.UnixConn, error) {
	return d.dial(ctx, guestwire.Frame{Kind: guestwire.Screen})
}

// DialHands is DialScreen of a VNC server of that display which also takes pointer and keys. It is asked for where a person
// has taken the display over, and never for one that an agent shares.
func (d *Dir) DialHands(ctx context.Context) (*net.UnixConn, error) {
	return d.dial(ctx, guestwire.Frame{Kind: guestwire.Hands})
}

func (d *Dir) dial(ctx context.Context, f guestwire.Frame) (*net.UnixConn, error) {
	if err := d.awaitStarted(ctx); err != nil {
		return nil, err
	}
	select {
	case d.dialing <- struct{}{}:
	case <-d.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-d.dialing }()
	if err := ctx.Err(); err != nil { // its turn came when it was given up
		return nil, err
	}
	conn, err := d.ask(ctx, f)
	if err != nil {
		return nil, err
	}
	if err := awaitDialed(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// awaitDialed reads whether the guest has reached the port, and nothing behind that.
func awaitDialed(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	f, err := guestwire.NewShellReader(conn).Next()
	if !stop() || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case err != nil:
		return fmt.Errorf("the guest closed it: %w", err)
	case f.Kind == guestwire.ShellFailed:
		return &DialError{f.Text}
	case f.Kind != guestwire.ShellStarted:
		return errors.New("the guest speaks out of order")
	}
	return conn.SetReadDeadline(time.Time{})
}
