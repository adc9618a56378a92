package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A zone answers lookups: each name has a list of answers, the last of which is repeated.
type zone struct {
	mu      sync.Mutex
	answers map[string][]string // "1.2.3.4 ::1", or "!timeout", "!error", "!hang"
	asked   []string
}

func (z *zone) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if z.hangs(host) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked = append(z.asked, host)
	list := z.answers[host]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.9.9.9:53", IsNotFound: true}
	}
	answer := list[0]
	if len(list) > 1 {
		z.answers[host] = list[1:]
	}
	switch answer {
	case "!timeout":
		return nil, &net.DNSError{Err: "i/o timeout", Name: host, Server: "10.9.9.9:53", IsTimeout: true}
	case "!error":
		return nil, &net.DNSError{Err: "server misbehaving", Name: host, Server: "10.9.9.9:53"}
	}
	var addrs []netip.Addr
	for _, a := range strings.Fields(answer) {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return addrs, nil
}

// hangs says whether the answer about host never comes.
func (z *zone) hangs(host string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Equal(z.answers[host], []string{"!hang"})
}

// An internet leads addresses to servers of the test.
type internet struct {
	mu     sync.Mutex
	routes map[string]string // "93.184.216.34:443" -> "127.0.0.1:40000", "!hole" or "!error"
	dialed []string
}

func (n *internet) DialAddr(ctx context.Context, addr netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	if err := check(addr); err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.dialed = append(n.dialed, addr.String())
	to := n.routes[addr.String()]
	n.mu.Unlock()
	switch to {
	case "":
		return nil, errors.New("dial tcp 10.9.9.9:1->" + addr.String() + ": broken")
	case "!hole":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to)
}

func (n *internet) dials() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dialed)
}

// A world is a Server with everything around it.
type world struct {
	t       testing.TB
	server  *Server
	socket  string
	zone    *zone
	net     *internet
	records chan Record
	log     *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// rules makes a Network of "kind text" lines.
func rules(t testing.TB, lines ...string) policy.Network {
	t.Helper()
	n := policy.Network{Agent: "web"}
	for _, line := range lines {
		kind, text, _ := strings.Cut(line, " ")
		r, err := policy.ParseRule(kind, text, "agent web")
		if err != nil {
			t.Fatal(err)
		}
		n.Rules = append(n.Rules, r)
	}
	return n
}

// newWorld serves with the given rules; change may alter the options first.
func newWorld(t testing.TB, network policy.Network, change func(*Options)) *world {
	t.Helper()
	w := &world{
		t: t, socket: filepath.Join(t.TempDir(), "s"), records: make(chan Record, 1000), log: &syncBuffer{},
		zone: &zone{answers: map[string][]string{}}, net: &internet{routes: map[string]string{}},
	}
	opt := Options{
		Rules: func() policy.Network { return network }, Resolver: w.zone, Dialer: w.net,
		Audit:  func(r Record) { w.records <- r },
		Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&opt)
	}
	var err error
	if w.server, err = New(opt); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(l) }()
	t.Cleanup(func() {
		w.server.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return w
}

// host makes a name resolve to addrs and leads port of the first of them to the server at to.
func (w *world) host(name, addrs, port, to string) {
	w.zone.answers[name] = []string{addrs}
	w.net.routes[net.JoinHostPort(strings.Fields(addrs)[0], port)] = to
}

// dial connects to the proxy.
func (w *world) dial() *net.UnixConn {
	w.t.Helper()
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn.(*net.UnixConn)
}

// raw sends bytes and gives the first answer to them, its body read.
func (w *world) raw(request string) *http.Response {
	w.t.Helper()
	conn := w.dial()
	defer conn.Close()
	// A server that refuses the connection itself answers and closes before it has read a request.
	if _, err := io.WriteString(conn, request); err != nil && !errors.Is(err, syscall.EPIPE) {
		w.t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, &http.Request{Method: method})
	for err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(br, &http.Request{Method: method})
	}
	if err != nil {
		w.t.Fatalf("%q: %v", request, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%q: %v", request, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

func bodyOf(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// client is an HTTP client that uses the proxy for everything.
func (w *world) client() *http.Client {
	tr := &http.Transport{
		Proxy:              http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:3128"}),
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", w.socket)
		},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// tunnel opens a CONNECT tunnel.
func (w *world) tunnel(target string) (*net.UnixConn, *bufio.Reader) {
	w.t.Helper()
	conn := w.dial()
	io.WriteString(conn, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, &http.Request{Method: "CONNECT"})
	if err != nil || resp.StatusCode != 200 {
		w.t.Fatalf("CONNECT %s: %v, %v", target, resp, err)
	}
	return conn, br
}

// serve starts an HTTP server of the test and gives its address.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// serveTCP starts a TCP server of the test.
func serveTCP(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// echo sends back what it gets, and its end.
func echo(conn *net.TCPConn) {
	io.Copy(conn, conn)
	conn.CloseWrite()
}

// record gives the next audit record.
func (w *world) record() Record {
	w.t.Helper()
	select {
	case r := <-w.records:
		return r
	case <-time.After(10 * time.Second):
		w.t.Fatal("no audit record")
		return Record{}
	}
}

// wait waits until something is so.
func wait(t testing.TB, what string, so func() bool) {
	t.Helper()
	for begun := time.Now(); !so(); {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("waited in vain for %s", what)
		}
		pause := time.NewTimer(time.Millisecond)
		<-pause.C
	}
}

// waitOpen waits until n connections are open.
func (w *world) waitOpen(n int) {
	w.t.Helper()
	wait(w.t, "connections to end", func() bool { return w.server.Snapshot().Open == n })
}
