package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// settle is waited before a navigation that Chromium refused is tried again: just after a failed one, it is still on
// its way to the error page.
const settle = 300 * time.Millisecond

var (
	// As playwright-mcp says it, and as handlerd does.
	pageURL   = regexp.MustCompile(`(?m)^(?:- Page )?URL: (.+)$`)
	pageTitle = regexp.MustCompile(`(?m)^(?:- Page )?Title: (.+)$`)
)

func (t *turn) openPage(url string) error {
	text, err := t.mcpCall("browser_navigate", jsonrpc.KindFetch, map[string]string{"url": url}, false)
	if err != nil && strings.Contains(err.Error(), "is interrupted by another navigation") {
		select {
		case <-time.After(settle):
		case <-t.ctx.Done():
			return t.ctx.Err()
		}
		text, err = t.mcpCall("browser_navigate", jsonrpc.KindFetch, map[string]string{"url": url}, false)
	}
	if err != nil {
		return err
	}
	if m := pageURL.FindStringSubmatch(text); m != nil {
		url = m[1]
	}
	if m := pageTitle.FindStringSubmatch(text); m != nil {
		t.say(fmt.Sprintf("I opened %q at %s.\n", m[1], url))
	} else {
		t.say(fmt.Sprintf("I opened %s, which has no title.\n", url))
	}
	return nil
}

// click clicks what holds the text; if several things do, what shows exactly the text.
func (t *turn) click(text string) error {
	args := map[string]string{"target": "text=" + text, "element": text}
	_, err := t.mcpCall("browser_click", jsonrpc.KindExecute, args, true)
	if err != nil && strings.Contains(err.Error(), "strict mode violation") {
		args["target"] = fmt.Sprintf("text=%q", text)
		_, err = t.mcpCall("browser_click", jsonrpc.KindExecute, args, true)
	}
	if err != nil && strings.Contains(err.Error(), "refused by F.3") { // the guarded browser takes references only
		err = t.clickRef(text)
	}
	if err != nil {
		return err
	}
	t.say(fmt.Sprintf("I clicked %q.\n", text))
	return nil
}

// clickRef looks what is clicked up in a snapshot first, as a model would.
func (t *turn) clickRef(text string) error {
	snapshot, err := t.mcpCall("browser_snapshot", jsonrpc.KindRead, struct{}{}, false)
	if err != nil {
		return err
	}
	target, err := findNamed(snapshot, text)
	if err != nil {
		return err
	}
	_, err = t.mcpCall("browser_click", jsonrpc.KindExecute, map[string]string{"target": target, "element": text}, true)
	return err
}

var namedLine = regexp.MustCompile(`^\s*- \w+ "((?:[^"\\]|\\.)*)".*\[ref=([A-Za-z0-9]+)\]`)

// findNamed gives the reference of what is named so: exactly, or somewhere in its name.
func findNamed(snapshot, name string) (string, error) {
	want, found := strings.ToLower(name), ""
	for line := range strings.Lines(snapshot) {
		m := namedLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		has := strings.ToLower(strings.ReplaceAll(m[1], `\"`, `"`))
		if has == want {
			return m[2], nil
		}
		if found == "" && strings.Contains(has, want) {
			found = m[2]
		}
	}
	if found == "" {
		return "", fmt.Errorf("nothing on the page is named %q", name)
	}
	return found, nil
}

func (t *turn) press(key string) error {
	if _, err := t.mcpCall("browser_press_key", jsonrpc.KindExecute, map[string]string{"key": key}, true); err != nil {
		return err
	}
	t.say(fmt.Sprintf("I pressed %s.\n", key))
	return nil
}

// typeText looks the field up in a snapshot first, as a model would.
func (t *turn) typeText(text, field string) error {
	snapshot, err := t.mcpCall("browser_snapshot", jsonrpc.KindRead, struct{}{}, false)
	if err != nil {
		return err
	}
	target, err := findField(snapshot, field)
	if err != nil {
		return err
	}
	args := map[string]string{"target": target, "element": field, "text": text}
	if _, err := t.mcpCall("browser_type", jsonrpc.KindExecute, args, true); err != nil {
		return err
	}
	t.say(fmt.Sprintf("I typed %q into %s.\n", text, field))
	return nil
}

var (
	fieldLine       = regexp.MustCompile(`^\s*- (?:textbox|searchbox|combobox|spinbutton)\b(?: "((?:[^"\\]|\\.)*)")?.*\[ref=([A-Za-z0-9]+)\]`)
	placeholderLine = regexp.MustCompile(`^\s*- /placeholder: "?([^"]*)"?$`)
)

// findField gives the reference of the field that is labelled so: exactly, by its beginning, or anywhere in the label.
func findField(snapshot, field string) (string, error) {
	var labels, refs []string
	for line := range strings.Lines(snapshot) {
		line = strings.TrimRight(line, "\r\n")
		if m := fieldLine.FindStringSubmatch(line); m != nil {
			labels, refs = append(labels, strings.ReplaceAll(m[1], `\"`, `"`)), append(refs, m[2])
		} else if m := placeholderLine.FindStringSubmatch(line); m != nil && len(refs) > 0 {
			labels, refs = append(labels, m[1]), append(refs, refs[len(refs)-1])
		}
	}
	want := strings.ToLower(field)
	for _, fits := range []func(label string) bool{
		func(l string) bool { return strings.TrimRight(l, " :*") == want },
		func(l string) bool { return strings.HasPrefix(l, want) },
		func(l string) bool { return strings.Contains(l, want) },
	} {
		for i, l := range labels {
			if fits(strings.ToLower(l)) {
				return refs[i], nil
			}
		}
	}
	if len(labels) == 0 {
		return "", errors.New("the page has no field to type into")
	}
	return "", fmt.Errorf("the page has no field %q; it has: %s", field, strings.Join(labels, ", "))
}

func (t *turn) screenshot() error {
	// No file name: with one, playwright-mcp gives no picture back.
	if _, err := t.mcpCall("browser_take_screenshot", jsonrpc.KindRead, struct{}{}, false); err != nil {
		return err
	}
	t.say("Here is the page.\n")
	return nil
}

func (t *turn) readPage() error {
	text, err := t.mcpCall("browser_snapshot", jsonrpc.KindRead, struct{}{}, false)
	if err != nil {
		return err
	}
	t.say(clip(readable(text), 6000) + "\n")
	return nil
}

var snapshotMarks = regexp.MustCompile(` \[(?:ref|cursor|level|active|box)[^\]]*\]`)

// readable takes the marks for machines out of a snapshot.
func readable(snapshot string) string {
	var b strings.Builder
	for line := range strings.Lines(snapshot) {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "###") || strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "- /url:") {
			continue
		}
		b.WriteString(snapshotMarks.ReplaceAllString(line, ""))
	}
	if s := strings.TrimSpace(b.String()); s != "" {
		return s
	}
	return "The page is empty."
}
