package addons

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write makes an addon's folder below dir and returns its path.
func write(t *testing.T, dir, name, manifest string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "addon.toml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestShippedAddonsAreWhole(t *testing.T) {
	r, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if problems := r.Problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	if diff := cmp.Diff([]string{"playwright"}, r.Names()); diff != "" {
		t.Fatal(diff)
	}
	m, err := r.Get("playwright")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range m.Commands {
		if _, err := fs.Stat(m.Source, "bin/"+name); err != nil {
			t.Error(err)
		}
	}
	data, err := fs.ReadFile(m.Source, "package.json")
	if err != nil {
		t.Fatal(err)
	}
	if want := `"@playwright/mcp": "` + m.Version + `"`; !strings.Contains(string(data), want) {
		t.Errorf("the manifest's version is %s, and package.json has no %s", m.Version, want)
	}
	lock, err := fs.ReadFile(m.Source, "package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(lock), `"resolved"`) {
		t.Error("package-lock.json names a registry; another one could not be used")
	}
	if d, err := m.Digest(); err != nil || len(d) != 64 {
		t.Errorf("digest %q, %v", d, err)
	}
}

func TestPersonsAddons(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one", "name = \"one\"\n")
	write(t, dir, "bad", "name = \"bad\"\nsize = 1\n")
	write(t, dir, "other", "name = \"one\"\n")
	write(t, dir, ".hidden", "x")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one", "playwright"}, r.Names()); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{
		"bad":   filepath.Join(dir, "bad/addon.toml") + `:2:1: unknown key "size"`,
		"other": `name is "one", and its folder is called "other"`,
		"empty": "there is no addon.toml in it",
	} {
		if _, err := r.Get(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	var missing *NotFoundError
	if _, err := r.Get("nothing"); !errors.As(err, &missing) || len(missing.Known) != 2 {
		t.Errorf("got %v", err)
	}
	if len(r.Problems()) != 3 {
		t.Errorf("problems: %v", r.Problems())
	}
}

// A31: names that agents fold into one are refused, and the error names both files.
func TestNamesThatFoldTogether(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a-b", "name = \"a-b\"\n")
	write(t, dir, "a--b", "name = \"a--b\"\n")
	write(t, dir, "playwright", "name = \"playwright\"\n")
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if names := r.Names(); len(names) > 0 {
		t.Errorf("usable: %v", names)
	}
	for _, names := range [][2]string{{"a-b", "a--b"}, {"playwright", "playwright"}} {
		_, err := r.Get(names[0])
		for _, name := range names {
			if err == nil || !strings.Contains(err.Error(), filepath.Join(name, "addon.toml")) {
				t.Errorf("%v does not name the file of %s", err, name)
			}
		}
	}
}

func TestLinksOutOfTheFolder(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("FROM x"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	build := write(t, dir, "build", "name = \"build\"\n[build]\ncontainerfile = \"Containerfile\"\n")
	file := write(t, dir, "file", "name = \"file\"\n")
	whole := write(t, dir, "manifest", "")
	inside := write(t, dir, "inside", "name = \"inside\"\n")
	for _, err := range []error{
		os.Symlink(outside, filepath.Join(build, "Containerfile")),
		os.Symlink(outside, filepath.Join(file, "data")),
		os.Remove(filepath.Join(whole, "addon.toml")),
		os.Symlink(outside, filepath.Join(whole, "addon.toml")),
		os.Symlink("addon.toml", filepath.Join(inside, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"build", "manifest"} {
		if m, err := r.Get(name); err == nil || !strings.Contains(err.Error(), "escapes") {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	for name, ok := range map[string]bool{"file": false, "inside": true} {
		m, err := r.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Digest(); (err == nil) != ok {
			t.Errorf("digest of %s: %v", name, err)
		}
	}
}

func TestFold(t *testing.T) {
	for in, want := range map[string]string{"a-b": "a_b", "A--B": "a_b", "-a.b-": "a_b", "ab": "ab"} {
		if got := Fold(in); got != want {
			t.Errorf("Fold(%q) = %q, want %q", in, got, want)
		}
	}
}
