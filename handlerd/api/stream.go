package api

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// A stream writes JSON values as they come, a line each.
type stream struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	rc    *http.ResponseController
	enc   *json.Encoder
	begun bool // protected by mu while the stream is written to; read by its maker after the last send
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, rc: http.NewResponseController(w), enc: json.NewEncoder(w)}
}

func (s *stream) send(v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	if err := s.enc.Encode(v); err != nil {
		return err
	}
	return s.rc.Flush()
}

// An earlyConn gives first what was read before the connection was handed over.
type earlyConn struct {
	net.Conn
	early []byte
}

func (c *earlyConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// SyscallConn is the connection's own, by which its hang-up is seen.
func (c *earlyConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite ends the direction to the client, as the relay does when the agent has ended.
func (c *earlyConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
