package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answering is a world whose www.example sends the given bytes after having read a request's header, and holds the
// connection until the proxy lets go of it.
func answering(t *testing.T, change func(*Options), answer func(*net.TCPConn)) *world {
	w := newWorld(t, rules(t, "allow www.example"), change)
	w.host("www.example", publicAddr, "80", serveTCP(t, func(c *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			answer(c)
			io.Copy(io.Discard, c)
		}
	}))
	return w
}

// bothWays are the requests that go the short way and a transport's.
var bothWays = []string{
	"GET http://www.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
	"POST http://www.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx",
}

// TestHostileAnswers is what a server may send instead of an answer.
func TestHostileAnswers(t *testing.T) {
	quick := func(o *Options) { o.Limits.Idle = 300 * time.Millisecond }
	send := func(text string) func(*net.TCPConn) { return func(c *net.TCPConn) { io.WriteString(c, text) } }
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tt := range []struct {
		name   string
		answer func(*net.TCPConn)
		status int
		body   string
	}{
		{"nothing", func(*net.TCPConn) {}, 504, "took too long"},
		{"the end", func(c *net.TCPConn) { c.CloseWrite() }, 502, "without an answer"},
		{"no HTTP", send("220 smtp.example ESMTP\r\n\r\n"), 502, "without an answer"},
		{"informational answers for ever", func(c *net.TCPConn) {
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: <"+strings.Repeat("x", 1000)+">\r\n\r\n"); err != nil {
					return
				}
			}
		}, 502, "without an answer"},
		{"a header without an end", func(c *net.TCPConn) {
			io.WriteString(c, ok)
			for {
				if _, err := io.WriteString(c, "X: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
					return
				}
			}
		}, 502, "without an answer"},
		{"a line without an end", func(c *net.TCPConn) { io.Copy(c, endless{}) }, 502, "without an answer"},
		{"an upgrade that nobody asked for", send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), 502, ""},
		{"two lengths", send(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 502, "without an answer"},
		{"a length and chunks", send(ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"), 200, "ab"},
		{"a header that is none", send(ok + "Bad\x00Name: x\r\nContent-Length: 0\r\n\r\n"), 502, "without an answer"},
		{"hints, then an answer", send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nok"), 200, "ok"},
		{"no content", send("HTTP/1.1 204 No Content\r\n\r\n"), 204, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limits := quick
			if tt.status != http.StatusGatewayTimeout {
				limits = nil // a machine that is busy must not make a timeout of another refusal
			}
			w := answering(t, limits, tt.answer)
			for _, request := range bothWays {
				conn := w.dial()
				io.WriteString(conn, request)
				br := bufio.NewReader(conn)
				resp, err := http.ReadResponse(br, nil)
				for n := 0; err == nil && resp.StatusCode/100 == 1; n++ {
					if n > 1000 {
						t.Fatal("informational answers without an end")
					}
					resp, err = http.ReadResponse(br, nil)
				}
				if err != nil {
					t.Fatalf("%.4q: %v", request, err)
				}
				if body := bodyOf(t, resp); resp.StatusCode != tt.status || !strings.Contains(body, tt.body) {
					t.Errorf("%.4q: %s: %s", request, resp.Status, body)
				}
				conn.Close()
			}
			w.waitOpen(0)
		})
	}
}

// TestBrokenBodies: an answer that is not whole must not look whole, and its connection serves no other (E28).
func TestBrokenBodies(t *testing.T) {
	for _, body := range []string{
		"Content-Length: 10\r\n\r\nhalf",
		"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf",
		"Transfer-Encoding: chunked\r\n\r\n4\r\nhalfXX0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n4\nhalf\r\n0\r\n\r\n", // a bare LF ends no chunk's size
		"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhalf",
	} {
		w := answering(t, nil, func(c *net.TCPConn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n"+body)
			c.CloseWrite()
		})
		for _, request := range bothWays {
			conn := w.dial()
			io.WriteString(conn, request)
			br := bufio.NewReader(conn)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				continue // cut before the first byte: not whole either
			}
			if b, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%q by %.4q: read as whole: %q", body, request, b)
			}
			wantEnd(t, conn, br, body)
		}
	}
}

// TestHead has no body, whatever its header says.
func TestHead(t *testing.T) {
	w := answering(t, nil, func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nX-A: b\r\n\r\n") })
	resp := w.raw("HEAD http://www.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp.StatusCode != 200 || resp.ContentLength != 1000 || resp.Header.Get("X-A") != "b" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
}

// TestPipelined: requests that come together are served one after the other, each judged by itself.
func TestPipelined(t *testing.T) {
	w := newWorld(t, rules(t, "allow www.example"), nil)
	w.host("www.example", publicAddr, "80", serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s%s", r.URL.Path, b)
	}))
	conn := w.dial()
	io.WriteString(conn, "POST http://www.example/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"+
		"GET http://denied.example/2 HTTP/1.1\r\nHost: www.example\r\n\r\n"+"GET http://www.example/3 HTTP/1.1\r\nHost: x\r\n\r\n")
	br := bufio.NewReader(conn)
	for i, want := range []string{"200 /1abc", "403 ", "200 /3"} {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			if i > 0 && strings.HasPrefix(want, "200") {
				t.Fatal(err)
			}
			break // after a length beside chunks the connection may end
		}
		if got := fmt.Sprint(resp.StatusCode, " ", bodyOf(t, resp)); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if resp.Close {
			break
		}
	}
}

// TestSlowBody: a client that stops in the middle of a body is not waited for.
func TestSlowBody(t *testing.T) {
	w := newWorld(t, rules(t, "allow www.example"), func(o *Options) { o.Limits.Idle = 200 * time.Millisecond })
	w.host("www.example", publicAddr, "80", serve(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	conn := w.dial()
	io.WriteString(conn, "POST http://www.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
	wantEnd(t, conn, conn, "half a body")
	w.waitOpen(0)
}
