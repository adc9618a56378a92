package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/handlerd/sessions"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/podman"
)

// A workshop launches workers of the guarded browser over real podman, with the addon that is built, without a daemon.
type workshop struct {
	*browser.SandboxLauncher
	driver *podman.Driver
	dir    string
}

const workerOwner = "e2e-worker"

func newWorkshop(t *testing.T, with ...func(*browser.SandboxOptions)) *workshop {
	t.Helper()
	if the == nil {
		t.Skip("SKIPPED IN SHORT MODE: needs real podman and Chromium; run: make test")
	}
	// The daemon uses the same podman.
	if out, err := the.command(time.Minute, filepath.Join(the.bin, "handler"), "daemon", "stop"); err != nil {
		t.Logf("handler daemon stop: %v %s", err, out)
	}
	dir, err := os.MkdirTemp(the.runtime, "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &workshop{dir: dir}
	s.driver, err = podman.New(podman.Options{StateDir: filepath.Join(the.data, "handler/podman"), RunDir: filepath.Join(dir, "podman"), Owner: workerOwner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.driver.Close(); err != nil {
			t.Error(err)
		}
	})
	info, err := s.driver.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := browser.SandboxOptions{Options: mcpbox.Options{
		Driver:   s.driver,
		Enforced: func(context.Context) (sandbox.Enforced, error) { return info.Enforced, nil },
		Watch: func(ctx context.Context, id string, l sandbox.Limits, stop func(error)) {
			sessions.WatchSandbox(ctx, s.driver, id, l, func(sandbox.Stats) {}, stop)
		},
		Owner: workerOwner, RunRoot: filepath.Join(dir, "runs"), Guest: filepath.Join(the.bin, "handler-guest"),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, Audit: func(_ string, r egress.Record) { t.Logf("refused: %s:%d: %v", r.Host, r.Port, r.Verdict) }}
	for _, f := range with {
		f(&o)
	}
	s.SandboxLauncher = browser.NewLauncher(o)
	return s
}

// site is what the worker's own proxy answers: every page of these tests.
func site(host string) http.Handler {
	if host != "site.workspace.invalid" {
		return nil
	}
	page := func(w http.ResponseWriter, body string) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<!doctype html><title>worker</title>%s", body)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		page(w, `<h1>Hello from the site</h1><a href="/data.bin" download>get it</a><iframe src="about:blank"></iframe>`)
	})
	mux.HandleFunc("/data.bin", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="data.bin"`)
		_, _ = w.Write([]byte(strings.Repeat("data", 1000)))
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, _ *http.Request) {
		page(w, `<label>File <input type=file onchange="this.files[0].text().then(t=>document.querySelector('p').textContent=this.files[0].name+' says '+t)"></label><p></p>`)
	})
	mux.HandleFunc("/spin", func(w http.ResponseWriter, _ *http.Request) {
		page(w, `<button onclick="for(;;);">spin</button>`)
	})
	mux.HandleFunc("/eat", func(w http.ResponseWriter, _ *http.Request) {
		page(w, `<script>const all=[];setInterval(()=>{const b=new Uint8Array(32<<20);crypto.getRandomValues(b.subarray(0,65536));b.fill(1);all.push(b)},20)</script>`)
	})
	mux.HandleFunc("/forever", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="forever.bin"`)
		block, taken := make([]byte, 1<<20), 0
		for r.Context().Err() == nil {
			n, err := w.Write(block)
			if taken += n; err != nil {
				break
			}
		}
		forever <- taken
	})
	return mux
}

func (s *workshop) launch(t *testing.T, limits browser.WorkerLimits) browser.Worker {
	t.Helper()
	w, err := s.Launch(t.Context(), browser.WorkerSpec{
		Run: "w7k2", Agent: "demo", Local: site, Limits: limits,
		Network: func() policy.Network { return browser.PublicNetwork("demo") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// nothingLeft holds that no worker is there any more: no sandbox, no run directory.
func (s *workshop) nothingLeft(t *testing.T) {
	t.Helper()
	boxes, err := s.driver.List(context.Background(), nil)
	if err != nil || len(boxes) > 0 {
		t.Errorf("left: %v %v", boxes, err)
	}
	if entries, err := os.ReadDir(filepath.Join(s.dir, "runs")); err != nil || len(entries) > 0 {
		t.Errorf("left: %v %v", entries, err)
	}
}

// tell uses a tool and gives the texts of its result; isError says whether it may be an error.
func tell(t *testing.T, w browser.Worker, tool string, args map[string]any) (text string, isError bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := w.Call(ctx, tool, args)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	for _, part := range r.Content {
		if c, ok := part.(mcp.TextContent); ok {
			text += c.Text
		}
	}
	return text, r.IsError
}

func open(t *testing.T, w browser.Worker, url, want string) string {
	t.Helper()
	text, isError := tell(t, w, "browser_navigate", map[string]any{"url": url})
	if isError || !strings.Contains(text, want) {
		t.Errorf("%s: error %v, wants %q:\n%s", url, isError, want, text)
	}
	return text
}

func find(t *testing.T, text, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in:\n%s", pattern, text)
	}
	return m[1]
}

const siteURL = "http://site.workspace.invalid"

// TestWorker holds a worker of the guarded browser to F.1, F.2 and A.7, with the real Chromium: pages come through its
// proxy only, files go out and in, and Chromium's own sandbox is on.
func TestWorker(t *testing.T) {
	s := newWorkshop(t)
	began := time.Now()
	w := s.launch(t, browser.WorkerLimits{})
	launched := time.Since(began)
	open(t, w, siteURL+"/", "worker")
	first := time.Since(began)
	again := time.Now()
	open(t, w, siteURL+"/", "worker")
	t.Logf("launch %v, first page %v, a later page %v", launched, first, time.Since(again))

	text, _ := tell(t, w, "browser_snapshot", nil)
	if !strings.Contains(text, "Hello from the site") {
		t.Errorf("snapshot: %s", text)
	}
	// Chromium's own sandbox: every renderer in namespaces of its own, with a filter.
	out, err := w.Run(t.Context(), []string{"/bin/sh", "-c", `for p in $(grep -la -- '[-]-type=renderer' /proc/[0-9]*/cmdline); do
		grep -E '^(NSpid|Seccomp|NoNewPrivs|CapEff):' ${p%cmdline}status | tr '\n\t' '  '; echo; done; grep -la -- '[-]-no-sandbox' /proc/[0-9]*/cmdline || true`}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if !regexp.MustCompile(`NSpid: \d+ \d+ .*CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2`).MatchString(line) {
			t.Errorf("a renderer that is not isolated, or a browser without its sandbox: %q", line)
		}
	}

	// Everything goes to the proxy, loopback too, and only it says what is reached.
	for _, url := range []string{"http://127.0.0.1:3128/", "http://localhost/", "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/"} {
		text, _ := tell(t, w, "browser_navigate", map[string]any{"url": url})
		snapshot, _ := tell(t, w, "browser_snapshot", nil)
		if !strings.Contains(text+snapshot, "handler") && !strings.Contains(text+snapshot, "proxy") {
			t.Errorf("%s: the proxy did not answer:\n%s%s", url, text, snapshot)
		}
	}

	open(t, w, siteURL+"/", "worker")
	text, _ = tell(t, w, "browser_snapshot", nil)
	text, _ = tell(t, w, "browser_click", map[string]any{"element": "get it", "target": find(t, text, `link "get it" \[ref=(\w+)\]`)})
	for end := time.Now().Add(20 * time.Second); !strings.Contains(text, "Downloaded file") && time.Now().Before(end); {
		text, _ = tell(t, w, "browser_wait_for", map[string]any{"time": 0.2})
	}
	name := find(t, text, `Downloaded file data.bin to "?([^"\s]+)"?`)
	if data, err := w.ReadFile(t.Context(), name, 1<<20); err != nil || string(data) != strings.Repeat("data", 1000) {
		t.Errorf("%s: %d bytes, %v", name, len(data), err)
	}
	var large *browser.FileTooLargeError
	if _, err := w.ReadFile(t.Context(), name, 100); !errors.As(err, &large) {
		t.Errorf("%v", err)
	}

	path, err := w.WriteFile(t.Context(), "letter.txt", strings.NewReader("good morning"))
	if err != nil {
		t.Fatal(err)
	}
	open(t, w, siteURL+"/upload", "worker")
	text, _ = tell(t, w, "browser_snapshot", nil)
	tell(t, w, "browser_click", map[string]any{"element": "File", "target": find(t, text, `"File"[^\n]*\[ref=(\w+)\]`)})
	if text, isError := tell(t, w, "browser_file_upload", map[string]any{"paths": []string{path}}); isError {
		t.Errorf("upload: %s", text)
	}
	if text, _ = tell(t, w, "browser_snapshot", nil); !strings.Contains(text, "letter.txt says good morning") {
		t.Errorf("after the upload: %s", text)
	}
	text, _ = tell(t, w, "browser_pdf_save", nil)
	name = find(t, text, `\(([^)\s]+\.pdf)\)`)
	if data, err := w.ReadFile(t.Context(), name, 10<<20); err != nil || !strings.HasPrefix(string(data), "%PDF") {
		t.Errorf("%s: %d bytes, %v", name, len(data), err)
	}
	if out, err := w.Run(t.Context(), []string{"pdftotext", name, "-"}, 1<<20); err != nil || !strings.Contains(string(out), "letter.txt says good morning") {
		t.Errorf("pdftotext: %q %v", out, err)
	}
	if out, err := w.Run(t.Context(), []string{"pdfinfo", name}, 64<<10); err != nil || !strings.Contains(string(out), "\nPages:           1\n") {
		t.Errorf("pdfinfo: %q %v", out, err)
	}
	picture, err := w.Run(t.Context(), []string{"pdftoppm", "-png", "-singlefile", "-scale-to", "400", "-f", "1", "-l", "1", name}, 10<<20)
	if err != nil || !strings.HasPrefix(string(picture), "\x89PNG\r\n") {
		t.Errorf("pdftoppm: %d bytes, %.20q, %v", len(picture), picture, err)
	}

	w.CutNetwork()
	text, isError := tell(t, w, "browser_navigate", map[string]any{"url": siteURL + "/"})
	if !isError && strings.Contains(text, "Page Title: worker") {
		t.Errorf("a page between turns: %s", text)
	}
	w.AllowNetwork()
	time.Sleep(200 * time.Millisecond) // a navigation right after a failed one is lost in it (playwright#35944), which nothing tells of
	open(t, w, siteURL+"/", "worker")

	closing := time.Now()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("closed in %v", time.Since(closing))
	s.nothingLeft(t)
}

// TestWorkerTrouble ends workers in every way but the orderly one: what is to blame is told in words, and nothing is
// left.
func TestWorkerTrouble(t *testing.T) {
	s := newWorkshop(t)
	gone := func(t *testing.T, w browser.Worker, within time.Duration, want string) {
		t.Helper()
		select {
		case <-w.Done():
		case <-time.After(within):
			t.Fatalf("it does not end within %v", within)
		}
		if err := w.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		s.nothingLeft(t)
	}
	t.Run("killed", func(t *testing.T) {
		w := s.launch(t, browser.WorkerLimits{})
		open(t, w, siteURL+"/", "worker")
		if _, err := w.Run(t.Context(), []string{"pkill", "-9", "-f", "mcp/cli.js"}, 1000); err != nil {
			t.Logf("pkill: %v", err) // it may have met itself
		}
		gone(t, w, 20*time.Second, "playwright-mcp")
	})
	t.Run("hangs", func(t *testing.T) {
		w := s.launch(t, browser.WorkerLimits{})
		open(t, w, siteURL+"/spin", "worker")
		text, _ := tell(t, w, "browser_snapshot", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		_, err := w.Call(ctx, "browser_click", map[string]any{"element": "spin", "target": find(t, text, `button "spin" \[ref=(\w+)\]`)})
		if took := time.Since(began); took > 4*time.Second || err == nil && took > 3*time.Second {
			t.Errorf("it came back after %v: %v", took, err)
		}
		began = time.Now()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("closing took %v", took)
		}
		s.nothingLeft(t)
	})
	t.Run("eats memory", func(t *testing.T) {
		w := s.launch(t, browser.WorkerLimits{Memory: 900 << 20})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := w.Call(ctx, "browser_navigate", map[string]any{"url": siteURL + "/eat"})
		t.Logf("the call: %v", err)
		gone(t, w, time.Minute, "memory")
	})
	t.Run("downloads forever", func(t *testing.T) {
		w := s.launch(t, browser.WorkerLimits{Storage: 32 << 20})
		tell(t, w, "browser_navigate", map[string]any{"url": siteURL + "/forever"})
		select {
		case n := <-forever:
			if n > 1<<30 {
				t.Errorf("it took %d bytes", n)
			}
		case <-time.After(time.Minute):
			t.Fatal("the download goes on")
		}
		open(t, w, siteURL+"/", "worker") // its storage was full, and the browser works on
	})
}

// forever is told how much of the endless download was taken.
var forever = make(chan int, 1)
