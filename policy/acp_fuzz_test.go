package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/policy/rawjson"
)

// objectOf reads an object as a JavaScript client would: exact keys.
func objectOf(t *testing.T, b []byte) map[string]json.RawMessage {
	t.Helper()
	var o map[string]json.RawMessage
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return o
}

// FuzzPermission: whatever an agent says of a tool call and asks about it, what reaches the client is one question: JSON
// with no key twice, every byte of the agent's but those of the tool call's title and kind, and what was put in is what
// the agent said before.
func FuzzPermission(f *testing.F) {
	update := func(call string) string {
		return `{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t"` + call + `}}`
	}
	ask := func(call string) string {
		return `{"sessionId":"s","toolCall":{"toolCallId":"t"` + call + `},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}],"_meta":{"n":1.50}}`
	}
	for _, c := range [][2]string{
		{`,"title":"ls","kind":"read","rawInput":{"a":[1,2.0]},"content":[]`, ``},
		{`,"title":"ls","kind":"read"`, `,"title":null,"kind":null,"rawInput":null`},
		{`,"title":"ls","kind":"read","rawInput":{"a":1}`, `,"title":"rm","kind":"execute","rawInput":{"a":2}`},
		{`,"title":"l\u0073","kind":"other"`, `,"kind":"execute","content":[{"type":"diff"}]`},
		{`,"title":"a","title":"b"`, `,"Title":"c"`},
		{`,"title":7,"kind":{}`, `,"name":"x"`},
	} {
		f.Add([]byte(update(c[0])), []byte(ask(c[1])))
	}
	f.Fuzz(func(t *testing.T, update, ask []byte) {
		var calls policy.ToolCalls
		passed := calls.Update(update).Action != policy.Refuse
		r := fixture().AgentCall(policy.MethodPermission, ask, policy.Caps{}, &calls)
		if r.Action == policy.Refuse {
			return
		}
		out, err := rawjson.Splice(ask, r.Edits)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.ParsePermission(out); err != nil {
			t.Fatalf("%s became %s: %v", ask, out, err)
		}
		before, after := objectOf(t, ask), objectOf(t, out)
		for key := range before {
			if key != "toolCall" && string(before[key]) != string(after[key]) {
				t.Fatalf("%s of %s became %s", key, ask, after[key])
			}
		}
		if len(before) != len(after) || before["toolCall"] == nil || string(before["toolCall"]) == "null" {
			return
		}
		var said struct {
			Update map[string]json.RawMessage `json:"update"`
		}
		_ = json.Unmarshal(update, &said) // what is no JSON says nothing
		was, is := objectOf(t, before["toolCall"]), objectOf(t, after["toolCall"])
		for key, value := range is {
			same := string(value) == string(was[key])
			joined := (was[key] == nil || string(was[key]) == "null") && passed && string(value) == string(said.Update[key])
			noted := key == "title" && strings.HasPrefix(string(value), `"[handler: `) || key == "kind" && string(value) == `"other"`
			if !same && !joined && !noted {
				t.Fatalf("%s of %s and %s became %s", key, ask, update, value)
			}
		}
	})
}

// FuzzElicitation: what reaches the client is JSON in which nothing but _meta changed, and nothing in it speaks for
// Handler but Handler; a link in it is https.
func FuzzElicitation(f *testing.F) {
	for _, s := range []string{
		`{"sessionId":"s","toolCallId":"t","mode":"form","message":"x","_meta":{"handler/toolCall":{"title":"harmless"},"n":1.0}}`,
		`{"sessionId":"s","toolCallId":"t","mode":"form","message":"x","_meta":null}`, `{"sessionId":"s","toolCallId":"t","mode":"form"}`,
		`{"mode":"url","url":"https://login.example.org/?a","message":"x"}`, `{"mode":"url","url":"http://login.example.org/","message":"x"}`,
		`{"sessionId":"x","mode":"form","_meta":{"handler\/toolCall":1,"handler/toolCall":2}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, ask []byte) {
		var calls policy.ToolCalls
		calls.Update([]byte(`{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"deploy","rawInput":{"to":1.0}}}`))
		r := fixture().AgentCall(policy.MethodElicitation, ask, policy.Caps{}, &calls)
		if r.Action == policy.Refuse {
			return
		}
		out, err := rawjson.Splice(ask, r.Edits)
		if err != nil {
			t.Fatal(err)
		}
		before, after := objectOf(t, ask), objectOf(t, out)
		for key := range after {
			if key != "_meta" && string(before[key]) != string(after[key]) {
				t.Fatalf("%s of %s became %s", key, ask, after[key])
			}
		}
		if meta := after["_meta"]; meta != nil && string(meta) != "null" {
			const ours = `{"toolCallId":"t","title":"deploy","rawInput":{"to":1.0}}`
			if got := string(objectOf(t, meta)["handler/toolCall"]); got != "" && got != "null" && got != ours {
				t.Fatalf("%s became %s", ask, out)
			}
		}
		if link := after["url"]; link != nil && string(link) != "null" && !strings.HasPrefix(strings.ToLower(string(link)), `"https:`) && !strings.Contains(string(link), `\`) {
			t.Fatalf("a link that is not https: %s", out)
		}
	})
}

// FuzzInitialize: whatever a client offers, the agent gets version 1 and nothing of the host, read by exact keys.
func FuzzInitialize(f *testing.F) {
	for _, s := range []string{
		`{"protocolVersion":1}`, `{}`, `{"protocolVersion":2.0,"clientCapabilities":{"fs":{"readTextFile":true,"later":1},"terminal":true,"auth":{"terminal":true},"_meta":{"terminal-auth":{}}}}`,
		`{"protocolVersion":"1","clientCapabilities":{"fs":true,"terminal":"yes"}}`, `{"clientCapabilities":{"f\u0073":{"readTextFile":true}}}`, `{"clientCapabilities":{"fs":{},"FS":{}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := fixture().Initialize(b)
		if r.Action == policy.Refuse {
			return
		}
		out, err := rawjson.Splice(b, r.Edits)
		if err != nil {
			t.Fatal(err)
		}
		got := objectOf(t, out)
		if string(got["protocolVersion"]) != "1" {
			t.Fatalf("%s became %s", b, out)
		}
		if caps := got["clientCapabilities"]; caps != nil && string(caps) != "null" {
			c := objectOf(t, caps)
			off := []string{"", "false", "null"}
			if !slices.Contains(off, string(c["terminal"])) {
				t.Fatalf("%s became %s", b, out)
			}
			for outer, keys := range map[string][]string{"fs": {"readTextFile", "writeTextFile"}, "auth": {"terminal"}, "_meta": {"terminal-auth"}} {
				if v := string(c[outer]); v == "" || v == "null" || v == "false" {
					continue
				}
				for _, key := range keys {
					if v := string(objectOf(t, c[outer])[key]); !slices.Contains(off, v) {
						t.Fatalf("%s.%s is %s in %s", outer, key, v, out)
					}
				}
			}
		}
	})
}

// FuzzAnswers: a rule that answers never says always, allows nothing outside of a turn, and nothing that a rule denies.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"sessionId":"s","toolCall":{"toolCallId":"t","title":"Deploy","kind":"read"},"options":[{"optionId":"aa","name":"","kind":"allow_always"},{"optionId":"a","name":"","kind":"allow_once"}]}`), "*deploy*", true)
	f.Add([]byte(`{"sessionId":"s","toolCall":null,"options":null}`), "*", false)
	f.Add([]byte(`{"sessionId":"s","toolCall":{"title":"abab"},"options":[{"optionId":"","name":"","kind":"reject_always"}]}`), "a*b*ab", true)
	f.Fuzz(func(t *testing.T, ask []byte, pattern string, inTurn bool) {
		p, err := policy.ParsePermission(ask)
		if err != nil {
			return
		}
		answers := policy.Answers{Unattended: true, Agent: policy.AnswerAllow, Rules: []policy.AnswerRule{{Title: pattern, Answer: policy.AnswerDeny}}}
		got := answers.Permission("web", p, new(policy.ToolCalls), inTurn)
		if got == nil || !json.Valid(got.Result) || !json.Valid(got.Notice(policy.MethodPermission, ask)) {
			t.Fatalf("%+v", got)
		}
		if got.Answer == policy.AllowAlways || got.Answer == policy.AllowOnce && !inTurn || (got.Answer == policy.AllowOnce) != (got.Verdict.Action == policy.Allow) {
			t.Fatalf("%+v", got)
		}
		if got.Answer == policy.AllowOnce && (pattern == "" || pattern == "*" || pattern == p.ToolCall.Title) {
			t.Fatalf("%q is allowed against %q", p.ToolCall.Title, pattern)
		}
		var result struct {
			Outcome struct{ OptionID *string }
		}
		if err := json.Unmarshal(got.Result, &result); err != nil {
			t.Fatal(err)
		}
		if id := result.Outcome.OptionID; id != nil && !slices.ContainsFunc(p.Options, func(o policy.PermissionOption) bool { return fmt.Sprint(o.ID) == *id && o.Kind == got.Answer }) {
			t.Fatalf("%s picks what is not offered", got.Result)
		}
	})
}
