package browser

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/policy"
)

// A rig is a browser in a test: one run "r" of the agent "web" with one session "s", in a turn.
type rig struct {
	t *testing.T
	b *Browser

	mu       sync.Mutex
	workers  []*fakeWorker // started, in order
	next     []*fakeWorker // to be started
	failing  error         // of Launch
	policies map[string]Policy
	asked    []Question
	answer   func(Question) (bool, error)
	names    map[string][]netip.Addr
	local    map[string]http.Handler
	store    *fakeStore
	gone     int // sessions' hosts that were given back
}

func newRig(t *testing.T, limits Limits) *rig {
	t.Helper()
	r := &rig{t: t, store: &fakeStore{}, names: map[string][]netip.Addr{}, local: map[string]http.Handler{}, policies: map[string]Policy{}}
	r.answer = func(Question) (bool, error) { return true, nil }
	r.policies["r"] = Policy{Agent: "web", Rules: policy.Network{Agent: "web"}, Network: everything()}
	for _, host := range []string{"shop.example.org", "other.example.org", "a.example.org"} {
		r.names[host] = []netip.Addr{netip.MustParseAddr("93.184.216.34")}
	}
	b, err := New(Options{
		Launcher: r, Policy: r.policy, Ask: r.ask, Resolve: r.resolve, Hosts: r.hosts, Artifacts: r.store, Owner: "user:1000", Limits: limits,
		OpenFile: func(string, string) (io.ReadCloser, error) { return nil, errors.New("not in the workspace") },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.b = b
	t.Cleanup(func() { b.Close() })
	b.TurnStarted("r", "s")
	return r
}

// everything is rules that refuse nothing that is public: what a test's browser reaches.
func everything() policy.Network {
	return policy.Network{Agent: "web", Unknown: policy.UnknownAsk}
}

func (r *rig) policy(run string) (Policy, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.policies[run]
	return p, ok
}

func (r *rig) setPolicy(f func(*Policy)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.policies["r"]
	f(&p)
	r.policies["r"] = p
}

func (r *rig) ask(ctx context.Context, q Question) (bool, error) {
	r.mu.Lock()
	r.asked = append(r.asked, q)
	answer := r.answer
	r.mu.Unlock()
	return answer(q)
}

func (r *rig) questions() []Question {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

func (r *rig) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if addrs, ok := r.names[host]; ok {
		return addrs, nil
	}
	return nil, errors.New("no such host")
}

func (r *rig) hosts(string, string) (func(string) http.Handler, func()) {
	return func(host string) http.Handler {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.local[host]
		}, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.gone++
		}
}

func (r *rig) Launch(ctx context.Context, spec WorkerSpec) (Worker, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing != nil {
		return nil, r.failing
	}
	w := newWorker()
	if len(r.next) > 0 {
		w, r.next = r.next[0], r.next[1:]
	}
	w.spec = spec
	w.web["http://shop.example.org/"] = shop()
	r.workers = append(r.workers, w)
	return w, nil
}

func (r *rig) started() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.workers)
}

// worker is the one that was started last.
func (r *rig) worker() *fakeWorker {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.workers) == 0 {
		r.t.Fatal("no browser was started")
	}
	return r.workers[len(r.workers)-1]
}

// shop is a page with a button, a link, a form and a password field.
func shop() fakePage {
	return fakePage{
		url: "http://shop.example.org/", title: "Shop",
		tree: strings.Join([]string{
			`- generic [ref=e1]:`, `  - button "Buy" [ref=e2]`, `  - link "Away" [ref=e3]:`, `    - /url: http://other.example.org/`,
			`  - textbox "Your name" [ref=e4]: Ada`, `  - textbox "Log in" [ref=e5]: hunter2`, `  - iframe [ref=e6]:`, `    - button "Pay" [ref=f1e1]`, ``,
		}, "\n"),
		facts: map[string]fact{
			"e2":   {Element: element{Tag: "button", Targets: []string{"http://shop.example.org/buy"}}},
			"e3":   {Element: element{Tag: "a", Targets: []string{"http://other.example.org/"}}},
			"e4":   {Element: element{Tag: "input", Type: "text", Labels: "Your name"}},
			"e5":   {Element: element{Tag: "input", Type: "password", Labels: "Log in"}},
			"f1e1": {Frame: "http://other.example.org/pay", Element: element{Tag: "button"}},
		},
		frames: []string{"http://other.example.org/pay"},
		fields: []field{{element{Tag: "input", Type: "text"}, "Ada"}, {element{Tag: "input", Type: "password"}, "hunter2"}},
	}
}

// call uses a tool as the run's session.
func (r *rig) call(tool, args string) *mcp.CallToolResult { return r.callAs("r", "s", tool, args) }

func (r *rig) callAs(run, session, tool, args string) *mcp.CallToolResult {
	r.t.Helper()
	i, err := r.b.Open(context.Background(), gateway.Caller{Run: run, Agent: "web"})
	if err != nil {
		r.t.Fatal(err)
	}
	defer i.Close()
	res, err := i.Call(context.Background(), gateway.Call{
		Caller: gateway.Caller{Run: run, Agent: "web"}, Session: session, Tool: tool, Args: json.RawMessage(args), Progress: func(float64, float64, string) {},
	})
	if err != nil {
		return mcp.NewToolResultError(err.Error())
	}
	return res
}

func text(r *mcp.CallToolResult) string {
	var all []string
	for _, part := range r.Content {
		if t, ok := part.(mcp.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}

// ok wants a call to succeed and to say some things.
func (r *rig) ok(tool, args string, says ...string) string {
	r.t.Helper()
	res := r.call(tool, args)
	got := text(res)
	if res.IsError {
		r.t.Fatalf("%s %s: %s", tool, args, got)
	}
	r.has(got, says...)
	return got
}

// refused wants it to be refused, with some words.
func (r *rig) refused(tool, args string, says ...string) string {
	r.t.Helper()
	res := r.call(tool, args)
	got := text(res)
	if !res.IsError {
		r.t.Fatalf("%s %s was not refused: %s", tool, args, got)
	}
	r.has(got, says...)
	return got
}

func (r *rig) has(got string, says ...string) {
	r.t.Helper()
	for _, want := range says {
		if not, is := strings.CutPrefix(want, "!"); is {
			if strings.Contains(got, not) {
				r.t.Errorf("%q is in:\n%s", not, got)
			}
		} else if !strings.Contains(got, want) {
			r.t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

// atShop is a rig whose browser shows the shop, just read.
func atShop(t *testing.T) (*rig, *fakeWorker) {
	t.Helper()
	r := newRig(t, Limits{})
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`, "button \"Buy\"")
	r.mu.Lock()
	r.asked = nil
	r.mu.Unlock()
	return r, r.worker()
}

// holders gives the browsers that there are.
func (r *rig) holders() []holder {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.b.holders()
}
