package web

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLinkIsGoodOnce(t *testing.T) {
	r := newRig(t)
	link := r.link()
	if got := r.enter(link).StatusCode; got != http.StatusNoContent {
		t.Fatalf("the first time: %d", got)
	}
	again := r.enter(link)
	again.want(t, 403, "used up")
	if len(again.Cookies()) != 0 {
		t.Error("a used link gives a cookie")
	}
	never := r.enter(strings.Repeat("A", len(link)))
	never.want(t, 403, "used up")
	if never.body != again.body {
		t.Error("a guessed link is told from a used one")
	}
	for name, resp := range map[string]reply{
		"from another page":       r.ask("POST /login", `{"link":"`+r.link()+`"}`, "Content-Type: application/json", "Origin: http://evil.example.org"),
		"from a form":             r.ask("POST /login", "link="+r.link(), "Content-Type: application/x-www-form-urlencoded", "Origin: "+r.origin()),
		"with more in it":         r.ask("POST /login", `{"link":"`+r.link()+`"}{}`, "Content-Type: application/json", "Origin: "+r.origin()),
		"without an Origin":       r.ask("POST /login", `{"link":"`+r.link()+`"}`, "Content-Type: application/json"),
		"to another name":         r.ask("POST /login", `{"link":"`+r.link()+`"}`, "Content-Type: application/json", "Origin: "+r.origin(), "Host: localhost"),
		"by reading":              r.ask("GET /login?link="+r.link(), ""),
		"with a body of a MiB":    r.ask("POST /login", `{"link":"`+strings.Repeat("A", 4<<10)+`"}`, "Content-Type: application/json", "Origin: "+r.origin()),
		"from the same site":      r.enter(r.link(), "Sec-Fetch-Site: same-site"),
		"with an empty link":      r.enter(""),
		"with a header of 40 KiB": r.ask("POST /login", `{"link":"`+r.link()+`"}`, "X-Long: "+strings.Repeat("A", 40<<10)),
	} {
		if len(resp.Cookies()) != 0 || resp.StatusCode == http.StatusNoContent {
			t.Errorf("%s: %s %v", name, resp.Status, resp.Header)
		}
	}
	if n := len(r.d.Status().Logins); n != 1 {
		t.Errorf("%d are logged in", n)
	}
}

// A browser that logs in again is still one browser, and its old cookie is no good.
func TestLoginAgain(t *testing.T) {
	r := newRig(t)
	s := r.login()
	if got := r.enter(r.link(), s.cookie).StatusCode; got != http.StatusNoContent {
		t.Fatal(got)
	}
	if n := len(r.d.Status().Logins); n != 1 {
		t.Errorf("%d are logged in", n)
	}
	r.ask("GET /api/me", "", s.cookie).want(t, 401, "")
}

// A fresh daemon knows who was logged in and has the door open again, and its file logs nobody in.
func TestRestart(t *testing.T) {
	r := newRig(t)
	s := r.login()
	link := r.link()
	_ = r.d.Close()
	r.start()
	r.ask("GET /api/v1/version", "", s.cookie).want(t, 200, "api")
	r.enter(link).want(t, 403, "")
	file, err := os.ReadFile(r.o.State)
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(s.cookie, "=")
	if strings.Contains(string(file), value) {
		t.Error("the file has the cookie in it")
	}
	if info, err := os.Stat(r.o.State); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if err := r.d.Off(); err != nil {
		t.Fatal(err)
	}
	_ = r.d.Close()
	r.start()
	if r.d.Status().On {
		t.Error("a door that was closed is open again")
	}
	if n := len(r.d.Status().Logins); n != 1 {
		t.Errorf("%d are logged in", n)
	}
	// A file that is none logs everybody out, and is no reason not to start.
	_ = r.d.Close()
	if err := os.WriteFile(r.o.State, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.link()
	r.ask("GET /api/v1/version", "", s.cookie).want(t, 401, "")
}

// testLogins are logins whose clock the test sets.
func testLogins(t *testing.T) (*logins, *time.Time) {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l, err := openLogins(filepath.Join(t.TempDir(), "web.json"), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return l, &now
}

func TestLinksExpire(t *testing.T) {
	l, now := testLogins(t)
	text, expires := l.newLink()
	*now = expires
	if _, _, err := l.enter(text, "", nil); err == nil {
		t.Error("an expired link is good")
	}
	*now = expires.Add(-1)
	if _, _, err := l.enter(text, "", nil); err == nil {
		t.Error("a link that was tried too late is good later")
	}
	first, _ := l.newLink()
	for range MaxLinks {
		text, _ = l.newLink()
	}
	if _, _, err := l.enter(first, "", nil); err == nil {
		t.Error("there are more links than may be")
	}
	if _, _, err := l.enter(text, "", nil); err != nil {
		t.Error(err)
	}
}

func TestLoginsExpire(t *testing.T) {
	l, now := testLogins(t)
	enter := func() string {
		t.Helper()
		text, _ := l.newLink()
		value, _, err := l.enter(text, "Browser\x1b[1m\n/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	good := func(value string) bool {
		_, ok, err := l.known(value)
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	begin := *now
	value := enter()
	if l.list()[0].Browser != "Browser[1m/1" {
		t.Errorf("its name is %q", l.list()[0].Browser)
	}
	for day := range 30 {
		*now = begin.Add(time.Duration(day) * 24 * time.Hour)
		if !good(value) {
			t.Fatalf("logged out after %d days of use", day)
		}
	}
	*now = begin.Add(LoginTime)
	if good(value) || len(l.list()) != 0 {
		t.Error("a login has no end")
	}
	value = enter()
	*now = now.Add(LoginIdle)
	if good(value) {
		t.Error("a browser that is never seen stays logged in")
	}
	first := enter()
	for range MaxLogins {
		*now = now.Add(time.Second)
		value = enter()
	}
	if good(first) || !good(value) || len(l.list()) != MaxLogins {
		t.Errorf("%d are logged in", len(l.list()))
	}
	if _, err := l.forget("all"); err != nil || good(value) {
		t.Errorf("not logged out: %v", err)
	}
	if _, err := l.forget("zzzz"); err == nil {
		t.Error("whoever was not logged in is logged out")
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"logins":[{"id":"abcd","sha256":"` + strings.Repeat("00", 32) + `","browser":"x","created":"2026-01-01T00:00:00Z","seen":"2026-01-01T00:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseState(data)
		if err == nil && len(all) > MaxLogins {
			t.Error("more than may be")
		}
	})
}
