package preview

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"time"
)

// Bounds of a Port's answers.
const (
	PortHeaderBytes = 64 << 10        // of one answer's head
	PortAnswerTime  = 5 * time.Minute // for the server to begin its answer; it may wait for whoever debugs it
	portIdle        = time.Minute     // of a connection that is kept
)

// PortOptions are what a Port is made of; Request and Answer may be nil.
type PortOptions struct {
	// Dial connects to the sandbox's port. Its errors are shown: they say what to do.
	Dial func(ctx context.Context) (net.Conn, error)
	// Request changes what the server gets, Answer the head of what the browser gets.
	Request func(*http.Request)
	Answer  func(http.Header)
}

// A Port shows one port of a sandbox to its person's own browser, under a name whose requests whoever listens picks out.
// What comes from the sandbox is the agent's, and is passed on as it is.
type Port struct {
	transport *http.Transport
	proxy     *httputil.ReverseProxy
}

// NewPort makes a Port. Close ends its connections that nobody uses.
func NewPort(o PortOptions) *Port {
	p := &Port{transport: &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) },
		DisableCompression:     true,
		MaxIdleConns:           8,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        portIdle,
		ResponseHeaderTimeout:  PortAnswerTime,
		MaxResponseHeaderBytes: PortHeaderBytes,
	}}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "sandbox" // for the transport, which dials one port whatever it is
			r.Out.URL.RawQuery = r.In.URL.RawQuery               // as it was written
			// The name ends in .localhost, which development servers accept; it is what the page's own addresses say.
			r.Out.Host = r.In.Host
			if _, ok := r.In.Header["User-Agent"]; !ok {
				r.Out.Header.Set("User-Agent", "") // and not Go's
			}
			if o.Request != nil {
				o.Request(r.Out)
			}
		},
		Transport: p.transport,
		ModifyResponse: func(r *http.Response) error {
			// Whoever knows the name reaches the port, so pages do not tell it to the sites that they load from.
			if r.Header.Get("Referrer-Policy") == "" {
				r.Header.Set("Referrer-Policy", "same-origin")
			}
			if o.Answer != nil {
				o.Answer(r.Header)
			}
			return nil
		},
		FlushInterval: -1, // what is sent event by event arrives so
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return
			}
			if o.Answer != nil {
				o.Answer(w.Header())
			}
			RefusePort(w, http.StatusBadGateway, err.Error())
		},
	}
	return p
}

// ServeHTTP passes a request on. It returns when its answer, or its WebSocket, has ended; the end of the request's context
// ends both.
func (p *Port) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.proxy.ServeHTTP(w, r) }

// Close closes the connections that nobody uses.
func (p *Port) Close() { p.transport.CloseIdleConnections() }

// RefusePort answers a request that is not passed on with a sentence for whoever reads it.
func RefusePort(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "handler: "+text+"\n") // who asked may be gone
}
