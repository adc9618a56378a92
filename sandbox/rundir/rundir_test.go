package rundir_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
	"github.com/handlerd/handler/sandbox/rundir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortDir is like t.TempDir, but short enough for sockets whatever the test's name is.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func open(t *testing.T, o rundir.Options) *rundir.Dir {
	t.Helper()
	d, err := rundir.New(shortDir(t), "run1", o)
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

func dial(t *testing.T, d *rundir.Dir, name string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(d.Path(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, frames ...guestwire.Frame) {
	t.Helper()
	for _, f := range frames {
		line, err := guestwire.Append(nil, f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(line); err != nil {
			t.Fatal(err)
		}
	}
}

func within(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s within 10 s", what)
	}
}

var hello = guestwire.Frame{Kind: guestwire.Hello, Version: guestwire.Version}

// The directory is private and its sockets too, whatever the umask; Close leaves nothing.
func TestPrivateAndGone(t *testing.T) {
	parent := shortDir(t)
	old := unix.Umask(0o777)
	d, err := rundir.New(parent, "run1", rundir.Options{})
	unix.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{d.Path(): 0o700, filepath.Join(d.Path(), sandbox.SocketACP): 0o600,
		filepath.Join(d.Path(), sandbox.SocketGuest): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := rundir.New(filepath.Dir(d.Path()), "run1", rundir.Options{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("the same name again: %v", err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(d.Path()); !os.IsNotExist(err) {
		t.Errorf("left after Close: %v", err)
	}
	within(t, "done", d.Done())
	if _, err := d.ACP(t.Context()); !errors.Is(err, rundir.ErrClosed) {
		t.Errorf("ACP after Close: %v", err)
	}
	if _, err := d.Listen("x.sock"); !errors.Is(err, rundir.ErrClosed) {
		t.Errorf("Listen after Close: %v", err)
	}
}

func TestRemoveFollowsNoLink(t *testing.T) {
	parent, outside := shortDir(t), shortDir(t)
	keep := filepath.Join(outside, "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := rundir.New(parent, "run1", rundir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(d.Path(), "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(parent, "run2")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), rundir.Remove(parent, "run2"), rundir.Remove(parent, "run3"), rundir.Remove(parent+"x", "y")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := rundir.Remove(parent, "../"+filepath.Base(outside)); err == nil {
		t.Error("removed outside of the parent")
	}
}

func TestBadNames(t *testing.T) {
	parent := shortDir(t)
	for _, name := range []string{"", ".", "..", "a/b", "../a", "/a", strings.Repeat("x", 100)} {
		if _, err := rundir.New(parent, name, rundir.Options{}); err == nil {
			t.Errorf("%q: made", name)
		}
	}
	_, err := rundir.New(parent, strings.Repeat("x", 100), rundir.Options{})
	if err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("long path: %v", err)
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	d := open(t, rundir.Options{})
	for _, name := range []string{"", "..", "../x.sock", strings.Repeat("x", 100)} {
		if _, err := d.Listen(name); err == nil {
			t.Errorf("listen %q: made", name)
		}
	}
}

// acp.sock takes one connection; a second is refused, and so is taking it twice.
func TestOneACP(t *testing.T) {
	d := open(t, rundir.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.ACP(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody came: %v", err)
	}
	guest := dial(t, d, sandbox.SocketACP)
	agent, err := d.ACP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("unix", filepath.Join(d.Path(), sandbox.SocketACP)); err == nil {
		t.Error("a second connection was taken")
	}
	if _, err := d.ACP(t.Context()); err == nil {
		t.Error("handed out twice")
	}
	if _, err := guest.Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if _, err := io.ReadFull(agent, b); err != nil || string(b) != "x\n" {
		t.Errorf("%q %v", b, err)
	}
	if err := agent.(*net.UnixConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := guest.Read(b); err != io.EOF {
		t.Errorf("guest's end: %v", err)
	}
}

// A run's story is told: started, standard error, exit.
func TestGuestStory(t *testing.T) {
	var lines []string
	d := open(t, rundir.Options{StderrBytes: 8, StderrLine: func(l []byte) { lines = append(lines, string(l)) }})
	if err := d.Signal("TERM"); err == nil {
		t.Error("signal with no guest: no error")
	}
	g := dial(t, d, sandbox.SocketGuest)
	send(t, g, hello, guestwire.Frame{Kind: guestwire.Started, PID: 2})
	within(t, "started", d.Started())
	if err := d.Signal("STOP"); err == nil {
		t.Error("STOP was sent")
	}
	if err := d.Signal("USR1"); err != nil {
		t.Fatal(err)
	}
	if f, err := guestwire.NewReader(g).Next(); err != nil || f.Signal != "USR1" {
		t.Errorf("guest got %+v %v", f, err)
	}
	long := strings.Repeat("y", rundir.MaxLine+5)
	send(t, g, guestwire.Frame{Kind: guestwire.Stderr, Data: []byte("one\ntw")},
		guestwire.Frame{Kind: guestwire.Stderr, Data: []byte("o\n\n" + long), Dropped: 3},
		guestwire.Frame{Kind: guestwire.Exit, Code: 137, Signal: "KILL"})
	g.Close()
	within(t, "done", d.Done())
	if r := d.Result(); !r.Started || r.PID != 2 || !r.Exited || r.Code != 137 || r.Signal != "KILL" || r.Failed != "" || r.Err != nil {
		t.Errorf("%+v", r)
	}
	want := []string{"one", "two", "", long[:rundir.MaxLine], long[rundir.MaxLine:]}
	if fmt.Sprint(lines) != fmt.Sprint(want) {
		t.Errorf("%d lines: %.60q", len(lines), lines)
	}
	end, lost := d.Stderr()
	if string(end) != "yyyyyyyy" || lost != int64(3+len("one\ntwo\n\n")+len(long)-8) {
		t.Errorf("tail %q, %d lost", end, lost)
	}
}

// A guest that breaks the protocol is cut off, and the reason is kept.
func TestGuestBreaksProtocol(t *testing.T) {
	started, exit := guestwire.Frame{Kind: guestwire.Started, PID: 2}, guestwire.Frame{Kind: guestwire.Exit}
	failed := guestwire.Frame{Kind: guestwire.Failed, Text: "x"}
	for name, frames := range map[string][]guestwire.Frame{
		"no hello": {started}, "other version": {{Kind: guestwire.Hello, Version: guestwire.Version + 1}}, "two hellos": {hello, hello},
		"started twice": {hello, started, started}, "exit before start": {hello, exit}, "two exits": {hello, started, exit, exit},
		"failed after start": {hello, started, failed}, "failed twice": {hello, failed, failed},
		"host's frame": {hello, {Kind: guestwire.Signal, Signal: "TERM"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, rundir.Options{})
			g := dial(t, d, sandbox.SocketGuest)
			send(t, g, frames...)
			within(t, "done", d.Done())
			if r := d.Result(); r.Err == nil {
				t.Errorf("%+v: no error", r)
			}
			if _, err := io.Copy(io.Discard, g); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("not cut off: %v", err)
			}
		})
	}
	t.Run("garbage", func(t *testing.T) {
		d := open(t, rundir.Options{})
		g := dial(t, d, sandbox.SocketGuest)
		_, _ = g.Write([]byte(strings.Repeat("z", 2*guestwire.MaxFrame)))
		within(t, "done", d.Done())
		if r := d.Result(); !errors.Is(r.Err, guestwire.ErrFrameTooLong) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("second guest", func(t *testing.T) {
		d := open(t, rundir.Options{})
		send(t, dial(t, d, sandbox.SocketGuest), hello, started)
		within(t, "started", d.Started())
		if _, err := net.Dial("unix", filepath.Join(d.Path(), sandbox.SocketGuest)); err == nil {
			t.Error("a second guest was taken")
		}
	})
}

// A listener can be closed and opened again at the same name.
func TestRelisten(t *testing.T) {
	d := open(t, rundir.Options{})
	for i := range 2 {
		l, err := d.Listen(sandbox.SocketEgress)
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, d, sandbox.SocketEgress)
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), c.Close(), l.Close()); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
	}
}

func TestServeFiles(t *testing.T) {
	files := []sandbox.File{{Path: "/a", Mode: 0o600, Content: []byte("secret")}}
	serve := func(t *testing.T) (*rundir.FileServer, net.Conn, string) {
		dir := shortDir(t)
		s, err := rundir.ServeFiles(dir, files)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		path := filepath.Join(dir, sandbox.SocketFiles)
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return s, c, path
	}
	t.Run("written", func(t *testing.T) {
		s, c, path := serve(t)
		var got string
		if err := guestwire.ReadFiles(c, func(name string, _ os.FileMode, _ int64, r io.Reader) error {
			b, err := io.ReadAll(r)
			got = name + "=" + string(b)
			return err
		}); err != nil || got != "/a=secret" {
			t.Errorf("%q %v", got, err)
		}
		send(t, c, guestwire.Frame{Kind: guestwire.Written})
		if err := s.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("socket left: %v", err)
		}
	})
	t.Run("failed", func(t *testing.T) {
		s, c, _ := serve(t)
		send(t, c, guestwire.Frame{Kind: guestwire.Failed, Text: "disk full"})
		if err := s.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Error(err)
		}
	})
	t.Run("gone", func(t *testing.T) {
		s, c, _ := serve(t)
		c.Close()
		if err := s.Wait(t.Context()); err == nil {
			t.Error("no error")
		}
	})
	t.Run("closed with nobody there", func(t *testing.T) {
		s, err := rundir.ServeFiles(shortDir(t), files)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		s.Close()
		if err := s.Wait(t.Context()); err == nil {
			t.Error("no error")
		}
	})
	t.Run("bad files", func(t *testing.T) {
		var spec *sandbox.SpecError
		if _, err := rundir.ServeFiles(shortDir(t), []sandbox.File{{Path: "x"}}); !errors.As(err, &spec) {
			t.Errorf("%v", err)
		}
	})
}
