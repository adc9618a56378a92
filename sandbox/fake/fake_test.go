package fake_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/fake"
	"github.com/handlerd/handler/sandbox/proctree"
	"github.com/handlerd/handler/sandbox/rundir"
	"github.com/handlerd/handler/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDriver(t *testing.T, o fake.Options) *fake.Driver {
	t.Helper()
	d, err := fake.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// The fake keeps the contract but for isolation.
func TestConformance(t *testing.T) {
	parent := t.TempDir()
	t.Run("suite", func(t *testing.T) {
		sandboxtest.Run(t, func(t *testing.T) sandboxtest.Target {
			d := newDriver(t, fake.Options{Parent: parent})
			return sandboxtest.Target{Driver: d, Images: d.Images()}
		})
	})
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left after Close: %v %v", left, err)
	}
}

// importEmpty gives the driver an image with nothing in it.
func importEmpty(t *testing.T, d *fake.Driver) string {
	t.Helper()
	var buf bytes.Buffer
	if err := tar.NewWriter(&buf).Close(); err != nil {
		t.Fatal(err)
	}
	id, err := d.Images().Import(t.Context(), &buf, "localhost/empty", nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A fault at any step of Start is what Start returns, and everything is undone.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	guest, err := sandboxtest.BuildGuest(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []fake.Step{fake.StepCheck, fake.StepFolders, fake.StepVolumes, fake.StepFiles, fake.StepExec, fake.StepWritten} {
		t.Run(string(step), func(t *testing.T) {
			broken := errors.New("broken")
			var at fake.Step
			parent := t.TempDir()
			d := newDriver(t, fake.Options{Parent: parent, Fault: func(s fake.Step, name string) error {
				if s == at {
					return broken
				}
				return nil
			}})
			short, err := os.MkdirTemp("", "fk")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(short)
			run, err := rundir.New(short, "r", rundir.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			volume := filepath.Join(t.TempDir(), "volume")
			spec := sandbox.Spec{Name: "a", Image: importEmpty(t, d), Command: []string{"sleep", "4711"}, RunDir: run.Path(), Guest: guest,
				Volumes: []sandbox.Volume{{Source: volume, Target: sandbox.HomeTarget + "/v"}},
				Files:   []sandbox.File{{Path: sandbox.SecretsTarget + "/x", Mode: 0o400}}}
			before := tree(t, parent)
			at = step
			if _, err := d.Start(t.Context(), spec); err != broken {
				t.Fatalf("%v, want the fault", err)
			}
			if after := tree(t, parent); after != before {
				t.Errorf("folders before:\n%s\nafter:\n%s", before, after)
			}
			if _, err := os.Lstat(volume); !os.IsNotExist(err) {
				t.Errorf("the volume is left: %v", err)
			}
			if list, err := d.List(t.Context(), nil); err != nil || len(list) != 0 {
				t.Errorf("%v %v", list, err)
			}
			at = ""
			if step == fake.StepExec || step == fake.StepWritten {
				return // the run directory's one guest has been there
			}
			id, err := d.Start(t.Context(), spec) // the name is free again
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Remove(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// Without a guest a command runs directly, and its tree is found and killed all the same.
func TestDirect(t *testing.T) {
	d := newDriver(t, fake.Options{})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := d.Start(t.Context(), sandbox.Spec{Name: "direct", Image: importEmpty(t, d),
		Command: []string{"sh", "-c", `setsid sh -c 'trap "" TERM; echo $HOME >"$0"; while :; do sleep 1; done' "$0" & exec sleep 4712`, pipe},
		Mounts:  []sandbox.Mount{{Source: dir, Target: dir}}})
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.ReadFile(pipe) // blocks until the grandchild is there
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(home)), "/root"+sandbox.HomeTarget) {
		t.Errorf("HOME is %q, %v", home, err)
	}
	st, err := d.Stats(t.Context(), id)
	if err != nil || st.Processes < 2 {
		t.Errorf("%+v %v", st, err)
	}
	if err := d.Stop(t.Context(), id, 100*time.Millisecond); err != nil {
		t.Error(err)
	}
	if exit, err := d.Wait(t.Context(), id); err != nil || exit.Code != 143 {
		t.Errorf("%+v %v", exit, err)
	}
	procs, err := proctree.Scan()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if !p.Dead() && bytes.Contains(b, []byte(pipe)) {
			t.Errorf("left: process %d", p.PID)
		}
	}
	if _, err := d.Start(t.Context(), sandbox.Spec{Name: "missing", Image: "localhost/empty", Command: []string{"no-such-command"}}); err == nil || !strings.Contains(err.Error(), "no-such-command") {
		t.Errorf("%v", err)
	}
}
