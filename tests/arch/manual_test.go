package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// link finds the target of a Markdown link or picture.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestManual: every link in README, CONTRIBUTING and the manual leads to a file that is there, and README names every page of the
// manual: a page that nothing leads to is not found.
func TestManual(t *testing.T) {
	dir := root(t)
	pages, err := filepath.Glob(filepath.Join(dir, "docs/handlers/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no manual: %v", err)
	}
	named := map[string]bool{}
	for i, page := range append([]string{filepath.Join(dir, "README.md"), filepath.Join(dir, "CONTRIBUTING.md")}, pages...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range links(string(text)) {
			at := filepath.Join(filepath.Dir(page), target)
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s: its link to %s leads nowhere", strings.TrimPrefix(page, dir+"/"), target)
			}
			if i == 0 {
				named[at] = true
			}
		}
	}
	for _, page := range pages {
		if !named[page] {
			t.Errorf("README.md does not name %s", strings.TrimPrefix(page, dir+"/"))
		}
	}
}

// links gives the files that a text links to, without the places in them.
func links(text string) []string {
	var found []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, ":") { // this page, or another host
			continue
		}
		found = append(found, target)
	}
	return found
}

func TestLinks(t *testing.T) {
	got := links("[a](b.md#c) ![d](img/e.png) [f](https://g.example) [h](#i) (no) [j] (k)")
	if want := "b.md img/e.png"; strings.Join(got, " ") != want {
		t.Errorf("links are %q, want %q", got, want)
	}
}
