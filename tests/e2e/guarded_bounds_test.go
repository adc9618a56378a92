package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/browser"
)

const guardedOwner = "user:1000"

// keeping lets a guarded browser keep artifacts.
func keeping(t *testing.T) (*artifacts.Store, func(*browser.Options)) {
	t.Helper()
	store, err := artifacts.Open(t.Context(), filepath.Join(t.TempDir(), "artifacts"), artifacts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, func(o *browser.Options) { o.Artifacts, o.Owner = store, guardedOwner }
}

// TestGuardedComesAndGoes: nothing of the browser exists before the first call that needs it, nor 5 s after its idle time; and
// how long the first page takes.
func TestGuardedComesAndGoes(t *testing.T) {
	const idle = 2 * time.Second
	g := newGuarded(t, func(o *browser.Options) { o.Limits.Idle = idle })
	page(g.web, "a.example.org/", "<h1>Hello</h1>")
	if _, err := g.instance.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, failed := g.call("browser_snapshot", nil); !failed {
		t.Error(text)
	}
	if text, failed := g.call("browser_navigate", map[string]any{"url": "http://10.0.0.1/"}); !failed {
		t.Error(text)
	}
	if g.worker != nil {
		t.Error("a browser was started before it was needed")
	}
	began := time.Now()
	g.must("browser_navigate", map[string]any{"url": "http://a.example.org/"})
	first := time.Since(began)
	var later []time.Duration
	for range 3 {
		began = time.Now()
		g.must("browser_navigate", map[string]any{"url": "http://a.example.org/"})
		later = append(later, time.Since(began).Round(time.Millisecond))
	}
	t.Logf("first page %v, later ones %v", first.Round(time.Millisecond), later)
	select {
	case <-g.worker.Done():
	case <-time.After(idle + 5*time.Second):
		t.Error("the browser is there after its idle time")
	}
	if !within(5*time.Second, func() bool {
		boxes, err := g.shop.driver.List(context.Background(), nil)
		return err == nil && len(boxes) == 0
	}) {
		t.Error("its sandbox is there after its idle time")
	}
	if text, _ := g.call("browser_snapshot", nil); !strings.Contains(text, "nothing was asked of it for 2s") {
		t.Error(text)
	}
}

// tooMuch: what pages have too much of comes back within bounds, it is said how much there is, and the whole is an artifact.
func (g *guarded) tooMuch(store *artifacts.Store) {
	t := g.t
	page(g.web, "tall.example.org/", `<style>body { margin: 0 } div { height: 5000px }</style>
		<div style="background: #f00"></div><div style="background: #0f0"></div><div style="background: #00f"></div><div style="background: #fff"></div>`)
	page(g.web, "long.example.org/", `<h1>Very long</h1><script>
		for (let i = 0; i < 11500; i++) document.body.append(Object.assign(document.createElement('button'), { textContent: 'one of very many ' + i }));</script>`)
	kept := func(text, name string) []byte {
		t.Helper()
		_, f, err := store.Open(t.Context(), guardedOwner, find(t, text, `artifact (\w+) \(`+regexp.QuoteMeta(name)+`\)`))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}

	g.must("browser_navigate", map[string]any{"url": "http://tall.example.org/"})
	r := g.result("s", "browser_take_screenshot", map[string]any{"fullPage": true})
	if r.IsError || len(r.Content) != 2 {
		t.Fatal(r.Content)
	}
	text := r.Content[0].(mcp.TextContent).Text
	find(t, text, `(which is the first 1\d{3}×10000 of the page's 1\d{3}×20000 pixels)`)
	raw, err := base64.StdEncoding.DecodeString(r.Content[1].(mcp.ImageContent).Data)
	if err != nil {
		t.Fatal(err)
	}
	if b := decoded(t, raw).Bounds(); b.Dx() > browser.ModelSide || b.Dy() > browser.ModelSide || len(raw) > browser.ModelBytes {
		t.Errorf("the model gets %v in %d bytes", b, len(raw))
	}
	for name, colours := range map[string][2]color.NRGBA{
		"screenshot.png":   {{R: 255, A: 255}, {G: 255, A: 255}},
		"screenshot-2.png": {{B: 255, A: 255}, {R: 255, G: 255, B: 255, A: 255}},
	} {
		img := decoded(t, kept(text, name))
		if h := img.Bounds().Dy(); h != 10000 {
			t.Errorf("%s is %d high", name, h)
		}
		for i, want := range colours {
			if got := color.NRGBAModel.Convert(img.At(100, 2500+5000*i)); got != want {
				t.Errorf("%s at %d: %v, want %v", name, 2500+5000*i, got, want)
			}
		}
	}

	text = g.must("browser_navigate", map[string]any{"url": "http://long.example.org/"})
	if len(text) > browser.MaxPageText+1000 {
		t.Errorf("%d bytes", len(text))
	}
	find(t, text, `(the first \d+ of 5\d{5} bytes)`)
	if whole := kept(text, "snapshot.txt"); !bytes.Contains(whole, []byte("one of very many 11499")) {
		t.Errorf("%d bytes are kept of it, without its end", len(whole))
	}
}

func decoded(t *testing.T, data []byte) image.Image {
	t.Helper()
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestGuardedTrouble: pages and ends of the browser that are meant to hang or to break it are answered, in words, and
// what comes after works.
func TestGuardedTrouble(t *testing.T) {
	store, with := keeping(t)
	g := newGuarded(t, with)
	g.answer = func(browser.Question) bool { return true }
	page(g.web, "a.example.org/{$}", "<h1>Hello</h1>")
	page(g.web, "windows.example.org/{$}", `<h1>Windows</h1><button onclick="for (let i = 0; i < 100; i++) window.open('http://a.example.org/?' + i, '_blank')">All</button>`)
	page(g.web, "files.example.org/{$}", `<h1>Files</h1><script>for (let i = 0; i < 200; i++) { const a = document.createElement('a'); a.href = '/get?' + i; a.download = 'f' + i; setTimeout(() => a.click(), 5 * i) }</script>`)
	g.web.HandleFunc("files.example.org/get", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.RawQuery) })
	page(g.web, "soon.example.org/{$}", `<p>Not yet</p><script>setTimeout(() => document.querySelector('p').textContent = 'Paid', 6500)</script>`)
	g.web.HandleFunc("never.example.org/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "<!doctype html><h1>Some of it</h1><img src=/more>")
		_ = http.NewResponseController(w).Flush() // the client may be gone
		<-r.Context().Done()
	})

	// A page that never loads, in a session of its own while all else goes on.
	g.b.TurnStarted("w7k2", "other")
	slow := make(chan *mcp.CallToolResult, 1)
	go func() {
		slow <- g.result("other", "browser_navigate", map[string]any{"url": "http://never.example.org/"})
	}()

	g.tooMuch(store)

	// playwright-mcp gives up on a text after five seconds.
	g.must("browser_navigate", map[string]any{"url": "http://soon.example.org/"})
	if text := g.must("browser_wait_for", map[string]any{"text": "Paid"}); !strings.Contains(text, "It came about") {
		t.Error(text)
	}

	g.must("browser_navigate", map[string]any{"url": "http://windows.example.org/"})
	text, _ := g.act("browser_click", `button "All"`, nil) // it may take too long, and say so
	list := g.must("browser_tabs", map[string]any{"action": "list"})
	if n := strings.Count(list, "example.org/"); n > browser.DefaultTabs+1 || !strings.Contains(text+list, "those were closed") {
		t.Errorf("after a hundred windows: %s\n%s", text, list)
	}
	g.must("browser_navigate", map[string]any{"url": "http://a.example.org/"})

	g.must("browser_navigate", map[string]any{"url": "http://files.example.org/"})
	g.must("browser_wait_for", map[string]any{"time": 2})
	for range 3 { // each tells of what has come since
		text += g.must("browser_wait_for", map[string]any{"time": 0.5})
	}
	all, err := store.List(t.Context(), guardedOwner, artifacts.Filter{Run: "w7k2"})
	downloads := slices.DeleteFunc(all, func(a artifacts.Artifact) bool { return !strings.HasPrefix(a.Name, "f") })
	if err != nil || len(downloads) > browser.MaxDownloads || len(downloads) == 0 {
		t.Errorf("%d downloads are kept, %v:\n%s", len(downloads), err, text)
	}
	g.must("browser_navigate", map[string]any{"url": "http://a.example.org/"})

	// Killed in the middle of a call, and of an action whose outcome nobody knows then.
	g.set(func(g *guarded) {
		g.before = func(w browser.Worker, tool, _ string) {
			if tool == "browser_wait_for" {
				go func() {
					_, err := w.Run(context.Background(), []string{"pkill", "-9", "-f", "mcp/cli.js"}, 1000)
					t.Logf("pkill: %v", err) // it may have met itself
				}()
			}
		}
	})
	text, failed := g.call("browser_wait_for", map[string]any{"time": 20})
	if !failed || !strings.Contains(text, "refused by F.8: the browser is gone") || !strings.Contains(text, "is not known") {
		t.Errorf("killed: %s", text)
	}
	if text, failed = g.call("browser_snapshot", nil); !failed || !strings.Contains(text, "there is no page yet") {
		t.Error(text)
	}
	g.must("browser_navigate", map[string]any{"url": "http://a.example.org/"})

	r := <-slow
	said := r.Content[0].(mcp.TextContent).Text
	if !r.IsError || !strings.Contains(said, "the page did not load within 30s") {
		t.Errorf("never loads: %s", said)
	}
	r = g.result("other", "browser_snapshot", nil)
	if said = r.Content[0].(mcp.TextContent).Text; r.IsError || !strings.Contains(said, "Some of it") {
		t.Errorf("what there is of it: %s", said)
	}
}
