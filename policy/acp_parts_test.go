package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/policy/rawjson"
)

func TestFoldName(t *testing.T) {
	for name, want := range map[string]string{
		"playwright": "playwright", "Play Wright": "play_wright", "play-wright": "play_wright", "play__wright": "play_wright",
		"my srv.v1": "my_srv_v1", "": "", "日本": "_", "--a--": "_a_", "\u212a": "k", "é": "_", "A1": "a1",
	} {
		if got := policy.FoldName(name); got != want {
			t.Errorf("FoldName(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestMCPServerJSON holds the encoding against what agents insist on (facts: no type on stdio, arrays always).
func TestMCPServerJSON(t *testing.T) {
	for _, c := range []struct {
		server policy.MCPServer
		want   string
	}{
		{policy.MCPServer{Name: "a", Command: "/x"}, `{"name":"a","command":"/x","args":[],"env":[]}`},
		{policy.MCPServer{Name: "a\"b", Command: "x", Args: []string{"<&>", "\u2028"}, Env: []policy.Pair{{Name: "K", Value: "é"}}},
			`{"name":"a\"b","command":"x","args":["<&>","\u2028"],"env":[{"name":"K","value":"é"}]}`},
		{policy.MCPServer{Type: "http", Name: "h", URL: "https://h/"}, `{"type":"http","name":"h","url":"https://h/","headers":[]}`},
		{policy.MCPServer{Type: "sse", Name: "s", URL: "https://s/", Headers: []policy.Pair{{Name: "A", Value: "B"}}},
			`{"type":"sse","name":"s","url":"https://s/","headers":[{"name":"A","value":"B"}]}`},
	} {
		got, err := c.server.MarshalJSON()
		if err != nil || string(got) != c.want || !json.Valid(got) {
			t.Errorf("%+v: %s, %v; want %s", c.server, got, err, c.want)
		}
	}
}

// TestBounds: what passes a bound is refused by P7, which names it.
func TestBounds(t *testing.T) {
	many := func(n int, one string) string { return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]" }
	servers := func(n int) string {
		var s []string
		for i := range n {
			s = append(s, fmt.Sprintf(`{"name":"n%d","command":"c","args":[],"env":[]}`, i))
		}
		return "[" + strings.Join(s, ",") + "]"
	}
	for name, c := range map[string]struct {
		in    string
		rule  string
		names string
	}{
		"servers at the bound": {`{"cwd":"/src/shop","mcpServers":` + servers(policy.MaxServers-1) + `}`, "P8", ""},
		"one server too many":  {`{"cwd":"/src/shop","mcpServers":` + servers(policy.MaxServers) + `}`, "P7", "64"},
		"many servers":         {`{"cwd":"/src/shop","mcpServers":` + many(100000, "0") + `}`, "P7", "64"},
		"args":                 {`{"cwd":"/src/shop","mcpServers":[{"name":"a","command":"c","args":` + many(257, `"x"`) + `,"env":[]}]}`, "P7", "256"},
		"args at the bound":    {`{"cwd":"/src/shop","mcpServers":[{"name":"a","command":"c","args":` + many(256, `"x"`) + `,"env":[]}]}`, "P8", ""},
		"env":                  {`{"cwd":"/src/shop","mcpServers":[{"name":"a","command":"c","args":[],"env":` + many(257, `{"name":"K","value":"V"}`) + `}]}`, "P7", "256"},
		"headers":              {`{"cwd":"/src/shop","mcpServers":[{"type":"http","name":"a","url":"https://mcp.example.org/","headers":` + many(257, `{"name":"K","value":"V"}`) + `}]}`, "P7", "256"},
		"directories":          {`{"cwd":"/src/shop","additionalDirectories":` + many(65, `"/src/shop"`) + `,"mcpServers":[]}`, "P7", "64"},
		"nesting":              {`{"cwd":"/src/shop","mcpServers":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, "P9", "nesting"},
		"members":              {`{"cwd":"/src/shop","mcpServers":[]` + manyMembers(5000) + `}`, "P9", "4096"},
	} {
		r := fixture().SetUpSession("session/new", []byte(c.in), policy.Caps{HTTP: true})
		if r.Rule != c.rule || !strings.Contains(r.Verdict.String(), c.names) {
			t.Errorf("%s: %s %s; want %s with %q", name, r.Rule, r.Verdict, c.rule, c.names)
		}
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":0`, i)
	}
	return b.String()
}

// TestNothingGiven: a Config that knows nothing lets nothing through that needs knowledge.
func TestNothingGiven(t *testing.T) {
	var c policy.Config
	for name, r := range map[string]policy.Ruling{
		"a folder":  c.SetUpSession("session/new", []byte(`{"cwd":"/","mcpServers":[]}`), policy.Caps{}),
		"a file":    (&policy.Config{HostFS: true}).AgentCall("fs/read_text_file", []byte(`{"path":"/a"}`), policy.Caps{}, nil),
		"a server":  (&policy.Config{Scopes: fixture().Scopes, Resolve: fixture().Resolve}).SetUpSession("session/new", []byte(`{"cwd":"/src/shop","mcpServers":[{"type":"http","name":"a","url":"https://mcp.example.org/","headers":[]}]}`), policy.Caps{HTTP: true}),
		"no params": c.SetUpSession("session/new", nil, policy.Caps{}),
	} {
		if r.Action != policy.Refuse || len(r.Notes) == 0 || r.Notes[len(r.Notes)-1] != r.Verdict {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestSecretsStayOut: neither env nor headers nor a link's query are in what the audit log is told.
func TestSecretsStayOut(t *testing.T) {
	for _, in := range []string{
		`{"cwd":"/src/shop","mcpServers":[{"name":"playwright","command":"x","args":["canary"],"env":[{"name":"K","value":"canary"}]}]}`,
		`{"cwd":"/src/shop","mcpServers":[{"type":"http","name":"a","url":"https://evil.example.net/?canary","headers":[{"name":"K","value":"canary"}]}]}`,
		`{"cwd":"/src/shop","mcpServers":[{"type":"http","name":"a","url":"https://canary@evil.example.net/","headers":[]}]}`,
		`{"cwd":"/src/shop","mcpServers":[{"name":"a","command":"x","args":[],"env":{"K":"canary"}}]}`,
	} {
		r := fixture().SetUpSession("session/new", []byte(in), policy.Caps{HTTP: true})
		if len(r.Notes) == 0 || strings.Contains(fmt.Sprint(r.Notes), "canary") {
			t.Errorf("%s: %v", in, r.Notes)
		}
	}
	r := fixture().AgentCall("elicitation/create", []byte(`{"mode":"url","url":"http://x.example.org/?canary"}`), policy.Caps{}, nil)
	if r.Action != policy.Refuse || strings.Contains(fmt.Sprint(r.Notes), "canary") {
		t.Error(r.Notes)
	}
}

func TestPermission(t *testing.T) {
	parse := func(options string) policy.Permission {
		t.Helper()
		p, err := policy.ParsePermission([]byte(`{"sessionId":"s","toolCall":{"toolCallId":"t","kind":"read","rawInput":{"a":1.0}},"options":` + options + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	both := parse(`[{"optionId":"aa","name":"Always","kind":"allow_always"},{"optionId":"a\"","name":"Yes","kind":"allow_once"},{"optionId":"r","name":"No","kind":"reject_once"}]`)
	want := policy.Permission{
		SessionID: "s", ToolCall: policy.ToolCall{ID: "t", Kind: "read", RawInput: `{"a":1.0}`},
		Options: []policy.PermissionOption{{ID: "aa", Name: "Always", Kind: "allow_always"}, {ID: `a"`, Name: "Yes", Kind: "allow_once"}, {ID: "r", Name: "No", Kind: "reject_once"}},
	}
	if diff := cmp.Diff(want, both); diff != "" {
		t.Error(diff)
	}
	for name, c := range map[string]struct{ got, want string }{
		"allow":                  {string(both.Allow()), `{"outcome":{"outcome":"selected","optionId":"a\""}}`},
		"reject":                 {string(both.Reject()), `{"outcome":{"outcome":"selected","optionId":"r"}}`},
		"allow, only always":     {string(parse(`[{"optionId":"aa","name":"x","kind":"allow_always"}]`).Allow()), `{"outcome":{"outcome":"cancelled"}}`},
		"reject, only always":    {string(parse(`[{"optionId":"ra","name":"x","kind":"reject_always"}]`).Reject()), `{"outcome":{"outcome":"selected","optionId":"ra"}}`},
		"reject, nothing to say": {string(parse(`[]`).Reject()), `{"outcome":{"outcome":"cancelled"}}`},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}

// TestReads: only kinds that change nothing, and that do not carry out what was read, are reads.
func TestReads(t *testing.T) {
	for kind, want := range map[string]bool{
		"read": true, "search": true, "think": true, "fetch": false, "execute": false, "edit": false, "": false, "Read": false, "other": false,
	} {
		if got := (policy.ToolCall{Kind: kind}).Reads(); got != want {
			t.Errorf("%q: %v", kind, got)
		}
	}
}

// TestToolCalls: a permission request that names only an id is joined with what session/update said of it, as codex-acp
// needs; two kinds are none.
func TestToolCalls(t *testing.T) {
	var calls policy.ToolCalls
	for _, u := range []string{
		`{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"mcp.mock.ping","kind":"read","rawInput":{"tool":"ping"}}}`,
		`{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"in_progress","name":"ping"}}`,
		`{"sessionId":"other","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"another"}}`,
		`{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","toolCallId":"t","title":"not a tool"}}`,
		`{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"a","title":"b"}}`,
		`garbage`, `{}`, `{"update":null}`,
	} {
		calls.Update([]byte(u))
	}
	ask := func(session, kind string) policy.ToolCall {
		t.Helper()
		p, err := policy.ParsePermission([]byte(`{"sessionId":"` + session + `","toolCall":{"toolCallId":"t"` + kind + `},"options":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		return calls.Join(p).ToolCall
	}
	known := policy.ToolCall{ID: "t", Title: "mcp.mock.ping", Name: "ping", Kind: "read", RawInput: `{"tool":"ping"}`}
	if diff := cmp.Diff(known, ask("s", "")); diff != "" {
		t.Error(diff)
	}
	if got := ask("s", `,"kind":"execute"`); got.Reads() || got.Kind != "" {
		t.Errorf("two kinds: %+v", got)
	}
	long := `{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"long","title":"a"}}`
	calls.Update([]byte(long))
	calls.Update([]byte(strings.Replace(long, `"title":"a"`, `"title":"b","content":"`+strings.Repeat("x", 300<<10)+`"`, 1)))
	if p, err := policy.ParsePermission([]byte(`{"sessionId":"s","toolCall":{"toolCallId":"long"},"options":[]}`)); err != nil || calls.Join(p).ToolCall.Title != "" {
		t.Errorf("what a long update may have changed is still there: %+v, %v", calls.Join(p), err)
	}
	if got := ask("nobody", ""); got.Title != "" {
		t.Errorf("another session's: %+v", got)
	}
	for i := range 2000 {
		calls.Update([]byte(fmt.Sprintf(`{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"x%d","title":"x"}}`, i)))
	}
	if got := ask("s", ""); got.Title != "" {
		t.Errorf("the oldest is still there: %+v", got)
	}
}

// FuzzSetUpSession: whatever a client sends, what reaches the agent is JSON with the plan's server in it, no name
// twice, and no server that the network rules refuse, read as a JavaScript agent reads it: exact keys, the last wins.
func FuzzSetUpSession(f *testing.F) {
	for _, s := range []string{
		`{"cwd":"/src/shop","mcpServers":[]}`,
		`{"cwd":"/src/shop","mcpServers":[{"name":"playwright","command":"evil"},{"type":"stdio","name":"b","command":"b"}]}`,
		`{"cwd":"/home/ana/link-in","additionalDirectories":["/src/docs"],"mcpServers":[{"type":"http","name":"a","url":"https://mcp.example.org/","headers":null}]}`,
		`{"cwd":"/src/shop","mcpServers":[{"type":"http","name":"a","\u0075rl":"https://evil.example.net/"}],"_meta":{}}`,
		`{"cwd":"/src/shop"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := fixture()
		r := c.SetUpSession("session/new", b, policy.Caps{HTTP: true, SSE: true})
		if r.Action == policy.Refuse {
			return
		}
		out, err := rawjson.Splice(b, r.Edits)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		var servers []map[string]any
		if err := json.Unmarshal(got["mcpServers"], &servers); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		names := make(map[string]bool)
		for _, s := range servers {
			name := policy.FoldName(s["name"].(string))
			if names[name] {
				t.Fatalf("%s twice in %s", name, out)
			}
			names[name] = true
			if name == "playwright" && s["command"] != "playwright-mcp" {
				t.Fatalf("not the plan's: %s", out)
			}
			if url, ok := s["url"]; ok && !strings.HasPrefix(strings.ToLower(url.(string)), "https://mcp.example.org") {
				t.Fatalf("reaches %v: %s", url, out)
			}
		}
		if !names["playwright"] {
			t.Fatalf("the plan's is missing: %s", out)
		}
	})
}
