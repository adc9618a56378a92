package egress

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handlerd/handler/policy"
)

// A desk answers questions as the test says, over rules that the test changes.
type desk struct {
	rules atomic.Pointer[policy.Network]
	asked chan string         // host, once a question is there
	say   chan policy.Verdict // the answer to it
	gone  chan struct{}       // a question was withdrawn
}

func newDesk(t *testing.T, lines ...string) *desk {
	d := &desk{asked: make(chan string, 10), say: make(chan policy.Verdict), gone: make(chan struct{}, 10)}
	d.set(t, lines...)
	return d
}

func (d *desk) set(t *testing.T, lines ...string) {
	n := rules(t, lines...)
	n.Unknown = policy.UnknownAsk
	d.rules.Store(&n)
}

func (d *desk) options(o *Options) {
	o.Rules = func() policy.Network { return *d.rules.Load() }
	o.Ask = func(ctx context.Context, host string, port uint16, v policy.Verdict) policy.Verdict {
		d.asked <- host
		select {
		case v := <-d.say:
			return v
		case <-ctx.Done():
			d.gone <- struct{}{}
			v.Action = policy.Refuse
			return v
		}
	}
}

// TestAsk holds a tunnel and a request until somebody answers.
func TestAsk(t *testing.T) {
	desk := newDesk(t, "deny bad.example.org")
	w := newWorld(t, policy.Network{}, desk.options)
	site := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	w.host("new.example.org", "93.184.216.34", "80", site)
	w.host("inside.example.org", "10.0.0.5", "80", site)
	no := policy.Verdict{Action: policy.Refuse, Rule: "D.4", Reason: "you said no"}
	for _, test := range []struct {
		host   string
		answer *policy.Verdict // nil: nobody may be asked
		deny   bool            // a deny rule comes with the yes
		status int
		says   string
	}{
		{"new.example.org", &policy.Verdict{}, false, 200, "hello"},
		{"new.example.org", &no, false, 403, "refused by D.4: you said no"},
		{"inside.example.org", &policy.Verdict{}, false, 403, "refused by D.2"},
		{"bad.example.org", nil, false, 403, "denied"},
		{"10.0.0.5", nil, false, 403, "private address"},
		{"new.example.org", &policy.Verdict{}, true, 403, "denied"},
	} {
		got := make(chan *http.Response, 1)
		go func() { got <- w.raw("GET http://" + test.host + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") }()
		if test.answer != nil {
			if host := <-desk.asked; host != test.host {
				t.Errorf("asked about %q", host)
			}
			if test.deny {
				desk.set(t, "deny "+test.host)
			}
			desk.say <- *test.answer
		}
		resp := <-got
		if body := bodyOf(t, resp); resp.StatusCode != test.status || !strings.Contains(body, test.says) {
			t.Errorf("%s: %d %s", test.host, resp.StatusCode, body)
		}
	}
	if len(desk.asked) > 0 || len(w.zone.asked) > 0 && w.zone.asked[0] == "bad.example.org" {
		t.Error("what is denied was asked about or looked up")
	}
}

// TestAskClientGone hangs up while the question is open: it is withdrawn, and nothing is left of the request.
func TestAskClientGone(t *testing.T) {
	desk := newDesk(t)
	w := newWorld(t, policy.Network{}, desk.options)
	conn := w.dial()
	io.WriteString(conn, "CONNECT new.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	<-desk.asked
	if n := w.server.Snapshot().Open; n != 1 {
		t.Errorf("%d connections count while one is held", n)
	}
	conn.Close()
	select {
	case <-desk.gone:
	case <-time.After(10 * time.Second):
		t.Fatal("the question outlives its client")
	}
	if len(w.zone.asked) > 0 {
		t.Error("a name was looked up before anybody said yes")
	}
}

// TestAskNobody has no hook: the question is a refusal in the same words.
func TestAskNobody(t *testing.T) {
	n := rules(t)
	n.Unknown = policy.UnknownAsk
	w := newWorld(t, n, nil)
	resp := w.raw("CONNECT new.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "refused by D.4: new.example.org is not allowed") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestRecheck changes the rules below open tunnels.
func TestRecheck(t *testing.T) {
	desk := newDesk(t, "allow a.example.org", "allow b.example.org")
	w := newWorld(t, policy.Network{}, desk.options)
	addr := serveTCP(t, echo)
	w.host("a.example.org", "93.184.216.34", "443", addr)
	w.host("b.example.org", "93.184.216.35", "443", addr)
	w.host("asked.example.org", "93.184.216.36", "443", addr)
	a, abuf := w.tunnel("a.example.org:443")
	b, bbuf := w.tunnel("b.example.org:443")
	go func() { <-desk.asked; desk.say <- policy.Verdict{} }()
	c, cbuf := w.tunnel("asked.example.org:443")
	alive := func(conn io.Writer, r io.Reader) bool {
		io.WriteString(conn, "x")
		_, err := io.ReadFull(r, make([]byte, 1))
		return err == nil
	}
	if !alive(a, abuf) || !alive(b, bbuf) || !alive(c, cbuf) {
		t.Fatal("the tunnels do not work")
	}
	desk.set(t, "deny a.example.org", "allow b.example.org")
	w.server.Recheck()
	if alive(a, abuf) {
		t.Error("the tunnel to a host that is now denied is open")
	}
	if r := w.record(); r.Host != "a.example.org" || r.Verdict.Action != policy.Refuse {
		t.Errorf("the audit says %+v", r)
	}
	if !alive(b, bbuf) || !alive(c, cbuf) {
		t.Error("other tunnels were cut too")
	}
	desk.set(t, "deny 93.184.216.35", "deny asked.example.org")
	w.server.Recheck()
	if alive(b, bbuf) || alive(c, cbuf) {
		t.Error("a denied address, or a denied host that was asked about, is still open")
	}
}

// TestRecheckRace changes the rules while a connection is being made: it is not forgotten.
func TestRecheckRace(t *testing.T) {
	desk := newDesk(t, "allow a.example.org")
	var w *world
	w = newWorld(t, policy.Network{}, func(o *Options) {
		desk.options(o)
		o.Resolver = hooked{o.Resolver, func() {
			desk.set(t, "deny a.example.org")
			w.server.Recheck()
		}}
	})
	w.host("a.example.org", "93.184.216.34", "443", serveTCP(t, echo))
	conn := w.dial()
	io.WriteString(conn, "CONNECT a.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\nhello")
	answer, _ := io.ReadAll(conn) // ends, since the tunnel is cut
	if strings.HasSuffix(string(answer), "hello") {
		t.Errorf("%q", answer)
	}
}

// A hooked resolver does something before it answers.
type hooked struct {
	Resolver
	before func()
}

func (h hooked) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	h.before()
	return h.Resolver.LookupNetIP(ctx, network, host)
}
