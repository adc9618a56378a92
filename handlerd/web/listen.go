package web

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// Bounds of the door's connections.
const (
	MaxConnections = 256              // at one time; further ones wait
	HeaderTime     = 10 * time.Second // for a browser to send the head of a request
	HeaderBytes    = 32 << 10         // of a request
	IdleTime       = 2 * time.Minute  // of a connection that is kept
	BodyTime       = time.Minute      // for a browser to send the body of a request
	BodyBytes      = 64 << 20         // of a request; most of the API takes less
	WriteTime      = time.Minute      // for a browser to take what was written to it
)

// An ownListener takes connections of one user's processes only, and a bounded number of them.
type ownListener struct {
	net.Listener
	uid    int
	slots  chan struct{}
	closed <-chan struct{}
	log    *slog.Logger
}

func (l *ownListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		switch uid, err := peerUID(conn); {
		case err != nil:
			l.log.Debug("connection to the page's door refused: nobody knows whose it is", "error", err)
		case uid != l.uid:
			l.log.Warn("connection of another user to the page's door refused", "uid", uid)
		default:
			return &countedConn{conn.(*net.TCPConn), sync.OnceFunc(func() { <-l.slots })}, nil
		}
		_ = conn.Close()
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	*net.TCPConn
	done func()
}

func (c *countedConn) Close() error {
	defer c.done()
	return c.TCPConn.Close()
}
