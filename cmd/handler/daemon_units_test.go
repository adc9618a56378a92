package main

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The end of the log is that of both files together; what is appended comes, and so does what is written to a new file
// after the old one was put aside; and Ctrl-C ends it without a fault.
func TestDaemonLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handlerd.log")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
	u := newUI(os.Stdin, w, w, func(string) string { return "" })
	if err := u.daemonLog(t.Context(), path, false, 10); err == nil || !strings.Contains(err.Error(), "no log yet") {
		t.Errorf("without a log: %v", err)
	}
	write := func(path, text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	write(path+".1", "one\ntwo\n")
	write(path, "three\nfour \x1b[2J\n")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- u.daemonLog(ctx, path, true, 3) }()
	lines := bufio.NewScanner(r)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q (%v)", lines.Text(), want, lines.Err())
		}
	}
	next("two")
	next("three")
	next("four ␛[2J")
	write(path, "five\nsi")
	next("five")
	write(path, "x\n")
	next("six")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(path, "anew\n")
	next("anew")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.Close()
}
