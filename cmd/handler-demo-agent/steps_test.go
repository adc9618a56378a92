package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseSteps(t *testing.T) {
	open := func(u string) step { return step{Verb: verbOpen, Text: u} }
	for _, c := range []struct {
		prompt string
		want   []step
	}{
		{"", nil},
		{"  \n\n ", nil},
		{"open http://a.test/x", []step{open("http://a.test/x")}},
		{"Please open http://a.test/x.", []step{open("http://a.test/x")}},
		{"open a.test then screenshot", []step{open("a.test"), {Verb: verbScreenshot}}},
		{"go to a.test, then take a screenshot of the page; read it and say bye", []step{open("a.test"), {Verb: verbScreenshot}, {Verb: verbRead}, {Verb: verbSay, Text: "bye"}}},
		{"open a.test\r\nclick Add to cart\nscreenshot", []step{open("a.test"), {Verb: verbClick, Text: "Add to cart"}, {Verb: verbScreenshot}}},
		{"open http://a.test/?x=1;y=2&then=3", []step{open("http://a.test/?x=1;y=2&then=3")}},
		{"open a.test and tell me what is broken", []step{open("a.test"), {Text: "tell me what is broken"}}},
		{"click Save and close", []step{{Verb: verbClick, Text: "Save and close"}}},
		{"click Save and click Close", []step{{Verb: verbClick, Text: "Save"}, {Verb: verbClick, Text: "Close"}}},
		{`click "Open and read"`, []step{{Verb: verbClick, Text: "Open and read"}}},
		{`click on the "Place order" button`, []step{{Verb: verbClick, Text: "Place order"}}},
		{"click the Save button.", []step{{Verb: verbClick, Text: "Save"}}},
		{"click Don't save then read", []step{{Verb: verbClick, Text: "Don't save"}, {Verb: verbRead}}},
		{`say "never closed then read`, []step{{Verb: verbSay, Text: `"never closed`}, {Verb: verbRead}}},
		{"press Enter", []step{{Verb: verbPress, Text: "Enter"}}},
		{"press Go", []step{{Verb: verbClick, Text: "Go"}}},
		{"type rock and roll into Search and press enter", []step{{Verb: verbType, Text: "rock and roll", Field: "Search"}, {Verb: verbPress, Text: "Enter"}}},
		{`type "a into b" into the "Your name" field`, []step{{Verb: verbType, Text: "a into b", Field: "Your name"}}},
		{"type Ana into the name field", []step{{Verb: verbType, Text: "Ana", Field: "name"}}},
		{"type Ana", []step{{Text: "type Ana"}}},
		{"wait 2 seconds", []step{{Verb: verbWait, Wait: 2 * time.Second}}},
		{"wait 0.25", []step{{Verb: verbWait, Wait: 250 * time.Millisecond}}},
		{"wait 100 ms then read", []step{{Verb: verbWait, Wait: 100 * time.Millisecond}, {Verb: verbRead}}},
		{"wait 1 minute", []step{{Verb: verbWait, Wait: time.Minute}}},
		{"wait 99999 seconds", []step{{Text: "wait 99999 seconds"}}},
		{"wait for the bus", []step{{Text: "wait for the bus"}}},
		{"run cd /tmp; ls -l && echo done", []step{{Verb: verbRun, Text: "cd /tmp; ls -l && echo done"}}},
		{`run "echo one; say two"`, []step{{Verb: verbRun, Text: "echo one; say two"}}},
		{"fetch https://a.test then fetch https://b.test", []step{{Verb: verbFetch, Text: "https://a.test"}, {Verb: verbFetch, Text: "https://b.test"}}},
		{`call echo {"text": "x"}`, []step{{Verb: verbCall, Text: "echo", Args: json.RawMessage(`{"text": "x"}`)}}},
		{"call s.ping", []step{{Verb: verbCall, Text: "s.ping", Args: json.RawMessage(`{}`)}}},
		{"call echo [1]", []step{{Text: "call echo [1]"}}},
		{"tools", []step{{Verb: verbTools}}},
		{"Help me", []step{{Verb: verbHelp}}},
		{"hello there", []step{{Text: "hello there"}}},
		{"opener", []step{{Text: "opener"}}},
		{"read the manual", []step{{Text: "read the manual"}}},
		{"open", []step{{Text: "open"}}},
		{"then", nil},
	} {
		got, err := parseSteps(c.prompt)
		if err != nil {
			t.Errorf("%q: %v", c.prompt, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.prompt, diff)
		}
	}
	if _, err := parseSteps(strings.Repeat("read\n", maxSteps+1)); err == nil {
		t.Error("a prompt with too many steps was taken")
	}
	if _, err := parseSteps("say " + strings.Repeat("x", maxText)); err == nil {
		t.Error("a prompt that is too long was taken")
	}
}

// Every line of the help text must be understood, with its placeholders filled in as they stand.
func TestHelpIsTrue(t *testing.T) {
	n := 0
	for line := range strings.Lines(helpText) {
		if !strings.HasPrefix(line, "  ") {
			continue
		}
		example, _, _ := strings.Cut(strings.TrimSpace(line), "   ")
		example = strings.NewReplacer("N seconds", "2 seconds", `{"key": …}`, `{"key": 1}`).Replace(example)
		example, _, _ = strings.Cut(example, "     ")
		steps, err := parseSteps(example)
		if err != nil || len(steps) != 1 || steps[0].Verb == verbUnknown {
			t.Errorf("%q gives %v, %v", example, steps, err)
		}
		n++
	}
	if n < 13 {
		t.Errorf("the help text has only %d lines of grammar", n)
	}
}

func FuzzParseStepsKeepsWords(f *testing.F) {
	f.Add(`open a.test and type "x" into y; say 'z`)
	f.Fuzz(func(t *testing.T, prompt string) {
		steps, err := parseSteps(prompt)
		if err != nil {
			return
		}
		for _, s := range steps {
			if s.Verb == verbUnknown && s.Text == "" {
				t.Errorf("%q gives an empty step", prompt)
			}
		}
	})
}
