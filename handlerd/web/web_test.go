package web

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is an open door over an API that says what it was asked.
type rig struct {
	t    *testing.T
	d    *Door
	o    Options
	port int

	mu    sync.Mutex
	audit []audit.Record // protected by mu
}

func freePort(t *testing.T) int {
	t.Helper()
	for {
		ls, err := listenBoth(0)
		if err == nil { // two ports of which the second may be another's
			port := ls[0].Addr().(*net.TCPAddr).Port
			closeAll(ls)
			if ls, err = listenBoth(port); err == nil {
				closeAll(ls)
				return port
			}
		}
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, port: freePort(t)}
	r.o = Options{
		State: filepath.Join(dir, "web.json"), Opened: filepath.Join(dir, "web.port"), Port: r.port, UID: os.Getuid(),
		Audit: func(rec audit.Record) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.audit = append(r.audit, rec)
			return nil
		},
		Version: "1.2", User: "ana", Home: "/home/ana",
	}
	r.start()
	t.Cleanup(func() { _ = r.d.Close() })
	return r
}

// start makes a door as a fresh daemon does.
func (r *rig) start() {
	r.t.Helper()
	d, err := New(r.o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.d = d
	d.Start(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		fmt.Fprintf(w, "api %s %s %s", q.Method, q.URL.Path, body)
	}))
}

// link gives a link's secret.
func (r *rig) link() string {
	r.t.Helper()
	l, err := r.d.Link(0)
	if err != nil {
		r.t.Fatal(err)
	}
	prefix := r.origin() + "/login#"
	if !strings.HasPrefix(l.URL, prefix) {
		r.t.Fatalf("the link is %s", l.URL)
	}
	return strings.TrimPrefix(l.URL, prefix)
}

func (r *rig) host() string   { return "handler.localhost:" + strconv.Itoa(r.port) }
func (r *rig) origin() string { return "http://" + r.host() }

// An answer is what came back.
type reply struct {
	*http.Response
	body string
}

// ask sends a request that is written out: its first line without the version, then headers. A Host that is not among
// them is the page's; a header that begins with "-" takes one of the usual away.
func (r *rig) ask(line, body string, headers ...string) reply {
	r.t.Helper()
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(r.port))
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return r.askOn(c, line, body, headers...)
}

func (r *rig) askOn(c net.Conn, line, body string, headers ...string) reply {
	r.t.Helper()
	text := line + " HTTP/1.1\r\n"
	host := false
	for _, h := range headers {
		text += h + "\r\n"
		host = host || strings.HasPrefix(h, "Host:")
	}
	if !host {
		text += "Host: " + r.host() + "\r\n"
	}
	if body != "" {
		text += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	if _, err := io.WriteString(c, text+"\r\n"+body); err != nil {
		r.t.Fatal(err)
	}
	method, _, _ := strings.Cut(line, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{resp, string(data)}
}

// enter exchanges a link; with what a browser sends.
func (r *rig) enter(secret string, headers ...string) reply {
	r.t.Helper()
	return r.ask("POST /login", `{"link":"`+secret+`"}`, append([]string{"Origin: " + r.origin(), "Content-Type: application/json",
		"Sec-Fetch-Site: same-origin", "User-Agent: Test/1"}, headers...)...)
}

// A session is a browser that is logged in.
type session struct{ cookie, token string }

func (r *rig) login() session {
	r.t.Helper()
	resp := r.enter(r.link())
	if resp.StatusCode != http.StatusNoContent || len(resp.Cookies()) != 1 {
		r.t.Fatalf("login: %s, %v", resp.Status, resp.Header)
	}
	c := resp.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != int(LoginTime.Seconds()) {
		r.t.Errorf("the cookie is %v", c)
	}
	s := session{cookie: "Cookie: " + c.Name + "=" + c.Value}
	var me types.WebMe
	if err := json.Unmarshal([]byte(r.ask("GET /api/me", "", s.cookie).body), &me); err != nil {
		r.t.Fatal(err)
	}
	if me.User != "ana" || me.Home != "/home/ana" || me.Version != "1.2" || me.Token == "" {
		r.t.Errorf("me is %+v", me)
	}
	s.token = types.HeaderToken + ": " + me.Token
	return s
}

func (r reply) want(t *testing.T, status int, contains string) {
	t.Helper()
	if r.StatusCode != status || !strings.Contains(r.body, contains) {
		t.Errorf("got %s %q, want %d with %q", r.Status, r.body, status, contains)
	}
}

func TestGettingIn(t *testing.T) {
	r := newRig(t)
	if r.d.Status().On {
		t.Error("the door is open before anybody asked")
	}
	s := r.login()
	own := "Origin: " + r.origin()
	r.ask("GET /api/v1/version", "", s.cookie).want(t, 200, "api GET /v1/version")
	r.ask("POST /api/v1/rules", "{}", s.cookie, s.token, own).want(t, 200, "api POST /v1/rules {}")
	r.ask("GET /", "", s.cookie).want(t, 200, `<div id="page">`)
	r.ask("GET /sessions/abc", "", s.cookie, "Accept: text/html").want(t, 200, `<div id="page">`)
	r.ask("GET /assets/nothing.js", "", s.cookie, "Accept: text/html").want(t, 404, "")
	// Also by IPv6, where a browser tries that first.
	if c, err := net.Dial("tcp", "[::1]:"+strconv.Itoa(r.port)); err == nil {
		defer c.Close()
		r.askOn(c, "GET /api/v1/version", "", s.cookie).want(t, 200, "api")
	}
	list := r.d.Status().Logins
	if len(list) != 1 || list[0].Browser != "Test/1" {
		t.Errorf("logged in: %+v", list)
	}
	r.ask("POST /api/logout", "", s.cookie, s.token, own).want(t, 200, "")
	r.ask("GET /api/v1/version", "", s.cookie).want(t, 401, "not logged in")
	var kinds []string
	for _, rec := range r.audit {
		kinds = append(kinds, rec.Kind+" "+rec.Reason)
	}
	if got := strings.Join(kinds, "; "); got != "web the page's door was opened; web logged in: Test/1; web logged out" {
		t.Errorf("audit: %s", got)
	}
}

// Each thing that a stranger can send, without the cookie, with one of their own making, or from another page.
func TestStrangers(t *testing.T) {
	r := newRig(t)
	s := r.login()
	own := "Origin: " + r.origin()
	name, _, _ := strings.Cut(s.cookie, "=")
	for _, c := range []struct {
		line    string
		headers []string
		status  int
		says    string
	}{
		{"GET /api/v1/version", nil, 401, "handler web"},
		{"GET /", nil, 401, ""},
		{"GET /", []string{"Accept: text/html"}, 401, "Letting you in"},
		{"GET /index.html", []string{name + "=guessed"}, 401, ""},
		{"GET /api/me", []string{name + "=" + strings.Repeat("A", 43)}, 401, ""},
		{"GET /api/me", []string{strings.Replace(s.cookie, name, "Cookie: handler_1234", 1)}, 401, ""}, // of another port
		// DNS rebinding, and every other name and spelling.
		{"GET /api/me", []string{s.cookie, "Host: evil.example.org:" + strconv.Itoa(r.port)}, 421, "its own name"},
		{"GET /api/me", []string{s.cookie, "Host: 127.0.0.1:" + strconv.Itoa(r.port)}, 421, ""},
		{"GET /api/me", []string{s.cookie, "Host: localhost:" + strconv.Itoa(r.port)}, 421, ""},
		{"GET /api/me", []string{s.cookie, "Host: handler.localhost"}, 421, ""},
		{"GET /api/me", []string{s.cookie, "Host: handler.localhost.:" + strconv.Itoa(r.port)}, 421, ""},
		{"GET /api/me", []string{s.cookie, "Host: HANDLER.localhost:" + strconv.Itoa(r.port)}, 421, ""},
		{"GET /api/me", []string{s.cookie, "Host: x.handler.localhost:" + strconv.Itoa(r.port)}, 421, ""},
		{"GET http://handler.localhost/api/me", []string{s.cookie}, 400, ""},
		// Other pages.
		{"GET /api/me", []string{s.cookie, "Origin: http://evil.example.org"}, 403, ""},
		{"GET /api/me", []string{s.cookie, "Origin: null"}, 403, ""},
		{"GET /api/me", []string{s.cookie, own, own}, 403, ""},
		{"GET /api/me", []string{s.cookie, "Origin: http://handler.localhost:1"}, 403, ""},
		{"GET /api/me", []string{s.cookie, "Sec-Fetch-Site: cross-site"}, 403, ""},
		{"GET /api/me", []string{s.cookie, "Sec-Fetch-Site: same-site"}, 403, ""}, // another port of this name
		{"GET /api/me", []string{s.cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 403, ""},
		{"GET /", []string{s.cookie, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: iframe"}, 403, "no other page"},
		{"GET /", []string{s.cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: script"}, 403, ""},
		{"GET /", []string{s.cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200, ""},
		{"POST /api/v1/rules", []string{s.cookie, s.token, "Origin: http://evil.example.org"}, 403, ""},
		{"POST /api/v1/rules", []string{s.cookie, s.token}, 403, ""}, // no browser sends that without an Origin
		{"POST /api/v1/rules", []string{s.cookie, s.token, own, "Sec-Fetch-Site: same-site"}, 403, ""},
		{"POST /api/v1/rules", []string{s.cookie, s.token, own, "Sec-Fetch-Site: none"}, 403, ""},
		{"POST /api/v1/rules", []string{s.cookie, own}, 403, "token"},
		{"POST /api/v1/rules", []string{s.cookie, own, "Handler-Token: x"}, 403, "token"},
		{"POST /api/v1/rules", []string{s.cookie, own, s.token, s.token}, 403, "token"},
		{"DELETE /api/v1/runs/abcd", []string{s.cookie, own}, 403, "token"},
		{"POST /api/v1/rules", []string{own, s.token}, 401, ""},
		// What is not reachable from the page.
		{"POST /api/v1/stop", []string{s.cookie, own, s.token}, 404, "no POST"},
		{"POST /api/v1/runs", []string{s.cookie, own, s.token}, 404, ""},
		{"POST /api/v1/web/link", []string{s.cookie, own, s.token}, 404, ""},
		{"POST /api/v1/runs/abcd/dial", []string{s.cookie, own, s.token, "Connection: Upgrade", "Upgrade: handler-dial"}, 400, ""},
		{"GET /api/v1/runs", []string{s.cookie, own, "Connection: Upgrade", "Upgrade: websocket"}, 400, ""},
		{"GET /api/v1/view?ticket=x", []string{s.cookie, "Connection: Upgrade", "Upgrade: websocket"}, 403, ""}, // no Origin
		{"GET /api/v1/view?ticket=x", []string{own, "Connection: Upgrade", "Upgrade: websocket"}, 401, ""},
		// Paths and methods that mean something else elsewhere.
		{"GET /api/../v1/version", []string{s.cookie}, 400, ""},
		{"GET /api/v1/%2e%2e/version", []string{s.cookie}, 400, ""},
		{"GET /api/v1//version", []string{s.cookie}, 400, ""},
		{"GET //evil.example.org/", []string{s.cookie}, 400, ""},
		{"GET /api/v1/runs/a%2fb", []string{s.cookie}, 400, ""},
		{"GET /api/v1/runs/a%5cb", []string{s.cookie}, 400, ""},
		{"GET /api/v1/runs/a%00b", []string{s.cookie}, 400, ""},
		{"OPTIONS /api/v1/rules", []string{s.cookie, own, "Access-Control-Request-Method: POST"}, 405, ""},
		{"OPTIONS *", []string{s.cookie}, 405, ""},
		{"TRACE /", []string{s.cookie}, 405, ""},
		{"CONNECT evil.example.org:80", []string{s.cookie}, 405, ""},
		{"POST /", []string{s.cookie, own, s.token}, 405, ""},
		{"PUT /login", []string{own}, 405, ""},
	} {
		body := ""
		if strings.HasPrefix(c.line, "POST") {
			body = "{}"
		}
		resp := r.ask(c.line, body, c.headers...)
		if resp.StatusCode != c.status || !strings.Contains(resp.body, c.says) {
			t.Errorf("%s %q: %s %q, want %d with %q", c.line, c.headers, resp.Status, resp.body, c.status, c.says)
		}
		if resp.StatusCode != 200 && (strings.Contains(resp.body, "api ") || resp.Header.Get("Access-Control-Allow-Origin") != "") {
			t.Errorf("%s %q: it got %q, %v", c.line, c.headers, resp.body, resp.Header)
		}
		if resp.Header.Get("X-Frame-Options") != "DENY" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s: headers %v", c.line, resp.Header)
		}
	}
	// Reading by HEAD is reading.
	if resp := r.ask("HEAD /api/v1/version", "", s.cookie); resp.StatusCode != 200 || resp.body != "" {
		t.Errorf("HEAD: %s %q", resp.Status, resp.body)
	}
}
