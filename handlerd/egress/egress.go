// Package egress is a run's only way out (contract D): an HTTP proxy on the run's own socket that judges every
// destination by the run's rules, resolves it once, classifies every answer, and dials the address it has judged,
// never the name. It forwards plain HTTP in absolute form, opens CONNECT tunnels, and serves configured model
// providers under /upstream/NAME/ with a key that stays outside (D.9).
//
// The socket is the identity (D.1): there is one [Server] a run, and it asks its clients for no credentials.
package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/policy"
)

// Options say how one run reaches the network. Rules is required; everything else has a default.
type Options struct {
	// Rules gives the run's rules. It is asked once a request, so that a change takes effect at the next one, and
	// must be safe for concurrent use.
	Rules func() policy.Network

	// Ask is called when the rules say that a person is to be asked about a destination, with that verdict; it gives
	// Allow or Refuse within Limits.Ask and comes back when ctx is done, which is when the client has gone. The held
	// request counts against Limits.Connections. A yes stands for the rule that lacks and for nothing more: what a
	// rule denies, and a name that resolves to an address that is not public, are refused all the same. If nil,
	// nobody can be asked.
	Ask func(ctx context.Context, host string, port uint16, v policy.Verdict) policy.Verdict

	// Upstreams are the providers served under /upstream/NAME/ (D.9). Key is the placeholder that requests to them
	// must bring, random for each run, at least 16 bytes; it is required if there are any.
	Upstreams []Upstream
	Key       string
	// RootCAs verify the upstreams' certificates. If nil, the system's.
	RootCAs *x509.CertPool

	// Local gives what Handler itself answers to plain http requests for a host, by its canonical name, on port 80: no
	// rule is asked and nothing is looked up or dialled, and the host is reached in no other way. nil for a host that
	// is on the network. It must be safe for concurrent use. If nil, no host is local.
	Local func(host string) http.Handler

	// Resolver looks names up. If nil, the system's resolver, with no search list for names that have a dot.
	Resolver Resolver
	// Dialer connects to addresses. If nil, TCP.
	Dialer Dialer
	// OwnListeners gives the addresses on which Handler itself listens; they are never reached, whatever the rules
	// say (D.4). If nil, there are none. An unspecified address stands for every address of this machine.
	OwnListeners func() []netip.AddrPort

	// Audit is given every verdict but a plain allow (D.6), from the goroutine of the request: it must be safe for
	// concurrent use and must not wait for long. If nil, nobody is told.
	Audit func(Record)
	// Failed is given what the rules let out and what came to nothing all the same, in the same way as Audit. If nil,
	// nobody is told.
	Failed func(Failure)
	// Logger takes what is of use when something does not work; never a URL's path, a header or a key. If nil,
	// nothing is logged.
	Logger *slog.Logger
	Limits Limits
	// Pool bounds the connections of several Servers together. If nil, only Limits does.
	Pool *Pool
}

// Limits are the bounds of D.7. A zero field is its default.
type Limits struct {
	Connections  int           // of clients at one time: 256
	HeaderBytes  int           // of a request: 64 KiB
	HeaderTime   time.Duration // to send a request's header: 10 s
	ClientIdle   time.Duration // between two requests of one client connection: 2 min
	Resolve      time.Duration // to look a name up: 10 s
	Dial         time.Duration // to connect, over all addresses: 20 s
	Ask          time.Duration // for Options.Ask to come back: 65 s, a little more than a question lives
	Idle         time.Duration // without a byte either way, of a tunnel or an answer: 10 min
	HalfClosed   time.Duration // without a byte, once one side of a tunnel is done: 1 min
	Total        time.Duration // of one tunnel or request: 12 h
	UpstreamBody int64         // of one request to an upstream: 64 MiB
}

func (l Limits) withDefaults() Limits {
	orInt(&l.Connections, 256)
	orInt(&l.HeaderBytes, 64<<10)
	orInt(&l.HeaderTime, 10*time.Second)
	orInt(&l.ClientIdle, 2*time.Minute)
	orInt(&l.Resolve, 10*time.Second)
	orInt(&l.Dial, 20*time.Second)
	orInt(&l.Ask, 65*time.Second)
	orInt(&l.Idle, 10*time.Minute)
	orInt(&l.HalfClosed, time.Minute)
	orInt(&l.Total, 12*time.Hour)
	orInt(&l.UpstreamBody, 64<<20)
	return l
}

func orInt[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// A Record is one verdict for the audit log and the live view (D.6).
type Record struct {
	Time    time.Time
	Verdict policy.Verdict
	Method  string
	Host    string     // canonical; "" if what was asked for is no host
	Port    uint16     // 0 if Host is ""
	Addr    netip.Addr // the answer that was refused; invalid if none was. Not for the agent
	// Upstream is the name in a request to /upstream/NAME/, if there is such an upstream.
	Upstream string
}

// A Failure is a destination that the rules allow and that was not reached, or did not answer.
type Failure struct {
	Host     string // canonical
	Port     uint16
	Upstream string // the name in a request to /upstream/NAME/
	Text     string // what happened, as the agent reads it; it has no address that the agent did not name
}

// A Server is the way out of one run. It is safe for concurrent use.
type Server struct {
	opt       Options
	limits    Limits
	log       *slog.Logger
	http      *http.Server
	forward   http.Handler
	provider  http.Handler
	upstreams map[string]*upstream
	counters  counters
	rechecks  atomic.Uint64 // how often the rules have changed
	pauses    atomic.Uint64 // how often Pause was called
	paused    atomic.Pointer[policy.Verdict]
	buffers   buffers
	away      chan struct{} // places for answers to clients for which there is no room

	ctx    context.Context // ends with Close: the base of every request
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	clients map[*client]struct{}
	open    map[net.Conn]destination // connections to servers, for Recheck and Close
	work    sync.WaitGroup           // one a client connection, one a dial that lost its race, and net/http's loop
}

// New makes a Server; it serves nothing yet. It fails if the Options lack something or an upstream is not right.
func New(opt Options) (*Server, error) {
	if opt.Rules == nil {
		return nil, errors.New("egress: Options.Rules is required")
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Resolver == nil {
		opt.Resolver = systemResolver{}
	}
	if opt.Dialer == nil {
		opt.Dialer = tcpDialer{}
	}
	if opt.Local == nil {
		opt.Local = func(string) http.Handler { return nil }
	}
	if opt.OwnListeners == nil {
		opt.OwnListeners = func() []netip.AddrPort { return nil }
	}
	if opt.Audit == nil {
		opt.Audit = func(Record) {}
	}
	if opt.Failed == nil {
		opt.Failed = func(Failure) {}
	}
	s := &Server{opt: opt, limits: opt.Limits.withDefaults(), log: opt.Logger,
		clients: map[*client]struct{}{}, open: map[net.Conn]destination{}, away: make(chan struct{}, maxAnswers503)}
	ups, err := checkUpstreams(opt.Upstreams, opt.Key)
	if err != nil {
		return nil, err
	}
	s.upstreams = ups
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.forward = s.newForwardProxy()
	s.provider = s.newProviderProxy()
	s.http = &http.Server{
		Handler:                      http.HandlerFunc(s.serve),
		ReadHeaderTimeout:            s.limits.HeaderTime,
		IdleTimeout:                  s.limits.ClientIdle,
		MaxHeaderBytes:               s.limits.HeaderBytes,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		BaseContext:                  func(net.Listener) context.Context { return s.ctx },
		ConnContext:                  withClient,
		ConnState:                    s.connState,
	}
	return s, nil
}

// Close cuts every connection and returns when nothing of the Server is left: no goroutine, no descriptor. It may
// be called more than once and before Serve.
func (s *Server) Close() error {
	s.cut()
	s.cancel()
	s.http.Close()
	s.work.Wait()
	return nil
}
