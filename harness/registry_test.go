package harness

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func manifest(name string) string { return "name = \"" + name + "\"\ncommand = [\"x\"]\n" }

func TestShippedHarnessesAreUsable(t *testing.T) {
	r, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if problems := r.Problems(); problems != nil {
		t.Error(problems)
	}
	entries, err := filepath.Glob("*/" + manifestName)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range entries {
		want = append(want, filepath.Dir(e))
	}
	if diff := cmp.Diff(want, r.Names()); diff != "" {
		t.Errorf("folders and embedded harnesses differ: %s", diff)
	}
	for _, m := range r.List() {
		if digest, err := m.Digest(); err != nil || len(digest) != 64 || !m.Shipped || m.Source == nil {
			t.Errorf("%s: digest %q, %v", m.Name, digest, err)
		}
	}
}

func TestRegistryIsOneOfShippedAndOwn(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"plain.toml":              manifest("plain"),
		"built/harness.toml":      manifest("built") + "[build]\ncontainerfile = \"sub/Containerfile\"\n",
		"built/sub/Containerfile": "FROM x\n",
		"notes.txt":               "not a harness",
		".hidden.toml":            "name =",
		"broken.toml":             "name =",
		"empty/readme":            "",
		"other.toml":              manifest("another"),
		"build.toml":              manifest("build") + "[build]\ncontainerfile = \"Containerfile\"\n",
		"nofile/harness.toml":     manifest("nofile") + "[build]\ncontainerfile = \"Containerfile\"\n",
		"a-b.toml":                manifest("a-b"),
		"a--b.toml":               manifest("a--b"),
		"ship.toml":               manifest("ship"),
		"twice.toml":              manifest("twice"),
		"twice/harness.toml":      manifest("twice"),
	})
	own := fstest.MapFS{"ship/harness.toml": {Data: []byte(manifest("ship"))}, "good/harness.toml": {Data: []byte(manifest("good"))}}
	r, err := load(own, dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"built", "good", "plain"}, r.Names()); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string][]string{
		"broken": {"broken.toml:1:"},
		"empty":  {"there is no harness.toml in it"},
		"other":  {"other.toml", `name is "another"`},
		"build":  {"build/harness.toml"},
		"nofile": {"there is no file"},
		"a-b":    {"a-b.toml", "a--b.toml"},
		"a--b":   {"a-b.toml", "a--b.toml"},
		"ship":   {"shipped:harness/ship/harness.toml", filepath.Join(dir, "ship.toml")},
		"twice":  {"twice.toml", "twice/harness.toml"},
	} {
		_, err := r.Get(name)
		if err == nil {
			t.Errorf("%s is usable", name)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
	}
	if got := len(r.Problems()); got != 8 {
		t.Errorf("%d problems: %v", got, r.Problems())
	}
	if m, err := r.Get("built"); err != nil || m.Dir != filepath.Join(dir, "built") || m.Shipped {
		t.Errorf("built: %+v, %v", m, err)
	}
	var missing *NotFoundError
	if _, err := r.Get("../x"); !errors.As(err, &missing) || !slices.Contains(missing.Known, "good") {
		t.Errorf("got %v", err)
	}
}

func TestLoadOfNoFolder(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, filepath.Dir(file), map[string]string{"file": ""})
	if _, err := Load(file); err == nil {
		t.Error("a file is taken for the folder")
	}
}

// A pipe in the place of a harness spoils itself, and is not waited for.
func TestPipes(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alone.toml", "folder/harness.toml"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alone", "folder"} {
		if _, err := r.Get(name); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
