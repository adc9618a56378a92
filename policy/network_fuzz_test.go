package policy

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// FuzzRule: a rule's text reads back as the same rule, and a rule never names what it does not say.
func FuzzRule(f *testing.F) {
	for _, s := range []string{
		"example.org:80", "*.example.org", "10.0.0.0/8:5432", "[fd00::/8]:443", "fd00::/8:1", "2001:db8::1", "[::1]:80", "*", "*.com", "*.co.uk",
		"GET,HEAD http://repo.example.org/debian/*", "http://[2606:2800::1]:81/%61,b'", "POST upstream/anthropic/v1/files*", "upstream/x",
		"GET http://a.example.org/a/../b", "http://127.0.0.1:3128/upstream/x", "get http://a.example.org/", "bücher.example:8080", " x",
	} {
		for kind := range 3 {
			f.Add(kind, s)
		}
	}
	kinds := []string{KindAllow, KindDeny, KindPrivate}
	f.Fuzz(func(t *testing.T, kind int, text string) {
		k := kinds[uint(kind)%3]
		r, err := ParseRule(k, text, "agent web")
		if err != nil {
			return
		}
		again, err := ParseRule(k, r.String(), "agent web")
		if err != nil || again != r {
			t.Fatalf("%s %q: %+v, then %q: %+v, %v", k, text, r, r, again, err)
		}
		if strings.ContainsAny(r.String(), "\"'\\\r\n") {
			t.Fatalf("%s %q: %s cannot stand between quotes", k, text, r)
		}
		n := Network{Rules: []Rule{r}}
		if v := n.Decide("unnamed.invalid", 443); v.Action != Refuse && !strings.Contains(r.String(), "invalid") {
			t.Fatalf("%s %q allows a host it does not name", k, text)
		}
		if r.aboutRequests() && r.Kind == KindAllow && r.Host != "" && !r.Suffix {
			if v := n.Decide(r.Host, r.Port); v.Action != Refuse {
				t.Fatalf("%s %q lets a tunnel out", k, text)
			}
			q := Request{Method: strings.Split(r.Methods+",", ",")[0], Host: r.Host, Port: r.Port, Path: printPattern(r.Path, false)}
			if v := n.DecideRequest(q); v.Action == Refuse && !r.Rest {
				t.Fatalf("%s %q refuses what it names, %+v: %s", k, text, q, v)
			}
		}
	})
}

// FuzzCanonicalHost: the result is a fixed point, in the one spelling, and never a name that a program might read
// as an address.
func FuzzCanonicalHost(f *testing.F) {
	for _, s := range []string{"example.org", "[::1]", "::ffff:1.2.3.4", "bücher.example.", "0x7f.1", "１.2.3.4", "a@b", "xn--bcher-kva.x",
		"127.1", "0x7f000001", "[::1%25lo]", "fe80::1%1", "a..b", "r3---sn-x.example.org", "١٢٧.٠.٠.١", "[1.2.3.4]", "a\u200db.x", "localhost."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, err := CanonicalHost(s)
		if err != nil {
			return
		}
		if again, err := CanonicalHost(host); err != nil || again != host {
			t.Fatalf("%q: %q, then %q, %v", s, host, again, err)
		}
		if host != strings.ToLower(host) || len(host) > maxHostName || strings.ContainsAny(host, "@%/[]* \\") {
			t.Fatalf("%q: not canonical: %q", s, host)
		}
		if addr, err := netip.ParseAddr(host); err == nil {
			if addr.Zone() != "" || addr.Is4In6() || addr.String() != host {
				t.Fatalf("%q: not canonical: %q", s, host)
			}
		} else if numericLabel(host[strings.LastIndexByte(host, '.')+1:]) {
			t.Fatalf("%q: %q looks like an address", s, host)
		}
		h, port, err := ParseAuthority(joinHostPort(host, 443), 0)
		if err != nil || h != host || port != 443 {
			t.Fatalf("%q: authority %q, %d, %v", host, h, port, err)
		}
	})
}

// FuzzPlainPath: what is plain is read the same by a program that resolves dots, one that decodes again, and one that
// splits first and decodes then; and it is what net/url reads.
func FuzzPlainPath(f *testing.F) {
	for _, s := range []string{"/a/b", "/%61", "/a%2fb", "/..;/x", "/a//b", "/.%2e/", "/%c3%bc", "/a%", "//", "/...", "/a;b", `/\`, "/%252e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path, err := PlainPath(s)
		if err != nil {
			return
		}
		if u, err := url.Parse("http://h" + s); err != nil || s != "" && u.Path != path {
			t.Fatalf("%q: %q, and net/url says %v, %v", s, path, u, err)
		}
		if twice, err := url.PathUnescape(path); err != nil || twice != path {
			t.Fatalf("%q: %q decodes again to %q, %v", s, path, twice, err)
		}
		if clean := (&url.URL{Path: path}).JoinPath().Path; clean != path {
			t.Fatalf("%q: %q without dots is %q", s, path, clean)
		}
		if got, err := PlainPath(printPattern(path, false)); err != nil || got != path {
			t.Fatalf("%q: %q, printed and read %q, %v", s, path, got, err)
		}
	})
}
