package browser

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/policy"
)

// TestLanding: wherever a page got itself, and by whatever means, a private place closes the browser, nothing of it is
// read, and the agent is told which check that was (F.5).
func TestLanding(t *testing.T) {
	private := []string{
		"http://10.0.0.1/", "https://192.168.1.1:8443/x", "http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://[::ffff:10.0.0.1]/",
		"http://[fd00::1]/", "http://127.0.0.1:3128/", "http://localhost/", "http://x.localhost:8080/", "http://100.64.0.1/", "http://0.0.0.0/",
		"http://intranet.example.org/", "http://mixed.example.org/", "file:///etc/passwd", "view-source:http://shop.example.org/", "chrome://settings/",
		"devtools://x", "blob:http://10.0.0.1/uuid", "http://user@10.0.0.1/", "ftp://shop.example.org/", "chrome-error://other/", "http://0x7f.1/", "http://[64:ff9b::a00:1]/",
	}
	for how, moves := range map[string]func(w *fakeWorker, url string){
		"redirect, meta refresh or location": func(w *fakeWorker, url string) { w.current.url = url },
		"frame":                              func(w *fakeWorker, url string) { w.current.frames = append(w.current.frames, "about:srcdoc", url) },
		"new window":                         func(w *fakeWorker, url string) { w.tabs = append(w.tabs, fakePage{url: url}) },
		"worker":                             func(w *fakeWorker, url string) { w.current.workers = append(w.current.workers, url) },
		"service worker":                     func(w *fakeWorker, url string) { w.service = append(w.service, url) },
	} {
		for _, url := range private {
			r, w := atShop(t)
			r.names["intranet.example.org"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
			r.names["mixed.example.org"] = []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("10.1.2.3")}
			w.change(func(w *fakeWorker) { moves(w, url); w.current.tree += "- text: the secret page" })
			reads := w.called("read")
			r.refused("browser_snapshot", `{}`, "F.5", "nothing was read", "browser was closed", "!the secret page")
			if w.called("read") != reads || w.Err() == nil {
				t.Errorf("%s to %s: it was read, or is still there", how, url)
			}
			r.refused("browser_snapshot", `{}`, "browser_navigate", "!the secret page")
			r.b.Close()
		}
	}
}

// TestLandingWhileReading: a page that moves itself while it is read is not read either; and one that moves after an
// action, or while the person is asked, is treated the same.
func TestLandingWhileReading(t *testing.T) {
	const private = "http://10.0.0.1/"
	for _, during := range []string{"read", "browser_console_messages", "browser_take_screenshot", "browser_click", "browser_navigate", "facts"} {
		r, w := atShop(t)
		w.change(func(w *fakeWorker) {
			w.on[during] = func(w *fakeWorker, args string) *mcp.CallToolResult {
				old := w.current
				w.current.url = private
				switch during {
				case "read":
					return result(map[string]any{"snapshot": "- text: the secret page", "at": w.where()})
				case "browser_navigate":
					return mcp.NewToolResultText("### Page\n- Page URL: " + private)
				case "facts":
					w.on["facts"] = nil
					return result(old.answerFacts("e2"))
				}
				return mcp.NewToolResultText("### Result\nthe secret page")
			}
		})
		call := map[string][2]string{
			"read": {"browser_snapshot", `{}`}, "browser_console_messages": {"browser_console_messages", `{}`}, "browser_click": {"browser_click", `{"target":"e2"}`},
			"browser_take_screenshot": {"browser_take_screenshot", `{}`}, "browser_navigate": {"browser_navigate", `{"url":"http://shop.example.org/"}`},
			"facts": {"browser_click", `{"target":"e2"}`},
		}[during]
		got := r.refused(call[0], call[1], "!the secret page")
		if during != "browser_take_screenshot" { // there was no picture anyway
			r.has(got, "F.5", "nothing was read")
		}
		r.b.Close()
	}
}

// TestReadingNowhere: a page that does not say where it is is not read.
func TestReadingNowhere(t *testing.T) {
	r, w := atShop(t)
	w.change(func(w *fakeWorker) {
		w.on["read"] = func(*fakeWorker, string) *mcp.CallToolResult {
			return result(map[string]any{"snapshot": "- text: the secret page"})
		}
	})
	r.refused("browser_snapshot", `{}`, "F.5", "!the secret page")
}

func (p fakePage) answerFacts(ref string) facts {
	one := p.facts[ref]
	one.Ref, one.Lines = ref, []string{`- button "Buy" [ref=e2]`}
	return facts{URL: p.url, Elements: []fact{one}}
}

// TestLandingWithDialog: an open dialog does not hide where the page is, nor does a title that looks like an address.
func TestLandingWithDialog(t *testing.T) {
	for _, p := range []fakePage{{url: "http://10.0.0.1/", title: "x"}, {url: "http://10.0.0.1/](http://shop.example.org/", title: "x](http://shop.example.org/"}} {
		r, w := atShop(t)
		w.change(func(w *fakeWorker) { w.current = p; w.modal = `- ["alert" dialog with message "the secret page"]` })
		r.refused("browser_tabs", `{"action":"list"}`, "F.5", "closed", "!the secret page")
	}
}

// TestLandingAllowed: what a person allowed by a private rule, and what handlerd answers, is no private landing; nor is
// the browser's own error page, or one with no address.
func TestLandingAllowed(t *testing.T) {
	r, w := atShop(t)
	rule, err := policy.ParseRule(policy.KindPrivate, "10.0.0.1:8080", "test")
	if err != nil {
		t.Fatal(err)
	}
	r.setPolicy(func(p *Policy) { p.Network.Rules = append(p.Network.Rules, rule) })
	for _, url := range []string{"http://10.0.0.1:8080/", "about:blank", "chrome-error://chromewebdata/", "data:text/html,x", "blob:http://shop.example.org/u", "http://unknown.example.org/"} {
		w.change(func(w *fakeWorker) { w.current.url = url })
		r.ok("browser_snapshot", `{}`)
	}
	w.change(func(w *fakeWorker) { w.current.url = "http://10.0.0.1:8081/" })
	r.refused("browser_snapshot", `{}`, "F.5")
}

// TestNavigate: what is never gone to, what is asked about, and once is enough.
func TestNavigate(t *testing.T) {
	r, w := atShop(t)
	for _, url := range []string{
		"file:///etc/passwd", "javascript:alert(1)", "view-source:http://shop.example.org/", "data:text/html,x", "about:blank", "shop.example.org", "",
		"http://u:p@shop.example.org/", "http://u@shop.example.org/", "chrome://version", "http://10.0.0.1/", "http://localhost/", "http://[::1]:80/",
		"http://2130706433/", "http://x.localhost/", "ws://shop.example.org/", "blob:http://shop.example.org/x", "http://" + strings.Repeat("a", maxURL),
	} {
		navigations := w.called("browser_navigate")
		r.refused("browser_navigate", fmt.Sprintf(`{"url":%q}`, url))
		if w.called("browser_navigate") != navigations {
			t.Errorf("%s was gone to", url)
		}
	}
	if n := len(r.questions()); n != 0 {
		t.Fatalf("%d questions", n)
	}
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`) // allowed already
	w.change(func(w *fakeWorker) { w.web["http://other.example.org/x"] = shop() })
	r.answer = func(Question) (bool, error) { return false, nil }
	r.refused("browser_navigate", `{"url":"http://other.example.org/x"}`, "F.4", "said no")
	r.answer = func(Question) (bool, error) { return true, nil }
	r.ok("browser_navigate", `{"url":"http://other.example.org/x"}`)
	r.ok("browser_navigate", `{"url":"http://other.example.org/x"}`)
	q := r.questions()
	if len(q) != 2 || q[1].Action != "go to" || q[1].Targets[0] != "http://other.example.org/x" {
		t.Errorf("%+v", q)
	}
	r.setPolicy(func(p *Policy) { p.Rules = allow("a.example.org") })
	w.change(func(w *fakeWorker) { w.web["http://a.example.org/"] = shop() })
	r.ok("browser_navigate", `{"url":"http://a.example.org/"}`)
	if len(r.questions()) != 2 {
		t.Error("a host that the rules allow was asked about")
	}
	r.refused("browser_navigate", `{"url":"http://a.example.org/none"}`, "ERR_TUNNEL", "network rules")
	r.setPolicy(func(p *Policy) { p.Rules = allow("nowhere.example.org") })
	r.names["nowhere.example.org"] = []netip.Addr{}
	r.refused("browser_navigate", `{"url":"http://nowhere.example.org/none"}`, "nowhere.example.org has no address: the name is wrong", "!network rules")
	r.setPolicy(func(p *Policy) { p.Rules = allow("a.example.org") })
	deny, err := policy.ParseRule(policy.KindDeny, "shop.example.org", "HANDLER_BROWSER_DENIED_HOSTS")
	if err != nil {
		t.Fatal(err)
	}
	r.setPolicy(func(p *Policy) { p.Network.Rules = append(p.Network.Rules, deny) })
	r.refused("browser_navigate", `{"url":"http://shop.example.org/"}`, "D.4", "denied")
}

// TestTabs: no more than there may be, and the agent is told of those that a page opened and that were closed.
func TestTabs(t *testing.T) {
	r, w := atShop(t)
	w.change(func(w *fakeWorker) { w.closed = 97; w.tabs = []fakePage{{url: "http://shop.example.org/2"}, {}, {}} })
	r.ok("browser_tabs", `{"action":"list"}`, "97 more tabs", "0: (current) http://shop.example.org/", "1: http://shop.example.org/2")
	r.refused("browser_tabs", `{"action":"new"}`, "F.8", "4 tabs")
	r.refused("browser_tabs", `{"action":"new","url":"http://shop.example.org/"}`, "F.8", "4 tabs")
	r.refused("browser_tabs", `{"action":"select"}`, "F.1", "index")
	r.refused("browser_tabs", `{"action":"select","index":99}`, "F.1", "no such tab")
	r.ok("browser_tabs", `{"action":"select","index":1}`)
	r.refused("browser_click", `{"target":"e2"}`, "F.3", "used up")
}

// FuzzPlace: a URL that is taken for a page of the web has a canonical host and a public class, or is refused.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{"http://a/", "http://[::1]/", "blob:http://1.2.3.4/", "HTTP://EXAMPLE.org:80/", "http://a@b@c/", "http://%31/", "about:x", "data:,", "http:///x", "http:\\\\10.0.0.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		b := &Browser{}
		p := (&session{b: b}).place(raw)
		if p.kind == placeWeb {
			if again, err := policy.CanonicalHost(p.host); err != nil || again != p.host || p.port == 0 || p.origin == "" {
				t.Fatalf("%q: %+v (%v)", raw, p, err)
			}
		}
		if p.kind == placeLocal {
			t.Fatalf("%q is local where nothing is", raw)
		}
	})
}

// TestEntered: where the agent's rules ask, the worker's proxy lets through what the person let this browser go to, no other
// port and nothing that a rule denies, and only for as long as that browser lives.
func TestEntered(t *testing.T) {
	r := newRig(t, Limits{})
	asking := policy.Network{Agent: "web", Unknown: policy.UnknownAsk}
	r.setPolicy(func(p *Policy) { p.Rules, p.Network = asking, asking })
	reaches := func(w *fakeWorker, host string, port uint16) policy.Action {
		return w.spec.Network().Decide(host, port).Action
	}
	r.ok("browser_navigate", `{"url":"http://shop.example.org/"}`)
	w := r.worker()
	if reaches(w, "shop.example.org", 80) != policy.Allow || reaches(w, "shop.example.org", 443) != policy.Ask || reaches(w, "a.example.org", 80) != policy.Ask {
		t.Error("a yes is not for the one host and port")
	}
	r.answer = func(Question) (bool, error) { return false, nil }
	r.refused("browser_navigate", `{"url":"http://a.example.org/"}`, "F.4", "said no")
	if reaches(w, "a.example.org", 80) != policy.Ask {
		t.Error("a no lets it through")
	}
	deny, err := policy.ParseRule(policy.KindDeny, "shop.example.org", "you")
	if err != nil {
		t.Fatal(err)
	}
	denied := asking
	denied.Rules = []policy.Rule{deny}
	r.setPolicy(func(p *Policy) { p.Rules, p.Network = denied, denied })
	if reaches(w, "shop.example.org", 80) != policy.Refuse {
		t.Error("a deny rule does not win")
	}
	r.refused("browser_navigate", `{"url":"http://shop.example.org/"}`, "D.4", "denied")
	r.setPolicy(func(p *Policy) { p.Rules, p.Network = asking, asking })
	r.ok("browser_close", `{}`)
	second := newWorker()
	other := shop()
	other.url = "http://other.example.org/"
	second.web[other.url], r.next = other, []*fakeWorker{second}
	r.answer = func(Question) (bool, error) { return true, nil }
	r.ok("browser_navigate", `{"url":"http://other.example.org/"}`)
	if reaches(second, "shop.example.org", 80) != policy.Ask {
		t.Error("the next browser goes where the one before was let go to")
	}
}
