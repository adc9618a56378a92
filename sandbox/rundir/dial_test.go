package rundir_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
	"github.com/handlerd/handler/sandbox/rundir"
)

// dialGuest says hello and then answers each dial frame as answer does.
func dialGuest(t *testing.T, d *rundir.Dir, answer func(f guestwire.Frame)) {
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
			answer(f)
		}
	}()
}

// The port's bytes follow the guest's word at once, and none is lost.
func TestDial(t *testing.T) {
	d := open(t, rundir.Options{})
	dialGuest(t, d, func(f guestwire.Frame) {
		if f.Kind != guestwire.Dial || f.Port != 8000 {
			t.Errorf("asked %+v", f)
		}
		c := knock(t, d, f.Token)
		line, err := guestwire.AppendShell(nil, guestwire.ShellFrame{Kind: guestwire.ShellStarted})
		if err != nil {
			t.Error(err)
		}
		_, _ = c.Write(append(line, "220 hello\n"...))
		_ = c.(*net.UnixConn).CloseWrite()
	})
	conn, err := d.Dial(t.Context(), 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "220 hello\n" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := d.Dial(t.Context(), 0); err == nil {
		t.Error("port 0: no error")
	}
}

// Whoever imitates the guest gets no further than an error: a refusal is told as theirs, anything else is none.
func TestDialImitated(t *testing.T) {
	answers := map[string]guestwire.ShellFrame{
		"refused":       {Kind: guestwire.ShellFailed, Text: "nothing listens"},
		"output":        {Kind: guestwire.ShellOutput, Data: []byte("x")},
		"exit":          {Kind: guestwire.ShellExit},
		"a request":     {Kind: guestwire.ShellOpen, Open: guestwire.ShellRequest{Argv: []string{"id"}}},
		"another token": {Kind: guestwire.ShellToken, Data: []byte("x")},
	}
	for name, answer := range answers {
		d := open(t, rundir.Options{})
		dialGuest(t, d, func(f guestwire.Frame) {
			if err := guestwire.NewShellWriter(knock(t, d, f.Token)).Write(answer); err != nil {
				t.Error(err)
			}
		})
		_, err := d.Dial(t.Context(), 80)
		var refused *rundir.DialError
		if err == nil || errors.As(err, &refused) != (name == "refused") {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	d := open(t, rundir.Options{})
	dialGuest(t, d, func(f guestwire.Frame) { knock(t, d, f.Token).Close() })
	if _, err := d.Dial(t.Context(), 80); err == nil || !strings.Contains(err.Error(), "closed it") {
		t.Errorf("closed: %v", err)
	}
}

// A guest that comes and then says nothing, or never comes, is waited for until the context ends; what has not come
// holds up only so many others, and those that wait are let go with the Dir.
func TestDialSilent(t *testing.T) {
	d := open(t, rundir.Options{})
	asked := make(chan string, 2*rundir.MaxDialing)
	dialGuest(t, d, func(f guestwire.Frame) { asked <- f.Token })
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	for range rundir.MaxDialing + 3 {
		go func() { _, err := d.Dial(ctx, 80); errs <- err }()
	}
	for range rundir.MaxDialing {
		<-asked
	}
	select {
	case token := <-asked:
		t.Errorf("one more was asked for: %s", token)
	default:
	}
	cancel()
	for range rundir.MaxDialing + 3 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	go func() { _, err := d.Dial(t.Context(), 80); errs <- err }()
	token := <-asked
	c, err := net.Dial("unix", filepath.Join(d.Path(), sandbox.SocketShell))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := guestwire.NewShellWriter(c).Write(guestwire.ShellFrame{Kind: guestwire.ShellToken, Data: []byte(token)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() { _, err := d.Dial(ctx, 80); errs <- err }()
	<-asked // so the one before has come and given its place back, or has one of the others
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c.Close()
	if err := <-errs; err == nil {
		t.Error("a guest that came and went: no error")
	}
}
