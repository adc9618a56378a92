package runner

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// maxTools bounds the tool calls that are remembered; the oldest are forgotten first.
const maxTools = 10_000

// A tool is one tool call, as far as its updates told. Agents tell it in pieces and in any order.
type tool struct {
	jsonrpc.ToolCall
	began   time.Time
	shown   bool
	ended   bool
	content []jsonrpc.ToolContent
}

// merge takes over what an update changes.
func (t *tool) merge(u jsonrpc.ToolCall) {
	for _, f := range []struct {
		old *string
		new string
	}{{&t.Title, u.Title}, {&t.Name, u.Name}, {&t.Kind, u.Kind}, {&t.Status, u.Status}} {
		if f.new != "" {
			*f.old = f.new
		}
	}
	if given(u.RawInput) {
		t.RawInput = u.RawInput
	}
	if given(u.RawOutput) {
		t.RawOutput = u.RawOutput
	}
}

// given says whether raw says anything.
func given(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "{}"
}

// label is the tool's name as a person reads it: "playwright: browser_click" for the spellings that agents have for
// the tool of an MCP server.
func (t *tool) label() string {
	for _, name := range []string{t.Name, t.Title} {
		for _, sep := range []string{"__", "."} {
			parts := strings.SplitN(name, sep, 3)
			if len(parts) == 3 && parts[0] == "mcp" && parts[1] != "" && parts[2] != "" && !strings.ContainsAny(parts[1], " /") {
				return parts[1] + ": " + parts[2]
			}
		}
	}
	if in := t.input(); in["server"] != nil && in["tool"] != nil {
		return text(in["server"]) + ": " + text(in["tool"])
	}
	switch {
	case t.Name != "":
		return t.Name
	case t.Title != "":
		return t.Title
	case t.Kind != "":
		return t.Kind
	}
	return "tool"
}

// mcp says whether the tool is one of an MCP server.
func (t *tool) mcp() bool { return strings.Contains(t.label(), ": ") }

func (t *tool) input() map[string]json.RawMessage {
	var in map[string]json.RawMessage
	if json.Unmarshal(t.RawInput, &in) != nil {
		return nil
	}
	return in
}

// arguments are the input of the tool itself: codex wraps that of MCP tools.
func (t *tool) arguments() map[string]json.RawMessage {
	in := t.input()
	if in["server"] != nil && in["tool"] != nil {
		var inner map[string]json.RawMessage
		if json.Unmarshal(in["arguments"], &inner) == nil {
			return inner
		}
	}
	return in
}

// telling are the arguments that say most about a call, the best first.
var telling = []string{"command", "cmd", "url", "file_path", "filePath", "path", "pattern", "query", "element", "text", "description", "prompt"}

// detail is the call's object in one line, whole; empty if nothing is known.
func (t *tool) detail() string {
	in := t.arguments()
	if in["element"] != nil && in["text"] != nil {
		return fmt.Sprintf("%q into %s", text(in["text"]), text(in["element"]))
	}
	for _, key := range telling {
		if s := text(in[key]); s != "" {
			if key == "element" {
				return fmt.Sprintf("%q", s)
			}
			return s
		}
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(in)) {
		parts = append(parts, key+"="+text(in[key]))
	}
	if len(parts) > 0 {
		return strings.Join(parts, " ")
	}
	if t.Title != t.label() && !strings.HasPrefix(t.Title, "mcp") && t.Title != t.Name {
		return t.Title
	}
	return ""
}

// text gives a JSON string as it is, a list of strings joined, anything else as JSON.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, " ")
	}
	return string(raw)
}

// result is what came of the call in one line: why it failed, the title of the page it opened, the files it changed.
func (t *tool) result() string {
	failed := t.Status == jsonrpc.StatusFailed
	var changed []string
	for _, c := range t.content {
		switch {
		case c.Type == "diff":
			changed = append(changed, fmt.Sprintf("%s %s", c.Path, diffSize(c.OldText, c.NewText)))
		case c.Content == nil || c.Content.Type != jsonrpc.BlockText:
		case failed:
			return firstLine(c.Content.Text)
		default:
			if _, after, ok := strings.Cut(c.Content.Text, "- Page Title: "); ok {
				return fmt.Sprintf("%q", firstLine(after))
			}
		}
	}
	if failed {
		return firstLine(text(t.RawOutput))
	}
	return strings.Join(changed, ", ")
}

// diffSize counts the lines that only one side has, near enough for a summary.
func diffSize(before, after string) string {
	counts := map[string]int{}
	for l := range strings.Lines(before) {
		counts[l]--
	}
	for l := range strings.Lines(after) {
		counts[l]++
	}
	added, removed := 0, 0
	for _, n := range counts {
		added += max(n, 0)
		removed += max(-n, 0)
	}
	return fmt.Sprintf("+%d −%d", added, removed)
}

// firstLine gives the first line that says something; a heading like "### Error" does not.
func firstLine(s string) string {
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") && !strings.HasPrefix(l, "```") {
			return l
		}
	}
	return ""
}
