package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/policy"
)

// serve sorts requests by the form of their target: CONNECT, absolute form, /upstream/NAME/, or nothing of ours.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	defer s.release(clientOf(r.Context()))
	switch {
	case r.Method == http.MethodConnect:
		s.serveConnect(w, r)
	case strings.HasPrefix(r.RequestURI, "/") || insideAddress(r):
		s.serveOrigin(w, r)
	default:
		s.serveForward(w, r)
	}
}

// insideAddress says whether an absolute-form request names this proxy as the sandbox knows it: a client that uses
// its proxy for loopback too still finds the upstreams.
func insideAddress(r *http.Request) bool {
	return r.URL.Scheme == "http" && r.URL.User == nil && (r.URL.Host == insideHost || r.URL.Host == insideName)
}

// serveForward sends a request in absolute form on.
func (s *Server) serveForward(w http.ResponseWriter, r *http.Request) {
	d := destination{method: r.Method}
	var err error
	switch {
	case r.URL.Scheme == "https":
		s.fail(w, r, d, broken(http.StatusBadRequest, "https is reached with CONNECT, not with https:// in the request line"))
		return
	case r.URL.Scheme != "http" || r.URL.Opaque != "":
		s.fail(w, r, d, broken(http.StatusBadRequest, "this proxy takes CONNECT and http:// URLs only"))
		return
	case r.URL.User != nil:
		err = errors.New("the URL contains user information, which is refused")
	default:
		d.host, d.port, err = policy.ParseAuthority(r.URL.Host, 80)
		d.plain, d.path = true, r.URL.EscapedPath()
	}
	if err != nil {
		s.fail(w, r, destination{method: r.Method}, refuseTarget(err))
		return
	}
	if h := s.opt.Local(d.host); h != nil && d.port == 80 {
		s.serveLocal(w, r, d, h)
		return
	}
	if f := overridden(d, s.opt.Rules(), r.Header); f != nil {
		s.fail(w, r, d, f)
		return
	}
	// A WebSocket begins as a GET (RFC 6455); whatever else would leave HTTP/1.1, such as h2c, does not begin.
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Method != http.MethodGet {
		r.Header.Del("Upgrade")
	}
	s.exchange(w, r, s.forward, d, d.host)
}

// An exchange is one request on its way through a reverse proxy, found again in its context.
type exchange struct {
	dest  destination
	path  string // of an upstream request: what its checks have seen
	guard *guard
	count *hostCounter

	server *serverConn // to the judged address

	mu    sync.Mutex
	taken bool // by the transport
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// take gives the connection once: one request, one connection, so nothing of one request reaches the next (E28).
func (x *exchange) take() net.Conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.taken {
		return nil
	}
	x.taken = true
	return x.server
}

// exchange reaches the destination and lets proxy do the rest over that connection.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request, proxy http.Handler, d destination, counted string) {
	conn, f := s.reach(r.Context(), &d)
	if f != nil {
		s.fail(w, r, d, f)
		return
	}
	defer s.track(d, conn)()
	x := &exchange{dest: d, server: &serverConn{Conn: conn}, count: s.counters.host(counted)}
	if d.up != nil {
		x.path = r.URL.Path
		keepAlive(conn) // a model may think for long
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), exchangeKey{}, x))
	defer cancel(nil)
	x.guard = newGuard(s.limits.Idle, s.limits.Total, cancel, clientOf(r.Context()))
	defer x.guard.stop()
	// Nothing of the exchange is left after it: ReverseProxy forgets the connection of an upgrade that it refuses.
	defer conn.Close()
	if r.ContentLength != 0 {
		r.Body = &countedBody{ReadCloser: r.Body, n: &x.count.sent, guard: x.guard}
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// flushAfter is how long bytes of an answer whose length is known may wait for more; of any other they never do.
const flushAfter = 20 * time.Millisecond

// newForwardProxy makes the proxy of absolute-form requests.
func (s *Server) newForwardProxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			x := exchangeOf(pr.In.Context())
			pr.Out.URL.Scheme = "http"
			pr.Out.URL.Host = authority(x.dest, 80)
			pr.Out.Host = pr.Out.URL.Host            // the judged host, not what a Host header says (E15)
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // ReverseProxy would drop what it cannot parse
			stripProxyHeaders(pr.Out.Header)
		},
		ModifyResponse: countResponse,
		Transport:      &shortWay{long: s.newTransport()},
		FlushInterval:  flushAfter,
		BufferPool:     &bufferPool{},
		ErrorHandler:   s.exchangeFailed,
		ErrorLog:       s.debugLog(),
	}
}

// stripProxyHeaders takes out what speaks to this proxy. ReverseProxy has already taken out the hop-by-hop headers,
// also those that Connection names; 100-continue was answered here, so it is not asked for again (E29).
func stripProxyHeaders(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Proxy-") {
			delete(h, name)
		}
	}
	h.Del("Expect")
}

// authority writes a destination as a URL and a Host header do.
func authority(d destination, defaultPort uint16) string {
	if d.port != defaultPort {
		return d.String()
	}
	if strings.Contains(d.host, ":") {
		return "[" + d.host + "]"
	}
	return d.host
}

// newTransport makes a transport whose every request uses the connection of its exchange.
func (s *Server) newTransport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if x := exchangeOf(ctx); x != nil {
				if conn := x.take(); conn != nil {
					return conn, nil
				}
			}
			return nil, errNoConnection
		},
		TLSClientConfig: &tls.Config{
			RootCAs: s.opt.RootCAs, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(16),
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		TLSHandshakeTimeout:    s.limits.Dial,
		ResponseHeaderTimeout:  s.limits.Idle,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
}

func (s *Server) debugLog() *log.Logger {
	return slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
}

// countResponse counts an answer's body, and keeps that of an upgrade writable.
func countResponse(resp *http.Response) error {
	x := exchangeOf(resp.Request.Context())
	x.server.whole.Store(true)
	if rw, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		keepAlive(x.server.Conn)
		resp.Body = &countedStream{ReadWriteCloser: rw, x: x}
		return nil
	}
	resp.Body = &countedBody{ReadCloser: resp.Body, n: &x.count.received, guard: x.guard}
	return nil
}

// exchangeFailed answers for a request that was let out and did not come back whole.
func (s *Server) exchangeFailed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	cause := context.Cause(r.Context())
	if errors.Is(cause, context.Canceled) {
		return // the client has gone, or the Server is closing
	}
	s.log.Debug("egress: exchange failed", "host", x.dest.host, "port", x.dest.port, "error", scrub(err))
	var cert *tls.CertificateVerificationError
	var tooLong *http.MaxBytesError
	var own *failureError
	var f *failure
	switch {
	case errors.As(err, &own):
		f = own.failure
	case errors.As(err, &tooLong):
		f = broken(http.StatusRequestEntityTooLarge, "the request is longer than %d MiB", tooLong.Limit>>20)
	case errors.Is(cause, errIdle), isTimeout(err):
		f = broken(http.StatusGatewayTimeout, "%s took too long to answer", x.dest)
	case errors.As(err, &cert):
		f = broken(http.StatusBadGateway, "the certificate of %s is not one that this machine trusts", x.dest)
	default:
		f = broken(http.StatusBadGateway, "%s closed the connection without an answer that can be read", x.dest)
	}
	s.fail(w, r, x.dest, f)
}

// scrub gives an error's innermost text: the outer ones of net/http repeat the URL.
func scrub(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// A failureError carries a failure through ReverseProxy.
type failureError struct{ failure *failure }

func (e *failureError) Error() string { return e.failure.text }

// A bufferPool spares ReverseProxy an allocation for each copy.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }

// A countedBody counts what is read and keeps its guard awake.
type countedBody struct {
	io.ReadCloser
	n     *atomic.Int64
	guard *guard
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	b.guard.touch()
	return n, err
}

// A countedStream is the upgraded connection to a server.
type countedStream struct {
	io.ReadWriteCloser
	x *exchange
}

func (c *countedStream) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.x.count.received.Add(int64(n))
	c.x.guard.touch()
	return n, err
}

func (c *countedStream) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	c.x.count.sent.Add(int64(n))
	c.x.guard.touch()
	return n, err
}

// CloseWrite lets a half-closed upgrade end in order.
func (c *countedStream) CloseWrite() error {
	if cw, ok := c.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return http.ErrNotSupported
}
