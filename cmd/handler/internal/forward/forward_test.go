package forward_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/cmd/handler/internal/forward"
	"github.com/handlerd/handler/sandbox/duplex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a forward to the port that dial reaches, and ends it with the test.
func serve(t *testing.T, tcp bool, dial func(context.Context) (duplex.Conn, error)) *forward.Forward {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := forward.New(forward.Options{Dial: dial, Listener: l, TCP: tcp})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func dialer(address string) func(context.Context) (duplex.Conn, error) {
	return func(ctx context.Context) (duplex.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return c.(duplex.Conn), nil
	}
}

// ask sends raw request lines to the forward and gives the answer's status and body.
func ask(t *testing.T, f *forward.Forward, lines ...string) (int, string) {
	t.Helper()
	c, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(c, strings.Join(lines, "\r\n")+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Only the exact name is answered, and the server sees what the browser sent: the Host, the query as written, no
// header of ours, none of one hop.
func TestHost(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s\n", r.Host, r.URL.RequestURI())
		_ = r.Header.Write(w)
	}))
	defer server.Close()
	f := serve(t, false, dialer(server.Listener.Addr().String()))
	host := strings.TrimSuffix(strings.TrimPrefix(f.URL(), "http://"), "/")
	name, port, _ := net.SplitHostPort(host)
	if status, body := ask(t, f, "GET /a?b=%zz;c HTTP/1.1", "Host: "+host, "X-Kept: yes", "Connection: close, X-Hop", "X-Hop: no"); status != 200 ||
		!strings.HasPrefix(body, host+" /a?b=%zz;c\n") || !strings.Contains(body, "X-Kept: yes") || strings.Contains(body, "X-Hop") ||
		strings.Contains(body, "Forwarded") || strings.Contains(body, "User-Agent") {
		t.Errorf("%d %q", status, body)
	}
	for _, other := range []string{
		"localhost:" + port, "127.0.0.1:" + port, "evil.example.org", "evil.example.org:" + port, name, name + ":1" + port,
		strings.ToUpper(name) + ":" + port, name + ".:" + port, "x." + name + ":" + port, "[::1]:" + port, "",
	} {
		if status, body := ask(t, f, "GET / HTTP/1.1", "Host: "+other, "Connection: close"); status != http.StatusMisdirectedRequest || strings.Contains(body, name) {
			t.Errorf("%q: %d %q", other, status, body)
		}
	}
	// An absolute address counts, as it does for every server; and a second Host is no request.
	if status, _ := ask(t, f, "GET http://evil.example.org/ HTTP/1.1", "Host: "+host, "Connection: close"); status != http.StatusMisdirectedRequest {
		t.Errorf("absolute: %d", status)
	}
	if status, _ := ask(t, f, "GET / HTTP/1.1", "Host: "+host, "Host: evil.example.org", "Connection: close"); status != http.StatusBadRequest {
		t.Errorf("two hosts: %d", status)
	}
}

// Each request of a kept connection is judged, not only the first.
func TestHostOfEachRequest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	f := serve(t, false, dialer(server.Listener.Addr().String()))
	c, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	host := strings.TrimSuffix(strings.TrimPrefix(f.URL(), "http://"), "/")
	for _, s := range []struct {
		host string
		want int
	}{{host, 200}, {"evil.example.org", 421}, {host, 200}} {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", s.host)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != s.want {
			t.Errorf("%s: %d", s.host, resp.StatusCode)
		}
	}
}

// A WebSocket's bytes pass both ways, and end with the forward.
func TestUpgrade(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, rw)
	}))
	defer server.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := forward.New(forward.Options{Dial: dialer(server.Listener.Addr().String()), Listener: l})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx) }()
	c, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", strings.TrimSuffix(strings.TrimPrefix(f.URL(), "http://"), "/"))
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	fmt.Fprint(c, "ping")
	got := make([]byte, 4)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "ping" {
		t.Errorf("%q %v", got, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-ended
}

// A page does not tell the sites that it loads from where it is, unless its server wants that.
func TestReferrer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/own" {
			w.Header().Set("Referrer-Policy", "unsafe-url")
		}
	}))
	defer server.Close()
	f := serve(t, false, dialer(server.Listener.Addr().String()))
	transport := &http.Transport{DisableKeepAlives: true}
	for path, want := range map[string]string{"": "same-origin", "own": "unsafe-url"} {
		req, err := http.NewRequest(http.MethodGet, "http://"+f.Address()+"/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = strings.TrimSuffix(strings.TrimPrefix(f.URL(), "http://"), "/")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Referrer-Policy"); got != want {
			t.Errorf("%q: %q", path, got)
		}
	}
}

// A port that nobody listens on is told in the words of whoever tried.
func TestNobody(t *testing.T) {
	f := serve(t, false, func(context.Context) (duplex.Conn, error) {
		return nil, errors.New("nothing listens on 127.0.0.1:8000")
	})
	if status, body := ask(t, f, "GET / HTTP/1.1", "Host: "+strings.TrimSuffix(strings.TrimPrefix(f.URL(), "http://"), "/"), "Connection: close"); status != http.StatusBadGateway || body != "handler: nothing listens on 127.0.0.1:8000\n" {
		t.Errorf("%d %q", status, body)
	}
}

// TCP passes as it is, each direction to its end, and a connection in use ends with the forward.
func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				got, _ := io.ReadAll(c)
				_, _ = c.Write(got)
			}()
		}
	}()
	f := serve(t, true, dialer(l.Addr().String()))
	if f.URL() != "" {
		t.Errorf("a URL: %s", f.URL())
	}
	c, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "raw\x00bytes")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "raw\x00bytes" {
		t.Errorf("%q %v", got, err)
	}
	open, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { open.Close() })
	fmt.Fprint(open, "x")
}

// Nothing but loopback is listened on.
func TestLoopbackOnly(t *testing.T) {
	if _, err := forward.New(forward.Options{Listener: elsewhere{}}); err == nil {
		t.Error("no error")
	}
}

type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 80} }
