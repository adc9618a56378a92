package egress

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/handlerd/handler/policy"
)

// Pause ends everything that is open and refuses everything new with v, whose Action is Refuse, until Resume. What was
// on its way when it was called does not come through after it.
func (s *Server) Pause(v policy.Verdict) {
	s.paused.Store(&v)
	s.pauses.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		if c.giveUp != nil {
			c.giveUp()
		}
		c.Conn.Close()
	}
	for conn := range s.open {
		conn.Close()
	}
}

// Resume takes Pause back.
func (s *Server) Resume() { s.paused.Store(nil) }

// still refuses what comes while the Server is paused, and a local host where it is not served.
func (s *Server) still(d destination) *failure {
	if v := s.paused.Load(); v != nil {
		return refusal(*v, netip.Addr{})
	}
	if d.up == nil && s.opt.Local(d.host) != nil {
		return refusal(policy.Verdict{Action: policy.Refuse, Rule: "F.6",
			Reason: d.host + " is answered by Handler itself, over plain http on port 80 only", Hint: "use http://" + d.host + "/"}, netip.Addr{})
	}
	return nil
}

// serveLocal lets h answer a request in absolute form.
func (s *Server) serveLocal(w http.ResponseWriter, r *http.Request, d destination, h http.Handler) {
	if v := s.paused.Load(); v != nil {
		s.fail(w, r, d, refusal(*v, netip.Addr{}))
		return
	}
	r = r.Clone(r.Context())
	r.Host = d.host
	r.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	r.RequestURI = r.URL.RequestURI()
	r.Header.Del("Upgrade")
	stripProxyHeaders(r.Header)
	h.ServeHTTP(w, r)
}

// tunnelLocal lets h answer the plain http that is spoken in a tunnel to port 80 of a local host: it is how a browser
// with a proxy opens a WebSocket. The end of the client's connection ends it, and so Pause does.
func (s *Server) tunnelLocal(c *client, d destination, h http.Handler, early []byte) {
	inner, outer := net.Pipe()
	l := &oneConn{conn: inner, done: make(chan struct{})}
	server := &http.Server{
		ReadHeaderTimeout: s.limits.HeaderTime,
		MaxHeaderBytes:    s.limits.HeaderBytes,
		ErrorLog:          s.debugLog(),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Host = d.host
			r.URL.Scheme, r.URL.Host = "", ""
			stripProxyHeaders(r.Header)
			h.ServeHTTP(w, r)
		}),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // it ends by Close
	}()
	defer func() {
		outer.Close() // also of what has been taken over from the server
		server.Close()
		<-served
	}()
	c.Conn.SetDeadline(time.Time{})
	c.Conn.SetWriteDeadline(time.Now().Add(s.limits.HeaderTime))
	if _, err := io.WriteString(c.Conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	s.tunnel(d, c.Conn, outer, early)
}

// A oneConn is a listener for one connection.
type oneConn struct {
	conn net.Conn // nil once it was accepted
	done chan struct{}
	once sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
