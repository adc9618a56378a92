package rundir

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/handlerd/handler/sandbox/peer"
)

// listener is a unix listener that hears only our own uid.
type listener struct {
	*net.UnixListener
	log *slog.Logger
}

// listen makes a socket, 0600 whatever the umask is. Its directory is 0700, so there is no moment in which
// another user could reach it.
func listen(path string, log *slog.Logger) (*listener, error) {
	if err := checkSocket(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("run directory: %w", err), l.Close())
	}
	return &listener{l, log}, nil
}

// Accept returns the next connection of our own uid; others are closed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if _, err := peer.Own(c); err != nil {
			l.log.Warn("run directory: peer refused", "socket", l.Addr().String(), "err", err)
			_ = c.Close()
			continue
		}
		return c, nil
	}
}

// one holds the one connection that a listener takes.
type one struct {
	ready  chan struct{} // closed when conn is set or none will come
	mu     sync.Mutex
	conn   *net.UnixConn
	taken  bool
	closed bool
}

func newOne() *one { return &one{ready: make(chan struct{})} }

// accept waits for the first connection and closes the listener, so that a second connect is refused.
func (o *one) accept(l net.Listener) {
	defer close(o.ready)
	c, err := l.Accept()
	_ = l.Close()
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = c.Close()
		return
	}
	o.conn = c.(*net.UnixConn)
}

// take gives the connection away, once.
func (o *one) take() *net.UnixConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taken || o.closed {
		return nil
	}
	o.taken = true
	return o.conn
}

// peek returns the connection if there is one.
func (o *one) peek() *net.UnixConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conn
}

// close closes the connection that is here or that may still come, taken or not.
func (o *one) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.conn != nil {
		_ = o.conn.Close()
	}
}
