package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/handlerd/handler/handlerd/fault"
)

func testUI(env map[string]string) *ui {
	return newUI(os.Stdin, os.Stdout, os.Stderr, func(name string) string { return env[name] })
}

// every gives each command of ours, groups included, before cobra adds its own.
func every(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, below := range cmd.Commands() {
		all = append(all, every(below)...)
	}
	return all
}

// Every command says in one line what it does, and shows how it is typed; its man page renders; and what it takes is
// completed where it has a name.
func TestCommands(t *testing.T) {
	root := newRoot(testUI(nil))
	seen := 0
	for _, cmd := range every(root) {
		seen++
		path := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short is %q", path, cmd.Short)
		}
		if !cmd.HasSubCommands() {
			if cmd.Example == "" {
				t.Errorf("%s has no Example", path)
			}
			if !strings.Contains(cmd.Example, path+" ") && !strings.HasSuffix(cmd.Example, path) && !strings.Contains(cmd.Example, path+"\n") {
				t.Errorf("%s: no example of it in %q", path, cmd.Example)
			}
			for _, line := range strings.Split(cmd.Example, "\n") {
				if !strings.HasPrefix(line, "  ") {
					t.Errorf("%s: the example %q is not indented by two", path, line)
				}
			}
		}
		var page strings.Builder
		if err := doc.GenMan(cmd, manHeader(), &page); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, want := range []string{".SH NAME", ".SH SYNOPSIS", cmd.Name()} {
			if !strings.Contains(page.String(), want) {
				t.Errorf("%s: its man page has no %q", path, want)
			}
		}
		if words := strings.Fields(cmd.Use); len(words) > 1 && cmd.ValidArgsFunction == nil {
			switch words[1] {
			case "DIR", "FILE", "[FILE]": // the shell's own
			default:
				t.Errorf("%s: %s is not completed: say in complete.go what it names", path, words[1])
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d commands", seen)
	}
}

func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	root := newRoot(testUI(nil))
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"handler.1", "handler-run.1", "handler-agent-add.1", "handler-daemon-install.1"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 200 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The editor is what the person says, else what is there, else an error that says what to do.
func TestEditor(t *testing.T) {
	have := func(names ...string) func(string) (string, error) {
		return func(name string) (string, error) {
			for _, n := range names {
				if n == name {
					return "/bin/" + name, nil
				}
			}
			return "", errors.New("none")
		}
	}
	for name, c := range map[string]struct {
		env  map[string]string
		have func(string) (string, error)
		want string
	}{
		"VISUAL":  {map[string]string{"VISUAL": "code --wait", "EDITOR": "x"}, have("nano"), "code --wait"},
		"EDITOR":  {map[string]string{"VISUAL": " ", "EDITOR": "ed"}, have("nano"), "ed"},
		"Debian":  {nil, have("vi", "nano", "sensible-editor"), "/bin/sensible-editor"},
		"nano":    {nil, have("vi", "nano"), "/bin/nano"},
		"vi":      {nil, have("vi"), "/bin/vi"},
		"nothing": {nil, have(), ""},
	} {
		words, err := testUI(c.env).editor(c.have)
		if strings.Join(words, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, words, c.want)
		}
		if (err != nil) != (c.want == "") || err != nil && !strings.Contains(fault.Of(err).Hint, "EDITOR") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A terminal without a size gets lines, since bars have no room on it.
func TestProgressWithoutSize(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0) // a terminal of 0 rows and 0 columns
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if !terminal(master) || width(master) != 0 {
		t.Fatalf("terminal %v, width %d", terminal(master), width(master))
	}
	u := newUI(os.Stdin, os.Stdout, master, func(string) string { return "" })
	if p, ok := u.progress().(*lineProgress); !ok {
		t.Errorf("%T", p)
	}
}
