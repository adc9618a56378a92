package artifacts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fullAt makes the test's own program the inside of TestFullDisk, with the folder that gets a small disk.
const fullAt = "HANDLER_TEST_FULL_DISK"

// TestFullDisk: on a disk that fills up, what was acknowledged is whole, what was not leaves nothing, and removing makes
// room again. The disk is a tmpfs in a mount namespace of its own.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	if inside := os.Getenv(fullAt); inside != "" {
		insideFullDisk(t, inside)
		return
	}
	cmd.Env = append(os.Environ(), fullAt+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func insideFullDisk(t *testing.T, dir string) {
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	store, scope := filepath.Join(dir, "store"), filepath.Join(dir, "scope")
	if err := os.Mkdir(scope, 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, store, Options{})
	var kept []Artifact
	var full error
	for i := 0; full == nil && i < 100; i++ {
		a, err := s.Add(t.Context(), Meta{Owner: owner, Run: "r", Name: "x"}, strings.NewReader(fmt.Sprint(i)+strings.Repeat("x", 200<<10)))
		if full = err; err == nil {
			kept = append(kept, a)
		}
	}
	if !errors.Is(full, unix.ENOSPC) || len(kept) == 0 {
		t.Fatalf("%d kept, then %v", len(kept), full)
	}
	checkWhole(t, s, store, "")
	if _, err := s.Save(t.Context(), owner, kept[0].ID, SaveRequest{Scope: scope}); err == nil {
		t.Fatal("a copy found room")
	} else if entries, _ := os.ReadDir(scope); len(entries) != 0 {
		t.Errorf("a copy that failed is left: %v", entries)
	}
	if _, err := s.Remove(t.Context(), owner, kept[0].ID); err != nil {
		t.Fatalf("nothing can be removed: %v", err)
	}
	if _, err := s.Save(t.Context(), owner, kept[1].ID, SaveRequest{Scope: scope}); err != nil {
		t.Errorf("removing makes no room: %v", err)
	}
	// To the last byte: not even the index can be written.
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := fill.Write(make([]byte, 4096)); err == nil; _, err = fill.Write(make([]byte, 4096)) {
	}
	fill.Close()
	for range 3 {
		if _, err := s.Add(t.Context(), Meta{Owner: owner, Run: "r", Name: "y"}, strings.NewReader("y")); err == nil {
			t.Error("something was kept on a full disk")
		}
	}
	s.Close()
	if err := os.Remove(fill.Name()); err != nil {
		t.Fatal(err)
	}
	s = open(t, store, Options{})
	checkWhole(t, s, store, "")
	if all, err := s.List(t.Context(), owner, Filter{}); err != nil || len(all) != len(kept)-1 {
		t.Errorf("%d of %d, %v", len(all), len(kept)-1, err)
	}
}
