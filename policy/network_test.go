package policy

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
)

// readLines gives the fields of each line of a testdata file that is no comment.
func readLines(t *testing.T, file string) [][]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines [][]string
	for s := bufio.NewScanner(f); s.Scan(); {
		if line := s.Text(); line != "" && line[0] != '#' {
			lines = append(lines, strings.Fields(line))
		}
	}
	return lines
}

func TestClassifyAddrHoldsTheRegistries(t *testing.T) {
	lines := readLines(t, "testdata/network_special.txt")
	for _, line := range lines {
		prefix := netip.MustParsePrefix(line[0])
		source, nameable := strings.Join(line[1:len(line)-1], " "), line[len(line)-1] == "private"
		class, ok := classifyPrefix(prefix)
		if !ok || class.Prefix != prefix || class.Source != source || class.Nameable != nameable {
			t.Errorf("%s: the table says %+v, want %s nameable=%v", prefix, class, source, nameable)
		}
		last := netipx.PrefixLastIP(prefix)
		for _, a := range []netip.Addr{prefix.Addr(), last} {
			if class, public := ClassifyAddr(a); public || class.Prefix.Bits() < prefix.Bits() {
				t.Errorf("ClassifyAddr(%s) = %v, %v; want inside %s", a, class, public, prefix)
			}
			if a.Is4() {
				mapped := netip.AddrFrom16(a.As16())
				if class, public := ClassifyAddr(mapped); public {
					t.Errorf("ClassifyAddr(%s) = %v, public", mapped, class)
				}
			}
		}
	}
	// ::ffff:0:0/96 is in the table for prefixes only: addresses are unmapped first.
	if want := len(specialPurpose) - 1; len(lines) != want {
		t.Errorf("%d lines of testdata for %d entries", len(lines), want)
	}
}

func TestClassifyAddrPublic(t *testing.T) {
	for _, line := range readLines(t, "testdata/network_public.txt") {
		if class, public := ClassifyAddr(netip.MustParseAddr(line[0])); !public {
			t.Errorf("ClassifyAddr(%s) = %v, want public", line[0], class)
		}
	}
}

func TestClassifyAddrNeverPublic(t *testing.T) {
	for _, a := range []netip.Addr{
		{},
		netip.MustParseAddr("fe80::1%eth0"),
		netip.MustParseAddr("2606:2800::1%1"), // a zone makes any address refused
		netip.MustParseAddr("::ffff:127.0.0.1"),
		netip.MustParseAddr("::ffff:7f00:1"),
		netip.MustParseAddr("64:ff9b::a9fe:a9fe"),
		netip.MustParseAddr("2002:7f00:1::"),
		netip.MustParseAddr("::10.0.0.1"),
		netip.MustParseAddr("4000::1"), // unassigned
		netip.MustParseAddr("1::1"),
		netip.MustParseAddr("fb00::1"),
	} {
		if class, public := ClassifyAddr(a); public || class.Name == "" {
			t.Errorf("ClassifyAddr(%s) = %v, %v; want refused with a class", a, class, public)
		}
	}
}

func TestCanonicalHost(t *testing.T) {
	good := map[string]string{
		"example.org":                   "example.org",
		"EXAMPLE.org":                   "example.org",
		"example.org.":                  "example.org",
		"localhost":                     "localhost",
		"my_bucket.example.org":         "my_bucket.example.org",
		"r3---sn-x.example.org":         "r3---sn-x.example.org",
		"bücher.example":                "xn--bcher-kva.example",
		"BÜCHER.example":                "xn--bcher-kva.example",
		"xn--bcher-kva.example":         "xn--bcher-kva.example",
		"straße.example":                "xn--strae-oqa.example",
		"example。org":                   "example.org",
		"1.2.3.4":                       "1.2.3.4",
		"[2001:DB8::1]":                 "2001:db8::1",
		"2001:db8:0::1":                 "2001:db8::1",
		"[::ffff:127.0.0.1]":            "127.0.0.1",
		"::ffff:7f00:1":                 "127.0.0.1",
		"1.example":                     "1.example",
		"0x7f.example":                  "0x7f.example",
		"127.0.0.1.nip.example":         "127.0.0.1.nip.example",
		strings.Repeat("a", 63):         strings.Repeat("a", 63),
		strings.Repeat("a.", 126) + "b": strings.Repeat("a.", 126) + "b",
	}
	for in, want := range good {
		got, err := CanonicalHost(in)
		if err != nil || got != want {
			t.Errorf("CanonicalHost(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	bad := []string{
		"", ".", "..", "example..org", ".example.org", "example.org..",
		"0177.0.0.1", "0x7f000001", "0x7f.0.0.1", "2130706433", "127.1", "0", "127.0.0.1.", "1.2.3.4.5", "1.2.3.256",
		"example.0x", "a.0x7F", "١٢٧.٠.٠.١", "１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1",
		"[example.org]", "[1.2.3.4]", "[::1", "::1]", "[::1]x", "[]", "[[::1]]",
		"fe80::1%eth0", "[fe80::1%25eth0]", "exam%70le.org",
		"user@example.org", "allowed.example@evil.example", "a:b@c",
		"example.org:80", "exa mple.org", " example.org", "example.org\t", "example.org\x00", "exam\nple.org",
		"example.org/x", `example.org\x`, "example.org?x", "example.org#x", "*.example.org", "*",
		"-example.org", "example-.org", "a$b.org", "a!b", "a,b", "(a)", "a'b", "a=b", "a&b", "a;b",
		"xn--a.example", "xn--.example", "\xff.example", "a\u200db.example", "ex\u2024ample\u2100.org",
		strings.Repeat("a", 64), strings.Repeat("a.", 127) + "b", strings.Repeat("a", 5000),
	}
	for _, in := range bad {
		if got, err := CanonicalHost(in); err == nil {
			t.Errorf("CanonicalHost(%q) = %q, want an error", in, got)
		}
	}
}

func TestParseAuthority(t *testing.T) {
	type result struct {
		Host string
		Port uint16
		OK   bool
	}
	for _, tt := range []struct {
		in   string
		def  uint16
		want result
	}{
		{"example.org:443", 0, result{"example.org", 443, true}},
		{"Example.org.", 80, result{"example.org", 80, true}},
		{"[2001:DB8::1]:8443", 0, result{"2001:db8::1", 8443, true}},
		{"[2001:db8::1]", 80, result{"2001:db8::1", 80, true}},
		{"[::ffff:10.0.0.1]:1", 0, result{"10.0.0.1", 1, true}},
		{"example.org", 0, result{}},
		{"example.org:", 80, result{}},
		{"example.org:0", 0, result{}},
		{"example.org:007", 0, result{}},
		{"example.org:+80", 0, result{}},
		{"example.org:-1", 0, result{}},
		{"example.org:65536", 0, result{}},
		{"example.org:80:90", 0, result{}},
		{"example.org:http", 0, result{}},
		{"2001:db8::1", 80, result{}},
		{"2001:db8::1:443", 0, result{}},
		{"::1", 80, result{}},
		{"[2001:DB8::1337]:007", 0, result{}},
		{"[example.net]:1337", 0, result{}},
		{"[1.2.3.4]:80", 0, result{}},
		{"[::1]80", 0, result{}},
		{"[::1", 80, result{}},
		{"user:pw@example.org:80", 0, result{}},
		{":80", 0, result{}},
		{"", 80, result{}},
	} {
		host, port, err := ParseAuthority(tt.in, tt.def)
		got := result{host, port, err == nil}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("ParseAuthority(%q, %d): %s (%v)", tt.in, tt.def, diff, err)
		}
	}
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://Example.org/x?y":      "example.org:443",
		"http://example.org":           "example.org:80",
		"wss://example.org:8443/":      "example.org:8443",
		"ws://[2001:db8::1]/":          "[2001:db8::1]:80",
		"ftp://example.org/":           "",
		"example.org":                  "",
		"/x":                           "",
		"https://u:secret@example.org": "",
		"https://exa mple.org":         "",
		"https:///x":                   "",
	} {
		host, port, err := ParseURL(in)
		got := ""
		if err == nil {
			got = joinHostPort(host, port)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseURL(%q): the error repeats a secret: %v", in, err)
		}
		if got != want {
			t.Errorf("ParseURL(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseRule(t *testing.T) {
	for _, tt := range []struct{ kind, in, want string }{
		{KindAllow, "Example.org.", "example.org"},
		{KindAllow, "example.org:8443", "example.org:8443"},
		{KindAllow, "*.Example.org", "*.example.org"},
		{KindAllow, "*.example.org:80", "*.example.org:80"},
		{KindAllow, "bücher.example", "xn--bcher-kva.example"},
		{KindAllow, "8.8.8.8", "8.8.8.8"},
		{KindAllow, "[2606:2800::1]:443", "[2606:2800::1]:443"},
		{KindAllow, "2606:2800::1", "2606:2800::1"},
		{KindDeny, "*.evil.example", "*.evil.example"},
		{KindDeny, "10.0.0.0/8", "10.0.0.0/8"},
		{KindDeny, "10.0.0.0/8:25", "10.0.0.0/8:25"},
		{KindDeny, "2001:db8::/32", "2001:db8::/32"},
		{KindPrivate, "10.0.0.5:8080", "10.0.0.5:8080"},
		{KindPrivate, "10.0.0.5/32:8080", "10.0.0.5:8080"},
		{KindPrivate, "[::ffff:10.0.0.5]:8080", "10.0.0.5:8080"},
		{KindPrivate, "10.0.0.0/8:5432", "10.0.0.0/8:5432"},
		{KindPrivate, "[::1]:5173", "[::1]:5173"},
		{KindPrivate, "fd00::/8:443", "[fd00::/8]:443"},
		{KindPrivate, "[fd00::/8]:443", "[fd00::/8]:443"},
	} {
		r, err := ParseRule(tt.kind, tt.in, "agent web")
		if err != nil || r.String() != tt.want {
			t.Errorf("ParseRule(%s, %q) = %q, %v; want %q", tt.kind, tt.in, r, err, tt.want)
		}
	}
	for _, tt := range []struct{ kind, in, want string }{
		{"permit", "example.org", "not allow, deny or private"},
		{KindAllow, "", "empty"},
		{KindAllow, "*", "would name every host"},
		{KindAllow, "*:443", "would name every host"},
		{KindAllow, "*.", "empty"},
		{KindAllow, "*.*", "only at the beginning"},
		{KindAllow, "a.*.org", "only at the beginning"},
		{KindAllow, "*example.org", "only at the beginning"},
		{KindAllow, "*.1.2.3.4", "no suffixes"},
		{KindAllow, "https://example.org", "only http://"},
		{KindAllow, "example.org/x", "slash"},
		{KindAllow, "example.org:0", "port"},
		{KindAllow, "example.org:x", "port"},
		{KindAllow, "u@example.org", "user information"},
		{KindAllow, "127.1", "last label is a number"},
		{KindAllow, "10.0.0.5", "private rule"},
		{KindAllow, "127.0.0.1:80", "private rule"},
		{KindAllow, "8.8.8.0/24", "prefix is for deny and private"},
		{KindAllow, "[::1%eth0]:80", "zones"},
		{KindAllow, "[example.org]:80", "IPv6 addresses only"},
		{KindAllow, "[::1", "not closed"},
		{KindPrivate, "example.org:80", "names addresses"},
		{KindPrivate, "*.example.org:80", "names addresses"},
		{KindPrivate, "10.0.0.5", "needs a port"},
		{KindPrivate, "8.8.8.8:53", "public address"},
		{KindPrivate, "0.0.0.0/0:80", "smaller prefix"},
		{KindPrivate, "::/0:80", "smaller prefix"},
		{KindPrivate, "10.0.0.5/8:80", "write 10.0.0.0/8"},
		{KindPrivate, "0.0.0.0:80", "never reached"},
		{KindPrivate, "[64:ff9b::/96]:80", "never reached"},
		{KindPrivate, "[64:ff9b::a9fe:a9fe]:80", "never reached"},
		{KindPrivate, "[::ffff:0:0/96]:80", "IPv4"},
		{KindPrivate, "255.255.255.255:80", "never reached"},
		{KindPrivate, "224.0.0.1:80", "never reached"},
	} {
		_, err := ParseRule(tt.kind, tt.in, "agent web")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseRule(%s, %q): error %v, want one with %q", tt.kind, tt.in, err, tt.want)
		}
	}
}

// network makes a Network of "kind text" lines.
func network(t *testing.T, lines ...string) Network {
	t.Helper()
	n := Network{Agent: "web"}
	for _, line := range lines {
		kind, text, _ := strings.Cut(line, " ")
		r, err := ParseRule(kind, text, "agent web")
		if err != nil {
			t.Fatal(err)
		}
		n.Rules = append(n.Rules, r)
	}
	return n
}

func TestDecide(t *testing.T) {
	n := network(t, "allow example.org", "allow *.example.net", "allow api.example.com:8443", "allow 8.8.4.4",
		"allow *.evil.example", "deny bad.evil.example", "deny smtp.example.net:443", "deny 8.8.8.8", "allow 8.8.8.8",
		"private 10.0.0.5:8080", "private 192.168.0.0/16:5432", "private [fd00::/8]:443", "deny 192.168.9.9",
		"private 127.0.0.1:5173")
	for _, tt := range []struct {
		host string
		port uint16
		want string // rule; "" for a plain allow
	}{
		{"example.org", 443, ""}, {"EXAMPLE.org.", 80, ""}, {"example.org", 8080, "D.3"}, {"example.org", 0, "D.3"},
		{"www.example.org", 443, "D.4"}, {"notexample.org", 443, "D.4"}, {"example.org.evil.test", 443, "D.4"},
		{"a.example.net", 443, ""}, {"a.b.example.net", 80, ""}, {"example.net", 443, "D.4"}, {"xexample.net", 443, "D.4"},
		{"api.example.com", 8443, ""}, {"api.example.com", 443, "D.3"},
		{"good.evil.example", 443, ""}, {"bad.evil.example", 443, "D.4"}, {"bad.evil.example", 8443, "D.4"},
		{"smtp.example.net", 443, "D.4"}, {"smtp.example.net", 80, ""},
		{"8.8.4.4", 443, ""}, {"8.8.4.4", 53, "D.3"}, {"8.8.8.8", 443, "D.4"}, {"1.1.1.1", 443, "D.4"},
		{"10.0.0.5", 8080, ""}, {"10.0.0.5", 80, "D.4"}, {"10.0.0.6", 8080, "D.4"}, {"::ffff:10.0.0.5", 8080, ""},
		{"[::ffff:a00:5]", 8080, ""}, {"192.168.3.4", 5432, ""}, {"192.168.9.9", 5432, "D.4"},
		{"fd12::1", 443, ""}, {"fe80::1", 443, "D.2"}, {"127.0.0.1", 5173, ""}, {"127.0.0.1", 80, "D.4"},
		{"64:ff9b::a00:5", 8080, "D.2"}, {"0.0.0.0", 80, "D.2"}, {"169.254.169.254", 80, "D.2"}, {"fd00:ec2::254", 80, "D.2"}, {"fd00:ec2::1", 443, "D.2"},
		{"127.1", 80, "D.2"}, {"2130706433", 80, "D.2"}, {"a@example.org", 443, "D.2"}, {"[example.org]", 443, "D.2"},
		{"fe80::1%1", 80, "D.2"}, {"", 80, "D.2"},
	} {
		v := n.Decide(tt.host, tt.port)
		if v.Rule != tt.want || (v.Action == Refuse) != (tt.want != "") {
			t.Errorf("Decide(%q, %d) = %q (%d), want rule %q", tt.host, tt.port, v, v.Action, tt.want)
		}
	}
	if v := (Network{}).Decide("example.org", 443); v.Action != Refuse {
		t.Errorf("the zero Network allows: %v", v)
	}
}

func TestVerdictTexts(t *testing.T) {
	n := network(t, "allow example.org", "allow example.org:8443", "deny *.evil.example", "private 10.0.0.5:8080")
	for _, tt := range []struct {
		host string
		port uint16
		want string
	}{
		{"api.example.org", 443, `refused by D.4: api.example.org is not allowed for agent "web" — allow it: handler policy allow web api.example.org`},
		{"api.example.org", 22, `refused by D.4: api.example.org is not allowed for agent "web" — allow it: handler policy allow web api.example.org:22`},
		{"example.org", 22, `refused by D.3: port 22 of example.org is not allowed for agent "web", only ports 80 and 443 and port 8443 — allow it: handler policy allow web example.org:22`},
		{"a.evil.example", 443, `refused by D.4: a.evil.example is denied for agent "web" by the rule deny *.evil.example (agent web)`},
		{"10.0.0.6", 8080, `refused by D.4: 10.0.0.6 is a private address (RFC 1918) and no "private" rule of agent "web" names it with port 8080 — allow it: handler policy allow web --private 10.0.0.6:8080`},
		{"fd00::1", 80, `refused by D.4: fd00::1 is a unique local address (RFC 4193) and no "private" rule of agent "web" names it with port 80 — allow it: handler policy allow web --private [fd00::1]:80`},
		{"0.0.0.0", 80, `refused by D.2: 0.0.0.0 is the unspecified address (RFC 1122), which is never reached from a sandbox`},
	} {
		if got := n.Decide(tt.host, tt.port).String(); got != tt.want {
			t.Errorf("Decide(%s, %d):\n got %s\nwant %s", tt.host, tt.port, got, tt.want)
		}
	}
}

func TestExplain(t *testing.T) {
	n := network(t, "allow example.org:8443", "deny *.example.org", "allow example.org", "allow *.org.example")
	v, steps := n.Explain("Example.org", 443)
	if v.Action != Allow {
		t.Errorf("verdict %v", v)
	}
	var got []string
	for _, s := range steps {
		line := s.Rule.Kind + " " + s.Rule.String() + ": " + s.Note
		if s.Decided {
			line += ", decides"
		}
		got = append(got, line)
	}
	want := []string{
		"allow example.org:8443: names the host, but only port 8443",
		"deny *.example.org: does not name it",
		"allow example.org: names it, decides",
		"allow *.org.example: does not name it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecideResolved(t *testing.T) {
	n := network(t, "allow app.example.org", "deny 93.184.216.99", "private 10.0.0.0/8:8080", "deny 10.9.9.9")
	for _, tt := range []struct {
		addrs string
		port  uint16
		rule  string
		bad   string
	}{
		{"93.184.216.34", 443, "", ""},
		{"93.184.216.34 2606:2800::1", 443, "", ""},
		{"", 443, "D.2", ""},
		{"10.0.0.5", 443, "D.2", "10.0.0.5"},
		{"10.0.0.5", 8080, "", ""},
		{"93.184.216.34 10.0.0.5", 8080, "", ""},
		{"10.0.0.5 127.0.0.1", 8080, "D.2", "127.0.0.1"},
		{"93.184.216.34 127.0.0.1", 443, "D.2", "127.0.0.1"},
		{"93.184.216.34 ::1", 443, "D.2", "::1"},
		{"::ffff:127.0.0.1", 443, "D.2", "::ffff:127.0.0.1"},
		{"::ffff:10.0.0.5", 8080, "", ""},
		{"64:ff9b::a9fe:a9fe", 443, "D.2", "64:ff9b::a9fe:a9fe"},
		{"93.184.216.99", 443, "D.4", "93.184.216.99"},
		{"10.9.9.9", 8080, "D.4", "10.9.9.9"},
		{"fe80::1%eth0", 443, "D.2", "fe80::1%eth0"},
	} {
		var addrs []netip.Addr
		for _, a := range strings.Fields(tt.addrs) {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		v, bad := n.DecideResolved("app.example.org", tt.port, addrs)
		got := ""
		if bad.IsValid() {
			got = bad.String()
		}
		if v.Rule != tt.rule || got != tt.bad || (v.Action == Refuse) != (tt.rule != "") {
			t.Errorf("DecideResolved(%s, %d) = %v, %s; want %s, %s", tt.addrs, tt.port, v, got, tt.rule, tt.bad)
		}
		if tt.bad != "" && strings.Contains(v.String(), tt.bad) {
			t.Errorf("the verdict tells the agent an address: %v", v)
		}
	}
}

func TestPresets(t *testing.T) {
	names := PresetNames()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("the presets are not sorted: %v", names)
	}
	for _, p := range AllPresets() {
		rules, err := Presets(p.Name)
		if err != nil || len(rules) == 0 || p.Title == "" || p.Source == "" || !slices.IsSorted(rules) {
			t.Errorf("preset %+v, %v", p, err)
		}
		for _, text := range rules {
			r, err := ParseRule(KindAllow, text, "preset "+p.Name)
			if err != nil || r.String() != text || r.Port != 0 {
				t.Errorf("preset %s: %v, %v", p.Name, r, err)
			}
			if r.Shared() {
				t.Errorf("preset %s: strangers have names under %s", p.Name, r)
			}
		}
	}
	if _, err := Presets("nmp"); err == nil || !strings.Contains(err.Error(), "maven, npm, nuget") {
		t.Errorf("Presets(nmp): %v", err)
	}
}

func ExampleNetwork_Explain() {
	var n Network
	n.Agent = "web"
	for _, text := range []string{"*.example.org", "example.org:8443"} {
		r, err := ParseRule(KindAllow, text, "agent web")
		if err != nil {
			fmt.Println(err)
			return
		}
		n.Rules = append(n.Rules, r)
	}
	verdict, steps := n.Explain("example.org", 443)
	fmt.Println(verdict)
	for _, s := range steps {
		fmt.Printf("%s %s (%s): %s\n", s.Rule.Kind, s.Rule, s.Rule.By, s.Note)
	}
	// Output:
	// refused by D.3: port 443 of example.org is not allowed for agent "web", only port 8443 — allow it: handler policy allow web example.org:443
	// allow *.example.org (agent web): does not name it
	// allow example.org:8443 (agent web): names the host, but only port 8443
}

// What a hosted server is refused speaks of its own rules, since the agent's would not help it.
func TestServersRules(t *testing.T) {
	n := Network{Agent: "web", Server: "notes"}
	for host, want := range map[string]string{
		"api.example.org": `refused by D.4: api.example.org is not allowed for the server "notes" of agent "web" — allow it: handler policy allow web api.example.org --addon notes`,
		"10.0.0.6":        `handler policy allow web --private 10.0.0.6:443 --addon notes`,
	} {
		if got := n.Decide(host, 443).String(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", host, got)
		}
	}
}
