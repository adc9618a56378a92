package policy_test

import (
	"fmt"
	"testing"

	"github.com/handlerd/handler/policy"
)

// TestAnswerByTool: a rule that allows a tool by its name finds the name where it was announced, takes no title for it,
// and allows no request that contradicts what was announced.
func TestAnswerByTool(t *testing.T) {
	const announced = `"title":"mcp__pw__snapshot","name":"mcp__pw__snapshot","kind":"read","rawInput":{"tab":1}`
	for _, c := range []struct {
		name, said, asked, tool string
		want                    bool
	}{
		{"the request says the name", ``, `"title":"Snapshot","name":"mcp__pw__snapshot","kind":"read"`, "mcp__pw__*", true},
		{"the name was announced", `"title":"Snapshot","name":"mcp__pw__snapshot","kind":"read"`, `"title":"Snapshot"`, "mcp__pw__*", true},
		{"another title before there were arguments", `"title":"mcp__pw__snapshot","name":"mcp__pw__snapshot","kind":"read"`, `"title":"Look at the page"`, "mcp__pw__*", true},
		{"a title is no name", ``, `"title":"mcp__pw__snapshot","kind":"read"`, "mcp__pw__*", false},
		{"a title is no name, announced", `"title":"mcp__pw__snapshot","kind":"read"`, `"title":"mcp__pw__snapshot"`, "mcp__pw__*", false},
		{"another name", announced, `"name":"mcp__pw__run_code"`, "mcp__pw__*", false},
		{"a name that does not fit", announced, `"name":"Bash"`, "mcp__pw__*", false},
		{"another title", announced, `"title":"rm -rf ~"`, "mcp__pw__*", false},
		{"another kind", announced, `"kind":"execute"`, "mcp__pw__*", false},
		{"other arguments", announced, `"rawInput":{"tab":2}`, "mcp__pw__*", false},
		{"another tool", announced, `"title":"mcp__pw__snapshot"`, "Bash", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := new(policy.ToolCalls)
			if c.said != "" {
				calls.Update(fmt.Appendf(nil, `{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"1",%s}}`, c.said))
			}
			p, err := policy.ParsePermission(fmt.Appendf(nil,
				`{"sessionId":"s","toolCall":{"toolCallId":"1",%s},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]}`, c.asked))
			if err != nil {
				t.Fatal(err)
			}
			answers := policy.Answers{Unattended: true, Rules: []policy.AnswerRule{{Tool: c.tool, Answer: policy.AnswerAllow}}}
			if got := answers.Permission("web", p, calls, true); (got.Answer == policy.AllowOnce) != c.want {
				t.Errorf("%s by %s, want allowed %v", got.Answer, got.By, c.want)
			}
		})
	}
}
