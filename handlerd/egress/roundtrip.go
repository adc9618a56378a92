package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
)

// maxAnswerHeader bounds the header of an answer, with all informational answers before it.
const maxAnswerHeader = 256 << 10

// A serverConn is an exchange's connection to a server. It reads no more than a header may have, as long as nobody has
// said that the header is whole.
type serverConn struct {
	net.Conn
	header atomic.Int64 // bytes read of it
	whole  atomic.Bool
}

// Read reads from the server.
func (c *serverConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.whole.Load() && c.header.Add(int64(n)) > maxAnswerHeader {
		return 0, errLongHeader
	}
	return n, err
}

// CloseWrite ends our side of the connection, which ReverseProxy wants of an upgraded one.
func (c *serverConn) CloseWrite() error { return closeWrite(c.Conn) }

// A shortWay sends requests that have no body over the connection of their exchange, in the goroutine that asks:
// there is one request for each connection, so a transport's pool and loops would only cost. Whatever has a body or
// wants to leave HTTP takes the long way, a transport.
type shortWay struct {
	long    http.RoundTripper
	buffers sync.Pool // of *shortBuffers
}

// RoundTrip sends one request, which asks for the connection to be closed after it, and reads the header of its answer.
func (w *shortWay) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil || req.Header.Get("Upgrade") != "" {
		return w.long.RoundTrip(req)
	}
	x := exchangeOf(req.Context())
	conn := x.take()
	if conn == nil {
		return nil, errNoConnection
	}
	a := &shortAnswer{way: w, conn: conn}
	a.stop = context.AfterFunc(req.Context(), func() { conn.Close() })
	resp, err := a.read(req)
	if err != nil {
		a.Close()
		if cause := context.Cause(req.Context()); cause != nil {
			err = cause
		}
		return nil, err
	}
	a.Reader = resp.Body
	resp.Body = a
	return resp, nil
}

var (
	errNoConnection = errors.New("the request has no connection left")
	errLongHeader   = fmt.Errorf("the header of the answer is longer than %d KiB", maxAnswerHeader>>10)
)

// shortBuffers are between us and a server.
type shortBuffers struct {
	in  *bufio.Reader
	out *bufio.Writer
}

// A shortAnswer is the body of an answer, and what has to be given back after it.
type shortAnswer struct {
	io.Reader // of the body
	way       *shortWay
	conn      net.Conn
	stop      func() bool
	buffers   *shortBuffers
	once      sync.Once
}

// read sends the request and reads to the end of the header of its answer.
func (a *shortAnswer) read(req *http.Request) (*http.Response, error) {
	out := *req
	out.Close = true
	var ok bool
	if a.buffers, ok = a.way.buffers.Get().(*shortBuffers); !ok {
		a.buffers = &shortBuffers{bufio.NewReader(nil), bufio.NewWriter(nil)}
	}
	a.buffers.out.Reset(a.conn)
	if err := errors.Join(out.Write(a.buffers.out), a.buffers.out.Flush()); err != nil {
		return nil, err
	}
	a.buffers.in.Reset(a.conn)
	for {
		resp, err := http.ReadResponse(a.buffers.in, req)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode >= 200:
			return resp, nil
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the server left HTTP without being asked")
		}
		if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// Close ends the connection. It may be called again.
func (a *shortAnswer) Close() error {
	a.once.Do(func() {
		a.stop()
		a.conn.Close()
		if a.buffers != nil {
			a.buffers.in.Reset(nil)
			a.buffers.out.Reset(nil)
			a.way.buffers.Put(a.buffers)
		}
	})
	return nil
}
