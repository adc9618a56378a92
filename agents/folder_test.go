package agents

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSaveLoadListRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "config", "agents")
	web := &Agent{Name: "web", Harness: "demo", Scopes: []Scope{{Path: "~/src"}}}
	if err := Save(dir, web, false); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, "web.toml"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	got, err := Load(dir, "web")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(web, got); diff != "" {
		t.Error(diff)
	}
	var exists *ExistsError
	if err := Save(dir, &Agent{Name: "web", Harness: "other"}, false); !errors.As(err, &exists) {
		t.Errorf("written over: %v", err)
	}
	if got, _ := Load(dir, "web"); got == nil || got.Harness != "demo" {
		t.Errorf("the refused save changed %+v", got)
	}
	if err := Save(dir, &Agent{Name: "web", Harness: "other"}, true); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.toml"), []byte("harness = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := List(dir)
	if err != nil || len(entries) != 2 || entries[0].Name != "bad" || entries[0].Err == nil || entries[1].Agent.Harness != "other" {
		t.Errorf("%+v, %v", entries, err)
	}
	if err := Remove(dir, "web"); err != nil {
		t.Error(err)
	}
	var missing *NotFoundError
	if err := Remove(dir, "web"); !errors.As(err, &missing) {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestSaveRefusesWhatItCouldNotRead(t *testing.T) {
	dir := t.TempDir()
	for _, a := range []*Agent{
		{Name: "x"},
		{Name: "../x", Harness: "demo"},
		{Name: "x", Harness: "demo", Env: map[string]string{"PATH": "/"}},
		{Name: "x", Harness: "demo", Limits: Limits{Memory: "lots"}},
	} {
		if err := Save(dir, a, true); err == nil {
			t.Errorf("saved %+v", a)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// Pitfall C02: a name becomes a path.
func TestNamesNeverLeaveTheFolder(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "agents")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(root, "victim.toml")
	if err := os.WriteFile(victim, []byte("harness = \"demo\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../victim", "..", "", "a/b", `A\b`, "a\x00", "victim.toml", strings.Repeat("a", 65), "-x", "é"} {
		if _, err := Load(dir, name); err == nil || errors.As(err, new(*NotFoundError)) {
			t.Errorf("load %q: %v", name, err)
		}
		if err := Remove(dir, name); err == nil {
			t.Errorf("removed %q", name)
		}
		if err := Save(dir, &Agent{Name: name, Harness: "demo"}, true); err == nil {
			t.Errorf("saved %q", name)
		}
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, a := range []*Agent{{Name: "web", Harness: "demo"}, {Name: "codex", Harness: "demo"}} {
		if err := Save(dir, a, false); err != nil {
			t.Fatal(err)
		}
	}
	harnesses := []string{"claude-code", "codex", "demo"}
	if a, err := Find(dir, "demo", harnesses); err != nil || a.Harness != "demo" || a.File != "" {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := Find(dir, "web", harnesses); err != nil || a.File == "" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := Find(dir, "codex", harnesses); err == nil || !strings.Contains(err.Error(), "rename the file") {
		t.Errorf("an agent with another harness's name: %v", err)
	}
	for name, near := range map[string]string{"wbe": "web", "cluade-code": "claude-code", "entirely-else": ""} {
		var missing *NotFoundError
		if _, err := Find(dir, name, harnesses); !errors.As(err, &missing) || missing.Near != near {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Find(filepath.Join(dir, "none"), "demo", harnesses); err != nil {
		t.Error(err)
	}
}

func TestEdits(t *testing.T) {
	a := &Agent{Name: "a", Harness: "demo"}
	for name, err := range map[string]error{
		"scope": a.AddScope("~/src", "rw"), "scope again": a.AddScope("~/src", "ro"), "allow": a.Allow("x.org", "y.org"),
		"deny": a.Deny("x.org"), "private": a.AllowPrivate("10.0.0.1:80"), "preset": a.AddPresets("npm"), "preset again": a.AddPresets("npm"), "unknown": a.SetUnknown("ask"), "approvals": a.SetApprovals("acp"),
		"secret": a.SetSecret("key", "~/key"), "env": a.SetEnv("A", "b"),
		"bind": a.Bind("other", []string{"playwright"}, func(b *Binding) { b.Settings["x"] = "1" }),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.SetDisplay("true"); err != nil {
		t.Fatal(err)
	}
	want := `harness = "demo"
display = true

[[scopes]]
path = "~/src"
mode = "ro"

[bindings.other]

[bindings.other.settings]
x = "1"

[bindings.playwright]

[network]
allow = ["y.org"]
deny = ["x.org"]
private = ["10.0.0.1:80"]
presets = ["npm"]
unknown = "ask"

[policy]
approvals = ["acp"]

[secrets.key]
file = "~/key"

[env]
A = "b"
`
	if diff := cmp.Diff(want, string(Format(a))); diff != "" {
		t.Error(diff)
	}
	if err := a.Unbind("playwright", nil); err != nil || len(a.Bindings) != 1 {
		t.Errorf("%v, %v", a.Bindings, err)
	}
	if err := a.SetApprovals("none"); err != nil || len(a.Policy.Approvals) != 0 {
		t.Errorf("%v, %v", a.Policy, err)
	}
	if err := a.Forget("npm"); err != nil || len(a.Network.Presets) != 0 {
		t.Errorf("%v, %v", a.Network, err)
	}
	if err := a.RemoveScope("~/src"); err != nil || len(a.Scopes) != 0 {
		t.Errorf("%v, %v", a.Scopes, err)
	}
	for name, err := range map[string]error{"scope": a.AddScope("src", ""), "gone scope": a.RemoveScope("/x"), "rule": a.Allow("a b"),
		"approvals": a.SetApprovals("page"), "gone rule": a.Forget("z"), "env": a.SetEnv("PATH", "x"), "gone addon": a.Unbind("z", nil), "mode": a.AddScope("/x", "w")} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestLoadOfAPipe(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "web.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := Load(dir, "web"); done <- err }()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a pipe holds up the load")
	}
}
