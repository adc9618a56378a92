package policy

import "testing"

// TestAskUnknown asks about what no rule names, and about nothing else.
func TestAskUnknown(t *testing.T) {
	n := Network{Agent: "web", Unknown: UnknownAsk}
	for _, r := range [][2]string{
		{KindAllow, "example.org"}, {KindDeny, "bad.example.org"}, {KindDeny, "93.184.216.0/24"}, {KindPrivate, "10.0.0.5:8080"},
	} {
		rule, err := ParseRule(r[0], r[1], "agent web")
		if err != nil {
			t.Fatal(err)
		}
		n.Rules = append(n.Rules, rule)
	}
	for _, test := range []struct {
		host string
		port uint16
		want Action
	}{
		{"example.org", 443, Allow},
		{"new.example.org", 443, Ask},
		{"NEW.example.org.", 8443, Ask},
		{"example.org", 22, Ask},
		{"8.8.8.8", 53, Ask},
		{"bad.example.org", 443, Refuse},
		{"93.184.216.34", 443, Refuse},
		{"10.0.0.5", 8080, Allow},
		{"10.0.0.5", 8081, Refuse},
		{"127.0.0.1", 80, Refuse},
		{"169.254.169.254", 80, Refuse},
		{"::1", 80, Refuse},
		{"0x7f.1", 80, Refuse},
		{"new.example.org", 0, Refuse},
		{"a b", 443, Refuse},
	} {
		v, steps := n.Explain(test.host, test.port)
		if v.Action != test.want || v.Action == Ask && (v.Rule == "" || v.Reason == "" || v.Hint == "") {
			t.Errorf("%s:%d: %+v", test.host, test.port, v)
		}
		for _, s := range steps {
			if s.Decided && v.Action == Ask {
				t.Errorf("%s:%d is asked about, though %s decides it", test.host, test.port, s.Rule)
			}
		}
	}
	n.Unknown = UnknownRefuse
	if v := n.Decide("new.example.org", 443); v.Action != Refuse {
		t.Errorf("%+v", v)
	}
}

// TestReachAsked lets an MCP server through whose host a person will be asked about: the connection is the question.
func TestReachAsked(t *testing.T) {
	c := &Config{Reach: Network{Agent: "web", Unknown: UnknownAsk}.Decide}
	if err := c.reach(server{url: "https://mcp.example.org/"}); err != nil {
		t.Error(err)
	}
	if err := c.reach(server{url: "http://10.0.0.5/"}); err == nil {
		t.Error("a private address passes")
	}
}
