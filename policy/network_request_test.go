package policy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlainPath(t *testing.T) {
	for in, want := range map[string]string{
		"": "/", "/": "/", "/a/b": "/a/b", "/a/": "/a/", "/%61dmin": "/admin", "/a%20b": "/a b", "/%C3%BC": "/ü", "/ü": "/ü",
		"/a+b": "/a+b", "/a%2Bb": "/a+b", "/.well-known/x": "/.well-known/x", "/a..b": "/a..b", "/..a": "/..a", "/a:b@c,d": "/a:b@c,d",
		"/%2A": "/*", "/a%7Eb": "/a~b",
	} {
		if got, err := PlainPath(in); err != nil || got != want {
			t.Errorf("PlainPath(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"a", "*", "//", "//a", "/a//b", "/.", "/..", "/a/.", "/a/..", "/a/./b", "/a/../b", "/...", "/a/.. /b", "/a/%20../b", "/a/..%20/b",
		"/a%2fb", "/a%2Fb", "/%2e%2e/b", "/%2e/b", "/a%2eb", "/.%2e/b", "/%252e%252e/b", "/a%5cb", `/a\b`, `/..\b`, "/a%3fb", "/a%23b", "/a%3bb",
		"/..;/b", "/a;x=1/b", "/a?b", "/a#b", "/a%00", "/a%0d%0ab", "/a%7f", "/a b", "/a\tb", "/a%", "/a%4", "/a%zz", "/a%u002e",
		"/%c0%ae%c0%ae/b", "/%ff", "/\xff", "/%e0%80%af",
	} {
		if got, err := PlainPath(in); err == nil {
			t.Errorf("PlainPath(%q) = %q, want an error", in, got)
		}
	}
}

func TestParseRequestRule(t *testing.T) {
	for _, tt := range []struct{ kind, in, want string }{
		{KindAllow, "GET,HEAD http://Repo.Example.org./debian/*", "GET,HEAD http://repo.example.org/debian/*"},
		{KindAllow, "HEAD,GET,HEAD http://repo.example.org:80/debian/*", "GET,HEAD http://repo.example.org/debian/*"},
		{KindAllow, "http://*.example.org:8080/a", "http://*.example.org:8080/a"},
		{KindAllow, "http://8.8.8.8/%61%2A,b'", "http://8.8.8.8/a%2A%2Cb%27"},
		{KindAllow, "PROPFIND,VERSION-CONTROL http://[2606:2800::1]:81/", "PROPFIND,VERSION-CONTROL http://[2606:2800::1]:81/"},
		{KindAllow, "http://repo.example.org/*", "http://repo.example.org/*"},
		{KindAllow, "http://repo.example.org/%C3%BC*", "http://repo.example.org/%C3%BC*"},
		{KindAllow, "http://repo.example.org/ü*", "http://repo.example.org/%C3%BC*"},
		{KindDeny, "http://repo.example.org/.*", "http://repo.example.org/.*"},
		{KindDeny, "POST http://10.0.0.5:8080/admin*", "POST http://10.0.0.5:8080/admin*"},
		{KindDeny, "http://*.com/wp-login.php", "http://*.com/wp-login.php"},
		{KindDeny, "POST upstream/anthropic/v1/files*", "POST upstream/anthropic/v1/files*"},
		{KindDeny, "upstream/anthropic", "upstream/anthropic/*"},
		{KindDeny, "GET http://localhost:3128/elsewhere", "GET http://localhost:3128/elsewhere"},
	} {
		r, err := ParseRule(tt.kind, tt.in, "agent web")
		if err != nil || r.String() != tt.want {
			t.Errorf("ParseRule(%s, %q) = %q, %v; want %q", tt.kind, tt.in, r, err, tt.want)
			continue
		}
		if again, err := ParseRule(tt.kind, tt.want, "agent web"); err != nil || again != r {
			t.Errorf("ParseRule(%s, %q) = %+v, %v; want %+v", tt.kind, tt.want, again, err, r)
		}
	}
	for _, tt := range []struct{ kind, in, want string }{
		{KindAllow, "GET", "last label"}, // a host that is one; see below
		{KindAllow, "get http://repo.example.org/*", "in capitals"},
		{KindAllow, "GET,,PUT http://repo.example.org/*", "a method is empty"},
		{KindAllow, " http://repo.example.org/*", "a method is empty"},
		{KindAllow, "CONNECT http://repo.example.org/*", "tunnel"},
		{KindAllow, strings.Repeat("A,", 16) + "B http://repo.example.org/*", "at most 16"},
		{KindAllow, "GET repo.example.org", "is written as"},
		{KindAllow, "GET  http://repo.example.org/", "is written as"},
		{KindAllow, "GET https://repo.example.org/*", "is written as"},
		{KindAllow, "https://repo.example.org/*", "not seen"},
		{KindAllow, "ws://repo.example.org/*", "only http://"},
		{KindAllow, "http://repo.example.org", "http://repo.example.org/*"},
		{KindAllow, "http://repo.example.org/a*b", "only at the end"},
		{KindAllow, "http://repo.example.org/**", "only at the end"},
		{KindAllow, "http://repo.example.org/a?b=c", "query"},
		{KindAllow, "http://repo.example.org/a%2fb", "encoded"},
		{KindAllow, "http://repo.example.org/a/../b", "dots"},
		{KindAllow, "http://repo.example.org//b", "empty segment"},
		{KindAllow, "http://u:p@repo.example.org/", "user information"},
		{KindAllow, "http://10.0.0.5/", "private rule"},
		{KindAllow, "http://*/a", "every host"},
		{KindAllow, "http://*.com/a", "every site under com"},
		{KindAllow, "http://127.1/a", "last label is a number"},
		{KindAllow, "http://repo.example.org:0/a", "port"},
		{KindAllow, "http:///a", "empty"},
		{KindAllow, "http://repo.example.org/" + strings.Repeat("a", 300), "longer than 300"},
		{KindAllow, "http://repo.example.org/" + strings.Repeat("ü", 100), "longer than 300"},
		{KindAllow, "POST upstream/anthropic/v1/*", "what its harness lists"},
		{KindDeny, "POST upstream/An_thropic/v1/*", "not the name of an upstream"},
		{KindDeny, "POST upstream//v1/*", "not the name of an upstream"},
		{KindDeny, "POST http://127.0.0.1:3128/upstream/anthropic/v1/*", "write upstream/anthropic/v1/*"},
		{KindDeny, "POST http://localhost:3128/upstream/x", "write upstream/x"},
		{KindPrivate, "GET http://10.0.0.5:8080/*", "deny rules to narrow"},
		{KindPrivate, "http://10.0.0.5:8080/*", "deny rules to narrow"},
	} {
		r, err := ParseRule(tt.kind, tt.in, "agent web")
		if tt.in == "GET" { // a bare word is a host's name, as ever
			if err != nil || r.Host != "get" {
				t.Errorf("ParseRule(%s, GET) = %v, %v", tt.kind, r, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseRule(%s, %q) = %v, %v; want an error with %q", tt.kind, tt.in, r, err, tt.want)
		}
	}
}

func TestOpenSuffixes(t *testing.T) {
	for _, host := range []string{"com", "org", "co.uk", "ck", "kawasaki.jp", "xn--p1ai", "arpa", "gov.uk"} {
		if _, err := ParseRule(KindAllow, "*."+host, "agent web"); err == nil || !strings.Contains(err.Error(), "every site under "+host) {
			t.Errorf("allow *.%s: %v", host, err)
		}
		if _, err := ParseRule(KindDeny, "*."+host, "agent web"); err != nil {
			t.Errorf("deny *.%s: %v", host, err)
		}
		if _, err := ParseRule(KindAllow, host, "agent web"); err != nil {
			t.Errorf("allow %s, one name: %v", host, err)
		}
	}
	shared := map[string]bool{
		"*.github.io": true, "*.githubusercontent.com": true, "*.s3.amazonaws.com": true, "*.blogspot.com": true,
		"*.example.co.uk": false, "*.debian.org": false, "*.lan": false, "*.internal": false, "*.home.arpa": false, "github.io": false,
		"*.ana.github.io": false,
	}
	for text, want := range shared {
		r, err := ParseRule(KindAllow, text, "agent web")
		if err != nil || r.Shared() != want {
			t.Errorf("allow %s: %v, shared %v; want %v", text, err, r.Shared(), want)
		}
	}
}

func TestDecideRequest(t *testing.T) {
	n := network(t,
		"allow GET,HEAD http://repo.example.org/debian/*", "allow http://repo.example.org/one", "allow POST http://*.hooks.example.org:8080/in",
		"allow open.example.org", "deny POST http://open.example.org/admin*", "deny http://open.example.org:443/never",
		"deny GET http://repo.example.org/debian/secret*", "private 10.0.0.5:8080", "deny DELETE http://10.0.0.5:8080/*",
		"allow named.example.org", "deny named.example.org:81", "deny PUT http://named.example.org/x", "allow named.example.org:81")
	for _, tt := range []struct {
		request string // "METHOD host:port path"
		want    string
	}{
		{"GET repo.example.org:80 /debian/dists/x", ""}, {"HEAD repo.example.org:80 /debian/", ""}, {"POST repo.example.org:80 /debian/x", "D.4"},
		{"get repo.example.org:80 /debian/x", "D.4"}, {"GET REPO.example.org.:80 /debian/x", ""},
		{"GET repo.example.org:80 /debian", "D.4"}, {"GET repo.example.org:80 /debianx/", "D.4"}, {"GET repo.example.org:80 /", "D.4"},
		{"GET repo.example.org:80 /%64ebian/x", ""}, {"GET repo.example.org:80 /debian/../etc", "D.4"}, {"GET repo.example.org:80 /debian/%2e%2e/etc", "D.4"},
		{"GET repo.example.org:80 /debian/..%2fetc", "D.4"}, {"GET repo.example.org:80 /debian/..;/etc", "D.4"}, {"GET repo.example.org:80 //debian/x", "D.4"},
		{"GET repo.example.org:80 /debian/secret", "D.4"}, {"GET repo.example.org:80 /debian/%73ecret", "D.4"}, {"HEAD repo.example.org:80 /debian/secret", ""},
		{"DELETE repo.example.org:80 /one", ""}, {"GET repo.example.org:80 /one/", "D.4"}, {"GET repo.example.org:8080 /one", "D.4"},
		{"GET repo.example.org:443 /one", "D.4"}, {"GET other.example.org:80 /one", "D.4"},
		{"POST a.hooks.example.org:8080 /in", ""}, {"POST hooks.example.org:8080 /in", "D.4"}, {"POST a.hooks.example.org:80 /in", "D.4"},
		{"GET open.example.org:80 /admin", ""}, {"POST open.example.org:80 /admin", "D.4"}, {"post open.example.org:80 /admin/x", "D.4"},
		{"POST open.example.org:80 /other", ""}, {"POST open.example.org:80 /%61dmin", "D.4"}, {"POST open.example.org:80 /a/../admin", "D.4"},
		{"POST open.example.org:80 /x//y", "D.4"}, {"GET open.example.org:80 /x//y", ""}, {"GET open.example.org:443 /never", "D.4"},
		{"GET open.example.org:443 /", ""}, {"GET open.example.org:81 /", "D.3"},
		{"GET 10.0.0.5:8080 /x", ""}, {"DELETE 10.0.0.5:8080 /x", "D.4"}, {"DELETE [::ffff:10.0.0.5]:8080 /x", "D.4"}, {"GET 10.0.0.5:80 /x", "D.4"},
		{"PUT named.example.org:80 /x", "D.4"}, {"PUT named.example.org:80 /y", ""}, {"GET named.example.org:81 /", "D.4"},
		{"GET 127.1:80 /", "D.2"}, {"GET 169.254.169.254:80 /latest/", "D.2"},
	} {
		words := strings.Split(tt.request, " ")
		host, port, err := splitAuthority(words[1])
		if err != nil {
			t.Fatal(err)
		}
		v := n.DecideRequest(Request{Method: words[0], Host: host, Port: port, Path: words[2]})
		if v.Rule != tt.want || (v.Action == Refuse) != (tt.want != "") {
			t.Errorf("%s: %q, want rule %q", tt.request, v, tt.want)
		}
	}
	// A tunnel is never allowed by a rule about requests, and hides from a deny rule what that is about.
	for dest, want := range map[string]string{
		"repo.example.org:80": "D.4", "repo.example.org:443": "D.4", "a.hooks.example.org:8080": "D.4", "open.example.org:80": "D.4",
		"open.example.org:443": "D.4", "named.example.org:443": "", "named.example.org:80": "D.4", "10.0.0.5:8080": "D.4",
	} {
		host, port, _ := splitAuthority(dest)
		if v := n.Decide(host, port); v.Rule != want || (v.Action == Refuse) != (want != "") {
			t.Errorf("Decide(%s) = %q, want rule %q", dest, v, want)
		}
	}
}

// TestRequestResolved: a deny rule about requests to an address holds for names that resolve to it.
func TestRequestResolved(t *testing.T) {
	n := network(t, "allow app.example.org:8080", "private 10.0.0.5:8080", "deny POST http://10.0.0.5:8080/admin*")
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.5")}
	for request, want := range map[string]string{"GET /admin": "", "POST /admin/x": "D.4", "POST /x": "", "POST /x/../admin": "D.4"} {
		method, path, _ := strings.Cut(request, " ")
		v, _ := n.DecideRequestResolved(Request{Method: method, Host: "app.example.org", Port: 8080, Path: path}, addrs)
		if v.Rule != want {
			t.Errorf("%s: %v, want rule %q", request, v, want)
		}
	}
	if v, _ := n.DecideResolved("app.example.org", 8080, addrs); v.Rule != "D.4" {
		t.Errorf("a tunnel: %v", v)
	}
}

func TestRequestTexts(t *testing.T) {
	n := network(t, "allow GET,HEAD http://repo.example.org/debian/*", "allow repo.example.org:8443", "allow open.example.org",
		"deny POST http://open.example.org/admin*")
	for _, tt := range []struct{ request, want string }{
		{"POST repo.example.org /debian/token", `refused by D.4: POST of this path of http://repo.example.org is not allowed for agent "web", only port 8443 and GET,HEAD http://repo.example.org/debian/* — allow it: handler policy allow web 'POST http://repo.example.org/debian/token'`},
		{"GET repo.example.org /a/../b", `refused by D.4: GET of this path of http://repo.example.org is not allowed for agent "web", only port 8443 and GET,HEAD http://repo.example.org/debian/*; its path is not in its plain form, so that no rule about paths can name it`},
		{"POST open.example.org /admin/x", `refused by D.4: POST of this path of http://open.example.org is denied for agent "web" by the rule deny POST http://open.example.org/admin* (agent web)`},
		{"POST open.example.org /x//y", `refused by D.4: POST of this path of http://open.example.org is denied for agent "web" by the rule deny POST http://open.example.org/admin* (agent web), since the path is not in its plain form`},
		{"get repo.example.org /" + strings.Repeat("a", 400), `refused by D.4: get of this path of http://repo.example.org is not allowed for agent "web", only port 8443 and GET,HEAD http://repo.example.org/debian/* — allow it: handler policy allow web repo.example.org:80`},
	} {
		words := strings.Split(tt.request, " ")
		if got := n.DecideRequest(Request{Method: words[0], Host: words[1], Port: 80, Path: words[2]}).String(); got != tt.want {
			t.Errorf("%.60s:\n got %s\nwant %s", tt.request, got, tt.want)
		}
	}
	for host, want := range map[string]string{
		"repo.example.org": `refused by D.4: a tunnel to repo.example.org:80 is not allowed for agent "web", only port 8443 and GET,HEAD http://repo.example.org/debian/* — allow it: handler policy allow web repo.example.org:80`,
		"open.example.org": `refused by D.4: a tunnel to open.example.org:80 is denied for agent "web" by the rule deny POST http://open.example.org/admin* (agent web), since it would hide the requests that the rule is about`,
	} {
		if got := n.Decide(host, 80).String(); got != want {
			t.Errorf("a tunnel to %s:\n got %s\nwant %s", host, got, want)
		}
	}
}

func TestDecideUpstream(t *testing.T) {
	n := network(t, "allow example.org", "deny POST upstream/model/v1/files*", "deny upstream/other", "deny GET upstream/model/v1/models/one")
	served := Served{Name: "model", Methods: []string{"GET", "POST"}, Paths: []string{"/v1/files*", "/v1/models*", "/v1/chat"}}
	for _, tt := range []struct{ method, path, want string }{
		{"POST", "/v1/chat", ""}, {"GET", "/v1/files", ""}, {"POST", "/v1/files", "is denied for agent"}, {"POST", "/v1/%66iles/x", "is denied for agent"},
		{"POST", "/v1/models/one", ""}, {"GET", "/v1/models/one", "is denied for agent"}, {"GET", "/v1/models/onetwo", ""},
		{"PUT", "/v1/chat", "does not serve PUT"}, {"post", "/v1/files", "is denied for agent"}, {"POST", "/v1/chat/x", "does not serve"},
		{"POST", "", "does not serve"}, {"POST", "/v1/chat/../files", "plain form"}, {"POST", "/v1%2fchat", "plain form"}, {"POST", "/v1/./chat", "plain form"},
	} {
		v := n.DecideUpstream(served, tt.method, tt.path)
		if (v.Action == Refuse) != (tt.want != "") || !strings.Contains(v.Reason, tt.want) || v.Action == Refuse && v.Rule != "D.9" {
			t.Errorf("%s %s: %v, want %q", tt.method, tt.path, v, tt.want)
		}
	}
	_, steps := n.ExplainUpstream(served, "POST", "/v1/files/a")
	var got []string
	for _, s := range steps {
		got = append(got, s.Rule.String()+": "+s.Note)
	}
	want := []string{"POST upstream/model/v1/files*: names it", "upstream/other/*: does not name it", "GET upstream/model/v1/models/one: names the upstream, but only GET"}
	if diff := cmp.Diff(want, got); diff != "" || !steps[0].Decided {
		t.Error(diff)
	}
	// A rule about an upstream says nothing about a host of that name.
	if v := network(t, "allow model.example.org", "deny upstream/model").Decide("model.example.org", 443); v.Action == Refuse {
		t.Error(v)
	}
}

func TestCoversPath(t *testing.T) {
	for _, tt := range []struct {
		wide, narrow string
		want         bool
	}{
		{"/v1/*", "/v1/chat", true}, {"/v1/*", "/v1/*", true}, {"/v1/*", "/v1/chat*", true}, {"/v1/*", "/v1*", false}, {"/v1/*", "/v1", false},
		{"/v1/chat", "/v1/chat", true}, {"/v1/chat", "/v1/chat*", false}, {"/v1/chat", "/v1/chat/x", false}, {"/*", "/", true},
	} {
		if got := CoversPath(tt.wide, tt.narrow); got != tt.want {
			t.Errorf("CoversPath(%q, %q) = %v", tt.wide, tt.narrow, got)
		}
	}
}
