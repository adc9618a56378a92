package policy

import (
	"net/netip"
	"strings"
	"testing"
)

// TestBypassTable holds the rules against what got past proxies elsewhere, as a tunnel and as a plain request.
func TestBypassTable(t *testing.T) {
	n := network(t, "allow allowed.example", "allow *.suffix.example", "deny bad.suffix.example", "deny *.bad.suffix.example",
		"private 10.0.0.5:8080", "private 10.0.0.9:8080", "deny 10.0.0.9", "private 100.64.0.0/10:81", "private [fd00::/8]:81",
		"allow 8.8.8.8", "deny 8.8.8.8")
	lines := readLines(t, "testdata/network_bypass.txt")
	for _, f := range lines {
		if len(f) != 4 {
			t.Fatalf("%q has not four words", f)
		}
		port, err := parsePort(f[2])
		if err != nil {
			t.Fatal(err)
		}
		host := strings.ReplaceAll(f[1], `\u200d`, "\u200d")
		for _, v := range []Verdict{n.Decide(host, port), n.DecideRequest(Request{Method: "GET", Host: host, Port: port, Path: "/"})} {
			got := v.Rule
			if v.Action == Allow {
				got = "allowed"
			}
			if got != f[3] {
				t.Errorf("%s %s:%d: %s (%s), want %s", f[0], f[1], port, got, v, f[3])
			}
			if f[0] == "metadata" && v.Hint != "" {
				t.Errorf("%s is hinted at: %s", host, v)
			}
		}
	}
	if len(lines) < 80 {
		t.Errorf("only %d lines", len(lines))
	}
}

// TestMetadataIsNeverNamed: a private rule for such an address is refused, and a wider one does not reach it.
func TestMetadataIsNeverNamed(t *testing.T) {
	wide := network(t, "private 100.64.0.0/10:80", "private [fd00::/8]:80", "allow meta.example")
	for _, a := range []string{"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::23",
		"fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:100::100:200", "::ffff:169.254.169.254"} {
		addr := netip.MustParseAddr(a)
		if r, err := ParseRule(KindPrivate, joinHostPort(a, 80), "agent web"); err == nil {
			t.Errorf("private %s is a rule: %v", a, r)
		}
		if v := wide.Decide(a, 80); v.Action != Refuse || v.Hint != "" {
			t.Errorf("%s: %v", a, v)
		}
		if v, _ := wide.DecideResolved("meta.example", 80, []netip.Addr{addr}); v.Action != Refuse || v.Hint != "" {
			t.Errorf("a name with %s: %v", a, v)
		}
	}
	for _, prefix := range []string{"169.254.0.0/16:80", "169.254.169.0/24:80", "[fd00:ec2::/32]:80", "[fe80::/10]:80"} {
		if r, err := ParseRule(KindPrivate, prefix, "agent web"); err == nil {
			t.Errorf("private %s is a rule: %v", prefix, r)
		}
	}
}
