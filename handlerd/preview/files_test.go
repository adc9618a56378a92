package preview_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/handlerd/preview"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
}

// folder is a folder without a symlink in its path.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return dir
}

func session(t *testing.T, o preview.Options) *preview.Session {
	t.Helper()
	s, err := preview.New(o)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close(), s.Close()) })
	return s
}

// get asks a session for an address, which is not parsed but for its host.
func get(t *testing.T, s *preview.Session, address string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, s, http.MethodGet, address, headers...)
}

func ask(t *testing.T, s *preview.Session, method, address string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, address, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	h := s.Handler(r.URL.Hostname())
	if h == nil {
		t.Fatalf("%s is none of the session's hosts", address)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// origin opens a file and gives its origin, without a "/" at the end.
func origin(t *testing.T, s *preview.Session, name string) string {
	t.Helper()
	address, err := s.Open(name)
	must(t, err)
	u, err := url.Parse(address)
	must(t, err)
	return "http://" + u.Host
}

// A file leads to its folder's origin, which serves what is there, each as what its name says, with nothing to run
// elsewhere, to keep, or to be known by.
func TestFolder(t *testing.T) {
	dir := folder(t)
	write(t, dir+"/site/index.html", "<p>home")
	write(t, dir+"/site/css/a b.css", "p{}")
	write(t, dir+"/site/data.bin", "<script>x</script>")
	write(t, dir+"/site/logo.SVG", "<svg/>")
	write(t, dir+"/other/index.html", "<p>other")
	s := session(t, preview.Options{Scopes: []string{dir}})
	w := get(t, s, "http://files.workspace.invalid"+dir+"/site/index.html?q=1")
	to := w.Header().Get("Location")
	if w.Code != http.StatusFound || !strings.HasSuffix(to, ".files.workspace.invalid/index.html?q=1") {
		t.Fatalf("%d %q", w.Code, to)
	}
	base := origin(t, s, "site/index.html")
	if !strings.HasPrefix(to, base+"/") || len(base) < len("http://")+26+len(".files.workspace.invalid") {
		t.Errorf("%s and then %s", to, base)
	}
	if other := origin(t, s, "other/index.html"); other == base {
		t.Error("two folders have one origin")
	}
	for name, want := range map[string]struct{ media, body string }{
		"/index.html":     {"text/html; charset=utf-8", "<p>home"},
		"/":               {"text/html; charset=utf-8", "<p>home"},
		"/css/a%20b.css":  {"text/css; charset=utf-8", "p{}"},
		"/data.bin":       {"application/octet-stream", "<script>x</script>"},
		"/logo.SVG":       {"image/svg+xml", "<svg/>"},
		"/logo.SVG?a=b#c": {"image/svg+xml", "<svg/>"},
	} {
		w := get(t, s, base+name, "Cookie: a=b")
		h := w.Header()
		if w.Code != 200 || h.Get("Content-Type") != want.media || w.Body.String() != want.body {
			t.Errorf("%s: %d %s %q", name, w.Code, h.Get("Content-Type"), w.Body)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Set-Cookie") != "" ||
			h.Get("Access-Control-Allow-Origin") != "" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: %v", name, h)
		}
		for _, part := range []string{"default-src 'self' data: blob:", "connect-src 'self';", "form-action 'self'", "frame-ancestors 'self'", "object-src 'none'"} {
			if !strings.Contains(h.Get("Content-Security-Policy"), part) {
				t.Errorf("%s: no %s in %q", name, part, h.Get("Content-Security-Policy"))
			}
		}
	}
	if w := ask(t, s, http.MethodHead, base+"/index.html"); w.Code != 200 || w.Header().Get("Content-Length") != "7" || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		if w := ask(t, s, method, base+"/index.html"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

func TestRanges(t *testing.T) {
	dir := folder(t)
	write(t, dir+"/a.txt", "0123456789")
	s := session(t, preview.Options{Scopes: []string{dir}})
	base := origin(t, s, "a.txt")
	for value, want := range map[string]struct {
		code  int
		body  string
		about string
	}{
		"bytes=2-4":   {206, "234", "bytes 2-4/10"},
		"bytes=-3":    {206, "789", "bytes 7-9/10"},
		"bytes=8-100": {206, "89", "bytes 8-9/10"},
		"bytes=0-0":   {206, "0", "bytes 0-0/10"},
		"bytes=10-":   {416, "", "bytes */10"},
		"lines=1-2":   {416, "", ""},
	} {
		w := get(t, s, base+"/a.txt", "Range: "+value)
		if w.Code != want.code || want.code == 206 && w.Body.String() != want.body || w.Header().Get("Content-Range") != want.about {
			t.Errorf("%s: %d %q %q", value, w.Code, w.Body, w.Header().Get("Content-Range"))
		}
	}
	if w := get(t, s, base+"/a.txt", "Range: bytes=2-4", "If-Range: \"old\""); w.Code != 200 || w.Body.String() != "0123456789" {
		t.Errorf("If-Range: %d %q", w.Code, w.Body)
	}
}

// Nothing but regular files beneath the scope, by names without a dot at their beginning, is opened: whatever the path
// is written like and whatever lies there.
func TestRefused(t *testing.T) {
	outside := folder(t)
	write(t, outside+"/secret.txt", "SECRET")
	dir := folder(t)
	write(t, dir+"/site/index.html", "<p>home")
	write(t, dir+"/site/.env", "SECRET")
	write(t, dir+"/site/.git/config", "SECRET")
	write(t, dir+"/site/sub/.hidden/x.txt", "SECRET")
	write(t, dir+"/up.txt", "SECRET of the folder above")
	must(t, os.Symlink(outside+"/secret.txt", dir+"/site/link.txt"), os.Symlink(outside, dir+"/site/out"), os.Symlink("index.html", dir+"/site/inner.html"),
		os.Symlink("/proc/self", dir+"/site/proc"), unix.Mkfifo(dir+"/site/pipe.txt", 0o600), os.Mkdir(dir+"/site/empty", 0o700),
		os.WriteFile(dir+"/site/closed.txt", []byte("SECRET"), 0o000))
	big, err := os.Create(dir + "/site/big.bin")
	must(t, err, big.Truncate(preview.MaxFileBytes+1), big.Close())
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err, unix.Bind(sock, &unix.SockaddrUnix{Name: dir + "/site/s.txt"}), unix.Close(sock))
	s := session(t, preview.Options{Scopes: []string{dir}})
	base := origin(t, s, "site/index.html")
	for name, says := range map[string]string{
		"/.env": "begins with a dot", "/.git/config": "begins with a dot", "/sub/.hidden/x.txt": "begins with a dot", "/%2eenv": "begins with a dot",
		"/../up.txt": "no plain path", "/%2e%2e/up.txt": "no plain path", "/sub/../../up.txt": "no plain path", "/..%2fup.txt": "%2F", "/sub%2F..%2F..%2Fup.txt": "%2F",
		"/%252e%252e/up.txt": "there is no file", "//up.txt": "no plain path", "/a//b.txt": "no plain path", "/index.html%00.txt": "no plain path",
		"/..\\up.txt": "begins with a dot", "/" + strings.Repeat("a/", 3000) + "x": "no plain path",
		"/link.txt": "symlink", "/inner.html": "symlink", "/out/secret.txt": "symlink", "/proc/environ": "symlink", "/proc/self/environ": "symlink",
		"/pipe.txt": "no file", "/s.txt": "no file", "/empty": "no file", "/empty/": "there is no file", "/sub": "no file", "/gone.txt": "there is no file",
		"/index.html/x": "there is no file", "/big.bin": "larger than",
	} {
		r := &http.Request{Method: http.MethodGet, Host: strings.TrimPrefix(base, "http://"), Header: http.Header{}}
		r.URL, err = url.Parse(base + name)
		if err != nil {
			r.URL = &url.URL{Scheme: "http", Host: r.Host, Path: name}
		}
		w := httptest.NewRecorder()
		s.Handler(r.URL.Hostname()).ServeHTTP(w, r)
		if w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "SECRET") || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%.60s: %d %.300q, want %q", name, w.Code, w.Body, says)
		}
	}
	if os.Geteuid() != 0 {
		if w := get(t, s, base+"/closed.txt"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "may not be read") {
			t.Errorf("closed: %d %q", w.Code, w.Body)
		}
	}
	for _, name := range []string{"site/.env", ".git/x", "../x", "site/link.txt", "site/out/secret.txt", outside + "/secret.txt", "/etc/passwd", "site", "site/pipe.txt", "", "/", "site/nope.html"} {
		if address, err := s.Open(name); err == nil {
			t.Errorf("%q: opened as %s", name, address)
		}
	}
}

// A hard link is the file itself: it was the agent's to read when it was made, since a link is made only within one
// mount, and the sandbox has no file of a scope's file system but the scope's.
func TestHardLink(t *testing.T) {
	dir := folder(t)
	write(t, dir+"/a/one.txt", "one")
	must(t, os.Mkdir(dir+"/b", 0o700), os.Link(dir+"/a/one.txt", dir+"/b/two.txt"))
	s := session(t, preview.Options{Scopes: []string{dir}})
	if w := get(t, s, origin(t, s, "b/two.txt")+"/two.txt"); w.Code != 200 || w.Body.String() != "one" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// While the agent swaps a folder and a file for symlinks that lead out, what is served is the scope's or an error.
func TestSwaps(t *testing.T) {
	outside := folder(t)
	write(t, outside+"/page.html", "SECRET")
	dir := folder(t)
	write(t, dir+"/real/page.html", "mine")
	must(t, os.Symlink(outside, dir+"/evil"), os.MkdirAll(dir+"/site", 0o700), os.Rename(dir+"/real", dir+"/site/sub"))
	s := session(t, preview.Options{Scopes: []string{dir}})
	base := origin(t, s, "site/sub/page.html")
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, dir+"/site/sub", unix.AT_FDCWD, dir+"/evil", unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	got := map[string]int{}
	for range 3000 {
		w := get(t, s, base+"/page.html")
		got[fmt.Sprint(w.Code)]++
		if body := w.Body.String(); strings.Contains(body, "SECRET") || w.Code == 200 && body != "mine" {
			t.Fatalf("%d %q", w.Code, body)
		}
	}
	close(stop)
	swapping.Wait()
	if got["200"] == 0 || got["404"] == 0 {
		t.Errorf("the race was not run: %v", got)
	}
}

// A folder that is removed and made anew, as builds do, keeps its origin.
func TestRebuilt(t *testing.T) {
	dir := folder(t)
	write(t, dir+"/dist/index.html", "one")
	s := session(t, preview.Options{Scopes: []string{dir}})
	base := origin(t, s, "dist/")
	must(t, os.RemoveAll(dir+"/dist"))
	if w := get(t, s, base+"/"); w.Code != http.StatusNotFound {
		t.Errorf("%d", w.Code)
	}
	write(t, dir+"/dist/index.html", "two")
	if w := get(t, s, base+"/"); w.Code != 200 || w.Body.String() != "two" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// Scopes within scopes, names that are in two of them, and none at all.
func TestScopes(t *testing.T) {
	dir := folder(t)
	write(t, dir+"/in/ner/a.txt", "inner")
	write(t, dir+"/a.txt", "outer")
	write(t, dir+"/b.txt", "b")
	s := session(t, preview.Options{Scopes: []string{dir, dir + "/in/ner"}})
	if w := get(t, s, origin(t, s, dir+"/in/ner/a.txt")+"/a.txt"); w.Body.String() != "inner" {
		t.Errorf("%q", w.Body)
	}
	if _, err := s.Open("a.txt"); err == nil || !strings.Contains(err.Error(), "more than one folder") {
		t.Errorf("in two: %v", err)
	}
	if _, err := s.Open("b.txt"); err != nil {
		t.Errorf("in one: %v", err)
	}
	if _, err := s.Open("c.txt"); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("in none: %v", err)
	}
	if _, err := session(t, preview.Options{}).Open("a.txt"); err == nil || !strings.Contains(err.Error(), "no workspace") {
		t.Errorf("no scope: %v", err)
	}
	must(t, os.Symlink(dir, dir+"/link"))
	for _, bad := range []string{dir + "/gone", dir + "/link", dir + "/b.txt"} {
		if _, err := preview.New(preview.Options{Scopes: []string{dir, bad}}); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// An origin is its session's: another session, one that was closed, and one whose place was taken know nothing of it,
// and say what to do.
func TestOrigins(t *testing.T) {
	dir := folder(t)
	for n := range preview.MaxOrigins + 1 {
		write(t, fmt.Sprintf("%s/d%d/index.html", dir, n), "x")
	}
	s, other := session(t, preview.Options{Scopes: []string{dir}}), session(t, preview.Options{Scopes: []string{dir}})
	first := origin(t, s, "d0/")
	for n := range preview.MaxOrigins {
		origin(t, s, fmt.Sprintf("d%d/", n))
	}
	if origin(t, s, "d0/") != first { // and it is the youngest now
		t.Error("a folder has two origins")
	}
	second := origin(t, s, "d1/")
	must(t, func() error { _, err := s.Open("d2/"); return err }())
	third := origin(t, s, fmt.Sprintf("d%d/", preview.MaxOrigins))
	for base, want := range map[string]int{first: 200, second: 200, third: 200} {
		if w := get(t, s, base+"/"); w.Code != want {
			t.Errorf("%s: %d", base, w.Code)
		}
	}
	unknown := []string{"http://x.files.workspace.invalid", "http://a.b.files.workspace.invalid", "http://.files.workspace.invalid", "http://workspace.invalid"}
	for _, base := range unknown {
		if w := get(t, s, base+"/"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "http://files.workspace.invalid/PATH") {
			t.Errorf("%s: %d %q", base, w.Code, w.Body)
		}
	}
	if w := get(t, other, first+"/"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "Navigate to") {
		t.Errorf("another session's: %d %q", w.Code, w.Body)
	}
	for _, host := range []string{"example.org", "files.workspace.invalid.example.org", "workspace.invalidx", "xworkspace.invalid", "localhost", ""} {
		if s.Handler(host) != nil {
			t.Errorf("%q is answered", host)
		}
	}
	must(t, s.Close())
	for _, address := range []string{first + "/", "http://files.workspace.invalid/d0/index.html"} {
		if w := get(t, s, address); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "avigate to") {
			t.Errorf("%s after the end: %d %q", address, w.Code, w.Body)
		}
	}
	if _, err := s.Open("d0/"); err == nil {
		t.Error("opened after the end")
	}
}

// A large file comes in parts without being read whole.
func TestLargeFile(t *testing.T) {
	dir := folder(t)
	f, err := os.Create(dir + "/big.bin")
	must(t, err, f.Truncate(preview.MaxFileBytes))
	_, err = f.WriteAt([]byte("end"), preview.MaxFileBytes-3)
	must(t, err, f.Close())
	s := session(t, preview.Options{Scopes: []string{dir}})
	if w := get(t, s, origin(t, s, "big.bin")+"/big.bin", "Range: bytes=-3"); w.Code != 206 || w.Body.String() != "end" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}
