package registry

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

// Every part of a folder counts, and where one file ends and the next begins.
func TestDigestSeesEveryChange(t *testing.T) {
	folders := []fs.FS{
		nil,
		fstest.MapFS{"a": {Data: []byte("1")}, "b": {Data: []byte("2")}},
		fstest.MapFS{"a": {Data: []byte("2")}, "b": {Data: []byte("1")}},
		fstest.MapFS{"a": {Data: []byte("1")}, "c": {Data: []byte("2")}},
		fstest.MapFS{"a": {Data: []byte("1")}},
		fstest.MapFS{"a": {Data: []byte("12")}, "b": {Data: nil}},
		fstest.MapFS{"x/a": {Data: []byte("1")}, "b": {Data: []byte("2")}},
	}
	seen := map[string]int{}
	for i, f := range folders {
		d, err := Digest(f)
		if err != nil {
			t.Fatal(err)
		}
		if j, ok := seen[d]; ok {
			t.Errorf("folders %d and %d have one digest", i, j)
		}
		seen[d] = i
		if again, _ := Digest(f); again != d {
			t.Errorf("folder %d has two digests", i)
		}
	}
}

// Links count as what they lead to, and lead nowhere else; nothing that is no file is waited for.
func TestFolder(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(outside, []byte("x"), 0o600), os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600),
		os.Symlink("file", filepath.Join(dir, "inside")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Digest(Folder(dir)); err != nil {
		t.Errorf("a link inside: %v", err)
	}
	for name, plant := range map[string]func(path string) error{
		"out":  func(path string) error { return os.Symlink(outside, path) },
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		path := filepath.Join(dir, name)
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		done := begin(func() error { _, err := Digest(Folder(dir)); return err })
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s is taken", name)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s is waited for", name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"../outside", "/etc/passwd", "out"} {
		if _, err := fs.ReadFile(Folder(dir), name); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

func begin(f func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}
