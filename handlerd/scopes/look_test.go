package scopes

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func look(t *testing.T, c Config, dir string) *View {
	t.Helper()
	v, err := c.Look(dir)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// mounts are the view's mounts as "ro path" or "rw path", in order.
func mounts(v *View, dir string) []string {
	var all []string
	for _, m := range v.Mounts {
		mode := "rw "
		if m.ReadOnly {
			mode = "ro "
		}
		if m.Source != m.Target {
			mode = m.Source + " at "
		}
		all = append(all, mode+strings.TrimPrefix(m.Target, dir+"/"))
	}
	return all
}

func TestLookProtects(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir,
		".git/hooks", ".git/config!", ".git/objects/aa", ".git/refs", ".git/HEAD!", ".git/index!",
		".git/modules/lib/config!", ".git/modules/lib/hooks", ".git/modules/lib/objects", ".git/modules/lib/refs", ".git/modules/lib/HEAD!",
		".gitmodules!", ".vscode/tasks.json!", ".envrc!", ".handler/agents!", ".handler/public-apps.json!",
		".cargo/config.toml!", ".claude/settings.json!", ".claude/other!",
		"lib/.git!", "a/b/nested/.git/hooks", "a/b/nested/.git/config!", "a/b/c/d/.vscode", "pkg/.npmrc!", "node_modules/x/.vscode",
		"bare.git/HEAD!", "bare.git/objects", "bare.git/refs", "bare.git/config!", "src/main.go!", "Makefile!")
	v := look(t, Config{}, dir)
	want := []string{
		"ro .cargo", "rw .claude", "ro .claude/settings.json", "ro .envrc",
		"rw .git", "ro .git/config", "ro .git/hooks", "rw .git/modules", "rw .git/modules/lib", "ro .git/modules/lib/config", "ro .git/modules/lib/hooks",
		"ro .gitmodules", "ro .handler", "rw .handler/public-apps.json", "ro .vscode",
		"rw a/b/nested/.git", "ro a/b/nested/.git/config", "ro a/b/nested/.git/hooks",
		"rw bare.git", "ro bare.git/config", "ro lib/.git", "ro pkg/.npmrc",
	}
	if diff := cmp.Diff(want, mounts(v, dir)); diff != "" {
		t.Error(diff)
	}
	if len(v.Notices) != 0 || !v.Complete || v.Sockets != nil {
		t.Errorf("%+v", v)
	}
}

func TestProtectIsConfiguration(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, ".vscode/tasks.json!", ".vscode/notes.txt!", ".idea/x!", "Makefile!", ".git/hooks", ".git/x!")
	c := Config{Protect: []string{"Makefile", ".git", "../up", "/abs", "."}, Allow: []string{".idea", ".vscode/notes.txt"}}
	want := []string{"ro .git", "ro .git/hooks", "ro .vscode", "rw .vscode/notes.txt", "ro Makefile"}
	if diff := cmp.Diff(want, mounts(look(t, c, dir), dir)); diff != "" {
		t.Error(diff)
	}
}

// A protected path that is a symlink is neither followed nor mounted over: it is named.
func TestLookFollowsNoSymlink(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	folders(t, outside, "hooks/pre-commit!", "repo/.git/hooks")
	folders(t, dir, ".git/hooks="+filepath.Join(outside, "hooks"), ".vscode="+outside, "linked="+filepath.Join(outside, "repo"), ".git/config!", ".handler/public-apps.json="+filepath.Join(outside, "x"))
	v := look(t, Config{}, dir)
	if diff := cmp.Diff([]string{"rw .git", "ro .git/config", "ro .handler"}, mounts(v, dir)); diff != "" {
		t.Error(diff)
	}
	if len(v.Notices) != 1 || !strings.Contains(v.Notices[0], dir+"/.git/hooks") || !strings.Contains(v.Notices[0], dir+"/.vscode") {
		t.Errorf("%q", v.Notices)
	}
}

func TestLookNamesSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	folders(t, dir, "a/b/c/d/e", ".git/x!", "node_modules")
	var want []string
	for _, name := range []string{".git/fsmonitor.ipc", "a/b/c/d/e/deep.sock", "top.sock"} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		want = append(want, filepath.Join(dir, name))
	}
	if diff := cmp.Diff(want, look(t, Config{}, dir).Sockets); diff != "" {
		t.Error(diff)
	}
}

func TestLookIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxMounts + 5 {
		folders(t, dir, fmt.Sprintf("p%03d/.envrc!", i))
	}
	v := look(t, Config{}, dir)
	if len(v.Mounts) != MaxMounts || len(v.Notices) != 1 || !strings.Contains(v.Notices[0], "p204/.envrc") {
		t.Errorf("%d mounts, %q", len(v.Mounts), v.Notices)
	}

	dir = t.TempDir()
	folders(t, dir, "many", "z/.envrc!", ".git/hooks")
	for i := range 300 {
		if err := os.Mkdir(filepath.Join(dir, "many", fmt.Sprint(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	folders(t, dir, "many/.vscode")
	v, err := Config{}.look(dir, 200)
	if err != nil {
		t.Fatal(err)
	}
	if v.Complete || len(v.Notices) != 1 || !strings.Contains(v.Notices[0], "more than 200 entries") {
		t.Errorf("complete: %v, %q", v.Complete, v.Notices)
	}
	if got := mounts(v, dir); !slices.Contains(got, "ro .git/hooks") || !slices.Contains(got, "ro many/.vscode") {
		t.Errorf("the folders nearest to the top are not protected: %q", got)
	}
}

func TestLookOfNothing(t *testing.T) {
	if _, err := (Config{}).Look(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error")
	}
	if v := look(t, Config{}, t.TempDir()); v.Mounts != nil || v.Notices != nil {
		t.Errorf("%+v", v)
	}
}

func TestAppeared(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, ".git/config!", ".git/HEAD!", "repo/.git/config!", ".envrc!", "src/x!", "link/.vscode=a")
	before := look(t, Config{}, dir)
	if got := Appeared(before, look(t, Config{}, dir)); got != nil {
		t.Errorf("nothing happened, and %q appeared", got)
	}
	for _, step := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, "src/x"), []byte("y"), 0o600) },             // not protected
		func() error { return os.WriteFile(filepath.Join(dir, ".git/index"), []byte("y"), 0o600) },        // git's work
		func() error { return os.MkdirAll(filepath.Join(dir, ".git/hooks"), 0o700) },                      // new
		func() error { return os.WriteFile(filepath.Join(dir, ".git/commondir"), []byte("../e"), 0o600) }, // new
		func() error { return os.WriteFile(filepath.Join(dir, ".envrc"), []byte("rm x"), 0o600) },         // changed
		func() error { return os.Rename(filepath.Join(dir, "repo"), filepath.Join(dir, "old")) },          // moved
		func() error { return os.MkdirAll(filepath.Join(dir, "repo/.git"), 0o700) },                       // and replaced
		func() error { return os.WriteFile(filepath.Join(dir, "repo/.git/config"), nil, 0o644) },          //
		func() error { return os.Remove(filepath.Join(dir, "link/.vscode")) },                             // a link
		func() error { return os.Symlink("b", filepath.Join(dir, "link/.vscode")) },                       // to elsewhere
		func() error { return os.Mkdir(filepath.Join(dir, ".idea"), 0o700) },                              // new
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for _, p := range []string{".envrc", ".git/commondir", ".git/hooks", ".idea", "link/.vscode", "old/.git/config", "repo/.git/config"} {
		want = append(want, filepath.Join(dir, p))
	}
	if diff := cmp.Diff(want, Appeared(before, look(t, Config{}, dir))); diff != "" {
		t.Error(diff)
	}
}

// A name that is not UTF-8 would reach the runtime as another one, which the agent could make a link to anywhere.
func TestLookMountsUTF8Only(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, "\xff/.vscode", "\xff/.git/hooks", "\xff/.git/config!", "\ufffd/.vscode=/etc", "pkg/a\xc3/.envrc!",
		"a\nb/.envrc!", "c,d:\"/.vscode", "e\ufffd/.envrc!")
	v := look(t, Config{}, dir)
	want := []string{"ro a\nb/.envrc", "ro c,d:\"/.vscode", "ro e\ufffd/.envrc"}
	if diff := cmp.Diff(want, mounts(v, dir)); diff != "" {
		t.Error(diff)
	}
	all := strings.Join(v.Notices, "\n")
	if v.Complete || !strings.Contains(all, `/\xff"`) || !strings.Contains(all, `pkg/a\xc3"`) || strings.Contains(all, "\xff") {
		t.Errorf("complete: %v, %q", v.Complete, v.Notices)
	}
	v = look(t, Config{Protect: []string{"x\xff"}}, dir)
	if len(v.Mounts) != len(want) {
		t.Errorf("%q", mounts(v, dir))
	}
	folders(t, dir, "x\xff!")
	if v = look(t, Config{Protect: []string{"x\xff"}}, dir); len(v.Mounts) != len(want) || !strings.Contains(strings.Join(v.Notices, ""), `x\xff"`) {
		t.Errorf("%q, %q", mounts(v, dir), v.Notices)
	}
}

// The walk takes for a folder what was one a moment ago.
func TestLookIsNotHeldUp(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, "real", "link=real")
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := &walk{view: &View{Complete: true, marks: map[string]mark{}}, rules: Config{}.rules(), scope: dir, left: 100}
		w.visit(place{dir: pipe, depth: 1})
		w.visit(place{dir: filepath.Join(dir, "link"), depth: 1})
		if len(w.unread) != 2 {
			t.Errorf("%q", w.unread)
		}
		if _, err := (Config{}).Look(pipe); err == nil {
			t.Error("a pipe is a scope")
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a pipe holds up the walk")
	}
}

// Git takes these for repositories, and so would run what their configuration names.
func TestLookSeesDisguisedRepositories(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, "a/HEAD!", "a/config!", "a/objects=../o", "a/refs=../r", "b/HEAD!", "b/commondir!", "b/config!", "c/HEAD!", "c/config!",
		".git/HEAD!", ".git/worktrees/w/HEAD!", ".git/worktrees/w/commondir!", ".git/worktrees/w/gitdir!", ".git/worktrees/w/index!")
	want := []string{"rw .git", "rw .git/worktrees", "rw .git/worktrees/w", "ro .git/worktrees/w/commondir", "ro .git/worktrees/w/gitdir",
		"rw a", "ro a/config", "rw b", "ro b/commondir", "ro b/config"}
	if diff := cmp.Diff(want, mounts(look(t, Config{}, dir), dir)); diff != "" {
		t.Error(diff)
	}
}

func TestAppearedInFolders(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, ".git/hooks/pre-commit!", ".handler/public-apps.json!", ".handler/x!", ".envrc!", ".vscode/tasks.json!")
	before := look(t, Config{}, dir)
	for _, step := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, ".git/hooks/pre-commit"), []byte("x"), 0o600) },
		func() error { return os.WriteFile(filepath.Join(dir, ".handler/public-apps.json"), []byte("x"), 0o600) }, // allowed
		func() error { return os.Remove(filepath.Join(dir, ".envrc")) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(dir, ".envrc"), filepath.Join(dir, ".git/hooks")}
	if diff := cmp.Diff(want, Appeared(before, look(t, Config{}, dir))); diff != "" {
		t.Error(diff)
	}
}

func TestReadOnly(t *testing.T) {
	readOnly := Config{}.ReadOnly([]string{"/s", "/t"})
	for path, want := range map[string]bool{
		"/s/.git/hooks/pre-commit": true, "/s/.git/config": true, "/s/.git": true, "/s/a/b/c/d/.git/hooks": true, "/t/x/.envrc": true,
		"/s/.handler": true, "/s/.handler/agents/x": true, "/s/.Git/Config": true, "/s/.vscode/tasks.json": true,
		"/s/.handler/public-apps.json": false, "/s/.git/index": false, "/s/src/main.go": false, "/s/.gitignore": false, "/s": false,
		"/u/.envrc": false, "/s.git/.envrc": false, "/s/envrc": false,
	} {
		if got := readOnly(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
