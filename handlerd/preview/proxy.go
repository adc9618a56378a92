package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of an app's answers.
const (
	AppAnswerTime  = time.Minute // for an app to begin its answer
	MaxAppBytes    = 256 << 20   // of one answer's body; a WebSocket has no such end
	appHeaderBytes = 64 << 10    // of one answer's head
	appIdle        = 30 * time.Second
)

// appsPolicy is the Content-Security-Policy that an app's own is joined by: its pages reach the workspace's apps and
// nothing else. The browser's network is every public host, the sandbox's is what the agent's rules allow; without
// this a page of the agent's would be its way out.
const appsPolicy = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval' http://*." + Domain + " ws://*." + Domain + "; " +
	"base-uri 'self'; form-action 'self' http://*." + Domain + "; frame-ancestors 'self' http://*." + Domain

// apps is the way to the ports of a session's apps.
type apps struct {
	s         *Session
	transport *http.Transport
}

func newApps(s *Session) *apps {
	a := &apps{s: s}
	a.transport = &http.Transport{
		DialContext:            a.dial,
		DisableCompression:     true,
		MaxIdleConns:           16,
		MaxIdleConnsPerHost:    8,
		MaxConnsPerHost:        32,
		IdleConnTimeout:        appIdle,
		ResponseHeaderTimeout:  AppAnswerTime,
		MaxResponseHeaderBytes: appHeaderBytes,
	}
	return a
}

func (a *apps) close() { a.transport.CloseIdleConnections() }

// dial connects to a port in the sandbox; the connection ends with the session.
func (a *apps) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if a.s.o.Dial == nil {
		return nil, errors.New("this run has no apps")
	}
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < MinPort || port > MaxPort {
		return nil, fmt.Errorf("port %s is none of an app", text)
	}
	c, err := a.s.o.Dial(ctx, port)
	if err != nil {
		return nil, err
	}
	end := sync.OnceValue(c.Close)
	stop := context.AfterFunc(a.s.ctx, func() { _ = end() })
	return &appConn{c, func() error { stop(); return end() }}, nil
}

// An appConn is a connection that the session's end closes.
type appConn struct {
	net.Conn
	close func() error
}

func (c *appConn) Close() error { return c.close() }

// ourOrigin tells whether a request may come from a page of the workspace: browsers say the origin of whatever is not a
// plain GET of the same origin. A page of the web must neither use the apps nor read what they answer.
func ourOrigin(h http.Header) bool {
	for _, origin := range h.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" || !strings.HasSuffix(u.Host, "."+Domain) {
			return false
		}
	}
	return true
}

// proxy passes requests for an app's host to its port. The app sees itself as localhost, which is what development
// servers answer; nothing of handlerd's is in what it gets.
func (a *apps) proxy(name string, port int) http.Handler {
	self, local := "http://"+name+"."+Domain, "http://localhost:"+strconv.Itoa(port)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it was written
			r.Out.Host = strings.TrimPrefix(local, "http://")
			if r.Out.Header.Get("Origin") == self {
				r.Out.Header.Set("Origin", local)
			}
			if rest, ok := strings.CutPrefix(r.Out.Header.Get("Referer"), self+"/"); ok {
				r.Out.Header.Set("Referer", local+"/"+rest)
			}
			if _, ok := r.In.Header["User-Agent"]; !ok {
				r.Out.Header.Set("User-Agent", "") // and not Go's
			}
		},
		Transport:      a.transport,
		FlushInterval:  -1, // what is sent event by event arrives so
		ModifyResponse: func(r *http.Response) error { return answer(r, self, port) },
		ErrorLog:       log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				refuse(w, http.StatusBadGateway, fmt.Sprintf("the app %s did not answer on port %d: %v", name, port, err))
			}
		},
	}
}

// answer makes an app's answer one of the preview's.
func answer(r *http.Response, self string, port int) error {
	h := r.Header
	if to, err := url.Parse(h.Get("Location")); err == nil && to.Scheme == "http" && to.Port() == strconv.Itoa(port) &&
		(to.Hostname() == "localhost" || to.Hostname() == "127.0.0.1" || to.Hostname() == "::1") {
		to.Host = strings.TrimPrefix(self, "http://")
		h.Set("Location", to.String())
	}
	h.Add("Content-Security-Policy", appsPolicy) // several hold together
	h.Set("Cross-Origin-Resource-Policy", "same-site")
	h.Del("Alt-Svc")
	if r.StatusCode != http.StatusSwitchingProtocols {
		if r.ContentLength > MaxAppBytes {
			return fmt.Errorf("its answer is larger than %d MiB", MaxAppBytes>>20)
		}
		r.Body = &bounded{r.Body, MaxAppBytes}
	}
	return nil
}

// bounded is a body that fails beyond its bound, so that the browser sees it cut and not whole.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the app's answer is larger than %d MiB", MaxAppBytes>>20)
	}
	return n, err
}
