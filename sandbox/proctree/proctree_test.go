package proctree_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/proctree"
)

// A child with a hostile name is found below us, is signalled, and its number under another start time is not.
func TestChild(t *testing.T) {
	name := t.TempDir() + "/a) Z 1 (b"
	if err := os.Symlink("/bin/sleep", name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	procs, err := proctree.Scan()
	if err != nil {
		t.Fatal(err)
	}
	var child proctree.Proc
	for _, p := range proctree.Below(procs, os.Getpid()) {
		if p.PID == cmd.Process.Pid {
			child = p
		}
	}
	if child.PID == 0 || child.Dead() || child.Parent != os.Getpid() {
		t.Fatalf("child %d: found %+v", cmd.Process.Pid, child)
	}
	other := child
	other.Start++
	if err := proctree.Signal(other, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := proctree.Signal(child, unix.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v, want TERM", s.Signal())
	}
	if err := proctree.Signal(child, unix.SIGTERM); err != nil {
		t.Errorf("signal to what has ended: %v", err)
	}
}

func TestBelow(t *testing.T) {
	procs := []proctree.Proc{{PID: 1, Parent: 0}, {PID: 2, Parent: 1}, {PID: 3, Parent: 2}, {PID: 4, Parent: 1}, {PID: 5, Parent: 6}, {PID: 6, Parent: 5}}
	for root, want := range map[int]int{1: 3, 2: 1, 3: 0, 5: 2} {
		if got := len(proctree.Below(procs, root)); got != want {
			t.Errorf("below %d: %d, want %d", root, got, want)
		}
	}
}
