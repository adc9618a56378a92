package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/fault"
)

// fakePort is a port of a run that leads to a server of the test's.
type fakePort struct {
	run, address string
	gone         chan struct{} // closed when the run ends
	ended        chan struct{} // closed when Serve returned
}

func (p *fakePort) Run() (string, string) { return p.run, "web" }
func (p *fakePort) Dial(ctx context.Context) (net.Conn, error) {
	if p.address == "" {
		return nil, errors.New("nothing listens on 127.0.0.1:8000 in the sandbox")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", p.address)
}

func (p *fakePort) Serve(_ context.Context, client net.Conn) error {
	defer close(p.ended)
	go func() {
		select {
		case <-p.gone:
			_ = client.Close()
		case <-p.ended:
		}
	}()
	_, _ = client.Read(make([]byte, 1))
	return client.Close()
}
func (p *fakePort) Abort() {}

// withPort gives the rig a run k3f9 whose port 8000 is h; nil for nothing there.
func (r *rig) withPort(h http.Handler) *fakePort {
	r.t.Helper()
	p := &fakePort{run: "k3f9", gone: make(chan struct{}), ended: make(chan struct{})}
	if h != nil {
		s := httptest.NewServer(h)
		r.t.Cleanup(s.Close)
		p.address = s.Listener.Addr().String()
	}
	_ = r.d.Close()
	r.o.OpenPort = func(_ context.Context, run string, port int, listener string) (Port, error) {
		if run != p.run || port != 8000 || listener != "127.0.0.1:"+strconv.Itoa(r.port) {
			return nil, fault.New(fault.NotFound, "", "there is no run %q", run)
		}
		return p, nil
	}
	r.start()
	return p
}

func hostOf(url string) string { return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/") }

// The app is at an origin of its own, gets what the browser sent and nothing of Handler's, and only the page frames it.
func TestForward(t *testing.T) {
	r := newRig(t)
	p := r.withPort(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Security-Policy", "script-src 'self'")
		w.Header().Set("Set-Cookie", "app=1")
		fmt.Fprintf(w, "%s %s %s cookie=%q token=%q origin=%q", q.Method, q.Host, q.RequestURI, q.Header.Values("Cookie"), q.Header.Values("Handler-Token"), q.Header.Get("Origin"))
	}))
	if _, err := r.d.Forward(t.Context(), "k3f9", 8000); err == nil || !strings.Contains(err.Error(), "handler web") {
		t.Errorf("a closed door shows a port: %v", err)
	}
	s := r.login()
	f, err := r.d.Forward(t.Context(), "k3f9", 8000)
	if err != nil {
		t.Fatal(err)
	}
	host := hostOf(f.URL)
	name, port, _ := net.SplitHostPort(host)
	if len(name) < 26+len(".localhost") || !strings.HasSuffix(name, ".localhost") || port != strconv.Itoa(r.port) {
		t.Errorf("its address is %s", f.URL)
	}
	if again, err := r.d.Forward(t.Context(), "k3f9", 8000); err != nil || again.URL != f.URL || again.Expires.Before(f.Expires) {
		t.Errorf("asked for again it is %+v, %v", again, err)
	}
	got := r.ask("OPTIONS /a?b=%zz", "", "Host: "+host, s.cookie+"; app=1", s.token, "Origin: http://"+host)
	got.want(t, 200, fmt.Sprintf("OPTIONS %s /a?b=%%zz cookie=[\"app=1\"] token=[] origin=%q", host, "http://"+host))
	if policy := got.Header.Values("Content-Security-Policy"); !cmp.Equal(policy, []string{"script-src 'self'", "frame-ancestors 'self' " + r.origin()}) {
		t.Errorf("its policy is %q", policy)
	}
	if got.Header.Get("X-Frame-Options") != "" || got.Header.Get("Set-Cookie") != "app=1" {
		t.Errorf("headers: %v", got.Header)
	}
	// The page's own does not go there, nor the other way round.
	r.ask("GET /api/v1/version", "", "Host: "+host, s.cookie).want(t, 200, "GET "+host)
	r.ask("GET /", "", "Host: x"+host, s.cookie).want(t, 421, "")
	if list := r.d.Forwards("k3f9"); len(list) != 1 || list[0].ID != f.ID || len(r.d.Forwards("k3f")) != 0 {
		t.Errorf("forwarded: %+v", list)
	}
	if err := r.d.EndForward("k3f9", "zzzz"); err == nil {
		t.Error("what is not there was ended")
	}
	if err := r.d.EndForward("k3f9", f.ID); err != nil {
		t.Error(err)
	}
	<-p.ended
	r.ask("GET /", "", "Host: "+host).want(t, 421, "")
}

// A WebSocket goes through, and the run's end ends it and the forward.
func TestForwardWebSocket(t *testing.T) {
	r := newRig(t)
	p := r.withPort(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, buf)
	}))
	r.link()
	f, err := r.d.Forward(t.Context(), "k3f9", 8000)
	if err != nil {
		t.Fatal(err)
	}
	over := r.d.forwards.at(hostOf(f.URL)).over
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(r.port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", hostOf(f.URL))
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	close(p.gone)
	<-p.ended
	if _, err := in.ReadByte(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the WebSocket outlives its run: %v", err)
	}
	<-over
	if len(r.d.Forwards("k3f9")) > 0 {
		t.Error("the forward outlives its run")
	}
}

// Nothing listens there: the browser is told, also within the page's frame.
func TestForwardToNothing(t *testing.T) {
	r := newRig(t)
	p := r.withPort(nil)
	r.link()
	f, err := r.d.Forward(t.Context(), "k3f9", 8000)
	if err != nil {
		t.Fatal(err)
	}
	got := r.ask("GET /", "", "Host: "+hostOf(f.URL))
	got.want(t, 502, "nothing listens on 127.0.0.1:8000")
	if got.Header.Get("Content-Security-Policy") != "frame-ancestors 'self' "+r.origin() {
		t.Errorf("headers: %v", got.Header)
	}
	if err := r.d.Off(); err != nil {
		t.Error(err)
	}
	<-p.ended
}
