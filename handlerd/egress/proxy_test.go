package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/policy"
)

const publicAddr = "93.184.216.34"

// TestBypass is what has got past other proxies: every line is refused before anything is dialled.
func TestBypass(t *testing.T) {
	w := newWorld(t, rules(t, "allow allowed.example", "allow *.suffix.example", "allow youtube.example",
		"allow rebind.example", "allow n64.example", "allow mapped.example", "allow hex.example", "allow sixtofour.example",
		"allow teredo.example", "allow compat.example", "allow cgnat.example", "allow zero.example", "allow bench.example",
		"allow reserved.example", "allow site.example", "allow ula.example", "allow meta.example", "allow mixed.example",
		"allow aaaa.example", "allow azure.example", "allow localhost", "allow empty.example"), nil)
	for name, answer := range map[string]string{
		"allowed.example": publicAddr, "n64.example": "64:ff9b::a9fe:a9fe", "mapped.example": "::ffff:127.0.0.1",
		"hex.example": "::ffff:7f00:1", "sixtofour.example": "2002:7f00:1::1", "teredo.example": "2001:0:1::1",
		"compat.example": "::10.0.0.1", "cgnat.example": "100.64.0.1", "zero.example": "0.1.2.3", "bench.example": "198.18.0.1",
		"reserved.example": "240.0.0.1", "site.example": "fec0::1", "ula.example": "fd00::1", "meta.example": "169.254.169.254",
		"mixed.example": "8.8.8.8 127.0.0.1", "aaaa.example": "8.8.8.8 ::1", "azure.example": "168.63.129.16",
		"localhost": "127.0.0.1", "empty.example": "",
	} {
		w.zone.answers[name] = []string{answer}
	}
	targets := map[string]string{ // host -> rule
		"n64.example": "D.2", "mapped.example": "D.2", "hex.example": "D.2", "sixtofour.example": "D.2", "teredo.example": "D.2",
		"compat.example": "D.2", "cgnat.example": "D.2", "zero.example": "D.2", "bench.example": "D.2", "reserved.example": "D.2",
		"site.example": "D.2", "ula.example": "D.2", "meta.example": "D.2", "mixed.example": "D.2", "aaaa.example": "D.2",
		"azure.example": "D.2", "localhost": "D.2", "empty.example": "D.2",
		"127.0.0.1": "D.4", "10.0.0.5": "D.4", "169.254.169.254": "D.2", "[::1]": "D.4", "[::ffff:127.0.0.1]": "D.4",
		"[::ffff:7f00:1]": "D.4", "[64:ff9b::a9fe:a9fe]": "D.2", "[2002:7f00:1::]": "D.2", "0.0.0.0": "D.2",
		"0177.0.0.1": "D.2", "0x7f000001": "D.2", "2130706433": "D.2", "127.1": "D.2", "0": "D.2", "127.0.0.1.": "D.2",
		"[allowed.example]": "D.2", "notyoutube.example": "D.4", "youtube.example.evil.test": "D.4", "suffix.example": "D.4",
		"xsuffix.example": "D.4", "host.containers.internal": "D.4", "evil.example": "D.4", "allowed.example.": "dial",
		"ALLOWED.example": "dial",
	}
	for host, rule := range targets {
		for _, request := range []string{
			"CONNECT " + host + ":443 HTTP/1.1\r\nHost: allowed.example:443\r\n\r\n",
			"GET http://" + host + "/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		} {
			before := len(w.net.dials())
			resp := w.raw(request)
			if rule == "dial" { // shows that the table can fail: these two go out, and nobody answers
				if resp.StatusCode != 502 || len(w.net.dials()) != before+1 {
					t.Errorf("%q: %s, want it dialled", request, resp.Status)
				}
				continue
			}
			strict := resp.StatusCode == 400 && (strings.HasPrefix(host, "[allowed") || strings.Contains(host, "%"))
			if (resp.StatusCode != 403 || resp.Header.Get(RuleHeader) != rule) && !strict {
				t.Errorf("%q: %s, rule %q; want 403, %s", request, resp.Status, resp.Header.Get(RuleHeader), rule)
			}
			if len(w.net.dials()) != before {
				t.Errorf("%q: dialled %v", request, w.net.dials()[before:])
			}
		}
	}
}

// TestMalformed is requests that no two programs would read alike.
func TestMalformed(t *testing.T) {
	w := newWorld(t, rules(t, "allow allowed.example", "allow allowed.example:8080"), nil)
	w.zone.answers["allowed.example"] = []string{publicAddr}
	for _, line := range []string{
		"GET http://allowed.example@evil.example/ HTTP/1.1",
		"GET http://user:pw@allowed.example/ HTTP/1.1",
		`GET http://allowed.example\@evil.example/ HTTP/1.1`,
		"GET http://evil.example%23@allowed.example/ HTTP/1.1",
		"GET http://allowed.example:/ HTTP/1.1",
		"GET http://allowed.example:0/ HTTP/1.1",
		"GET http://allowed.example:080/ HTTP/1.1",
		"GET http://[fe80::1%25eth0]/ HTTP/1.1",
		"GET http:allowed.example HTTP/1.1",
		"GET http:///x HTTP/1.1",
		"GET https://allowed.example/ HTTP/1.1",
		"GET ftp://allowed.example/ HTTP/1.1",
		"GET file:///etc/passwd HTTP/1.1",
		"GET / HTTP/1.1",
		"GET //allowed.example/ HTTP/1.1",
		"OPTIONS * HTTP/1.1",
		"CONNECT allowed.example HTTP/1.1",
		"CONNECT allowed.example: HTTP/1.1",
		"CONNECT allowed.example:0443 HTTP/1.1",
		"CONNECT allowed.example:99999 HTTP/1.1",
		"CONNECT user@allowed.example:443 HTTP/1.1",
		"CONNECT http://allowed.example:443/ HTTP/1.1",
		"CONNECT allowed.example:443/x HTTP/1.1",
		"CONNECT /allowed.example HTTP/1.1",
		"CONNECT [allowed.example]:443 HTTP/1.1",
		"CONNECT [::1:443 HTTP/1.1",
		"CONNECT ::1:443 HTTP/1.1",
		"CONNECT allowed.example:443 HTTP/1.1\r\nContent-Length: 3",
		"CONNECT allowed.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked",
		"POST http://allowed.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
		"POST http://allowed.example/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
		"GET http://allowed.example/ HTTP/1.1\r\nHost: again.example",
		"GET http://allowed.example/ HTTP/1.1\r\nBad Header: x",
	} {
		resp := w.raw(line + "\r\nHost: allowed.example\r\n\r\n")
		if resp.StatusCode != 400 && resp.StatusCode != 403 && resp.StatusCode != 501 {
			t.Errorf("%q: %s", line, resp.Status)
		}
		if body := bodyOf(t, resp); strings.Contains(body, "pw") {
			t.Errorf("%q: the answer repeats a password: %s", line, body)
		}
	}
	if dials := w.net.dials(); len(dials) != 0 {
		t.Errorf("dialled %v", dials)
	}
}

func TestRefusalExplainsItself(t *testing.T) {
	w := newWorld(t, rules(t), nil)
	const want = `refused by D.4: api.example.org is not allowed for agent "web" — allow it: handler policy allow web api.example.org`
	resp := w.raw("GET http://API.example.org/x HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 403 || body != want+"\n" || resp.Header.Get(RuleHeader) != "D.4" {
		t.Errorf("%s %v: %s", resp.Status, resp.Header, body)
	}
	r := w.record()
	if r.Host != "api.example.org" || r.Port != 80 || r.Method != "GET" || r.Verdict.String() != want || r.Time.IsZero() {
		t.Errorf("record %+v", r)
	}
	resp = w.raw("GET http://api.example.org/ HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n")
	var got map[string]string
	if err := json.Unmarshal([]byte(bodyOf(t, resp)), &got); err != nil || got["rule"] != "D.4" || got["message"] != want || got["hint"] == "" {
		t.Errorf("%v, %v", got, err)
	}
	resp = w.raw("CONNECT api.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp.Status != `403 refused by D.4: api.example.org is not allowed for agent "web"` {
		t.Errorf("status line of CONNECT: %q", resp.Status)
	}
}

func TestRebinding(t *testing.T) {
	w := newWorld(t, rules(t, "allow rebind.example"), nil)
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "public") })
	w.host("rebind.example", publicAddr, "80", to)
	w.zone.answers["rebind.example"] = []string{publicAddr, "127.0.0.1"}
	resp := w.raw("GET http://rebind.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); body != "public" {
		t.Errorf("first: %s", body)
	}
	if len(w.zone.asked) != 1 {
		t.Errorf("one request asked %v", w.zone.asked)
	}
	if diff := cmp.Diff([]string{publicAddr + ":80"}, w.net.dials()); diff != "" {
		t.Error(diff)
	}
	resp = w.raw("GET http://rebind.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "loopback") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("rebound: %s: %s", resp.Status, body)
	}
	if r := w.record(); r.Addr != netip.MustParseAddr("127.0.0.1") || r.Verdict.Rule != "D.2" {
		t.Errorf("record %+v", r)
	}
}

func TestRedirectToPrivate(t *testing.T) {
	w := newWorld(t, rules(t, "allow www.example"), nil)
	w.host("www.example", publicAddr, "80", serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	}))
	resp, err := w.client().Get("http://www.example/")
	if err != nil {
		t.Fatal(err)
	}
	if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "169.254.169.254 is a cloud's metadata address") {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

func TestForward(t *testing.T) {
	w := newWorld(t, rules(t, "allow www.example", "allow www.example:8080"), nil)
	seen := make(chan *http.Request, 10)
	to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		seen <- r
		w.Header().Set("X-End", "1")
		fmt.Fprintf(w, "got %s", body)
	})
	w.host("www.example", publicAddr, "80", to)
	w.net.routes[publicAddr+":8080"] = to
	resp := w.raw("POST http://WWW.example:8080/a%2Fb?x=1;y=%zz HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: Basic c2VjcmV0\r\n" +
		"Proxy-Connection: keep-alive\r\nConnection: X-Named, close\r\nX-Named: 1\r\nX-Forwarded-For: 1.2.3.4\r\nTE: gzip\r\nKeep-Alive: 1\r\n" +
		"Expect: 100-continue\r\nX-Kept: yes\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello")
	r := <-seen
	if r.Host != "www.example:8080" || r.RequestURI != "/a%2Fb?x=1;y=%zz" {
		t.Errorf("Host %q, target %q", r.Host, r.RequestURI)
	}
	for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "X-Named", "Te", "Keep-Alive", "Expect", "Upgrade", "X-Forwarded-For"} {
		if v := r.Header.Values(name); len(v) != 0 {
			t.Errorf("forwarded %s: %v", name, v)
		}
	}
	if body := bodyOf(t, resp); body != "got hello" || resp.Header.Get("X-End") != "1" {
		t.Errorf("%s %v: %s", resp.Status, resp.Header, body)
	}
	want := Snapshot{Allowed: 1, Hosts: []HostCount{{Host: "www.example", Requests: 1, Sent: 5, Received: 9}}}
	got := w.server.Snapshot()
	got.Open = 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnswerLosesHopHeaders(t *testing.T) {
	w := newWorld(t, rules(t, "allow www.example"), nil)
	w.host("www.example", publicAddr, "80", serveTCP(t, func(c *net.TCPConn) {
		http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nProxy-Authenticate: Basic\r\nX-End: 1\r\nContent-Length: 2\r\n\r\nok")
	}))
	resp := w.raw("GET http://www.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); body != "ok" || resp.Header.Get("X-End") != "1" ||
		resp.Header.Get("X-Hop") != "" || resp.Header.Get("Proxy-Authenticate") != "" {
		t.Errorf("%s %v: %s", resp.Status, resp.Header, body)
	}
}

// TestForwardKeepsClientConnection: the client's connection serves several requests to several hosts, each over an
// upstream connection of its own.
func TestForwardKeepsClientConnection(t *testing.T) {
	w := newWorld(t, rules(t, "allow *.example"), nil)
	var conns atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	w.host("a.example", publicAddr, "80", s.Listener.Addr().String())
	w.host("b.example", publicAddr, "80", s.Listener.Addr().String())
	conn := w.dial()
	br := bufio.NewReader(conn)
	for _, host := range []string{"a.example", "b.example", "a.example"} {
		fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", host)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body := bodyOf(t, resp); body != host {
			t.Errorf("%s answered %s", host, body)
		}
	}
	if n := conns.Load(); n != 3 {
		t.Errorf("%d upstream connections for 3 requests", n)
	}
}

func TestExpectRefusedUpstream(t *testing.T) {
	w := newWorld(t, rules(t, "allow www.example"), nil)
	w.host("www.example", publicAddr, "80", serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusExpectationFailed)
	}))
	req, err := http.NewRequest("POST", "http://www.example/", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	resp, err := w.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if bodyOf(t, resp); resp.StatusCode != http.StatusExpectationFailed {
		t.Error(resp.Status)
	}
}

func TestForwardStreams(t *testing.T) {
	w := newWorld(t, rules(t, "allow www.example"), nil)
	more := make(chan bool)
	w.host("www.example", publicAddr, "80", serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "one\n")
		w.(http.Flusher).Flush()
		<-more
		io.WriteString(w, "two\n")
	}))
	resp, err := w.client().Get("http://www.example/")
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(resp.Body)
	if line, err := br.ReadString('\n'); err != nil || line != "one\n" {
		t.Fatalf("%q, %v", line, err)
	}
	close(more)
	if line, err := br.ReadString('\n'); err != nil || line != "two\n" {
		t.Fatalf("%q, %v", line, err)
	}
	resp.Body.Close()
}

func TestConnectTLS(t *testing.T) {
	w := newWorld(t, rules(t, "allow example.com"), nil)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "secure") }))
	t.Cleanup(s.Close)
	w.host("example.com", publicAddr, "443", s.Listener.Addr().String())
	c := w.client()
	c.Transport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	resp, err := c.Get("https://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	if body := bodyOf(t, resp); body != "secure" {
		t.Error(body)
	}
}

// TestGreetingNamesAnotherHost: a tunnel to an allowed host on a shared address is no way to its neighbour (E14).
func TestGreetingNamesAnotherHost(t *testing.T) {
	w := newWorld(t, rules(t, "allow allowed.example"), nil)
	var got atomic.Int64
	w.host("allowed.example", publicAddr, "443", serveTCP(t, func(c *net.TCPConn) {
		n, _ := c.Read(make([]byte, 1))
		got.Add(int64(n))
	}))
	for _, tt := range []struct{ name, want string }{
		{"neighbour.example", "unrecognized name"},
		{"Allowed.example", ""}, // the greeting goes through, and the test's server hangs up
	} {
		conn, _ := w.tunnel("allowed.example:443")
		err := tls.Client(conn, &tls.Config{ServerName: tt.name, InsecureSkipVerify: true}).Handshake()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
		if reached := got.Load() > 0; reached != (tt.want == "") {
			t.Errorf("%s: the greeting reached the server: %v", tt.name, reached)
		}
		conn.Close()
	}
	if r := w.record(); r.Verdict.Rule != "D.2" || !strings.Contains(r.Verdict.Reason, "another host") {
		t.Errorf("record %+v", r)
	}
}

// upgradeServer answers a WebSocket handshake and echoes what follows.
func upgradeServer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") == "" {
		http.Error(w, "no upgrade", http.StatusBadRequest)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	io.Copy(conn, rw)
}

func TestWebSocket(t *testing.T) {
	w := newWorld(t, rules(t, "allow ws.example"), nil)
	w.host("ws.example", publicAddr, "80", serve(t, upgradeServer))
	const headers = "Host: ws.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nProxy-Authorization: x\r\n\r\n"
	plain := w.dial()
	tunnelled, _ := w.tunnel("ws.example:80")
	for name, conn := range map[string]net.Conn{"GET http://ws.example/ HTTP/1.1\r\n": plain, "GET / HTTP/1.1\r\n": tunnelled} {
		io.WriteString(conn, name+headers)
		br := bufio.NewReader(conn)
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" {
			t.Fatalf("%q: %v, %v", name, resp, err)
		}
		io.WriteString(conn, "ping")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(br, buf); err != nil || string(buf) != "ping" {
			t.Fatalf("%q: %q, %v", name, buf, err)
		}
		conn.Close()
	}
}

func TestUnreachable(t *testing.T) {
	w := newWorld(t, rules(t, "allow *.example"), func(o *Options) { o.Limits.Dial = 200 * time.Millisecond })
	closed := serveTCP(t, func(*net.TCPConn) {})
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port at which nothing listens
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	w.host("refused.example", "8.8.8.1", "80", l.Addr().String())
	w.host("closes.example", "8.8.8.2", "80", closed)
	w.host("hole.example", "8.8.8.3", "80", "!hole")
	w.host("broken.example", "8.8.8.4", "81", closed)
	w.zone.answers["slow.example"] = []string{"!timeout"}
	w.zone.answers["sick.example"] = []string{"!error"}
	w.zone.answers["many.example"] = []string{strings.Repeat("8.8.8.8 ", maxAnswers+1)}
	for host, want := range map[string]string{
		"none.example":    "502 none.example does not resolve: no such host",
		"slow.example":    "504 slow.example could not be looked up within 10s",
		"sick.example":    "502 sick.example could not be looked up",
		"many.example":    "502 many.example resolves to more than 64 addresses",
		"refused.example": "502 refused.example:80 refused the connection: nothing listens there",
		"hole.example":    "504 hole.example:80 did not answer within 200ms",
		"broken.example":  "502 broken.example:80 could not be connected to",
		"closes.example":  "502 closes.example:80 closed the connection without an answer that can be read",
	} {
		resp := w.raw("GET http://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		got := fmt.Sprint(resp.StatusCode, strings.TrimPrefix(bodyOf(t, resp), "handler:"))
		if got != want+"\n" {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
		if host == "closes.example" {
			continue
		}
		if resp := w.raw("CONNECT " + host + ":80 HTTP/1.1\r\nHost: x\r\n\r\n"); resp.Status != want {
			t.Errorf("CONNECT %s: %q, want %q", host, resp.Status, want)
		}
	}
}

// TestFallback: a first address that swallows packets does not hide the second.
func TestFallback(t *testing.T) {
	w := newWorld(t, rules(t, "allow www.example"), nil)
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "second") })
	w.zone.answers["www.example"] = []string{"2606:2800::1 8.8.8.7 " + publicAddr}
	w.net.routes["[2606:2800::1]:80"] = "!hole"
	w.net.routes[publicAddr+":80"] = to
	resp := w.raw("GET http://www.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); body != "second" {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if diff := cmp.Diff([]string{"[2606:2800::1]:80", "8.8.8.7:80", publicAddr + ":80"}, w.net.dials()); diff != "" {
		t.Error(diff)
	}
}

// TestPrivate uses the real dialer: a private rule opens one address and port, and never Handler's own listeners.
func TestPrivate(t *testing.T) {
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "dev server") })
	own := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "handlerd's API") })
	_, port, _ := net.SplitHostPort(to)
	network := rules(t, "private "+to, "private "+own, "allow dev.example:"+port)
	ownListener := netip.MustParseAddrPort(own)
	w := newWorld(t, network, func(o *Options) {
		o.Dialer = nil
		o.OwnListeners = func() []netip.AddrPort { return []netip.AddrPort{ownListener} }
	})
	w.zone.answers["dev.example"] = []string{"127.0.0.1"}
	for target, want := range map[string]string{
		to: "200 dev server", "dev.example:" + port: "200 dev server",
		"[::ffff:127.0.0.1]:" + port: "200 dev server",
		own:                          "403 refused by D.4: " + own + " is a listener of Handler itself, which is never reached from a sandbox\n",
	} {
		resp := w.raw("GET http://" + target + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := fmt.Sprint(resp.StatusCode, " ", bodyOf(t, resp)); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	ownListener = netip.AddrPortFrom(netip.IPv6Unspecified(), ownListener.Port())
	if resp := w.raw("GET http://" + own + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("a listener on every address: %s", resp.Status)
	}
}

func TestDialerAsksBeforeItConnects(t *testing.T) {
	var conns atomic.Int32
	to := serveTCP(t, func(*net.TCPConn) { conns.Add(1) })
	refused := errors.New("not that one")
	var asked netip.AddrPort
	conn, err := tcpDialer{}.DialAddr(context.Background(), netip.MustParseAddrPort(to), func(ap netip.AddrPort) error {
		asked = ap
		return refused
	})
	if conn != nil || !errors.Is(err, refused) || asked.String() != to || conns.Load() != 0 {
		t.Errorf("%v, %v, asked about %s", conn, err, asked)
	}
}

func TestRulesChange(t *testing.T) {
	var network atomic.Pointer[policy.Network]
	network.Store(&policy.Network{Agent: "web"})
	w := newWorld(t, policy.Network{}, func(o *Options) { o.Rules = func() policy.Network { return *network.Load() } })
	w.host("www.example", publicAddr, "80", serve(t, func(http.ResponseWriter, *http.Request) {}))
	const request = "GET http://www.example/ HTTP/1.1\r\nHost: x\r\n\r\n"
	if resp := w.raw(request); resp.StatusCode != 403 {
		t.Error(resp.Status)
	}
	allowed := rules(t, "allow www.example")
	network.Store(&allowed)
	if resp := w.raw(request); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no rules, no error")
	}
	s, err := New(Options{Rules: func() policy.Network { return policy.Network{} }})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); err != nil {
		t.Errorf("Serve after Close: %v", err)
	}
}
