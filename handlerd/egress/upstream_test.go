package egress

import (
	"bufio"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/handlerd/handler/policy"
)

const (
	placeholder = "placeholder-0123456789"
	canary      = "sk-canary-9f8e7d6c5b4a"
)

// provider is an upstream over a TLS server of the test, which is reached by a name of example.com's certificate.
func provider(t *testing.T, handler http.HandlerFunc, change func(*Upstream), network ...string) (*world, chan *http.Request) {
	t.Helper()
	seen := make(chan *http.Request, 10)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Clone(r.Context())
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	up := Upstream{
		Name: "anthropic", URL: "https://example.com/base/", Methods: []string{"GET", "POST"}, Paths: []string{"/v1/messages", "/v1/models*"},
		Header: "x-api-key", Secret: func() (string, error) { return canary, nil },
	}
	if change != nil {
		change(&up)
	}
	w := newWorld(t, rules(t, network...), func(o *Options) {
		o.Upstreams, o.Key = []Upstream{up}, placeholder
		o.RootCAs = x509.NewCertPool()
		o.RootCAs.AddCert(s.Certificate())
		o.Limits.UpstreamBody = 1 << 20
	})
	w.host("example.com", publicAddr, "443", s.Listener.Addr().String())
	t.Cleanup(func() {
		if strings.Contains(w.log.String(), canary) || strings.Contains(w.log.String(), placeholder) {
			t.Errorf("a key is in the log: %s", w.log)
		}
	})
	return w, seen
}

func ok(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }

func upstreamRequest(line, headers string) string {
	return line + " HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n" + headers + "\r\n"
}

func TestUpstreamSwapsTheKey(t *testing.T) {
	w, seen := provider(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", "your key is "+r.Header.Get("X-Api-Key"))
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Request-Id", "7")
		io.WriteString(w, "ok")
	}, func(u *Upstream) {
		u.Extra = map[string]string{"anthropic-version": "2023-06-01", "anthropic-beta": "oauth"}
	})
	for _, key := range []string{"x-api-key: " + placeholder, "Authorization: Bearer " + placeholder, "authorization: bearer " + placeholder +
		"\r\nX-Api-Key: other"} {
		resp := w.raw(upstreamRequest("POST /upstream/anthropic/v1/messages?beta=true", key+
			"\r\nCookie: c=d\r\nanthropic-beta: tools, oauth2\r\nanthropic-version: 1\r\nSec-Fetch-Mode: cors\r\nProxy-Authorization: x\r\nContent-Length: 2\r\n\r\n{}"))
		if body := bodyOf(t, resp); resp.StatusCode != 200 || body != "ok" {
			t.Fatalf("%s: %s", resp.Status, body)
		}
		if resp.Header.Get("X-Echo") != "" || resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("Request-Id") != "7" {
			t.Errorf("answer's headers: %v", resp.Header)
		}
		r := <-seen
		if r.Host != "example.com" || r.RequestURI != "/base/v1/messages?beta=true" || r.Method != "POST" {
			t.Errorf("provider saw %s %s %s", r.Method, r.Host, r.RequestURI)
		}
		if got := r.Header.Values("X-Api-Key"); len(got) != 1 || got[0] != canary {
			t.Errorf("X-Api-Key %v", got)
		}
		if got := r.Header.Get("Anthropic-Beta"); got != "tools, oauth2,oauth" || r.Header.Get("Anthropic-Version") != "2023-06-01" {
			t.Errorf("extra headers: %v", r.Header)
		}
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), placeholder) || name == "Cookie" || name == "Authorization" || name == "Sec-Fetch-Mode" {
				t.Errorf("forwarded %s: %v", name, values)
			}
		}
	}
	if hosts := w.server.Snapshot().Hosts; len(hosts) != 1 || hosts[0].Host != "upstream anthropic" || hosts[0].Requests != 3 {
		t.Errorf("%+v", hosts)
	}
}

func TestUpstreamBearer(t *testing.T) {
	w, seen := provider(t, ok, func(u *Upstream) { u.Header, u.Prefix = "Authorization", "Bearer " })
	resp := w.raw(upstreamRequest("GET /upstream/anthropic/v1/models", "Authorization: Bearer "+placeholder+"\r\nx-api-key: "+placeholder+"\r\nConnection: authorization\r\n"))
	if body := bodyOf(t, resp); body != "ok" {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	if r := <-seen; r.Header.Get("Authorization") != "Bearer "+canary || r.Header.Get("X-Api-Key") != "" {
		t.Errorf("%v", r.Header)
	}
}

// TestUpstreamThroughProxyVariable: a client that uses its proxy for loopback too is served the same.
func TestUpstreamThroughProxyVariable(t *testing.T) {
	w, _ := provider(t, ok, nil)
	for _, host := range []string{"127.0.0.1:3128", "localhost:3128"} {
		resp := w.raw("GET http://" + host + "/upstream/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nx-api-key: " + placeholder + "\r\n\r\n")
		if body := bodyOf(t, resp); body != "ok" {
			t.Errorf("%s: %s: %s", host, resp.Status, body)
		}
	}
}

func TestUpstreamRefuses(t *testing.T) {
	const key = "x-api-key: " + placeholder + "\r\n"
	w, _ := provider(t, ok, nil)
	for _, tt := range []struct{ line, headers, want string }{
		{"GET /upstream/other/v1/models", key, "no upstream"},
		{"GET /upstream/", key, "no upstream"},
		{"GET /upstream/anthropic/v1/models", "", "placeholder key"},
		{"GET /upstream/anthropic/v1/models", "x-api-key: " + placeholder + "x\r\n", "placeholder key"},
		{"GET /upstream/anthropic/v1/models", "Authorization: Basic " + placeholder + "\r\n", "placeholder key"},
		{"GET /upstream/anthropic/v1/models", "Cookie: " + placeholder + "\r\n", "placeholder key"},
		{"GET /upstream/anthropic/v1/models", key + "Origin: http://127.0.0.1:3128\r\n", "not for a page"},
		{"GET /upstream/anthropic/v1/models", key + "Origin: null\r\n", "not for a page"},
		{"GET /upstream/anthropic/v1/models", key + "Sec-Fetch-Site: same-origin\r\n", "not for a page"},
		{"GET /upstream/anthropic/v1/models", key + "Sec-Fetch-Dest: document\r\n", "not for a page"},
		{"GET /upstream/anthropic/v1/models", key + "Sec-Fetch-Mode: navigate\r\n", "not for a page"},
		{"GET /upstream/anthropic/v1/models", key + "Sec-Fetch-Mode: no-cors\r\n", "not for a page"},
		{"DELETE /upstream/anthropic/v1/models", key, "does not serve DELETE"},
		{"GET /upstream/anthropic/", key, "does not serve"},
		{"GET /upstream/anthropic", key, "does not serve"},
		{"GET /upstream/anthropic/v1/messages/batches", key, "does not serve"},
		{"GET /upstream/anthropic/v1/files", key, "does not serve"},
		{"GET /upstream/anthropic/v1/models/../files", key, "plain form"},
		{"GET /upstream/anthropic/v1/models/%2e%2e/files", key, "plain form"},
		{"GET /upstream/anthropic/v1/models/..%2ffiles", key, "plain form"},
		{"GET /upstream/anthropic/v1/models%2Fx", key, "plain form"},
		{"GET /upstream/anthropic/v1/models/..%5cfiles", key, "plain form"},
		{`GET /upstream/anthropic/v1/models/..\files`, key, "plain form"},
		{"GET /upstream/anthropic/v1/models/%252e%252e/x", key, "plain form"},
		{"GET /upstream/anthropic/v1/models;/../x", key, "plain form"},
		{"GET /upstream/anthropic/v1/models%00", key, "plain form"},
		{"GET /upstream/anthropic//v1/models", key, "plain form"},
		{"GET /upstream/anthropic/./v1/models", key, "plain form"},
		{"GET /upstream/anthropic/v1/models%3fx", key, "plain form"},
	} {
		resp := w.raw(upstreamRequest(tt.line, tt.headers))
		body := bodyOf(t, resp)
		if resp.StatusCode != 403 || resp.Header.Get(RuleHeader) != "D.9" || !strings.Contains(strings.ReplaceAll(body, "for the agent, ", ""), tt.want) {
			t.Errorf("%s %q: %s: %s", tt.line, tt.headers, resp.Status, body)
		}
		if strings.Contains(body, placeholder) {
			t.Errorf("%s: the answer repeats the key: %s", tt.line, body)
		}
		if r := w.record(); r.Verdict.Rule != "D.9" {
			t.Errorf("%s: record %+v", tt.line, r)
		}
	}
	resp := w.raw("GET /upstream/anthropic/v1/models HTTP/1.1\r\nHost: rebound.example:3128\r\n" + key + "\r\n")
	if body := bodyOf(t, resp); resp.StatusCode != 403 || !strings.Contains(body, "reached as http://127.0.0.1:3128/upstream/anthropic/") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if dials := w.net.dials(); len(dials) != 0 {
		t.Errorf("dialled %v", dials)
	}
}

func TestUpstreamRefusesRedirects(t *testing.T) {
	w, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.example/", http.StatusTemporaryRedirect)
	}, nil)
	resp := w.raw(upstreamRequest("GET /upstream/anthropic/v1/models", "x-api-key: "+placeholder+"\r\n"))
	if body := bodyOf(t, resp); resp.StatusCode != 502 || !strings.Contains(body, "redirect") || resp.Header.Get("Location") != "" {
		t.Errorf("%s %v: %s", resp.Status, resp.Header, body)
	}
}

func TestUpstreamStreams(t *testing.T) {
	more := make(chan bool)
	w, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-more
		}
	}, nil)
	conn := w.dial()
	io.WriteString(conn, upstreamRequest("POST /upstream/anthropic/v1/messages", "x-api-key: "+placeholder+"\r\nContent-Length: 0\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := br.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		br.ReadString('\n')
		more <- true
	}
	if rest, err := io.ReadAll(br); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestUpstreamBounds(t *testing.T) {
	w, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "ok")
	}, func(u *Upstream) { u.MaxRequests = 3 })
	const key = "x-api-key: " + placeholder + "\r\n"
	resp := w.raw(upstreamRequest("POST /upstream/anthropic/v1/messages", key+"Content-Length: 1048577\r\n"))
	if resp.StatusCode != 413 {
		t.Errorf("announced: %s", resp.Status)
	}
	client := w.client()
	for i, want := range []int{413, 200, 200, 403} {
		size := 1 << 20
		if i == 0 {
			size++
		}
		// A reader without a known length is sent in chunks.
		req, err := http.NewRequest("POST", "http://127.0.0.1:3128/upstream/anthropic/v1/messages", io.MultiReader(strings.NewReader(strings.Repeat("x", size))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-api-key", placeholder)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if body := bodyOf(t, resp); resp.StatusCode != want || want == 403 && !strings.Contains(body, "budget of 3 requests") {
			t.Errorf("request %d: %s: %s", i, resp.Status, body)
		}
	}
}

func TestUpstreamAddress(t *testing.T) {
	const request = "GET /upstream/anthropic/v1/models HTTP/1.1\r\nHost: 127.0.0.1:3128\r\nx-api-key: " + placeholder + "\r\n\r\n"
	plain := serve(t, ok)
	u, err := url.Parse("http://" + plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, url, answer string
		network           []string
		want              string
	}{
		{"private without a rule", "http://" + plain, "", nil, "403 D.2"},
		{"private with a rule", "http://" + plain, "", []string{"private " + plain}, "200 "},
		{"name with a private answer", "https://model.example:" + u.Port(), "127.0.0.1", nil, "403 D.2"},
		{"mixed answers", "https://model.example", "8.8.8.8 10.0.0.1", nil, "403 D.2"},
		{"http to the public", "http://model.example", publicAddr, nil, "403 D.9"},
		{"no such host", "https://none.example", "", nil, "502 "},
	} {
		w, _ := provider(t, ok, func(u *Upstream) { u.URL = tt.url }, tt.network...)
		w.zone.answers["model.example"] = []string{tt.answer}
		w.net.routes[plain] = plain
		resp := w.raw(request)
		if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get(RuleHeader)); got != tt.want {
			t.Errorf("%s: %s, want %s: %s", tt.name, got, tt.want, bodyOf(t, resp))
		}
	}
}

func TestUpstreamChecksCertificates(t *testing.T) {
	w, _ := provider(t, ok, func(u *Upstream) { u.URL = "https://wrong.test" })
	w.zone.answers["wrong.test"] = []string{publicAddr}
	resp := w.raw(upstreamRequest("GET /upstream/anthropic/v1/models", "x-api-key: "+placeholder+"\r\n"))
	if body := bodyOf(t, resp); resp.StatusCode != 502 || !strings.Contains(body, "certificate") {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

func TestUpstreamSecretIsReadAtUse(t *testing.T) {
	secret, err := "", errors.New("mode 0644")
	w, seen := provider(t, ok, func(u *Upstream) { u.Secret = func() (string, error) { return secret, err } })
	request := upstreamRequest("GET /upstream/anthropic/v1/models", "x-api-key: "+placeholder+"\r\n")
	if resp := w.raw(request); resp.StatusCode != 502 || !strings.Contains(bodyOf(t, resp), "cannot be read") {
		t.Error(resp.Status)
	}
	secret, err = canary+"\r\nX-Injected: 1", nil
	if resp := w.raw(request); resp.StatusCode != 502 {
		t.Error(resp.Status)
	}
	secret = "another"
	if resp := w.raw(request); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	if r := <-seen; r.Header.Get("X-Api-Key") != "another" {
		t.Error(r.Header)
	}
}

func TestUpstreamOptions(t *testing.T) {
	good := func() Upstream {
		return Upstream{Name: "a", URL: "https://example.com", Methods: []string{"GET"}, Paths: []string{"/*"}, Header: "h",
			Secret: func() (string, error) { return "", nil }}
	}
	for name, change := range map[string]func(*Upstream){
		"":             func(*Upstream) {},
		"name":         func(u *Upstream) { u.Name = "../a" },
		"url":          func(u *Upstream) { u.URL = "ftp://example.com" },
		"query":        func(u *Upstream) { u.URL += "?x" },
		"user":         func(u *Upstream) { u.URL = "https://u:p@example.com" },
		"host":         func(u *Upstream) { u.URL = "https://127.1" },
		"methods":      func(u *Upstream) { u.Methods = nil },
		"paths":        func(u *Upstream) { u.Paths = nil },
		"path":         func(u *Upstream) { u.Paths = []string{"v1"} },
		"star":         func(u *Upstream) { u.Paths = []string{"/*/x"} },
		"header":       func(u *Upstream) { u.Header = "a b" },
		"secret":       func(u *Upstream) { u.Secret = nil },
		"extra":        func(u *Upstream) { u.Extra = map[string]string{"a": "b\nc"} },
		"duplicate(2)": nil,
	} {
		u := good()
		ups := []Upstream{u}
		if change != nil {
			change(&ups[0])
		} else {
			ups = append(ups, u)
		}
		s, err := New(Options{Rules: func() policy.Network { return policy.Network{} }, Upstreams: ups, Key: placeholder})
		if (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			s.Close()
		}
	}
	if _, err := New(Options{Rules: func() policy.Network { return policy.Network{} }, Upstreams: []Upstream{good()}, Key: "short"}); err == nil {
		t.Error("a short key is accepted")
	}
}
