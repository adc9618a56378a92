package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/handlerd/handler/policy"
)

// A Resolver looks names up. *net.Resolver is one.
type Resolver interface {
	// LookupNetIP gives every address of host, a canonical name, of both families (network is "ip").
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Dialer connects to an address that has been judged.
type Dialer interface {
	// DialAddr connects to addr and to nothing else. Just before it does, it asks check about the address that it
	// is about to connect to, and gives up with check's error.
	DialAddr(ctx context.Context, addr netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error)
}

// systemResolver is Go's own resolver, so that a lookup can be cancelled. It keeps no answer: each request is judged by
// what the name says then, which is never older than its time to live.
type systemResolver struct {
	server netip.AddrPort // invalid: those of resolv.conf
}

// DNSServer gives a resolver that asks one name server, and not those of resolv.conf; the names of /etc/hosts are known
// all the same.
func DNSServer(server netip.AddrPort) Resolver { return systemResolver{server: server} }

// LookupNetIP keeps the search list of resolv.conf away from names with a dot: they are looked up as written.
func (s systemResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if strings.Contains(host, ".") {
		host += "."
	}
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, server string) (net.Conn, error) {
		if s.server.IsValid() {
			server = s.server.String()
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, server)
		if err == nil {
			// Or a look-up that nobody waits for would go on until its server's time is over.
			context.AfterFunc(ctx, func() { conn.Close() })
		}
		return conn, err
	}}
	return r.LookupNetIP(ctx, network, host)
}

type tcpDialer struct{}

func (tcpDialer) DialAddr(ctx context.Context, addr netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	// A tunnel that lasts turns keep-alive on by itself.
	d := net.Dialer{KeepAlive: -1, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return errors.New("the address to connect to cannot be read")
		}
		return check(ap)
	}}
	d.SetMultipathTCP(false) // or the peer could announce further addresses, which nobody judged
	conn, err := d.DialTCP(ctx, "tcp", netip.AddrPort{}, addr)
	if err != nil {
		return nil, err // and no *net.TCPConn that is nil
	}
	return conn, nil
}

// A destination is what a request asks for.
type destination struct {
	method string
	host   string // canonical
	port   uint16
	up     *upstream // nil for what the agent named itself
	plain  bool      // a request of plain http, whose method and path the rules see
	path   string    // of a plain one, as the request line has it

	// What judged it, for Server.Recheck.
	asked bool         // a person let it out, and no rule did
	addrs []netip.Addr // what it resolved to
	seen  uint64       // which state of the rules it was (Server.rechecks)
	pause uint64       // how often it had been paused (Server.pauses)
}

// String gives host:port as a person writes it.
func (d destination) String() string {
	return net.JoinHostPort(d.host, fmt.Sprint(d.port))
}

// A failure is why a destination was not reached: a verdict, or something that did not work.
type failure struct {
	status  int
	verdict policy.Verdict // Action Refuse if the rules said no
	text    string         // otherwise; nothing in it that the agent did not ask for
	addr    netip.Addr     // for the audit log
	gone    bool           // nobody waits for it any more, so it says nothing of the destination
}

func refusal(v policy.Verdict, addr netip.Addr) *failure {
	return &failure{status: http.StatusForbidden, verdict: v, addr: addr}
}

func broken(status int, format string, args ...any) *failure {
	return &failure{status: status, text: fmt.Sprintf(format, args...)}
}

// maxAnswers bounds what a name server may make us classify, maxDials what of it is tried.
const (
	maxAnswers = 64
	maxDials   = 8
	// headStart is what an address gets before the next is tried beside it (RFC 8305 recommends 250 ms).
	headStart = 250 * time.Millisecond
)

// reach judges, resolves, classifies and connects (D.2). The connection is to one of the addresses judged.
func (s *Server) reach(ctx context.Context, d *destination) (net.Conn, *failure) {
	d.pause = s.pauses.Load()
	if f := s.still(*d); f != nil {
		return nil, f
	}
	d.seen = s.rechecks.Load() // before the rules are read, so that a later change is noticed
	rules := s.opt.Rules()
	if d.up == nil {
		v := d.decide(rules)
		if v.Action == policy.Ask {
			rules, v = s.ask(ctx, d, v)
		}
		if v.Action != policy.Allow {
			return nil, refusal(v, netip.Addr{})
		}
	}
	addrs, f := s.resolve(ctx, *d)
	if f != nil {
		return nil, f
	}
	if v, bad := d.decideResolved(rules, addrs); v.Action == policy.Refuse {
		return nil, refusal(v, bad)
	}
	d.addrs = addrs
	targets := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		targets[i] = netip.AddrPortFrom(a, d.port)
		if f := s.checkTarget(*d, targets[i]); f != nil {
			return nil, f
		}
	}
	return s.connect(ctx, *d, targets)
}

// checkTarget is what the rules cannot say: Handler's own listeners are never reached, and an upstream's key never
// travels in clear over the public internet.
func (s *Server) checkTarget(d destination, target netip.AddrPort) *failure {
	if s.ownListener(target) {
		return refusal(policy.Verdict{Action: policy.Refuse, Rule: "D.4",
			Reason: d.String() + " is a listener of Handler itself, which is never reached from a sandbox"}, target.Addr())
	}
	if d.up != nil && d.up.base.Scheme == "http" {
		if _, public := policy.ClassifyAddr(target.Addr()); public {
			return refusal(policy.Verdict{Action: policy.Refuse, Rule: "D.9",
				Reason: "the key of upstream " + d.up.Name + " would travel unencrypted over the public internet",
				Hint:   "give the upstream an https URL"}, target.Addr())
		}
	}
	return nil
}

// ownListener says whether Handler listens on target.
func (s *Server) ownListener(target netip.AddrPort) bool {
	for _, own := range s.opt.OwnListeners() {
		if own.Port() != target.Port() {
			continue
		}
		if own.Addr().IsUnspecified() {
			if target.Addr().IsLoopback() || localAddr(target.Addr()) {
				return true
			}
		} else if own.Addr().Unmap() == target.Addr() {
			return true
		}
	}
	return false
}

// localAddr says whether an interface of this machine has the address; if that cannot be known, yes.
func localAddr(a netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(i net.Addr) bool {
		p, err := netip.ParsePrefix(i.String())
		return err == nil && p.Addr().Unmap().WithZone("") == a
	})
}

// resolve gives every address of a host, unmapped, in the resolver's order. It is asked once a request: what is
// judged is what is dialled.
func (s *Server) resolve(ctx context.Context, d destination) ([]netip.Addr, *failure) {
	if addr, err := netip.ParseAddr(d.host); err == nil {
		return []netip.Addr{addr}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.Resolve)
	defer cancel()
	answers, err := s.opt.Resolver.LookupNetIP(ctx, "ip", d.host)
	var dns *net.DNSError
	switch {
	case err == nil:
	case ctx.Err() != nil, errors.As(err, &dns) && dns.IsTimeout:
		return nil, broken(http.StatusGatewayTimeout, "%s could not be looked up within %s", d.host, s.limits.Resolve)
	case errors.As(err, &dns) && dns.IsNotFound:
		return nil, broken(http.StatusBadGateway, "%s does not resolve: no such host", d.host)
	default:
		// The error may name the resolver's address, so it goes to the log only.
		s.log.Debug("egress: lookup failed", "host", d.host, "error", err)
		return nil, broken(http.StatusBadGateway, "%s could not be looked up", d.host)
	}
	if len(answers) > maxAnswers {
		return nil, broken(http.StatusBadGateway, "%s resolves to more than %d addresses", d.host, maxAnswers)
	}
	var addrs []netip.Addr
	for _, a := range answers {
		if a = a.Unmap(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}

// connect tries the addresses, each with a head start on the next, within one deadline for all. The first that
// connects is given; the others are closed.
func (s *Server) connect(ctx context.Context, d destination, targets []netip.AddrPort) (net.Conn, *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Dial)
	defer cancel()
	if len(targets) > maxDials {
		targets = targets[:maxDials]
	}
	check := func(ap netip.AddrPort) error {
		ap = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
		if !slices.Contains(targets, ap) || s.ownListener(ap) {
			return errors.New("the address to connect to is not one that was judged")
		}
		return nil
	}
	var conn net.Conn
	var err error
	if len(targets) == 1 {
		conn, err = s.opt.Dialer.DialAddr(ctx, targets[0], check)
	} else {
		conn, err = s.race(ctx, targets, check)
	}
	if err == nil {
		return conn, nil
	}
	s.log.Debug("egress: connect failed", "host", d.host, "port", d.port, "error", err)
	switch {
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return nil, broken(http.StatusGatewayTimeout, "%s did not answer within %s", d, s.limits.Dial)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, broken(http.StatusBadGateway, "%s refused the connection: nothing listens there", d)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return nil, broken(http.StatusBadGateway, "there is no route to %s", d)
	}
	return nil, broken(http.StatusBadGateway, "%s could not be connected to", d)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

type dialed struct {
	conn net.Conn
	err  error
}

// race gives the first connection, or the first error when none succeeds.
func (s *Server) race(ctx context.Context, targets []netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed, len(targets))
	started, running := 0, 0
	start := func() {
		target := targets[started]
		started++
		running++
		go func() {
			conn, err := s.opt.Dialer.DialAddr(ctx, target, check)
			results <- dialed{conn, err}
		}()
	}
	start()
	timer := time.NewTimer(headStart)
	defer timer.Stop()
	var first error
	for {
		select {
		case <-timer.C:
			if started < len(targets) {
				start()
				timer.Reset(headStart)
			}
		case r := <-results:
			running--
			if r.err == nil {
				s.reap(results, running)
				return r.conn, nil
			}
			if first == nil {
				first = r.err
			}
			if started < len(targets) && ctx.Err() == nil {
				start()
				timer.Reset(headStart)
			} else if running == 0 {
				return nil, first
			}
		}
	}
}

// reap closes what the losers of a race still connect. The caller holds a client connection, so that Close is not
// waiting with an empty count yet.
func (s *Server) reap(results chan dialed, running int) {
	if running == 0 {
		return
	}
	s.work.Go(func() {
		for range running {
			if r := <-results; r.conn != nil {
				r.conn.Close()
			}
		}
	})
}
