package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// grant is what a ticket of run k3f9 is good for.
func grant(dial func(context.Context) (net.Conn, error), gone func(error)) Grant {
	return Grant{Run: "k3f9", What: "display", Name: "ours", Login: "ana", Dial: dial, Context: context.Background(), Gone: gone}
}

// TestTickets: one counts once, for its login, in its time, and for a desk and a run that are there.
func TestTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDesk(nil)
		var gone atomic.Int32
		give := func(g Grant) string {
			g.Gone = func(error) { gone.Add(1) }
			text, until, err := d.Ticket(g)
			if err != nil || len(text) < 26 || time.Until(until) != TicketTime {
				t.Fatalf("%q until %v: %v", text, until, err)
			}
			return text
		}
		refused := func(what, text, login string, want error) {
			t.Helper()
			if _, err := d.Visit(text, login); err != want {
				t.Errorf("%s: %v", what, err)
			}
		}
		text := give(grant(nil, nil))
		v, err := d.Visit(text, "ana")
		if err != nil {
			t.Fatal(err)
		}
		refused("twice, while it is used", text, "ana", ErrNoTicket)
		v.Abort()
		refused("twice", text, "ana", ErrNoTicket)
		refused("none", "AAAAAAAAAAAAAAAAAAAAAAAAAA", "ana", ErrNoTicket)
		refused("nothing", "", "ana", ErrNoTicket)

		text = give(grant(nil, nil))
		refused("another's", text, "eva", ErrNoTicket)
		refused("its own, after another tried it", text, "ana", ErrNoTicket)
		refused("the socket's owner with a login's", give(grant(nil, nil)), "", ErrNoTicket)

		text = give(grant(nil, nil))
		time.Sleep(TicketTime + time.Second) // of the test's own clock
		refused("late", text, "ana", ErrNoTicket)

		ended := errors.New("the run has ended")
		ctx, cancel := context.WithCancelCause(context.Background())
		g := grant(nil, nil)
		g.Context = ctx
		text = give(g)
		cancel(ended)
		refused("of a run that has ended", text, "ana", ended)

		if n := gone.Load(); n != 5 {
			t.Errorf("%d of 5 views were told gone", n)
		}
		give(grant(nil, nil)) // nobody comes with it
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := gone.Load(); n != 6 {
			t.Errorf("%d of 6 views were told gone", n)
		}
		if _, _, err := d.Ticket(grant(nil, nil)); err != ErrClosed {
			t.Errorf("a closed desk: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

// TestFull: tickets that nobody uses, and views, are bounded.
func TestFull(t *testing.T) {
	d := NewDesk(nil)
	defer d.Close()
	var full *FullError
	for range MaxTickets {
		if _, _, err := d.Ticket(grant(nil, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := d.Ticket(grant(nil, nil)); !errors.As(err, &full) {
		t.Fatalf("one ticket more: %v", err)
	}
	d2 := NewDesk(nil)
	defer d2.Close()
	var open []*Visit
	visit := func(run string) error {
		g := grant(nil, nil)
		g.Run = run
		text, _, err := d2.Ticket(g)
		if err != nil {
			t.Fatal(err)
		}
		v, err := d2.Visit(text, "ana")
		if err == nil {
			open = append(open, v)
		}
		return err
	}
	for n := range MaxViewers {
		if err := visit(fmt.Sprint(n / MaxRunViewers)); err != nil {
			t.Fatal(err)
		}
		if n == MaxRunViewers-1 {
			if err := visit("0"); !errors.As(err, &full) || !strings.Contains(err.Error(), "of run 0") {
				t.Errorf("one more of a run: %v", err)
			}
		}
	}
	if err := visit("another"); !errors.As(err, &full) {
		t.Errorf("one more: %v", err)
	}
	for _, v := range open {
		v.Abort()
	}
	if err := visit("0"); err != nil || d2.Viewers("0") != 1 {
		t.Errorf("after all have left: %v", err)
	}
	open[len(open)-1].Abort()
}

// A house is a desk behind a web server.
type house struct {
	*Desk
	url  string
	ends chan error // of each view
}

func open(t *testing.T) *house {
	t.Helper()
	h := &house{Desk: NewDesk(nil), ends: make(chan error, 10)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := h.Visit(r.URL.Query().Get("ticket"), "ana")
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ends <- v.Serve(w, r)
	}))
	t.Cleanup(func() { h.Close(); srv.Close() })
	h.url = "ws" + strings.TrimPrefix(srv.URL, "http")
	return h
}

// A guest is a viewer in a test.
type guest struct {
	net.Conn
	ws *websocket.Conn
}

// come gets a ticket for what dial leads to, and comes with it.
func (h *house) come(t *testing.T, ctx context.Context, dial func(context.Context) (net.Conn, error)) *guest {
	t.Helper()
	g := grant(dial, nil)
	g.Context = ctx
	return h.comeFor(t, g)
}

// comeFor gets a ticket for a grant, and comes with it.
func (h *house) comeFor(t *testing.T, g Grant) *guest {
	t.Helper()
	text, _, err := h.Ticket(g)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ws, _, err := websocket.Dial(context.Background(), h.url+"?ticket="+text, &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{"binary"}})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	t.Cleanup(func() { ws.CloseNow() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return &guest{websocket.NetConn(ctx, ws, websocket.MessageBinary), ws}
}

// greet is a viewer's beginning.
func (g *guest) greet(t *testing.T) {
	t.Helper()
	if _, err := g.Write([]byte(version + "\x01\x01")); err != nil {
		t.Fatal(err)
	}
	g.reads(t, len(version)+2+4+24+len("ours"))
}

func (g *guest) reads(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(g, b); err != nil {
		t.Fatalf("the viewer: %v", err)
	}
	return b
}

// last gives the WebSocket's last words.
func (g *guest) last(t *testing.T) websocket.CloseError {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, _, err := g.ws.Read(ctx)
		if err == nil {
			continue
		}
		var words websocket.CloseError
		if !errors.As(err, &words) {
			t.Fatalf("no last words: %v", err)
		}
		return words
	}
}

func (h *house) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-h.ends:
		return err
	case <-time.After(patience):
		t.Fatal("the view did not end")
		return nil
	}
}

// TestView: a viewer sees what the display shows, and what they type, click and copy does not reach it.
func TestView(t *testing.T) {
	h := open(t)
	s, dial := serve(t, hello())
	g := h.come(t, context.Background(), dial)
	g.greet(t)
	for _, b := range [][]byte{key, pointer, cutText(msgClientCutText, 6, "secret"), request} {
		if _, err := g.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.hears(t, len(request)); string(got) != string(request) {
		t.Errorf("the display heard %x", got)
	}
	picture := update(plain(0, 0, 8, 4, 7))
	s.says(t, append(cutText(msgServerCutText, 6, "secret"), picture...))
	if got := g.reads(t, len(picture)); string(got) != string(picture) {
		t.Errorf("the viewer saw %x", got)
	}
	g.ws.Close(websocket.StatusNormalClosure, "")
	if err := h.ended(t); err != nil {
		t.Errorf("a viewer who leaves: %v", err)
	}
	if h.Viewers("k3f9") != 0 {
		t.Error("the place is not given back")
	}
}

// TestLastWords: who ends a view, and how, is told to the viewer.
func TestLastWords(t *testing.T) {
	for name, c := range map[string]struct {
		greeting []byte
		says     []byte // by the display, which then ends
		viewer   []byte
		cancel   bool
		code     websocket.StatusCode
		want     string
	}{
		"the display ends":                       {hello(), update(), nil, false, websocket.StatusNormalClosure, ""},
		"in mid-message":                         {hello(), update(plain(0, 0, 8, 4, 7))[:50], nil, false, websocket.StatusPolicyViolation, "the display's VNC server ended in the middle"},
		"it says what is not known":              {hello(), []byte{66}, nil, false, websocket.StatusPolicyViolation, "the display's VNC server sent a message of kind 66"},
		"it is no VNC server":                    {[]byte("HTTP/1.1 400 Bad"), nil, nil, false, websocket.StatusPolicyViolation, "the display's VNC server speaks no"},
		"it ends at once":                        {nil, nil, nil, false, websocket.StatusPolicyViolation, "the display's VNC server ended in the middle"},
		"the viewer says what is not known":      {hello(), nil, []byte{66}, false, websocket.StatusPolicyViolation, "the viewer sent a message of kind 66"},
		"the run ends, and says so at length, é": {hello(), nil, nil, true, websocket.StatusGoingAway, "the run has ended: it was "},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			s, dial := serve(t, c.greeting)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			g := h.come(t, ctx, dial)
			if len(c.greeting) == len(hello()) {
				g.greet(t)
				if err := <-s.ready; err != nil { // else it would end with something unread
					t.Fatal(err)
				}
			}
			switch {
			case c.cancel:
				cancel(errors.New("the run has ended: it was " + strings.Repeat("é", 200)))
			case c.viewer != nil:
				if _, err := g.Write(c.viewer); err != nil {
					t.Fatal(err)
				}
			default:
				if len(c.says) > 0 {
					s.says(t, c.says)
				}
				s.conn.Close()
			}
			words := g.last(t)
			if words.Code != c.code || !strings.HasPrefix(words.Reason, c.want) || len(words.Reason) > 123 {
				t.Errorf("%d %q", words.Code, words.Reason)
			}
			if err := h.ended(t); (err == nil) != (c.code == websocket.StatusNormalClosure) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCloseEndsViews: nothing is left of a desk that is closed.
func TestCloseEndsViews(t *testing.T) {
	h := open(t)
	_, dial := serve(t, hello())
	g := h.come(t, context.Background(), dial)
	g.greet(t)
	closed := make(chan error)
	go func() { closed <- h.Close() }()
	if words := g.last(t); words.Reason != ErrClosed.Error() {
		t.Errorf("%d %q", words.Code, words.Reason)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := h.ended(t); err != ErrClosed {
		t.Error(err)
	}
}

// TestSlowViewer: one that takes nothing stops its own display's words, in little memory, and no other view.
func TestSlowViewer(t *testing.T) {
	h := open(t)
	const side = 1000
	s, dial := serve(t, helloOf(side, side))
	g := h.come(t, context.Background(), dial)
	g.greet(t)
	frame := update(plain(0, 0, side, side, 7)) // 4 MB
	stuck := 0
	for range 100 { // a viewer who does not read: what fits into the sockets' own buffers goes, and no more
		s.conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := s.conn.Write(frame)
		stuck += n
		if err != nil {
			break
		}
	}
	if stuck > 32<<20 {
		t.Errorf("%d MB went to a viewer who takes nothing", stuck>>20)
	}
	// Meanwhile another is served.
	s2, dial2 := serve(t, hello())
	g2 := h.come(t, context.Background(), dial2)
	g2.greet(t)
	picture := update(plain(0, 0, 8, 4, 7))
	s2.says(t, picture)
	if got := g2.reads(t, len(picture)); string(got) != string(picture) {
		t.Errorf("the other viewer saw %x", got)
	}
	g2.ws.Close(websocket.StatusNormalClosure, "")
	if err := h.ended(t); err != nil {
		t.Error(err)
	}
}
