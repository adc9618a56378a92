package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/policy"
)

// exampleBlock gives the fenced block of a page that begins with a line.
func exampleBlock(t *testing.T, page, first string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, first)
	block, _, closed := strings.Cut(rest, "\n```\n")
	if !ok || !closed {
		t.Fatalf("the page has no block that begins %q", first)
	}
	return block
}

// TestEgressPage executes the example of docs/handlers/egress.md: an agent's rules, and what policy check says.
func TestEgressPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/handlers/egress.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	agent := "harness = \"claude-code\"\n" + exampleBlock(t, string(page), "```toml\n")
	if err := os.MkdirAll(filepath.Join(dir, "agents"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "agents/web.toml"), []byte(agent), 0o600); err != nil {
		t.Fatal(err)
	}
	c := catalog.Catalog{Config: dir, State: filepath.Join(dir, "state"), Home: dir}
	plan, err := c.Plan("web", dir)
	if err != nil {
		t.Fatal(err)
	}
	network, err := c.Network(plan)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]int{}
	for line := range strings.SplitSeq(exampleBlock(t, string(page), "```verdicts\n"), "\n") {
		words := strings.Fields(line)
		if len(words) != 3 {
			t.Fatalf("%q is no verdict, method and address", line)
		}
		q, err := parseQuestion(words[2], words[1])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got := "allowed"
		if v, _ := q.ask(plan, network); v.Action != policy.Allow {
			got = v.Rule
		}
		if got != words[0] {
			t.Errorf("the page says %q; it is %s", line, got)
		}
		verdicts[words[0]]++
	}
	if len(verdicts) < 4 || verdicts["allowed"] < 10 {
		t.Errorf("the page shows too little: %v", verdicts)
	}
}
