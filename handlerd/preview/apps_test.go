package preview_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/handlerd/preview"
)

const appsFile = "/" + preview.AppsFile

// appSession is a session with one scope that registers app on 30000 and other on 30001; both ports are server's.
func appSession(t *testing.T, server *httptest.Server) *preview.Session {
	t.Helper()
	dir := folder(t)
	write(t, dir+appsFile, `{"apps":{"app":{"port":30000},"other":{"port":30001}}}`)
	return session(t, preview.Options{Scopes: []string{dir}, Dial: func(ctx context.Context, port int) (net.Conn, error) {
		if port != 30000 {
			return nil, fmt.Errorf("nothing listens on 127.0.0.1:%d in the sandbox", port)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}})
}

// An app sees itself as localhost and what the browser sent, and nothing of handlerd's; its answer is kept among the
// workspace's pages, and its redirects lead to its own host.
func TestApp(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/to":
			http.Redirect(w, r, "http://"+r.Host+"/there?x=1", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://localhost:8080/there", http.StatusFound)
		default:
			w.Header().Set("Content-Security-Policy", "img-src 'none'")
			fmt.Fprintf(w, "%s %s %s\n", r.Method, r.Host, r.URL.RequestURI())
			_ = r.Header.Write(w)
		}
	}))
	defer server.Close()
	s := appSession(t, server)
	defer s.Close() // before the server, which waits for its connections
	w := get(t, s, "http://app.workspace.invalid/a%2Fb?c=%zz", "Origin: http://app.workspace.invalid", "Referer: http://app.workspace.invalid/x",
		"Cookie: a=b", "Connection: X-Hop", "X-Hop: no", "Proxy-Authorization: Basic eA==", "X-Forwarded-For: 1.2.3.4")
	body := w.Body.String()
	if w.Code != 200 || !strings.HasPrefix(body, "GET localhost:30000 /a%2Fb?c=%zz\n") || !strings.Contains(body, "Origin: http://localhost:30000") ||
		!strings.Contains(body, "Referer: http://localhost:30000/x") || !strings.Contains(body, "Cookie: a=b") {
		t.Errorf("%d %q", w.Code, body)
	}
	for _, no := range []string{"Hop", "Proxy-", "Forwarded", "User-Agent", "workspace.invalid"} {
		if strings.Contains(body, no) {
			t.Errorf("it saw %s: %q", no, body)
		}
	}
	if all := w.Header().Values("Content-Security-Policy"); len(all) != 2 || all[0] != "img-src 'none'" || !strings.Contains(all[1], "default-src 'self'") {
		t.Errorf("policies %q", all)
	}
	for path, want := range map[string]string{"/to": "http://app.workspace.invalid/there?x=1", "/away": "http://localhost:8080/there"} {
		if w := get(t, s, "http://app.workspace.invalid"+path); w.Header().Get("Location") != want {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
	// A sibling app's page may use it, no page of the web.
	for origin, want := range map[string]int{"http://other.workspace.invalid": 200, "http://evil.example.org": 403, "null": 403, "https://app.workspace.invalid": 403,
		"http://app.workspace.invalid.example.org": 403} {
		if w := ask(t, s, http.MethodPost, "http://app.workspace.invalid/", "Origin: "+origin); w.Code != want {
			t.Errorf("%s: %d", origin, w.Code)
		}
	}
	if w := get(t, s, "http://other.workspace.invalid/"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "nothing listens on 127.0.0.1:30001") {
		t.Errorf("not there: %d %q", w.Code, w.Body)
	}
}

// An answer that does not end is cut, and one that says so is refused.
func TestAppBounds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/said" {
			w.Header().Set("Content-Length", fmt.Sprint(preview.MaxAppBytes+1))
			return
		}
		if r.URL.Path == "/head" {
			w.Header().Set("X-Large", strings.Repeat("x", 100<<10))
			return
		}
		part := make([]byte, 1<<20)
		for {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	s := appSession(t, server)
	defer s.Close()
	for _, path := range []string{"/said", "/head"} {
		if w := get(t, s, "http://app.workspace.invalid"+path); w.Code != http.StatusBadGateway {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	front := httptest.NewServer(s.Handler("app.workspace.invalid"))
	defer front.Close()
	resp, err := http.Get(front.URL + "/endless")
	must(t, err)
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > preview.MaxAppBytes+1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A WebSocket passes both ways and ends with the session.
func TestAppWebSocket(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Origin") != "http://localhost:30000" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, rw)
	}))
	defer server.Close()
	s := appSession(t, server)
	front := httptest.NewServer(s.Handler("app.workspace.invalid"))
	defer front.Close()
	c, err := net.Dial("tcp", front.Listener.Addr().String())
	must(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: app.workspace.invalid\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://app.workspace.invalid\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	must(t, err)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	fmt.Fprint(c, "ping")
	got := make([]byte, 4)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "ping" {
		t.Fatalf("%q %v", got, err)
	}
	must(t, s.Close())
	if _, err := r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the session: %v", err)
	}
}

// What a scope registers is read strictly, as it is at each request, and what is wrong is said with what to write.
func TestRegistered(t *testing.T) {
	dir, second := folder(t), folder(t)
	dialed := make(chan int, 100)
	s := session(t, preview.Options{Scopes: []string{dir, second}, Dial: func(_ context.Context, port int) (net.Conn, error) {
		dialed <- port
		return nil, errors.New("dialed")
	}})
	says := func(want string) {
		t.Helper()
		w := get(t, s, "http://app.workspace.invalid/")
		if !strings.Contains(w.Body.String(), want) || w.Code < 400 {
			t.Errorf("%d %q, want %q", w.Code, w.Body, want)
		}
	}
	says("no app \"app\" is registered. Write .handler/public-apps.json")
	write(t, dir+appsFile, `{"apps":{"web":{"port":30999}}}`)
	says("there are: web. Write")
	write(t, dir+appsFile, `{"apps":{"app":{"port":30999}}}`)
	says("dialed")
	if port := <-dialed; port != 30999 {
		t.Errorf("port %d", port)
	}
	write(t, second+appsFile, `{"apps":{"app":{"port":30000}}}`)
	says("is registered in ")
	write(t, second+appsFile, `{"apps":`)
	says("cannot be used: it must be like")
	must(t, os.Remove(second+appsFile), os.Symlink(dir+appsFile, second+appsFile))
	says("symlink")
	must(t, os.Remove(second+appsFile), unix.Mkfifo(second+appsFile, 0o600))
	says("no regular file")
	must(t, os.Remove(second+appsFile))
	write(t, dir+appsFile, strings.Repeat(" ", preview.MaxAppsBytes+1))
	says("larger than")
	select {
	case port := <-dialed:
		t.Errorf("port %d was dialed", port)
	default:
	}
	none := session(t, preview.Options{Scopes: []string{dir}})
	write(t, dir+appsFile, `{"apps":{"app":{"port":30999}}}`)
	if w := get(t, none, "http://app.workspace.invalid/"); w.Code != http.StatusBadGateway {
		t.Errorf("without a way: %d", w.Code)
	}
}

func TestParseApps(t *testing.T) {
	many := &strings.Builder{}
	for n := range preview.MaxApps + 1 {
		fmt.Fprintf(many, `,"a%d":{"port":30000}`, n)
	}
	for text, want := range map[string]int{
		`{"apps":{}}`: 0, ` {"apps" : {"a":{"port":30000}, "b-2":{"port":30999}} } `: 2,
		`{"apps":{` + strings.Replace(many.String(), ",\"a0\":{\"port\":30000},", "", 1) + `}}`: preview.MaxApps,
	} {
		if got, err := preview.ParseApps([]byte(text)); err != nil || len(got) != want {
			t.Errorf("%.60s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{
		``, `[]`, `null`, `{}`, `{"apps":null}`, `{"apps":[]}`, `{"apps":{}}x`, `{"apps":{}} {}`, `{"apps":{},"apps":{}}`, `{"apps":{},"more":1}`, `{"Apps":{}}`,
		`{"apps":{"a":{}}}`, `{"apps":{"a":30000}}`, `{"apps":{"a":{"port":"30000"}}}`, `{"apps":{"a":{"port":29999}}}`, `{"apps":{"a":{"port":31000}}}`,
		`{"apps":{"a":{"port":80}}}`, `{"apps":{"a":{"port":3e4}}}`, `{"apps":{"a":{"port":30000.0}}}`, `{"apps":{"a":{"port":-30000}}}`, `{"apps":{"a":{"port":0}}}`,
		`{"apps":{"a":{"port":30000,"port":30001}}}`, `{"apps":{"a":{"port":30000,"host":"x"}}}`, `{"apps":{"a":{"port":30000},"a":{"port":30001}}}`,
		`{"apps":{"A":{"port":30000}}}`, `{"apps":{"":{"port":30000}}}`, `{"apps":{"a.b":{"port":30000}}}`, `{"apps":{"files":{"port":30000}}}`, `{"apps":{"-a":{"port":30000}}}`,
		`{"apps":{"a-":{"port":30000}}}`, `{"apps":{"` + strings.Repeat("a", 64) + `":{"port":30000}}}`, `{"apps":{"a":{"port":99999999999999999999}}}`,
		`{"apps":{` + many.String()[1:] + `}}`,
	} {
		if got, err := preview.ParseApps([]byte(text)); err == nil {
			t.Errorf("%.60s: %v", text, got)
		}
	}
}

// FuzzParseApps: no text panics, and what is taken keeps the bounds and is a host.
func FuzzParseApps(f *testing.F) {
	f.Add(`{"apps":{"a":{"port":30000},"b-2":{"port":30999}}}`)
	f.Add(`{"apps":{"a":{"port":3e4}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := preview.ParseApps([]byte(text))
		if err != nil {
			return
		}
		for name, port := range got {
			u, err := url.Parse("http://" + name + "." + preview.Domain + "/")
			if err != nil || u.Hostname() != name+"."+preview.Domain || name == "files" || port < preview.MinPort || port > preview.MaxPort {
				t.Errorf("%q: %d", name, port)
			}
		}
	})
}
