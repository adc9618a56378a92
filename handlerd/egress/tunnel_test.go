package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tunnelWorld has one allowed host whose port 443 is the given server.
func tunnelWorld(t testing.TB, change func(*Options), handle func(*net.TCPConn)) *world {
	w := newWorld(t, rules(t, "allow srv.example"), change)
	w.host("srv.example", publicAddr, "443", serveTCP(t, handle))
	return w
}

// wantEOF reads until the connection ends, which must be soon and must not be the deadline of the test.
func wantEnd(t *testing.T, conn net.Conn, r io.Reader, what string) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the tunnel is still open", what)
	}
}

func TestTunnelCarriesBytes(t *testing.T) {
	w := tunnelWorld(t, func(o *Options) { o.Limits.Idle = 400 * time.Millisecond }, echo) // a tick every 50 ms
	conn := w.dial()
	br := bufio.NewReader(conn)
	// The first bytes come along with the request.
	io.WriteString(conn, "CONNECT srv.example:443 HTTP/1.1\r\nHost: srv.example:443\r\n\r\nearly ")
	resp, err := http.ReadResponse(br, &http.Request{Method: "CONNECT"})
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	data := make([]byte, 8<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	var wg sync.WaitGroup
	wg.Go(func() {
		for chunk := range 16 { // slower than one tick, so that copies are resumed
			conn.Write(data[chunk<<19 : (chunk+1)<<19])
			pause := time.NewTimer(20 * time.Millisecond)
			<-pause.C
		}
		conn.CloseWrite()
	})
	got, err := io.ReadAll(br)
	wg.Wait()
	if err != nil || !bytes.Equal(got, append([]byte("early "), data...)) {
		t.Fatalf("%d bytes came back of %d, %v", len(got), len(data)+6, err)
	}
	// The counts are final when the tunnel is gone.
	w.server.Close()
	h := w.server.Snapshot().Hosts
	if n := int64(len(data) + 6); len(h) != 1 || h[0].Sent != n || h[0].Received != n || h[0].Host != "srv.example" {
		t.Errorf("%+v", h)
	}
}

// TestTunnelKeepsWhatCameAlong: what a client sends together with a request that net/http reads arrives whole, also
// where it is more than net/http has in its buffer.
func TestTunnelKeepsWhatCameAlong(t *testing.T) {
	w := tunnelWorld(t, nil, echo)
	conn := w.dial()
	data := bytes.Repeat([]byte("0123456789abcdef"), 450) // with the request less than is read at first
	io.WriteString(conn, "CONNECT srv.example:443 HTTP/1.1\r\nHost: srv.example:443\r\nUpgrade: x\r\n\r\n"+string(data))
	conn.CloseWrite()
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, &http.Request{Method: "CONNECT"})
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	if got, err := io.ReadAll(br); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back of %d, %v", len(got), len(data), err)
	}
}

func TestHalfClose(t *testing.T) {
	// The server answers when the client has finished, then finishes itself.
	w := tunnelWorld(t, nil, func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprintf(c, "got %d", n)
	})
	conn, br := w.tunnel("srv.example:443")
	io.WriteString(conn, "hello")
	conn.CloseWrite()
	if got, err := io.ReadAll(br); err != nil || string(got) != "got 5" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestServerFinishesFirst(t *testing.T) {
	got := make(chan string, 1)
	w := tunnelWorld(t, nil, func(c *net.TCPConn) {
		io.WriteString(c, "bye")
		c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	conn, br := w.tunnel("srv.example:443")
	if b, err := io.ReadAll(br); err != nil || string(b) != "bye" {
		t.Errorf("%q, %v", b, err)
	}
	io.WriteString(conn, "last words")
	conn.CloseWrite()
	if b := <-got; b != "last words" {
		t.Errorf("%q", b)
	}
}

// TestTunnelLimits: each way in which a tunnel could live for ever has an end.
func TestTunnelLimits(t *testing.T) {
	const short, long = 100 * time.Millisecond, time.Hour
	silent := func(c *net.TCPConn) { io.Copy(io.Discard, c) }
	var release chan bool
	stubborn := func(c *net.TCPConn) { // does not end when the client does
		io.Copy(io.Discard, c)
		<-release
	}
	chatty := func(c *net.TCPConn) {
		for {
			if _, err := io.WriteString(c, "tick"); err != nil {
				return
			}
			pause := time.NewTimer(5 * time.Millisecond)
			<-pause.C
		}
	}
	flood := func(c *net.TCPConn) { io.Copy(c, endless{}) }
	for _, tt := range []struct {
		name   string
		limits Limits
		server func(*net.TCPConn)
		client func(*net.UnixConn)
	}{
		{"idle before the first byte", Limits{Idle: short}, silent, func(*net.UnixConn) {}},
		{"idle after it", Limits{Idle: short}, silent, func(c *net.UnixConn) { io.WriteString(c, "x") }},
		{"total", Limits{Idle: long, Total: short}, chatty, func(*net.UnixConn) {}},
		{"total, with the client talking", Limits{Idle: long, Total: short}, chatty, func(c *net.UnixConn) { io.WriteString(c, "x") }},
		{"half closed", Limits{Idle: long, HalfClosed: short}, stubborn, func(c *net.UnixConn) { c.CloseWrite() }},
		{"a client that takes nothing", Limits{Idle: short}, flood, func(c *net.UnixConn) { waitCut(c) }},
		{"half a TLS greeting", Limits{Idle: long, HeaderTime: short}, silent, func(c *net.UnixConn) { io.WriteString(c, "\x16\x03\x01\x02\x00\x01") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			release = make(chan bool)
			w := tunnelWorld(t, func(o *Options) { o.Limits = tt.limits }, tt.server)
			t.Cleanup(func() { close(release) })
			conn, br := w.tunnel("srv.example:443")
			tt.client(conn)
			wantEnd(t, conn, br, tt.name)
		})
	}
}

// waitCut waits until the peer has closed, without reading: the socket says hang-up.
func waitCut(c *net.UnixConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	for begun := time.Now(); time.Since(begun) < 10*time.Second; {
		closed := false
		raw.Control(func(fd uintptr) {
			_, err := syscall.Write(int(fd), []byte("x"))
			closed = err == syscall.EPIPE || err == syscall.ECONNRESET
		})
		if closed {
			return
		}
		pause := time.NewTimer(5 * time.Millisecond)
		<-pause.C
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestSlowHeader(t *testing.T) {
	w := newWorld(t, rules(t), func(o *Options) { o.Limits.HeaderTime = 50 * time.Millisecond })
	for _, part := range []string{"", "CONNECT srv.exa", "GET http://srv.example/ HTTP/1.1\r\nHost: x\r\n"} {
		conn := w.dial()
		io.WriteString(conn, part)
		wantEnd(t, conn, conn, fmt.Sprintf("%q", part))
	}
}

func TestLongHeader(t *testing.T) {
	w := newWorld(t, rules(t), nil)
	conn := w.dial()
	go io.WriteString(conn, "GET http://srv.example/ HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 80<<10)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%v, %v", resp, err)
	}
	conn.Close()
}

func TestConnectionCap(t *testing.T) {
	w := tunnelWorld(t, func(o *Options) { o.Limits.Connections = 2 }, echo)
	first, _ := w.tunnel("srv.example:443")
	w.tunnel("srv.example:443")
	resp := w.raw("CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 503 || !strings.Contains(body, "too many connections") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if n := w.server.Snapshot().Open; n != 2 {
		t.Errorf("%d open", n)
	}
	first.Close()
	w.waitOpen(1)
	w.tunnel("srv.example:443")
}

// TestForwardLimits: an answer that stops half-way, and a client that takes none of it.
func TestForwardLimits(t *testing.T) {
	hang := make(chan bool)
	w := newWorld(t, rules(t, "allow srv.example"), func(o *Options) { o.Limits.Idle = 100 * time.Millisecond })
	w.host("srv.example", publicAddr, "80", serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
		}
		<-hang
	}))
	t.Cleanup(func() { close(hang) })
	resp := w.raw("GET http://srv.example/never HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 504 || !strings.Contains(body, "took too long") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	conn := w.dial()
	io.WriteString(conn, "GET http://srv.example/half HTTP/1.1\r\nHost: x\r\n\r\n")
	wantEnd(t, conn, conn, "half an answer")
}

// plainProxy is what a tunnel is measured against: it dials and copies, and does nothing else.
func plainProxy(b *testing.B, to string) string {
	path := filepath.Join(b.TempDir(), "p")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				up, err := net.Dial("tcp", to)
				if err != nil {
					c.Close()
					return
				}
				done := make(chan bool, 2)
				for _, p := range [][2]net.Conn{{c, up}, {up, c}} {
					go func() { io.Copy(p[0], p[1]); done <- true }()
				}
				<-done
				c.Close()
				up.Close()
				<-done
			}()
		}
	}()
	return path
}

const megabytes = 64

// source sends megabytes after each byte it gets.
func source(c *net.TCPConn) {
	buf := make([]byte, 1<<20)
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, one); err != nil {
			return
		}
		for range megabytes {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}
}

// sink takes megabytes and sends a byte for them.
func sink(c *net.TCPConn) {
	for {
		if _, err := io.CopyN(io.Discard, c, megabytes<<20); err != nil {
			return
		}
		c.Write([]byte("x"))
	}
}

func BenchmarkThroughput(b *testing.B) {
	for _, dir := range []string{"down", "up"} {
		server := source
		if dir == "up" {
			server = sink
		}
		to := serveTCP(b, server)
		move := func(b *testing.B, conn net.Conn) {
			conn.SetDeadline(time.Time{})
			buf := make([]byte, 1<<20)
			b.SetBytes(megabytes << 20)
			for b.Loop() {
				var err error
				if dir == "up" {
					for range megabytes {
						conn.Write(buf)
					}
					_, err = io.ReadFull(conn, buf[:1])
				} else {
					conn.Write(buf[:1])
					for n := 0; n < megabytes<<20 && err == nil; {
						var m int
						m, err = conn.Read(buf)
						n += m
					}
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(dir+"/bare", func(b *testing.B) {
			conn, err := net.Dial("unix", plainProxy(b, to))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			move(b, conn)
		})
		b.Run(dir+"/egress", func(b *testing.B) {
			w := newWorld(b, rules(b, "allow srv.example"), nil)
			w.host("srv.example", publicAddr, "443", to)
			conn, _ := w.tunnel("srv.example:443")
			move(b, conn)
			conn.Close()
		})
	}
}

func BenchmarkSetUp(b *testing.B) {
	to := serveTCP(b, echo)
	buf := make([]byte, 1)
	b.Run("bare", func(b *testing.B) {
		path := plainProxy(b, to)
		for b.Loop() {
			conn, err := net.Dial("unix", path)
			if err != nil {
				b.Fatal(err)
			}
			conn.Write([]byte("x"))
			if _, err := io.ReadFull(conn, buf); err != nil {
				b.Fatal(err)
			}
			conn.Close()
		}
	})
	b.Run("egress", func(b *testing.B) {
		w := newWorld(b, rules(b, "allow srv.example"), nil)
		w.host("srv.example", publicAddr, "443", to)
		for b.Loop() {
			conn, err := net.Dial("unix", w.socket)
			if err != nil {
				b.Fatal(err)
			}
			io.WriteString(conn, "CONNECT srv.example:443 HTTP/1.1\r\nHost: srv.example:443\r\n\r\nx")
			if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\nx"))); err != nil {
				b.Fatal(err)
			}
			conn.Close()
		}
	})
}
