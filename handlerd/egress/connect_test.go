package egress

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/policy"
)

// connectSeeds are requests of every kind: parseConnect must take the first few and leave the rest.
var connectSeeds = []string{
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: srv.example:443\r\n\r\n",
	"CONNECT [::1]:443 HTTP/1.1\r\nhost: [::1]:443\r\nUser-Agent: x/1 (y; z)\r\nProxy-Connection: Keep-Alive\r\n\r\nhello",
	"CONNECT SRV.example.:8443 HTTP/1.1\r\nHost:other\r\nAccept: application/json\r\nAccept: text/plain\r\n\r\n\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.0\r\nHost: x\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\nHost: x\n\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\nX: y\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost : x\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
	"CONNECT srv.example:443  HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT srv.example:443\tHTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\xc3\xa9: a\r\n\r\n",
	"CONNECT user@srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT srv.example HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT 127.1:443 HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT srv.example:0443 HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT http://srv.example:443/ HTTP/1.1\r\nHost: x\r\n\r\n",
	"connect srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n",
	"GET http://srv.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
}

func TestParseConnect(t *testing.T) {
	for i, seed := range connectSeeds {
		req, n, ok := parseConnect([]byte(seed))
		if ok != (i < 3) {
			t.Errorf("%q: %v", seed, ok)
		}
		if ok && (n != strings.Index(seed, "\r\n\r\n")+4 || req.dest.port == 0 || req.asJSON != (i == 2)) {
			t.Errorf("%q: %d bytes, %+v", seed, n, req)
		}
	}
}

// FuzzParseConnect: what the short way takes, net/http takes too, and reads the same in it.
func FuzzParseConnect(f *testing.F) {
	for _, seed := range connectSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, n, ok := parseConnect(b)
		if !ok {
			return
		}
		br := bufio.NewReader(bytes.NewReader(b))
		r, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("%q: net/http says %v", b, err)
		}
		rest, err := io.ReadAll(br)
		if err != nil || !bytes.Equal(rest, b[n:]) {
			t.Errorf("%q: net/http leaves %q", b, rest)
		}
		host, port, err := policy.ParseAuthority(r.RequestURI, 0)
		if err != nil || host != req.dest.host || port != req.dest.port {
			t.Errorf("%q: net/http reads %s:%d, %v", b, host, port, err)
		}
		if r.Method != "CONNECT" || r.ContentLength != 0 || len(r.TransferEncoding) != 0 || !r.ProtoAtLeast(1, 1) || r.Host == "" {
			t.Errorf("%q: net/http reads %+v", b, r)
		}
		if wantsJSON(r.Header) != req.asJSON {
			t.Errorf("%q: JSON %v", b, req.asJSON)
		}
	})
}

// TestConnectInPieces: a request that comes byte by byte, and one on a connection that has served another, are read by
// net/http and become tunnels all the same.
func TestConnectInPieces(t *testing.T) {
	w := tunnelWorld(t, nil, echo)
	conn := w.dial()
	for _, b := range []byte("CONNECT srv.example:443 HTTP/1.1\r\nHost: srv.example:443\r\n\r\n") {
		conn.Write([]byte{b})
	}
	wantEcho(t, conn, bufio.NewReader(conn))

	conn = w.dial()
	br := bufio.NewReader(conn)
	io.WriteString(conn, "GET http://denied.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 403 || len(bodyOf(t, resp)) == 0 {
		t.Fatalf("%v, %v", resp, err)
	}
	io.WriteString(conn, "CONNECT srv.example:443 HTTP/1.1\r\nHost: srv.example:443\r\n\r\n")
	wantEcho(t, conn, br)
}

// wantEcho reads the answer to a CONNECT and tries the tunnel.
func wantEcho(t *testing.T, conn *net.UnixConn, br *bufio.Reader) {
	t.Helper()
	resp, err := http.ReadResponse(br, &http.Request{Method: "CONNECT"})
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	io.WriteString(conn, "hello")
	conn.CloseWrite()
	if got, err := io.ReadAll(br); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestClientGoesWhileDialling: nobody waits for a server on behalf of a client that has gone.
func TestClientGoesWhileDialling(t *testing.T) {
	w := newWorld(t, rules(t, "allow hole.example"), func(o *Options) { o.Limits.Dial = time.Hour })
	w.host("hole.example", publicAddr, "443", "!hole")
	for i, request := range []string{
		"CONNECT hole.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",                         // the short way
		"CONNECT hole.example:443 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", // net/http's
		"GET http://hole.example:443/ HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		conn := w.dial()
		io.WriteString(conn, request)
		wait(t, "a dial", func() bool { return len(w.net.dials()) == i+1 })
		conn.Close()
		w.waitOpen(0)
	}
}

// TestPool: what one run holds is not there for another, and comes back.
func TestPool(t *testing.T) {
	pool := NewPool(2)
	share := func(o *Options) { o.Pool = pool }
	one, other := tunnelWorld(t, share, echo), tunnelWorld(t, share, echo)
	first, _ := one.tunnel("srv.example:443")
	one.tunnel("srv.example:443")
	resp := other.raw("CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 503 || !strings.Contains(body, "all runs together") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	first.Close()
	one.waitOpen(1)
	other.tunnel("srv.example:443")
	one.server.Close()
	other.server.Close()
	if n := pool.Open(); n != 0 {
		t.Errorf("%d connections are still counted", n)
	}
}
