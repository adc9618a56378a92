package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Pool bounds the connections that several Servers have open together (D.7). It is safe for concurrent use.
type Pool struct {
	limit int64
	open  atomic.Int64
}

// NewPool makes a Pool of at most limit connections.
func NewPool(limit int) *Pool { return &Pool{limit: int64(limit)} }

// Open gives how many connections there are now.
func (p *Pool) Open() int { return int(p.open.Load()) }

// take says whether there is room for one more; a nil Pool has always room.
func (p *Pool) take() bool {
	if p == nil {
		return true
	}
	if p.open.Add(1) > p.limit {
		p.open.Add(-1)
		return false
	}
	return true
}

func (p *Pool) give() {
	if p != nil {
		p.open.Add(-1)
	}
}

// A client is one open connection from the sandbox. Its first bytes are looked at here; a CONNECT request becomes a
// tunnel at once, anything else is handed to net/http, for which the client is a connection with those bytes in front.
type client struct {
	net.Conn
	head  []byte    // read and not yet given to net/http
	until time.Time // when the first header must be there, as net/http is to know once

	hijacked bool   // protected by Server.mu; taken over from net/http by a tunnel or an upgrade
	giveUp   func() // protected by Server.mu; ends the reaching of a tunnel's destination; nil where none is reached
}

// growStack makes room on a new goroutine's stack at once. Growing it step by step, when it is deep, was a tenth of what
// a short connection cost.
//
//go:noinline
func growStack() byte {
	var room [12 << 10]byte
	return room[len(room)-1]
}

// Read gives what was read already, then what comes.
func (c *client) Read(p []byte) (int, error) {
	if len(c.head) > 0 {
		growStack()
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite ends our side of the connection, which ReverseProxy wants of an upgraded one.
func (c *client) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// SetReadDeadline keeps net/http from giving the first header its whole time anew.
func (c *client) SetReadDeadline(t time.Time) error {
	if !c.until.IsZero() && t.After(c.until) {
		t = c.until
	}
	c.until = time.Time{}
	return c.Conn.SetReadDeadline(t)
}

// buffers are for a request's head and for the first bytes of a tunnel's directions.
type buffers struct{ pool sync.Pool }

const bufferBytes = 8 << 10

func (b *buffers) get() *[bufferBytes]byte {
	if buf, ok := b.pool.Get().(*[bufferBytes]byte); ok {
		return buf
	}
	return new([bufferBytes]byte)
}

func (b *buffers) put(buf *[bufferBytes]byte) { b.pool.Put(buf) }

// Serve takes connections from l until Close, which makes it return nil, or until l fails. It closes l.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	defer context.AfterFunc(s.ctx, func() { l.Close() })()
	rest := &handover{conns: make(chan net.Conn), done: s.ctx.Done(), addr: l.Addr()}
	if !s.begin(func() { s.http.Serve(rest) }) { // it ends with Close, for no other reason
		return nil
	}
	for wait := time.Duration(0); ; {
		conn, err := l.Accept()
		switch {
		case err == nil:
			wait = 0
			s.welcome(conn, rest)
		case s.ctx.Err() != nil:
			return nil
		case !passing(err):
			return err
		default:
			s.log.Warn("egress: a connection could not be taken", "error", err)
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
			}
		}
	}
}

// passing tells what Accept fails with for a while from what it fails with for good.
func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// begin runs f beside, as work that Close waits for; false if the Server is closed.
func (s *Server) begin(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Go(f)
	}
	return !s.closed
}

// What a client gets for which there is no room.
const (
	fullRun = "handler: this run has too many connections open (D.7); close some and try again\n"
	fullAll = "handler: all runs together have too many connections open (D.7); try again later\n"
)

// welcome serves a connection, or says why not.
func (s *Server) welcome(conn net.Conn, rest *handover) {
	c := &client{Conn: conn}
	if text := s.admit(c); text != "" {
		s.turnAway(conn, text)
		return
	}
	go s.meet(c, rest)
}

// Bounds of turning clients away.
const (
	maxAnswers503 = 64 // at one time; beyond, connections are just closed
	answerTime    = time.Second
)

// turnAway says why there is no room. It takes what the client has sent for a moment: closing over unread bytes could
// lose the answer.
func (s *Server) turnAway(conn net.Conn, text string) {
	select {
	case s.away <- struct{}{}:
	default:
		conn.Close()
		return
	}
	answered := s.begin(func() {
		defer func() { <-s.away }()
		defer conn.Close()
		defer context.AfterFunc(s.ctx, func() { conn.Close() })()
		writeAnswer(conn, answer{status: http.StatusServiceUnavailable, line: "Too many connections", kind: textKind, body: text})
		conn.SetDeadline(time.Now().Add(answerTime))
		if closeWrite(conn) == nil {
			io.CopyN(io.Discard, conn, 64<<10)
		}
	})
	if !answered {
		<-s.away
		conn.Close()
	}
}

// admit gives a client its place, or the text of the refusal.
func (s *Server) admit(c *client) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "handler: this run has ended\n"
	case len(s.clients) >= s.limits.Connections:
		s.counters.failed.Add(1)
		return fullRun
	case !s.opt.Pool.take():
		s.counters.failed.Add(1)
		return fullAll
	}
	s.clients[c] = struct{}{}
	s.work.Add(1)
	return ""
}

// meet reads what a client says first.
func (s *Server) meet(c *client, rest *handover) {
	growStack()
	c.until = time.Now().Add(s.limits.HeaderTime)
	c.Conn.SetReadDeadline(c.until)
	buf := s.buffers.get()
	n, err := c.Conn.Read(buf[:])
	req, used, ok := parseConnect(buf[:n])
	c.head = bytes.Clone(buf[used:n])
	s.buffers.put(buf) // a tunnel lives long
	switch {
	case err != nil:
		s.forget(c)
	case ok:
		defer s.forget(c)
		s.openTunnel(c, req, c.head)
	case !rest.give(c):
		s.forget(c)
	}
}

// forget ends a client's connection and gives its place back. It may be called again.
func (s *Server) forget(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.clients[c]; !ok {
		return
	}
	c.Conn.Close()
	delete(s.clients, c)
	s.opt.Pool.give()
	s.work.Done()
}

// cut ends every connection; no new one comes after it.
func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.clients {
		c.Conn.Close()
	}
	for conn := range s.open {
		conn.Close()
	}
}

// connState is net/http's hook: a closed connection is done, a hijacked one is done when its handler returns.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	c := conn.(*client)
	switch state {
	case http.StateClosed:
		s.forget(c)
	case http.StateHijacked:
		s.mu.Lock()
		c.hijacked = true
		s.mu.Unlock()
	}
}

// release ends a hijacked connection, and does nothing for one that net/http still has.
func (s *Server) release(c *client) {
	s.mu.Lock()
	hijacked := c.hijacked
	s.mu.Unlock()
	if hijacked {
		s.forget(c)
	}
}

// A handover is the listener of net/http: it gives the connections that are not tunnels.
type handover struct {
	conns chan net.Conn
	done  <-chan struct{}
	addr  net.Addr
}

func (h *handover) give(c *client) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// Accept waits for the next connection, or for the Server's end.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the Server's end is the end of it.
func (h *handover) Close() error { return nil }

// Addr is the address of the listener whose connections these are.
func (h *handover) Addr() net.Addr { return h.addr }

type clientKey struct{}

func withClient(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{}, conn)
}

// clientOf gives the client of a request that net/http has read.
func clientOf(ctx context.Context) *client {
	c, _ := ctx.Value(clientKey{}).(*client)
	return c
}
