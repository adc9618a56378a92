package beneath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func folder(t *testing.T) (path string, fd int) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return dir, int(f.Fd())
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	dir, fd := folder(t)
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("outside"), 0o600), os.MkdirAll(dir+"/sub/deep", 0o700),
		os.WriteFile(dir+"/sub/deep/file", []byte("inside"), 0o600), os.Symlink("sub", dir+"/dirlink"),
		os.Symlink("sub/deep/file", dir+"/link"), os.Symlink(outside, dir+"/out"), unix.Mkfifo(dir+"/pipe", 0o600),
		os.Symlink("/proc/self/fd/0", dir+"/magic"), os.WriteFile(dir+"/closed", nil, 0o000))
	f, err := Open(fd, "sub/deep/file")
	must(t, err)
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "inside" {
		t.Errorf("%q %v", b, err)
	}
	for _, name := range []string{"link", "out", "magic", "pipe", "sub", "dirlink/deep/file", "gone", "", ".", "..", "../secret",
		"/etc/passwd", "sub/../sub/deep/file", "sub//deep/file", "sub/deep/file/x", "a\x00b"} {
		if f, err := Open(fd, name); err == nil {
			t.Errorf("%q: opened", name)
			f.Close()
		}
	}
	if _, err := Open(fd, "gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	if _, err := Open(fd, "pipe"); !errors.Is(err, ErrNotRegular) {
		t.Errorf("pipe: %v", err)
	}
}

func TestCreate(t *testing.T) {
	dir, fd := folder(t)
	outside := t.TempDir()
	must(t, os.Symlink(outside, dir+"/out"), os.Symlink(outside+"/new", dir+"/dangling"), os.WriteFile(dir+"/there", []byte("x"), 0o600))
	f, err := Create(fd, "a/b/new file")
	must(t, err)
	_, err = f.WriteString("hello")
	must(t, err, f.Close())
	if b, err := os.ReadFile(dir + "/a/b/new file"); err != nil || string(b) != "hello" {
		t.Errorf("%q %v", b, err)
	}
	for _, name := range []string{"a/b/new file", "there", "there/x", "out/x", "dangling", "../x", "/x", "a", "a/"} {
		if f, err := Create(fd, name); err == nil {
			t.Errorf("%q: made", name)
			f.Close()
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v %v", entries, err)
	}
}

// A folder and a symbolic link that change places all the time never lead out.
func TestRace(t *testing.T) {
	dir, fd := folder(t)
	outside := t.TempDir()
	must(t, os.WriteFile(outside+"/file", []byte("outside"), 0o600), os.Mkdir(dir+"/x", 0o700),
		os.WriteFile(dir+"/x/file", []byte("inside"), 0o600), os.Symlink(outside, dir+"/y"))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(fd, "x", fd, "y", unix.RENAME_EXCHANGE)
			}
		}
	})
	seen := 0
	for i := range 3000 {
		if f, err := Open(fd, "x/file"); err == nil {
			b, rerr := io.ReadAll(f)
			f.Close()
			if rerr != nil || string(b) != "inside" {
				t.Fatalf("%d: %q %v", i, b, rerr)
			}
			seen++
		}
		if f, err := Create(fd, fmt.Sprintf("x/new%d", i)); err == nil {
			f.Close()
		}
	}
	close(stop)
	swapping.Wait()
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 || seen == 0 {
		t.Errorf("outside holds %v (%v); opened %d times", entries, err, seen)
	}
}
