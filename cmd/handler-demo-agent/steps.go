package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Bounds of a prompt.
const (
	maxSteps = 100
	maxText  = 64 << 10 // bytes
	maxWait  = 10 * time.Minute
)

// Verbs of a step.
const (
	verbOpen       = "open"
	verbClick      = "click"
	verbType       = "type"
	verbPress      = "press"
	verbScreenshot = "screenshot"
	verbRead       = "read"
	verbRun        = "run"
	verbFetch      = "fetch"
	verbWait       = "wait"
	verbSay        = "say"
	verbTools      = "tools"
	verbCall       = "call"
	verbHelp       = "help"
	verbUnknown    = "" // Text is what was not understood
)

// A step is one thing to do. Text is its object: an address, the text to click or type, a command, a tool's name.
type step struct {
	Verb  string
	Text  string
	Field string          // of type
	Wait  time.Duration   // of wait
	Args  json.RawMessage // of call; a JSON object
}

// String is the step as a line of the plan.
func (s step) String() string {
	switch s.Verb {
	case verbUnknown:
		return s.Text
	case verbType:
		return fmt.Sprintf("type %q into %s", s.Text, s.Field)
	case verbClick:
		return fmt.Sprintf("click %q", s.Text)
	case verbWait:
		return "wait " + s.Wait.String()
	default:
		return strings.TrimSpace(s.Verb + " " + s.Text)
	}
}

// phrases are the beginnings of steps, in lower case; of two that fit, the first wins.
var phrases = []struct{ phrase, verb string }{
	{"go to", verbOpen}, {"goto", verbOpen}, {"open", verbOpen}, {"visit", verbOpen}, {"navigate to", verbOpen}, {"browse to", verbOpen},
	{"click on", verbClick}, {"click", verbClick}, {"press", verbPress},
	{"type", verbType}, {"enter", verbType},
	{"take a screenshot", verbScreenshot}, {"take screenshot", verbScreenshot}, {"screenshot", verbScreenshot},
	{"read", verbRead}, {"snapshot", verbRead},
	{"run", verbRun}, {"fetch", verbFetch}, {"wait", verbWait}, {"say", verbSay},
	{"list tools", verbTools}, {"tools", verbTools}, {"call", verbCall}, {"help", verbHelp},
}

// fillers are words that may stand before a step and mean nothing.
var fillers = regexp.MustCompile(`(?i)^(?:(?:please|now|then|and|also|finally|first|,|;)(?:\s+|$))+`)

// joiner is what may stand between two steps. Whether it does depends on what follows.
var joiner = regexp.MustCompile(`(?i)^(?:\s*[;,]\s*(?:and\s+|then\s+)*|\s+(?:and\s+then|then|and)\s+)`)

// parseSteps takes a prompt apart. What is not understood becomes a step of its own, so that the person learns of it
// where it stood. An empty prompt gives no steps.
func parseSteps(prompt string) ([]step, error) {
	if len(prompt) > maxText {
		return nil, fmt.Errorf("a prompt may have at most %d bytes of text", maxText)
	}
	var steps []step
	for line := range strings.Lines(prompt) {
		for _, part := range split(strings.TrimSpace(line)) {
			steps = append(steps, parseStep(part)...)
			if len(steps) > maxSteps {
				return nil, fmt.Errorf("a prompt may have at most %d steps", maxSteps)
			}
		}
	}
	return steps, nil
}

// split cuts a line where a joiner is followed by the beginning of a step. Quotes protect what they hold.
func split(line string) []string {
	var parts []string
	start, quote := 0, byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0:
			if c == quote && endsWord(line, i+1) {
				quote = 0
			}
			continue
		case (c == '"' || c == '\'') && (i == 0 || line[i-1] == ' ') && closes(line[i+1:], c):
			quote = c
			continue
		}
		if m := joiner.FindString(line[i:]); m != "" && startsStep(line[i+len(m):]) {
			parts = append(parts, line[start:i])
			start = i + len(m)
			i = start - 1
		}
	}
	return append(parts, line[start:])
}

// closes says whether the quote c ends somewhere in s; one that does not protects nothing.
func closes(s string, c byte) bool {
	for i := range len(s) {
		if s[i] == c && endsWord(s, i+1) {
			return true
		}
	}
	return false
}

func endsWord(s string, i int) bool { return i >= len(s) || strings.IndexByte(" \t\r\n,;.", s[i]) >= 0 }

// startsStep says whether s begins as a step does.
func startsStep(s string) bool {
	verb, _ := cutVerb(s)
	return verb != verbUnknown
}

// cutVerb gives the verb that s begins with and the rest.
func cutVerb(s string) (verb, rest string) {
	s = strings.TrimSpace(s)
	s = s[len(fillers.FindString(s)):]
	for _, p := range phrases {
		if len(s) >= len(p.phrase) && strings.EqualFold(s[:len(p.phrase)], p.phrase) && endsWord(s, len(p.phrase)) {
			return p.verb, strings.TrimSpace(s[len(p.phrase):])
		}
	}
	return verbUnknown, s
}

// parseStep reads one part. Steps of one word, such as open URL, leave the rest over: that becomes a step of its own.
func parseStep(part string) []step {
	verb, rest := cutVerb(part)
	whole := []step{{Text: strings.TrimSpace(part)}}
	switch verb {
	case verbUnknown:
		if rest == "" {
			return nil
		}
		return []step{{Text: rest}}
	case verbSay, verbRun:
		if rest == "" {
			return whole
		}
		return []step{{Verb: verb, Text: unquote(rest)}}
	case verbOpen, verbFetch:
		word, left := cutWord(rest)
		word = strings.TrimRight(word, ".,;")
		if word == "" {
			return whole
		}
		return append([]step{{Verb: verb, Text: word}}, leftover(left)...)
	case verbClick, verbPress:
		return parseClick(verb, rest, whole)
	case verbType:
		return parseType(rest, whole)
	case verbWait:
		return parseWait(rest, whole)
	case verbCall:
		return parseCall(rest, whole)
	default: // screenshot, read, tools, help
		object := strings.ToLower(strings.Trim(rest, " .!"))
		switch strings.TrimPrefix(strings.TrimPrefix(object, "of "), "the ") {
		case "", "it", "page", "this page", "screen", "browser", "text", "me":
			return []step{{Verb: verb}}
		}
		return whole
	}
}

// leftover turns what follows a complete step into steps.
func leftover(s string) []step {
	s = strings.TrimSpace(s)
	if strings.Trim(s, ".,;") == "" {
		return nil
	}
	return parseStep(s)
}

// keys are what "press" takes as keys; anything else is clicked.
var keys = map[string]string{
	"enter": "Enter", "return": "Enter", "tab": "Tab", "escape": "Escape", "esc": "Escape", "space": "Space",
	"backspace": "Backspace", "delete": "Delete", "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft",
	"right": "ArrowRight", "page up": "PageUp", "page down": "PageDown", "home": "Home", "end": "End",
}

var theButton = regexp.MustCompile(`(?i)^the (.+) (?:button|link|tab|checkbox)$`)

func parseClick(verb, rest string, whole []step) []step {
	text := unquote(strings.TrimRight(rest, " .,;"))
	if key := keys[strings.ToLower(text)]; verb == verbPress && key != "" {
		return []step{{Verb: verbPress, Text: key}}
	}
	if q, ok := quotedAnywhere(text); ok { // click the "Order now" button
		text = q
	} else if m := theButton.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	if text == "" {
		return whole
	}
	return []step{{Verb: verbClick, Text: text}}
}

// parseType reads TEXT into FIELD. The last "into" counts, since TEXT is the freer of the two.
func parseType(rest string, whole []step) []step {
	for _, word := range []string{" into ", " in "} {
		at := strings.LastIndex(strings.ToLower(rest), word)
		if at < 0 || len(strings.ToLower(rest)) != len(rest) {
			continue
		}
		text, field := unquote(rest[:at]), strings.TrimRight(strings.TrimSpace(rest[at+len(word):]), ".,;")
		if q, ok := quotedAnywhere(field); ok {
			field = q
		} else {
			field = strings.TrimPrefix(unquote(field), "the ")
			for _, noun := range []string{" field", " box", " input"} {
				field = strings.TrimSuffix(field, noun)
			}
		}
		if text != "" && field != "" {
			return []step{{Verb: verbType, Text: text, Field: field}}
		}
	}
	return whole
}

var waitShape = regexp.MustCompile(`(?i)^(?:for\s+)?([0-9]{1,5}(?:\.[0-9]{1,3})?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?)?\b\.?\s*(.*)$`)

func parseWait(rest string, whole []step) []step {
	m := waitShape.FindStringSubmatch(rest)
	if m == nil {
		return whole
	}
	unit := time.Second
	switch {
	case strings.HasPrefix(strings.ToLower(m[2]), "ms"), strings.HasPrefix(strings.ToLower(m[2]), "milli"):
		unit = time.Millisecond
	case strings.HasPrefix(strings.ToLower(m[2]), "m"):
		unit = time.Minute
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return whole
	}
	d := time.Duration(n * float64(unit))
	if d > maxWait {
		return whole
	}
	return append([]step{{Verb: verbWait, Wait: d}}, leftover(m[3])...)
}

func parseCall(rest string, whole []step) []step {
	name, args := cutWord(rest)
	args = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(args), "with "))
	if args == "" {
		args = "{}"
	}
	var object map[string]json.RawMessage
	if name == "" || json.Unmarshal([]byte(args), &object) != nil || object == nil {
		return whole
	}
	return []step{{Verb: verbCall, Text: name, Args: json.RawMessage(args)}}
}

func cutWord(s string) (word, rest string) {
	s = strings.TrimSpace(s)
	if q, r, ok := cutQuoted(s); ok {
		return q, r
	}
	if at := strings.IndexAny(s, " \t"); at >= 0 {
		return s[:at], s[at+1:]
	}
	return s, ""
}

// cutQuoted gives the quoted text that s begins with.
func cutQuoted(s string) (quoted, rest string, ok bool) {
	if s == "" || (s[0] != '"' && s[0] != '\'') {
		return "", s, false
	}
	end := strings.IndexByte(s[1:], s[0])
	if end < 0 {
		return "", s, false
	}
	return s[1 : 1+end], s[2+end:], true
}

// quotedAnywhere gives the only double-quoted text in s.
func quotedAnywhere(s string) (string, bool) {
	if strings.Count(s, `"`) != 2 {
		return "", false
	}
	_, after, _ := strings.Cut(s, `"`)
	q, _, _ := strings.Cut(after, `"`)
	return q, q != ""
}

// unquote takes away the quotes around the whole of s.
func unquote(s string) string {
	s = strings.TrimSpace(s)
	if q, rest, ok := cutQuoted(s); ok && strings.TrimSpace(rest) == "" {
		return q
	}
	return s
}
