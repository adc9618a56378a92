package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A docCommand is a command of Handler's that a page shows.
type docCommand struct {
	page  string
	words []string
}

var (
	codeSpan  = regexp.MustCompile("`(handler [^`]+)`")
	flagWord  = regexp.MustCompile(`^(--?[a-z][a-z-]*)(=.*)?$`)
	separator = regexp.MustCompile(`\s(\||&&|;|<|>|#)\s`)
)

// docCommands finds the commands in code blocks and code spans of a page.
func docCommands(page, text string) []docCommand {
	var found []docCommand
	add := func(line string) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if at := separator.FindStringIndex(line); at != nil {
			line = line[:at[0]]
		}
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == "handler" && !strings.HasSuffix(words[1], ":") {
			found = append(found, docCommand{page, words[1:]})
		}
	}
	fenced := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			add(line)
		default:
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				add(m[1])
			}
		}
	}
	return found
}

// help gives the help of a command of Handler's and the commands below it.
func help(t *testing.T, words ...string) (text string, below map[string]bool) {
	t.Helper()
	text, err := the.command(10*time.Second, filepath.Join(the.bin, "handler"), append(words, "--help")...)
	if err != nil {
		t.Fatalf("handler %s --help: %v\n%s", strings.Join(words, " "), err, text)
	}
	below = map[string]bool{}
	_, list, _ := strings.Cut(text, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 0 {
			below[f[0]] = true
		}
	}
	return text, below
}

// TestDocs holds the commands that the README and the manual show against the command line's own help: verbs and
// flags exist.
func TestDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("it asks the built command line; run: make test")
	}
	pages, err := filepath.Glob(filepath.Join(the.root, "docs/handlers/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range append(pages, filepath.Join(the.root, "README.md")) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range docCommands(filepath.Base(page), string(data)) {
			seen++
			checkDocCommand(t, c)
		}
	}
	if seen < 20 {
		t.Errorf("only %d commands were found in the pages; is the search right?", seen)
	}
}

func checkDocCommand(t *testing.T, c docCommand) {
	t.Helper()
	path, rest := []string{}, c.words
	text, below := help(t)
	for len(rest) > 0 && below[rest[0]] {
		path, rest = append(path, rest[0]), rest[1:]
		text, below = help(t, path...)
	}
	shown := "handler " + strings.Join(c.words, " ")
	if len(below) > 0 && (len(path) == 0 || len(rest) > 0 && !strings.HasPrefix(rest[0], "-")) {
		t.Errorf("%s: %q: there is no command %q", c.page, shown, strings.Join(append(path, rest[:min(1, len(rest))]...), " "))
		return
	}
	for _, w := range rest {
		if m := flagWord.FindStringSubmatch(w); m != nil && !regexp.MustCompile(`(?m)^\s*(-[a-zA-Z], )?`+m[1]+`\b|^\s*`+m[1]+`,`).MatchString(text) {
			t.Errorf("%s: %q: there is no flag %s", c.page, shown, m[1])
		}
	}
}

func TestDocCommands(t *testing.T) {
	const page = "Say `handler ps` or `handler-guest`.\n\n```sh\n$ handler run demo \"x\" --yes   # comment\nmake demo\nhandler: an error\n```\n\n    handler kill $(handler ps)\n"
	got := docCommands("p", page)
	want := [][]string{{"ps"}, {"run", "demo", `"x"`, "--yes"}, {"kill", "$(handler", "ps)"}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if strings.Join(got[i].words, "|") != strings.Join(want[i], "|") {
			t.Errorf("got %q, want %q", got[i].words, want[i])
		}
	}
}
