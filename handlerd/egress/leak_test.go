package egress

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// cuts are the stages at which a connection can end, and who ends it.
var cuts = []struct {
	stage   string
	request string
	then    func(conn *net.UnixConn, br *bufio.Reader)
}{
	{"before the header", "", nil},
	{"in the header", "CONNECT srv.exam", nil},
	{"in the header of a request", "GET http://srv.example/ HTTP/1.1\r\nHost:", nil},
	{"refused", "CONNECT denied.invalid:443 HTTP/1.1\r\nHost: x\r\n\r\n", nil},
	{"while resolving", "CONNECT slow.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", nil},
	{"while dialling", "CONNECT hole.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", nil},
	{"while dialling, for a request", "GET http://hole.example/ HTTP/1.1\r\nHost: x\r\n\r\n", nil},
	{"before the 200 is read", "CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", nil},
	{"at the 200", "CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", readAnswer},
	{"in the greeting", "CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", then("\x16\x03\x01\x02\x00\x01", 0)},
	{"in the middle", "CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", then("hello", 3)},
	{"with bytes unread", "CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", then(strings.Repeat("x", 100<<10), 3)},
	{"half closed by the client", "CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", func(conn *net.UnixConn, br *bufio.Reader) {
		then("hello", 0)(conn, br)
		conn.CloseWrite()
		io.Copy(io.Discard, br)
	}},
	{"half closed and left", "CONNECT srv.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", func(conn *net.UnixConn, br *bufio.Reader) {
		readAnswer(conn, br)
		conn.CloseWrite()
	}},
	{"closed by the server", "CONNECT bye.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", func(_ *net.UnixConn, br *bufio.Reader) { io.Copy(io.Discard, br) }},
	{"reset by the server", "CONNECT rude.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", func(_ *net.UnixConn, br *bufio.Reader) { io.Copy(io.Discard, br) }},
	{"in an answer", "GET http://endless.example/ HTTP/1.1\r\nHost: x\r\n\r\n", readAnswer},
	{"in an upgrade", "GET http://ws.example/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n\r\n", then("x", 1)},
}

func readAnswer(_ *net.UnixConn, br *bufio.Reader) {
	http.ReadResponse(br, &http.Request{Method: "CONNECT"})
}

func then(send string, want int) func(*net.UnixConn, *bufio.Reader) {
	return func(conn *net.UnixConn, br *bufio.Reader) {
		readAnswer(conn, br)
		io.WriteString(conn, send)
		io.ReadFull(br, make([]byte, want))
	}
}

// leakWorld has a server for each of the cuts.
func leakWorld(t *testing.T) *world {
	w := newWorld(t, rules(t, "allow *.example"), func(o *Options) {
		o.Limits.Connections = 4000
		o.Audit = func(Record) {} // more than the world keeps
		o.Logger = nil
	})
	w.host("srv.example", publicAddr, "443", serveTCP(t, echo))
	w.host("bye.example", "8.8.8.1", "443", serveTCP(t, func(*net.TCPConn) {}))
	w.host("rude.example", "8.8.8.2", "443", serveTCP(t, func(c *net.TCPConn) { c.SetLinger(0) }))
	w.host("hole.example", "8.8.8.3", "443", "!hole")
	w.net.routes["8.8.8.3:80"] = "!hole"
	w.host("endless.example", "8.8.8.4", "80", serveTCP(t, func(c *net.TCPConn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		io.Copy(c, endless{})
	}))
	w.host("ws.example", "8.8.8.5", "80", serve(t, upgradeServer))
	w.zone.answers["slow.example"] = []string{"!hang"}
	return w
}

// cutMany opens and cuts n connections, as many at each stage, and returns when the proxy has none left.
func (w *world) cutMany(n int) {
	places := make(chan struct{}, 100)
	var wg sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			conn, err := net.Dial("unix", w.socket)
			if err != nil {
				w.t.Error(err)
				return
			}
			defer conn.Close()
			cut := cuts[i%len(cuts)]
			io.WriteString(conn, cut.request)
			if cut.then != nil {
				cut.then(conn.(*net.UnixConn), bufio.NewReader(conn))
			}
		})
	}
	wg.Wait()
	w.waitOpen(0)
}

// TestTenThousandTunnels cuts connections at every stage, in batches; after each there is no goroutine and no descriptor
// more than after the first (E24, E25).
func TestTenThousandTunnels(t *testing.T) {
	batches, batch := 10, 1000
	if testing.Short() {
		batches, batch = 3, 200
	}
	w := leakWorld(t)
	w.cutMany(batch)
	runtime.GC() // of the pipes that splices have used, the runtime keeps a few
	goroutines, open := runtime.NumGoroutine(), descriptors(t)
	for range batches - 1 {
		w.cutMany(batch)
		wait(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
		wait(t, "sockets to close", func() bool { return descriptors(t)["socket"] <= open["socket"] })
	}
	if now := descriptors(t); now["other"] > open["other"] || now["pipe"] > open["pipe"]+2*100 {
		t.Errorf("descriptors %v, %v before", now, open)
	}
	if n := len(w.server.open); n != 0 {
		t.Errorf("%d connections to servers are still known", n)
	}
}

// TestCloseAtEveryStage closes the Server while connections are at every stage.
func TestCloseAtEveryStage(t *testing.T) {
	before := goleak.IgnoreCurrent()
	open := descriptors(t)["socket"]
	t.Run("close", func(t *testing.T) {
		w := leakWorld(t)
		for i := range 10 * len(cuts) {
			conn := w.dial()
			io.WriteString(conn, cuts[i%len(cuts)].request)
		}
		wait(t, "some to get somewhere", func() bool { return w.server.Snapshot().Allowed > 20 })
		w.server.Close()
		if n := w.server.Snapshot().Open; n != 0 {
			t.Errorf("%d connections open after Close", n)
		}
	})
	goleak.VerifyNone(t, before)
	if now := descriptors(t)["socket"]; now > open {
		t.Errorf("%d sockets, %d before", now, open)
	}
}

// descriptors counts the open ones of this process by kind.
func descriptors(t testing.TB) map[string]int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		switch {
		case err != nil: // ReadDir's own
		case strings.HasPrefix(to, "socket:"):
			n["socket"]++
		case strings.HasPrefix(to, "pipe:"):
			n["pipe"]++
		default:
			n["other"]++
		}
	}
	return n
}
