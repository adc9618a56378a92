package policy

import (
	"net/netip"
	"testing"
)

// TestUnknownPublic holds what a browser of handlerd's own may reach: what is public, on two ports, minus what is denied.
func TestUnknownPublic(t *testing.T) {
	deny, err := ParseRule(KindDeny, "*.bad.example", "test")
	if err != nil {
		t.Fatal(err)
	}
	n := Network{Agent: "web", Unknown: UnknownPublic, Rules: []Rule{deny}}
	for _, test := range []struct {
		host string
		port uint16
		want string // the rule that refuses; "" for allowed
	}{
		{"example.org", 443, ""}, {"example.org", 80, ""}, {"93.184.215.14", 443, ""}, {"good.example", 80, ""},
		{"example.org", 8080, "D.3"}, {"example.org", 22, "D.3"}, {"93.184.215.14", 3128, "D.3"},
		{"www.bad.example", 443, "D.4"}, {"127.0.0.1", 80, "D.4"}, {"10.0.0.1", 443, "D.4"}, {"[::1]", 80, "D.4"},
		{"169.254.169.254", 80, "D.2"}, {"0x7f000001", 80, "D.2"},
	} {
		v := n.Decide(test.host, test.port)
		if test.want == "" && v.Action != Allow || test.want != "" && v.Action != Refuse {
			t.Errorf("%s:%d: %v, want %q", test.host, test.port, v, test.want)
		}
	}
	for _, addr := range []string{"10.1.2.3", "127.0.0.1", "169.254.169.254", "::ffff:192.168.1.1", "fd00::1", "100.64.0.1"} {
		if v, _ := n.DecideResolved("example.org", 443, []netip.Addr{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr(addr)}); v.Action != Refuse {
			t.Errorf("a name that resolves to %s too: %v", addr, v)
		}
	}
}
