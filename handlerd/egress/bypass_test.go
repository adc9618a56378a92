package egress

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// bypasses are the ways past a proxy that were found elsewhere, and the tests that try them here. Numbers that are not
// here are of other rooms or of nobody's.
var bypasses = []struct{ id, what, tests string }{
	{"E01", "IsPrivate taken for \"not public\"", "TestBypass policy/network_addr"},
	{"E02", "IPv4 in IPv6", "TestBypass TestPrivate TestNameServer"},
	{"E03", "NAT64, 6to4, Teredo, site-local", "TestBypass"},
	{"E06", "octal, hexadecimal and short IPv4", "TestBypass"},
	{"E07", "brackets", "TestBypass TestMalformed"},
	{"E11", "suffixes without a boundary", "TestBypass"},
	{"E14", "another name within TLS", "TestGreetingNamesAnotherHost TestGreetingsInTunnels TestReadHello"},
	{"E15", "another Host header", "TestForward TestUpstreamRefuses"},
	{"E16", "Handler's own listeners", "TestPrivate"},
	{"E17", "user information", "TestMalformed"},
	{"E18", "rebinding", "TestRebinding TestNameServer TestDialerAsksBeforeItConnects"},
	{"E19", "mixed answers", "TestBypass TestUpstreamAddress TestNameServer"},
	{"E20", "a private AAAA beside a public A", "TestBypass TestNameServer"},
	{"E21", "a first address that swallows packets", "TestFallback"},
	{"E22", "who asks, instead of what for", "TestPipelined"},
	{"E24", "half-closed tunnels that stay", "TestHalfClose TestServerFinishesFirst TestTunnelLimits TestTenThousandTunnels"},
	{"E25", "no time limit after a hijack", "TestTunnelLimits TestSlowHeader TestSlowBody TestLongHeader TestConnectionCap TestPool"},
	{"E26", "hop-by-hop headers", "TestForward TestAnswerLosesHopHeaders"},
	{"E28", "two readings of one message", "TestMalformed TestPipelined TestBrokenBodies TestHostileAnswers FuzzParseConnect"},
	{"E29", "100-continue", "TestForward TestExpectRefusedUpstream"},
}

// TestBypassesHaveTests keeps the table true: a test that it names is there.
func TestBypassesHaveTests(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
	}
	for _, b := range bypasses {
		for name := range strings.FieldsSeq(b.tests) {
			if !strings.Contains(name, "/") && !there[name] {
				t.Errorf("%s (%s): there is no %s", b.id, b.what, name)
			}
		}
	}
}
