package rundir_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
	"github.com/handlerd/handler/sandbox/rundir"
)

// A guest that says hello and then answers each shell frame as answer does, with the token it got.
func shellGuest(t *testing.T, d *rundir.Dir, answer func(token string)) {
	t.Helper()
	ctl := dial(t, d, sandbox.SocketGuest)
	send(t, ctl, guestwire.Frame{Kind: guestwire.Hello, Version: guestwire.Version}, guestwire.Frame{Kind: guestwire.Started, PID: 2})
	<-d.Started()
	go func() {
		for r := guestwire.NewReader(ctl); ; {
			f, err := r.Next()
			if err != nil {
				return
			}
			answer(f.Token)
		}
	}()
}

func knock(t *testing.T, d *rundir.Dir, token string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(d.Path(), sandbox.SocketShell))
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { c.Close() })
	line, err := guestwire.AppendShell(nil, guestwire.ShellFrame{Kind: guestwire.ShellToken, Data: []byte(token)})
	if err != nil {
		t.Error(err)
	}
	_, _ = c.Write(line) // the other end may have closed already
	return c
}

// closed waits until the other end has closed c, which said nothing.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("not closed: %d, %v", n, err)
	}
}

// The connection with the right token comes, once, and bytes behind the token are not lost; others are closed.
func TestOpenShell(t *testing.T) {
	d := open(t, rundir.Options{})
	var used string
	shellGuest(t, d, func(token string) {
		closed(t, knock(t, d, "wrong"))
		used = token
		c := knock(t, d, token)
		if err := guestwire.NewShellWriter(c).Write(guestwire.ShellFrame{Kind: guestwire.ShellStarted}); err != nil {
			t.Error(err)
		}
	})
	conn, err := d.OpenShell(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if f, err := guestwire.NewShellReader(conn).Next(); err != nil || f.Kind != guestwire.ShellStarted {
		t.Errorf("%+v %v", f, err)
	}
	closed(t, knock(t, d, used))
}

// A guest that does not come is waited for until the context ends, or the Dir does.
func TestOpenShellNobody(t *testing.T) {
	d := open(t, rundir.Options{})
	soon, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if _, err := d.OpenShell(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a guest: %v", err)
	}
	asked := make(chan string, 2)
	shellGuest(t, d, func(token string) { asked <- token })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := d.OpenShell(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	go func() { <-asked; d.Close() }()
	if _, err := d.OpenShell(t.Context()); err == nil {
		t.Error("closed: no error")
	}
	if _, err := d.OpenShell(t.Context()); err == nil {
		t.Error("after the end: no error")
	}
}

// Connections that say nothing are bounded, and closed with the Dir.
func TestShellKnocks(t *testing.T) {
	d := open(t, rundir.Options{})
	asked := make(chan string, 1)
	shellGuest(t, d, func(token string) { asked <- token })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _, _ = d.OpenShell(ctx) }()
	<-asked
	var silent []net.Conn
	for range rundir.MaxKnocks {
		silent = append(silent, dial(t, d, sandbox.SocketShell))
	}
	closed(t, dial(t, d, sandbox.SocketShell))
	cancel()
	<-done
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range silent {
		closed(t, c)
	}
}
