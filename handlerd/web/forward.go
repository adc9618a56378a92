package web

import (
	"context"
	"crypto/rand"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/preview"
)

// Bounds of the ports that the page shows.
const (
	MaxForwards = 32            // at one time, of all runs
	ForwardTime = 8 * time.Hour // how long one lives without being asked for again
)

// A Port is a port of a run's sandbox that its person has open (handlerd/sessions). Exactly one of Serve and Abort is
// called.
type Port interface {
	// Run gives the run's id and its agent.
	Run() (id, agent string)
	// Dial connects to the port.
	Dial(ctx context.Context) (net.Conn, error)
	// Serve keeps the port open until client is closed or the run ends, and closes client.
	Serve(ctx context.Context, client net.Conn) error
	// Abort closes it at once.
	Abort()
}

// A forward is a port that the page shows, at a name under localhost that nothing else has: it shares no cookie and no
// storage with the page, which is another site to it.
type forward struct {
	types.Forwarded
	host   string
	port   *preview.Port
	ctx    context.Context // ends with it, and with it what is open
	cancel context.CancelFunc
	timer  *time.Timer
	over   chan struct{} // closed when nothing of it is left
}

// forwards are the ports that the page shows, by the Host that they answer.
type forwards struct {
	mu  sync.Mutex
	all map[string]*forward // protected by mu
}

func newForwards() *forwards { return &forwards{all: map[string]*forward{}} }

// at gives the forward that answers a Host, compared exactly; nil for none.
func (f *forwards) at(host string) *forward {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[host]
}

// endAll ends them, and returns when nothing of them is left.
func (f *forwards) endAll() {
	f.mu.Lock()
	all := slices.Collect(maps.Values(f.all))
	f.mu.Unlock()
	for _, fwd := range all {
		fwd.cancel()
	}
	for _, fwd := range all {
		<-fwd.over
	}
}

// find gives what a run has forwarded that match wants; nil for none.
func (f *forwards) find(run string, match func(*forward) bool) *forward {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fwd := range f.all {
		if fwd.Run == run && match(fwd) {
			return fwd
		}
	}
	return nil
}

// renew puts off the end of what a run has forwarded of a port already.
func (f *forwards) renew(run string, port int) (types.Forwarded, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fwd := range f.all {
		if fwd.Run == run && fwd.Port == port && fwd.timer.Reset(ForwardTime) {
			fwd.Expires = time.Now().Add(ForwardTime)
			return fwd.Forwarded, true
		}
	}
	return types.Forwarded{}, false
}

// Forward shows a port of a run in the page, until the run ends, the door is closed, EndForward,
// or ForwardTime has passed. A port that is shown already goes on under its name. Errors are *fault.Fault.
func (d *Door) Forward(ctx context.Context, run string, port int) (types.Forwarded, error) {
	if done, ok := d.forwards.renew(run, port); ok {
		return done, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		return types.Forwarded{}, fault.New(fault.Failed, "handler web, or for one port alone: handler forward RUN PORT", "the page is not served, and so shows no port")
	}
	if n := d.forwards.count(); n >= MaxForwards {
		return types.Forwarded{}, fault.New(fault.Failed, "close one of them first", "%d ports are shown, the most there can be", n)
	}
	listener := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(d.open.port))
	p, err := d.o.OpenPort(ctx, run, port, listener.String())
	if err != nil {
		return types.Forwarded{}, err
	}
	return d.forwards.start(p, port, d.open.port, d.open.origin(), d.open.cookieName()), nil
}

func (f *forwards) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// start shows a port that was opened, at the door's own port; page is the origin that may frame it.
func (f *forwards) start(p Port, port, own int, page, cookie string) types.Forwarded {
	host := strings.ToLower(rand.Text()) + ".localhost:" + strconv.Itoa(own)
	ctx, cancel := context.WithCancel(context.Background()) // nobody's request: its end is the run's, or asked for
	id, agent := p.Run()
	now := time.Now()
	fwd := &forward{host: host, ctx: ctx, cancel: cancel, over: make(chan struct{}), timer: time.AfterFunc(ForwardTime, cancel)}
	fwd.Forwarded = types.Forwarded{ID: strings.ToLower(rand.Text()[:8]), Run: id, Agent: agent, Port: port, URL: "http://" + host + "/", Since: now, Expires: now.Add(ForwardTime)}
	fwd.port = preview.NewPort(preview.PortOptions{
		Dial:    p.Dial,
		Request: func(r *http.Request) { withoutOurs(r.Header, cookie) },
		Answer: func(h http.Header) {
			h.Add("Content-Security-Policy", "frame-ancestors 'self' "+page) // beside the app's own: both hold
			h.Del("Alt-Svc")
		},
	})
	f.mu.Lock()
	f.all[host] = fwd
	f.mu.Unlock()
	client, ours := net.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = ours.Close() })
	go func() {
		defer close(fwd.over)
		_ = p.Serve(ctx, client) // nobody speaks out of order here
		stop()
		cancel()
		_ = ours.Close()
		fwd.timer.Stop()
		f.mu.Lock()
		delete(f.all, host)
		f.mu.Unlock()
		fwd.port.Close()
	}()
	return fwd.Forwarded
}

// ServeHTTP answers until the forward ends, which ends what is under way.
func (fwd *forward) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(fwd.ctx, cancel)()
	fwd.port.ServeHTTP(w, r.WithContext(ctx))
}

// withoutOurs takes out what is Handler's own. A browser sends neither to another name; an app that got them could not be
// told so afterwards.
func withoutOurs(h http.Header, cookie string) {
	h.Del(types.HeaderToken)
	lines := h.Values("Cookie")
	h.Del("Cookie")
	for _, line := range lines {
		var kept []string
		for pair := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if strings.TrimSpace(name) != cookie {
				kept = append(kept, strings.TrimSpace(pair))
			}
		}
		if len(kept) > 0 {
			h.Add("Cookie", strings.Join(kept, "; "))
		}
	}
}

// Forwards lists the ports of a run, or with "" of all, that the page shows, the oldest first.
func (d *Door) Forwards(run string) []types.Forwarded {
	d.forwards.mu.Lock()
	defer d.forwards.mu.Unlock()
	list := []types.Forwarded{}
	for _, f := range d.forwards.all {
		if run == "" || f.Run == run {
			list = append(list, f.Forwarded)
		}
	}
	slices.SortFunc(list, func(a, b types.Forwarded) int { return a.Since.Compare(b.Since) })
	return list
}

// EndForward ends one and returns when nothing of it is left. Errors are *fault.Fault.
func (d *Door) EndForward(run, id string) error {
	fwd := d.forwards.find(run, func(f *forward) bool { return f.ID == id })
	if fwd == nil {
		return fault.New(fault.NotFound, "", "the page shows no port %.40q of run %s", id, run)
	}
	fwd.cancel()
	<-fwd.over
	return nil
}
