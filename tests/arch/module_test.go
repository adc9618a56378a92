package arch

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A mod is what `go mod edit -json` says of go.mod.
type mod struct {
	Module  struct{ Path string }
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []json.RawMessage
	Exclude []json.RawMessage
	Tool    []struct{ Path string }
}

func goMod(t *testing.T) mod {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var m mod
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestNoReplace: whoever runs `go install` of us must get what we tested.
func TestNoReplace(t *testing.T) {
	m := goMod(t)
	if len(m.Replace) > 0 || len(m.Exclude) > 0 {
		t.Errorf("go.mod has %d replace and %d exclude lines; it may have none", len(m.Replace), len(m.Exclude))
	}
	if m.Module.Path != modulePath {
		t.Errorf("the module is %s; tests/arch knows it as %s", m.Module.Path, modulePath)
	}
}

// TestNoBannedWords: what is left to do is an issue, not a word in a file; and no merge is left half done.
func TestNoBannedWords(t *testing.T) {
	banned := []string{"TO" + "DO", "FIX" + "ME"}
	dir := root(t)
	rel := func(path string) string { return strings.TrimPrefix(path, dir+"/") }
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // taken away while we walk
		}
		switch d.Name() {
		case ".git", "bin", "node_modules":
			if d.IsDir() {
				return fs.SkipDir
			}
		case "assets": // the page as it was built, with words of what it is built from; its sources are looked at
			if d.IsDir() && strings.HasSuffix(filepath.ToSlash(path), "handlerd/web/assets") {
				return fs.SkipDir
			}
		case "go.sum", "package-lock.json", "LICENSE":
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() > 1<<20 {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(text, 0) >= 0 { // a picture or a program
			return nil
		}
		for i, line := range strings.Split(string(text), "\n") {
			if conflict(line) {
				t.Errorf("%s:%d: is the mark of a merge that was not solved", rel(path), i+1)
			}
			if word := bannedIn(line, banned); word != "" {
				t.Errorf("%s:%d: has the word %s; do it, or file an issue", rel(path), i+1, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// bannedIn gives the banned word of a line, as a word of its own.
func bannedIn(line string, banned []string) string {
	for _, word := range banned {
		for rest := line; ; {
			i := strings.Index(rest, word)
			if i < 0 {
				break
			}
			end := i + len(word)
			if (i == 0 || !letter(rest[i-1])) && (end == len(rest) || !letter(rest[end])) {
				return word
			}
			rest = rest[end:]
		}
	}
	return ""
}

// conflict tells whether a line is what git leaves where two changes met.
func conflict(line string) bool {
	return strings.HasPrefix(line, strings.Repeat("<", 7)+" ") || strings.HasPrefix(line, strings.Repeat(">", 7)+" ")
}

func letter(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func TestBannedIn(t *testing.T) {
	for line, want := range map[string]string{
		"// XX: later": "XX", "XX": "XX", "context.XX()": "XX", "AXX": "", "XXS": "", "AXX XX": "XX", "": "",
	} {
		if got := bannedIn(line, []string{"XX"}); got != want {
			t.Errorf("bannedIn(%q) is %q, want %q", line, got, want)
		}
	}
}

func TestConflict(t *testing.T) {
	for line, want := range map[string]bool{
		strings.Repeat("<", 7) + " HEAD": true, strings.Repeat(">", 7) + " 1234567": true, strings.Repeat("<", 8): false, "": false, "a < b": false,
	} {
		if conflict(line) != want {
			t.Errorf("conflict(%q) is not %v", line, want)
		}
	}
}
