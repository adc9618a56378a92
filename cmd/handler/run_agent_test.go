package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/fault"
)

// write makes a file with its folders.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// privateDir is a folder of the user's alone, as a runtime folder must be.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCheckCwd: a folder that was asked for and that the agent does not see is refused by name, not swapped for another.
func TestCheckCwd(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("Handler does not run as root")
	}
	home, elsewhere := t.TempDir(), t.TempDir()
	u := testUI(map[string]string{"HOME": home, "XDG_RUNTIME_DIR": privateDir(t)})
	shop := filepath.Join(home, "shop")
	write(t, filepath.Join(shop, "sub", "f"), "")
	write(t, filepath.Join(home, ".config/handler/agents/web.toml"), "harness = \"demo\"\n[[scopes]]\npath = \"~/shop\"\n")
	for dir, refused := range map[string]bool{shop: false, filepath.Join(shop, "sub"): false, home: true, elsewhere: true} {
		err := u.checkCwd("web", dir)
		var f *fault.Fault
		if got := errors.As(err, &f); got != refused || refused && (f.Kind != fault.Refused || !strings.Contains(f.Text, shop)) {
			t.Errorf("%s: %v, want refused %v", dir, err, refused)
		}
	}
	if err := u.checkCwd("demo", elsewhere); err != nil {
		t.Errorf("an agent without scopes: %v", err)
	}
}

// TestCheckFiles: doctor names the files that a person broke, and what to do about them.
func TestCheckFiles(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("Handler does not run as root")
	}
	home := t.TempDir()
	u := testUI(map[string]string{"HOME": home, "XDG_RUNTIME_DIR": privateDir(t)})
	if found := u.checkFiles(); len(found) != 0 {
		t.Errorf("with no files: %+v", found)
	}
	write(t, filepath.Join(home, ".config/handler/handler.toml"), "x = [")
	write(t, filepath.Join(home, ".config/handler/agents/web.toml"), "harness = [")
	found := u.checkFiles()
	if len(found) != 2 {
		t.Fatalf("found %+v", found)
	}
	for i, file := range []string{"handler.toml", "web.toml"} {
		if f := found[i]; !strings.Contains(f.Detail, file+":1:") || len(f.Remedy) != 1 || !strings.HasSuffix(f.Remedy[0], file) {
			t.Errorf("%+v", f)
		}
	}
}

// TestMissingArgs: what is missing is named in the words of the usage.
func TestMissingArgs(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "web"}, "PROMPT… is missing"},
		{[]string{"run"}, "AGENT PROMPT… is missing"},
		{[]string{"agent", "show"}, "NAME is missing"},
		{[]string{"agent", "show", "a", "b"}, "accepts 1 arg"},
		{[]string{"completion", "tcsh"}, `unknown command "handler completion tcsh"`},
		{[]string{"run", "--yes", "--read-only", "web", "x"}, "only one of --yes and --read-only can be"},
		{[]string{"acp", "--unattended", "--yes", "--read-only", "web"}, "only one of --yes and --read-only can be"},
	} {
		root := newRoot(testUI(nil))
		strictCompletion(root)
		root.SetArgs(c.args)
		err := root.ExecuteContext(t.Context())
		var f *fault.Fault
		if !errors.As(err, &f) || f.Kind != fault.Usage || !strings.Contains(f.Text, c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestOrEnded: a run of which there is only the log has ended, which is more than that there is none.
func TestOrEnded(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("Handler does not run as root")
	}
	home := t.TempDir()
	u := testUI(map[string]string{"HOME": home, "XDG_RUNTIME_DIR": privateDir(t)})
	write(t, filepath.Join(home, ".local/state/handler/runs/k3f9.jsonl"), "")
	none := fault.New(fault.NotFound, "", "there is no run")
	if f := fault.Of(u.orEnded(none, "k3")); f.Hint != "handler logs k3f9" {
		t.Errorf("an ended run: %v", f)
	}
	if err := u.orEnded(none, "x"); err != error(none) {
		t.Errorf("no such run: %v", err)
	}
}

// TestLimitFlags: a saved limit goes back to its default, and a part of a processor has its remark.
func TestLimitFlags(t *testing.T) {
	for _, c := range []struct {
		args   []string
		fails  string
		doubts int
	}{
		{[]string{"--memory", "default", "--cpus", "default"}, "", 0},
		{[]string{"--memory", "none"}, "there is always a limit", 0},
		{[]string{"--cpus", "none"}, "there is always a limit", 0},
		{[]string{"--cpus", "1.5", "--allow", "localhost:80", "--allow", "example.org"}, "", 2},
	} {
		var f agentFlags
		cmd := &cobra.Command{}
		f.register(cmd)
		l := agents.Limits{Memory: "1GB", CPUs: 2}
		err := cmd.ParseFlags(c.args)
		if err == nil {
			err = f.limits.save(cmd, &l)
		}
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%v: %v, want %q", c.args, err, c.fails)
		}
		if err == nil && c.doubts == 0 && (l.Memory != "" || l.CPUs != 0) {
			t.Errorf("%v: %+v", c.args, l)
		}
		if got := f.doubts(cmd); len(got) != c.doubts {
			t.Errorf("%v: %q", c.args, got)
		}
	}
	if !overtaken("lifetime: 1 s left", errors.New("lifetime limit: the run is 3 s old")) || overtaken("lifetime: 1 s left", nil) {
		t.Error("overtaken")
	}
}
