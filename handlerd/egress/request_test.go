package egress

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// pathWorld serves a host of which the rules let some requests out, and tells which arrived.
func pathWorld(t *testing.T, network ...string) (w *world, arrived func() []string) {
	t.Helper()
	w = newWorld(t, rules(t, network...), nil)
	seen := make(chan string, 100)
	to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Method + " " + r.RequestURI
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		io.WriteString(w, "ok")
	})
	w.host("repo.example", publicAddr, "80", to)
	w.net.routes[publicAddr+":443"] = to
	return w, func() (list []string) {
		for len(seen) > 0 {
			list = append(list, <-seen)
		}
		return list
	}
}

// TestRequestRules: of a host that only rules about requests name, exactly those requests get out.
func TestRequestRules(t *testing.T) {
	w, arrived := pathWorld(t, "allow GET,HEAD http://repo.example/debian/*", "deny GET http://repo.example/debian/private*")
	for line, want := range map[string]string{
		"GET http://repo.example/debian/x?a=../b":        "GET /debian/x?a=../b",
		"HEAD http://repo.example/debian/":               "HEAD /debian/",
		"GET http://REPO.example.:80/%64ebian/a%20b":     "GET /%64ebian/a%20b",
		"POST http://repo.example/debian/x":              "",
		"get http://repo.example/debian/x":               "",
		"GET http://repo.example/":                       "",
		"GET http://repo.example":                        "",
		"GET http://repo.example/debianx":                "",
		"GET http://repo.example/debian/../etc":          "",
		"GET http://repo.example/debian/%2e%2e/etc":      "",
		"GET http://repo.example/debian/.%2e/etc":        "",
		"GET http://repo.example/debian/%252e%252e/etc":  "",
		"GET http://repo.example/debian/..%2fetc":        "",
		"GET http://repo.example/debian/..%5cetc":        "",
		`GET http://repo.example/debian/..\etc`:          "",
		"GET http://repo.example/debian/..;/etc":         "",
		"GET http://repo.example/debian/;/../etc":        "",
		"GET http://repo.example/debian/%c0%ae%c0%ae/e":  "",
		"GET http://repo.example//debian/x":              "",
		"GET http://repo.example/x/../debian/x":          "",
		"GET http://repo.example/debian/private":         "",
		"GET http://repo.example/debian/%70rivate/x":     "",
		"GET http://repo.example:8080/debian/x":          "",
		"GET http://other.example/debian/x":              "",
		"CONNECT repo.example:80":                        "",
		"CONNECT repo.example:443":                       "",
		"OPTIONS http://repo.example/debian/x":           "",
		"GET http://repo.example/debian/x%00":            "",
		"GET http://repo.example/debian/x#/../../secret": "",
	} {
		resp := w.raw(line + " HTTP/1.1\r\nHost: repo.example\r\n\r\n")
		got := strings.Join(arrived(), " and ")
		if got != want || (resp.StatusCode == 200) != (want != "") {
			t.Errorf("%s: %s, and %q arrived; want %q", line, resp.Status, got, want)
		}
		if want == "" && resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", line, resp.Status)
		}
	}
}

// TestRequestRulesKeepAlive: each request of a connection is judged anew, and so is each step of a redirect.
func TestRequestRulesKeepAlive(t *testing.T) {
	w, arrived := pathWorld(t, "allow GET http://repo.example/in/*")
	conn := w.dial()
	br := bufio.NewReader(conn)
	for _, step := range []struct {
		path   string
		status int
	}{{"/in/a", 200}, {"/out", 403}, {"/in/b", 200}, {"/in/../out", 403}, {"/in/c", 200}} {
		io.WriteString(conn, "GET http://repo.example"+step.path+" HTTP/1.1\r\nHost: repo.example\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bodyOf(t, resp); resp.StatusCode != step.status {
			t.Errorf("%s: %s", step.path, resp.Status)
		}
	}
	if got := strings.Join(arrived(), " "); got != "GET /in/a GET /in/b GET /in/c" {
		t.Errorf("%s arrived", got)
	}
	for to, status := range map[string]int{"/in/b": 200, "/out": 403, "http://repo.example/in/%2e%2e/out": 403, "http://other.example/in/x": 403} {
		resp, err := w.client().Get("http://repo.example/in/a?to=" + to)
		if err != nil {
			t.Fatal(err)
		}
		if body := bodyOf(t, resp); resp.StatusCode != status {
			t.Errorf("a redirect to %s: %s %s", to, resp.Status, body)
		}
	}
}

// TestRequestDenied: a deny rule about requests takes them, and the tunnels that would hide them, out of an allowed host.
func TestRequestDenied(t *testing.T) {
	w, arrived := pathWorld(t, "allow repo.example", "deny POST,PUT http://repo.example/admin*")
	for line, ok := range map[string]bool{
		"GET http://repo.example/admin": true, "POST http://repo.example/other": true, "GET http://repo.example/a//b/../c": true,
		"POST http://repo.example/admin": false, "put http://repo.example/admin/x": false, "POST http://repo.example/x/../admin": false,
		"POST http://repo.example/%61dmin": false, "POST http://repo.example//admin": false, "CONNECT repo.example:80": false,
	} {
		resp := w.raw(line + " HTTP/1.1\r\nHost: repo.example\r\n\r\n")
		if got := arrived(); (resp.StatusCode == 200) != ok || (len(got) > 0) != ok {
			t.Errorf("%s: %s, %q arrived", line, resp.Status, got)
		}
	}
	conn, _ := w.tunnel("repo.example:443") // is another port, and TLS: what goes through is not seen, and not denied
	conn.Close()
	for _, header := range []string{"X-HTTP-Method-Override: POST", "x-original-url: /admin", "X-Rewrite-Url: /admin", "X_HTTP_Method_Override: POST", "x-http_method-override: POST"} {
		resp := w.raw("GET http://repo.example/ HTTP/1.1\r\nHost: repo.example\r\n" + header + "\r\n\r\n")
		if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "leave the header out") || len(arrived()) > 0 {
			t.Errorf("%s: %s %s", header, resp.Status, body)
		}
	}
}

// TestOverrideHeadersPass where no rule looks at more than the host.
func TestOverrideHeadersPass(t *testing.T) {
	w, arrived := pathWorld(t, "allow repo.example", "deny POST http://repo.example:8080/admin*")
	resp := w.raw("GET http://repo.example/ HTTP/1.1\r\nHost: repo.example\r\nX-Http-Method-Override: POST\r\n\r\n")
	if resp.StatusCode != 200 || len(arrived()) != 1 {
		t.Error(resp.Status)
	}
}

// TestRequestUpgrade: a WebSocket over plain http is a GET of its path, and nothing else is upgraded.
func TestRequestUpgrade(t *testing.T) {
	w := newWorld(t, rules(t, "allow GET,POST http://ws.example/socket"), nil)
	w.host("ws.example", publicAddr, "80", serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, "plain")
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
	}))
	for line, status := range map[string]int{"GET http://ws.example/socket": 101, "POST http://ws.example/socket": 200, "GET http://ws.example/other": 403} {
		conn := w.dial()
		io.WriteString(conn, line+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%s: %v, %v; want %d", line, resp, err, status)
		}
		conn.Close()
	}
}

// TestUpstreamDenied: a deny rule takes a path away from an upstream, and headers do not bring it back.
func TestUpstreamDenied(t *testing.T) {
	w, seen := provider(t, ok, nil, "deny POST upstream/anthropic/v1/models*")
	key := "X-Api-Key: " + placeholder + "\r\nContent-Length: 0\r\n"
	for line, status := range map[string]int{
		"POST /upstream/anthropic/v1/messages": 200, "GET /upstream/anthropic/v1/models": 200, "POST /upstream/anthropic/v1/models/x": 403,
		"POST /upstream/anthropic/v1/%6dodels": 403, "POST /%75pstream/anthropic/v1/messages": 403, "POST /upstream/anthropic/v1/./messages": 403,
	} {
		resp := w.raw(upstreamRequest(line, key))
		if resp.StatusCode != status || status == 403 && resp.Header.Get(RuleHeader) != "D.9" {
			t.Errorf("%s: %s %s", line, resp.Status, resp.Header.Get(RuleHeader))
		}
		if status == 200 {
			<-seen
		}
	}
	for _, name := range []string{"X-Http-Method-Override", "X_http_method_override"} { // canonical
		if resp := w.raw(upstreamRequest("GET /upstream/anthropic/v1/models", name+": POST\r\n"+key)); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		if r := <-seen; r.Header.Get(name) != "" {
			t.Errorf("the provider is told another method than the one that was judged: %s", name)
		}
	}
}
