package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The log and the one before it hold the last lines, whole, and never more than their bound.
func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	stderr, err := unix.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Dup3(stderr, 2, 0); unix.Close(stderr) }()
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	l := w.(*logFile)
	defer l.file.Close()
	l.max = 1000
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	for range 35 {
		if _, err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	for p, want := range map[string]int{path: 600, path + ".1": 1000} {
		got, err := os.ReadFile(p)
		if err != nil || len(got) != want || len(got)%100 != 0 {
			t.Errorf("%s: %d bytes, %v; want %d", p, len(got), err, want)
		}
	}
	// What a crash writes to standard error is in the file of now.
	if _, err := os.Stderr.WriteString("panic\n"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); !bytes.HasSuffix(got, []byte("panic\n")) {
		t.Errorf("%q", got)
	}
}
