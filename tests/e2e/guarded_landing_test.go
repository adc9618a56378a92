package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/browser"
)

// TestGuardedLanding is F.5 in the real Chromium. ATTACK: a page of the web leads the browser to a private address, at once or
// after it has settled, by every way that pages have, or asks a private service for something. VERIFIES: nothing is
// connected to; where a tab or a frame got there the browser is closed and nothing of it is read; the next call starts afresh.
func TestGuardedLanding(t *testing.T) {
	const private = "http://10.0.0.1/admin"
	g := newGuarded(t)
	g.answer = func(browser.Question) bool { return true }
	var reached atomic.Int32
	g.web.HandleFunc("10.0.0.1/", func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	page(g.web, "a.example.org/{$}", "<h1>Hello</h1>")
	page(g.web, "meta.example.org/{$}", `<meta http-equiv=refresh content="0; url=`+private+`"><h1>Secret words</h1>`)
	page(g.web, "frame.example.org/{$}", `<h1>Secret words</h1><iframe srcdoc="&lt;iframe src=`+private+`>&lt;/iframe>"></iframe>`)
	page(g.web, "later.example.org/{$}", `<h1>Wait</h1><script>setTimeout(() => location = '`+private+`', 1200)</script>`)
	page(g.web, "click.example.org/{$}", `<button onclick="window.open('`+private+`')">Open</button><a href="`+private+`" download>Get</a>`)
	g.web.HandleFunc("redirect.example.org/{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, private, http.StatusFound) })
	asks := ""
	for name, js := range map[string]string{
		"fetch":  `fetch('%s')`,
		"socket": `new Promise((yes, no) => { const s = new WebSocket('%s'.replace('http', 'ws')); s.onopen = yes; s.onerror = no })`,
	} {
		asks += fmt.Sprintf("tried('%s', %s);\n", name, fmt.Sprintf(js, private))
	}
	page(g.web, "asks.example.org/{$}", `<h1>Asks</h1><ul></ul><img src="`+private+`"><script>
		const say = (text) => document.querySelector('ul').appendChild(document.createElement('li')).textContent = text;
		const tried = (what, p) => p.then(() => say(what + ' let through'), () => say(what + ' held'));
		`+asks+`</script>`)

	closed := func(t *testing.T, text string, failed bool) {
		t.Helper()
		if !failed || !strings.Contains(text, "refused by F.5: the page led to where the browser must not be: 10.0.0.1 is ") ||
			!strings.Contains(text, "The browser was closed, and nothing was read") || strings.Contains(text, "Secret words") {
			t.Errorf("%s", text)
		}
		if text, failed := g.call("browser_snapshot", nil); !failed || !strings.Contains(text, "there is no page yet") {
			t.Errorf("afterwards: %s", text)
		}
		select {
		case <-g.worker.Done():
		case <-time.After(10 * time.Second):
			t.Error("the browser is still there")
		}
	}
	for _, host := range []string{"redirect", "meta", "frame"} {
		t.Run(host, func(t *testing.T) {
			g.t = t
			text, failed := g.call("browser_navigate", map[string]any{"url": "http://" + host + ".example.org/"})
			closed(t, text, failed)
		})
	}
	t.Run("later", func(t *testing.T) {
		g.t = t
		g.must("browser_navigate", map[string]any{"url": "http://later.example.org/"})
		text, failed := g.call("browser_wait_for", map[string]any{"time": 2})
		closed(t, text, failed)
	})
	for _, element := range []string{`button "Open"`, `link "Get"`} {
		t.Run(element, func(t *testing.T) {
			g.t = t
			g.must("browser_navigate", map[string]any{"url": "http://click.example.org/"})
			text, failed := g.act("browser_click", element, nil)
			closed(t, text, failed)
		})
	}
	t.Run("asks", func(t *testing.T) {
		g.t = t
		g.must("browser_navigate", map[string]any{"url": "http://asks.example.org/"})
		g.must("browser_wait_for", map[string]any{"text": "socket held"})
		text := g.must("browser_snapshot", nil)
		for _, want := range []string{"fetch held", "socket held"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
	})
	if n := reached.Load(); n > 0 {
		t.Errorf("the private address was reached %d times", n)
	}
}
