package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/handlerd/handler/cmd/internal/dirs"
)

// Whoever finds the lock taken waits until its holder listens, or takes its place when that ends; a holder that does
// neither is waited for no longer than the context.
func TestTakeLocks(t *testing.T) {
	dir, err := os.MkdirTemp("", "l")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	d := dirs.Dirs{Run: filepath.Join(dir, "handler"), Data: filepath.Join(dir, "data"), State: filepath.Join(dir, "state"), XDGRun: dir}
	first, err := takeLocks(t.Context(), d, false)
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 2*lockPause)
	defer cancel()
	if _, err := takeLocks(soon, d, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent holder: %v", err)
	}
	type answer struct {
		held locks
		err  error
	}
	wait := func() <-chan answer {
		ch := make(chan answer, 1)
		go func() { held, err := takeLocks(t.Context(), d, false); ch <- answer{held, err} }()
		return ch
	}
	second := wait()
	l, err := net.Listen("unix", d.Socket())
	if err != nil {
		t.Fatal(err)
	}
	if a := <-second; !errors.Is(a.err, errLocked) {
		t.Errorf("a holder that listens: %v", a.err)
	}
	l.Close()
	third := wait()
	select {
	case a := <-third:
		t.Errorf("a holder that has ended to listen: %v", a.err)
	case <-time.After(2 * lockPause): // nothing is to happen
	}
	first.close()
	a := <-third
	if a.err != nil {
		t.Fatal(a.err)
	}
	a.held.close()
}
