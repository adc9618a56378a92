package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
)

// Bounds of arguments, as the schemas say.
const (
	maxTyped  = 64 << 10 // bytes typed into one field
	maxFields = 50
	maxValues = 100
)

func (u *use) checkText(what, s string, most int) error {
	if len(s) > most || !utf8.ValidString(s) {
		return refuse("F.1", fmt.Sprintf("%s has %d bytes, and at most %d are taken", what, len(s), most), "")
	}
	return nil
}

func (u *use) oneOf(what, s string, all ...string) error {
	if s != "" && !slices.Contains(all, s) {
		return refuse("F.1", fmt.Sprintf("%s is %q; it may be: %s", what, shorten(s, 40), strings.Join(all, ", ")), "")
	}
	return nil
}

func runClick(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Element     string   `json:"element"`
		Target      string   `json:"target"`
		DoubleClick bool     `json:"doubleClick"`
		Button      string   `json:"button"`
		Modifiers   []string `json:"modifiers"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if err := u.oneOf("button", in.Button, "left", "right", "middle"); err != nil {
		return nil, err
	}
	for _, m := range in.Modifiers {
		if err := u.oneOf("a modifier", m, "Alt", "Control", "ControlOrMeta", "Meta", "Shift"); err != nil {
			return nil, err
		}
	}
	args := map[string]any{"target": in.Target, "doubleClick": in.DoubleClick}
	verb := "click"
	if in.DoubleClick {
		verb = "double-click"
	}
	if in.Button != "" {
		args["button"] = in.Button
		if in.Button != "left" {
			verb += " with the " + in.Button + " button"
		}
	}
	if len(in.Modifiers) > 0 {
		args["modifiers"] = in.Modifiers
		verb += " with " + strings.Join(in.Modifiers, " and ")
	}
	pastes := in.Button == "middle" // what was selected last
	return u.act(ctx, action{verb: verb, refs: []string{in.Target}, types: pastes, drops: pastes, tool: "browser_click", args: args})
}

func runHover(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Element string `json:"element"`
		Target  string `json:"target"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	return u.act(ctx, action{verb: "point at", refs: []string{in.Target}, tool: "browser_hover", args: map[string]any{"target": in.Target}})
}

func runDrag(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		StartElement string `json:"startElement"`
		StartTarget  string `json:"startTarget"`
		EndElement   string `json:"endElement"`
		EndTarget    string `json:"endTarget"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	return u.act(ctx, action{verb: "drag the first onto the second", refs: []string{in.StartTarget, in.EndTarget}, types: true, drops: true, tool: "browser_drag",
		args: map[string]any{"startTarget": in.StartTarget, "endTarget": in.EndTarget}})
}

func runType(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Element string `json:"element"`
		Target  string `json:"target"`
		Text    string `json:"text"`
		Submit  bool   `json:"submit"`
		Slowly  bool   `json:"slowly"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if err := u.checkText("text", in.Text, maxTyped); err != nil {
		return nil, err
	}
	if in.Slowly && strings.ContainsFunc(in.Text, unicode.IsControl) {
		return nil, refuse("F.1", "text that is typed slowly is of characters: a line break or a tab is a key, and would go on elsewhere", "Leave slowly out, or use submit, or browser_press_key")
	}
	verb := "type into"
	if in.Submit {
		verb = "type into and submit"
	}
	return u.act(ctx, action{verb: verb, refs: []string{in.Target}, values: []string{u.s.shown(in.Text)}, types: true, tool: "browser_type",
		args: map[string]any{"target": in.Target, "text": in.Text, "submit": in.Submit, "slowly": in.Slowly}})
}

func runFillForm(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	type fieldIn struct {
		Element string `json:"element,omitempty"`
		Target  string `json:"target"`
		Name    string `json:"name"`
		Type    string `json:"type"`
		Value   string `json:"value"`
	}
	var in struct {
		Fields []fieldIn `json:"fields"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Fields) == 0 || len(in.Fields) > maxFields {
		return nil, refuse("F.1", fmt.Sprintf("fields has %d entries; it takes 1 to %d", len(in.Fields), maxFields), "")
	}
	a := action{verb: "fill in", types: true, tool: "browser_fill_form", args: map[string]any{"fields": in.Fields}}
	for _, f := range in.Fields {
		if err := u.checkText("a value", f.Value, maxTyped); err != nil {
			return nil, err
		}
		if err := u.oneOf("a field's type", f.Type, "textbox", "checkbox", "radio", "combobox", "slider"); err != nil {
			return nil, err
		}
		if namesSecret(f.Name) {
			return nil, refuse("F.5", fmt.Sprintf("a field named %q is for a secret, and none of the fields was filled in", shorten(f.Name, 60)),
				"Ask your person to log in themselves, or go on without")
		}
		a.refs, a.values = append(a.refs, f.Target), append(a.values, u.s.shown(f.Value))
	}
	return u.act(ctx, a)
}

func runSelect(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Element string   `json:"element"`
		Target  string   `json:"target"`
		Values  []string `json:"values"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Values) == 0 || len(in.Values) > maxValues {
		return nil, refuse("F.1", fmt.Sprintf("values has %d entries; it takes 1 to %d", len(in.Values), maxValues), "")
	}
	a := action{verb: "select", refs: []string{in.Target}, types: true, tool: "browser_select_option", args: map[string]any{"target": in.Target, "values": in.Values}}
	for _, v := range in.Values {
		a.values = append(a.values, u.s.shown(v))
	}
	return u.act(ctx, a)
}

// moving are keys by which nothing is typed or pasted.
var moving = map[string]bool{
	"Enter": true, "Escape": true, "Tab": true, "Shift+Tab": true, "ArrowLeft": true, "ArrowRight": true, "ArrowUp": true, "ArrowDown": true,
	"PageUp": true, "PageDown": true, "Home": true, "End": true,
}

func runPressKey(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Key string `json:"key"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if in.Key == "" || len(in.Key) > 50 {
		return nil, refuse("F.1", "key is a key's name, such as Enter or ArrowLeft, or one character", "")
	}
	if u.s.snapshot == nil {
		return nil, refuse("F.3", "the page was not read since it changed: where the key would go is not known", "Read it with browser_snapshot first")
	}
	return u.act(ctx, action{verb: "press " + shorten(in.Key, 50), values: []string{in.Key}, types: true, focus: true, moves: moving[in.Key], tool: "browser_press_key", args: map[string]any{"key": in.Key}})
}
