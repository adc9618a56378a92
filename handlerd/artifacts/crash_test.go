package artifacts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// crashAt names the variable that turns the test's own program into a daemon that is killed at a step.
const crashAt = "HANDLER_TEST_CRASH_AT"

func TestMain(m *testing.M) {
	if step := os.Getenv(crashAt); step != "" {
		os.Exit(crash(step, os.Args[1], os.Args[2]))
	}
	os.Exit(m.Run())
}

// large is content of several blocks.
var large = strings.Repeat("all of it\n", 100_000)

// crash adds two artifacts and saves one three times, and says on standard output what was acknowledged. It kills
// itself, as kill -9 does, the n-th time that it comes to a step: "step*n".
func crash(at, dir, scope string) int {
	s := New(dir, Options{Changed: func(a Artifact, removed bool) {}})
	step, times, _ := strings.Cut(at, "*")
	left := len(times) + 1
	s.steps = func(name string) {
		if name != step {
			return
		}
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	ctx := context.Background()
	for i, m := range []Meta{{Name: "first"}, {Name: "second"}} {
		m.Owner, m.Run = owner, "r"
		a, err := s.Add(ctx, m, strings.NewReader(fmt.Sprint(i)+large))
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("added", a.ID)
	}
	all, err := s.List(ctx, owner, Filter{})
	if err != nil {
		return 1
	}
	for _, req := range []SaveRequest{{Name: "new"}, {Name: "old", Conflict: ConflictReplace}, {Name: "old", Conflict: ConflictRename}} {
		req.Scope = scope
		path, err := s.Save(ctx, owner, all[0].ID, req)
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("saved", path)
	}
	return 0
}

// TestKilled: a daemon that is killed at any step leaves, at the next start, whole artifacts and whole files only, all
// that it acknowledged, and nothing that nobody names.
func TestKilled(t *testing.T) {
	for _, step := range []string{
		"received", "renamed", "placed", "inserted", "committed", "received*", "renamed*", "placed*", "inserted*", "committed*",
		"journalled", "created", "copied", "synced", "named", "journalled*", "created*", "copied*", "synced*", "named*",
		"copied**", "named**", "none",
	} {
		t.Run(step, func(t *testing.T) {
			dir, scope := filepath.Join(t.TempDir(), "store"), t.TempDir()
			old := filepath.Join(scope, "old")
			if err := os.WriteFile(old, []byte("the person's"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], dir, scope)
			cmd.Env = append(os.Environ(), crashAt+"="+step)
			out, err := cmd.Output()
			if killed := err != nil && strings.Contains(err.Error(), "killed"); killed == (step == "none") {
				t.Fatalf("%v: %s", err, out)
			}
			s := open(t, dir, Options{})
			checkWhole(t, s, dir, string(out))
			entries, err := os.ReadDir(scope)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				content, err := os.ReadFile(filepath.Join(scope, e.Name()))
				whole := string(content) == "0"+large || e.Name() == "old" && string(content) == "the person's"
				if err != nil || !whole || strings.HasPrefix(e.Name(), ".handler") {
					t.Errorf("%s has %d bytes, %v", e.Name(), len(content), err)
				}
			}
			for line := range strings.Lines(string(out)) {
				if path, ok := strings.CutPrefix(strings.TrimSpace(line), "saved "); ok {
					if content, err := os.ReadFile(path); err != nil || string(content) != "0"+large {
						t.Errorf("%s was acknowledged: %d bytes, %v", path, len(content), err)
					}
				}
			}
			add(t, s, Meta{Run: "r", Name: "after"}, "it works on")
		})
	}
}

// checkWhole checks what a store holds against itself and what was acknowledged.
func checkWhole(t *testing.T, s *Store, dir, said string) {
	t.Helper()
	all, err := s.List(t.Context(), owner, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		_, f, err := s.Open(t.Context(), owner, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(f)
		f.Close()
		sum := sha256.Sum256(content)
		if err != nil || hex.EncodeToString(sum[:]) != a.SHA256 || int64(len(content)) != a.Bytes {
			t.Errorf("%s is not whole: %d bytes, %v", a.Name, len(content), err)
		}
		if view, err := os.ReadFile(s.Path(a)); err != nil || !bytes.Equal(view, content) || !strings.HasPrefix(s.Path(a), s.viewDir()) {
			t.Errorf("%s is not in the view: %v", a.Name, err)
		}
		said = strings.ReplaceAll(said, "added "+a.ID+"\n", "")
	}
	if strings.Contains(said, "added") || strings.Contains(said, "error") {
		t.Errorf("acknowledged and lost: %s", said)
	}
	if left := files(t, dir); len(left) != len(all) { // each has content of its own
		t.Errorf("%d artifacts, and these files: %q", len(all), left)
	}
	var n int
	if err := s.db.QueryRow("SELECT count(*) FROM saves").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d journal entries, %v", n, err)
	}
}
