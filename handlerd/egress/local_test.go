package egress

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/handlerd/handler/policy"
)

// TestLocal lets the proxy answer for one host itself: over plain http on port 80, with no rule, no lookup and no dial,
// and in no other way.
func TestLocal(t *testing.T) {
	w := newWorld(t, policy.Network{Agent: "web"}, func(o *Options) {
		o.Local = func(host string) http.Handler {
			if host != "x.workspace.invalid" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "%s %s %s %q %q", r.Method, r.Host, r.URL, r.Header.Get("Proxy-Authorization"), r.Header.Get("Upgrade"))
			})
		}
	})
	for _, target := range []string{"http://x.workspace.invalid/a%2Fb?c=d", "http://X.workspace.INVALID:80/a%2Fb?c=d"} {
		resp := w.raw("GET " + target + " HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: x\r\nUpgrade: websocket\r\nConnection: close\r\n\r\n")
		if body := bodyOf(t, resp); resp.StatusCode != 200 || body != `GET x.workspace.invalid /a%2Fb?c=d "" ""` {
			t.Errorf("%s: %d %s", target, resp.StatusCode, body)
		}
	}
	for _, request := range []string{
		"CONNECT x.workspace.invalid:443 HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT x.workspace.invalid:8080 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://x.workspace.invalid:8080/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	} {
		resp := w.raw(request)
		if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "refused by F.6") {
			t.Errorf("%s: %d %s", request, resp.StatusCode, body)
		}
	}
	resp := w.raw("GET http://y.workspace.invalid/ HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "refused by D.4") {
		t.Errorf("another host: %d %s", resp.StatusCode, body)
	}
	if asked, dialed := w.zone.asked, w.net.dials(); len(asked)+len(dialed) > 0 {
		t.Errorf("looked up %v, dialled %v", asked, dialed)
	}
}

// TestPause cuts what is open and refuses the rest with the reason that was given, until Resume.
func TestPause(t *testing.T) {
	held := make(chan struct{})
	w := newWorld(t, rules(t, "allow a.example.org", "allow slow.example.org"), func(o *Options) {
		o.Local = func(host string) http.Handler {
			if host != "x.invalid" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(200)
				w.(http.Flusher).Flush()
				held <- struct{}{}
				<-r.Context().Done()
			})
		}
	})
	w.host("a.example.org", "93.184.216.34", "443", serveTCP(t, echo))
	w.host("slow.example.org", "93.184.216.35", "443", "!hole")
	conn, buf := w.tunnel("a.example.org:443")
	local := w.dial()
	io.WriteString(local, "GET http://x.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n")
	<-held
	dialing := w.dial()
	io.WriteString(dialing, "CONNECT slow.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	wait(t, "the dial", func() bool { return len(w.net.dials()) == 2 })

	w.server.Pause(policy.Verdict{Action: policy.Refuse, Rule: "F.2", Reason: "no turn"})
	for name, c := range map[string]io.Reader{"tunnel": buf, "local": local, "dialing": dialing} {
		if b, _ := io.ReadAll(c); strings.Contains(string(b), "Connection established") {
			t.Errorf("%s: %q", name, b)
		}
	}
	conn.Close()
	w.waitOpen(0)
	for _, request := range []string{"CONNECT a.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://x.invalid/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"} {
		resp := w.raw(request)
		if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "refused by F.2: no turn") {
			t.Errorf("%s: %d %s", request, resp.StatusCode, body)
		}
	}
	w.server.Resume()
	again, abuf := w.tunnel("a.example.org:443")
	io.WriteString(again, "x")
	if _, err := io.ReadFull(abuf, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestLocalTunnel lets a tunnel to port 80 of a local host speak plain http with the handler, upgrades too, which is
// how browsers open WebSockets; it ends with its client, with its handler, and by Pause.
func TestLocalTunnel(t *testing.T) {
	ended := make(chan error, 1)
	w := newWorld(t, policy.Network{Agent: "web"}, func(o *Options) {
		o.Local = func(host string) http.Handler {
			if host != "x.workspace.invalid" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") == "" {
					fmt.Fprintf(w, "%s %s", r.Host, r.URL)
					return
				}
				c, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				_, err = io.Copy(c, rw)
				ended <- err
			})
		}
	})
	conn, buf := w.tunnel("x.workspace.invalid:80")
	fmt.Fprint(conn, "GET http://evil.example.org/a?b HTTP/1.1\r\nHost: evil.example.org\r\n\r\n")
	resp, err := http.ReadResponse(buf, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body := bodyOf(t, resp); body != "x.workspace.invalid /a?b" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	upgrade := func(conn io.Writer, buf *bufio.Reader) {
		t.Helper()
		fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: x.workspace.invalid\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if resp, err := http.ReadResponse(buf, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v %v", resp, err)
		}
		fmt.Fprint(conn, "ping")
		got := make([]byte, 4)
		if _, err := io.ReadFull(buf, got); err != nil || string(got) != "ping" {
			t.Fatalf("%q %v", got, err)
		}
	}
	upgrade(conn, buf)
	conn.Close()
	<-ended
	conn, buf = w.tunnel("x.workspace.invalid:80")
	upgrade(conn, buf)
	w.server.Pause(policy.Verdict{Action: policy.Refuse, Rule: "F.2", Reason: "no turn"})
	if _, err := buf.ReadByte(); err == nil {
		t.Error("it goes on through Pause")
	}
	<-ended
	resp = w.raw("CONNECT x.workspace.invalid:80 HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "F.2") {
		t.Errorf("paused: %d %s", resp.StatusCode, body)
	}
	w.waitOpen(0)
}
