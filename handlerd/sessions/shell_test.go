package sessions

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/fake"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// A client's end of a shell.
type shellEnd struct {
	t    *testing.T
	conn net.Conn
	r    *guestwire.ShellReader
	w    *guestwire.ShellWriter
	done chan error
}

func (w *world) shell(t *testing.T, r *Run, script string) *shellEnd {
	t.Helper()
	s, err := w.m.Shell(t.Context(), r.ID(), types.ShellRequest{Command: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := socketPair(t)
	t.Cleanup(func() { ours.Close() })
	_ = ours.SetDeadline(time.Now().Add(30 * time.Second))
	e := &shellEnd{t: t, conn: ours, r: guestwire.NewShellReader(ours), w: guestwire.NewShellWriter(ours), done: make(chan error, 1)}
	go func() { e.done <- s.Serve(t.Context(), theirs) }()
	return e
}

// last reads to the last frame and gives the output before it.
func (e *shellEnd) last() (string, guestwire.ShellFrame) {
	e.t.Helper()
	var out strings.Builder
	for {
		f, err := e.r.Next()
		if err != nil {
			e.t.Fatalf("%v after %q", err, out.String())
		}
		switch f.Kind {
		case guestwire.ShellOutput:
			out.Write(f.Data)
		case guestwire.ShellExit, guestwire.ShellFailed:
			return out.String(), f
		}
	}
}

// says reads until one frame of output is there.
func (e *shellEnd) says() string {
	e.t.Helper()
	f, err := e.r.Next()
	if err != nil || f.Kind != guestwire.ShellOutput {
		e.t.Fatalf("%+v %v", f, err)
	}
	return string(f.Data)
}

// A shell has the agent's environment, passes the exit code, is bounded in number, is in the audit and the log, and ends
// with its client and with its run, with nothing left.
func TestShell(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	peer, done := join(t, r)
	defer peer.Close()
	s := w.shell(t, r, `read x; echo "$HTTP_PROXY $x"; exit 7`)
	if err := s.w.Write(guestwire.ShellFrame{Kind: guestwire.ShellInput, Data: []byte("typed\n")}); err != nil {
		t.Fatal(err)
	}
	if out, f := s.last(); out != "http://"+sandbox.ProxyAddr+" typed\n" || f.Code != 7 {
		t.Errorf("%q %+v", out, f)
	}
	if err := <-s.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	_, err = w.m.Shell(t.Context(), r.ID(), types.ShellRequest{Command: []string{"no-such-program"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-program not found") {
		t.Errorf("a command that is not there: %v", err)
	}
	for id, req := range map[string]types.ShellRequest{r.ID(): {Term: "../../etc/passwd"}, "": {}, "zzzz": {}} {
		if _, err := w.m.Shell(t.Context(), id, req); err == nil || fault.Of(err).Kind == fault.Failed {
			t.Errorf("%q %+v: %v", id, req, err)
		}
	}
	var open []*shellEnd
	for range MaxShells {
		e := w.shell(t, r, "echo up; exec sleep 1000")
		e.says()
		open = append(open, e)
	}
	if _, err := w.m.Shell(t.Context(), r.ID(), types.ShellRequest{}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(MaxShells)) {
		t.Errorf("one more: %v", err)
	}
	open[0].conn.Close()
	if err := <-open[0].done; !errors.Is(err, errLeft) {
		t.Errorf("after its client: %v", err)
	}
	w.shell(t, r, "exit 0").last()
	if err := w.m.Kill(t.Context(), r.ID()); err != nil {
		t.Fatal(err)
	}
	for _, e := range open[1:] {
		if _, f := e.last(); f.Kind != guestwire.ShellFailed || !strings.Contains(f.Text, "the run ended") {
			t.Errorf("after the run: %+v", f)
		}
		<-e.done
	}
	<-done
	w.nothingLeft(t)
	w.audited(t, audit.KindStart, audit.KindShell, audit.KindShell, audit.KindStop)
}

// Whoever imitates the guest gets no further than its own shell: a stream that is no shell's ends it, with the reason,
// and a run without a guest that answers says so.
func TestShellImitated(t *testing.T) {
	for name, c := range map[string]struct {
		answer guestwire.ShellFrame
		want   string
	}{
		"the person's frames": {guestwire.ShellFrame{Kind: guestwire.ShellInput, Data: []byte("rm -rf ~\n")}, "out of order"},
		"two starts":          {guestwire.ShellFrame{Kind: guestwire.ShellStarted}, "out of order"},
		"a token":             {guestwire.ShellFrame{Kind: guestwire.ShellToken, Data: []byte("x")}, "out of order"},
		"an end":              {guestwire.ShellFrame{}, "the sandbox closed it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
			r, err := w.start(t, "web")
			if err != nil {
				t.Fatal(err)
			}
			peer, done := join(t, r)
			defer func() { peer.Close(); <-done }()
			guest, theirs := socketPair(t)
			s := &Shell{run: r, guest: theirs, r: guestwire.NewShellReader(theirs), what: "x", done: func() {}}
			client, ours := socketPair(t)
			defer client.Close()
			served := make(chan error, 1)
			go func() { served <- s.Serve(t.Context(), ours) }()
			if c.answer.Kind != 0 {
				if err := guestwire.NewShellWriter(guest).Write(c.answer); err != nil {
					t.Fatal(err)
				}
			} else {
				guest.Close()
			}
			if f, err := guestwire.NewShellReader(client).Next(); err != nil || f.Kind != guestwire.ShellFailed || !strings.Contains(f.Text, c.want) {
				t.Errorf("%+v %v", f, err)
			}
			if _, err := client.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("after the last frame: %v", err)
			}
			if err := <-served; err == nil {
				t.Error("no error")
			}
			guest.Close()
		})
	}
}

// The sandbox's end of a shell may be filled: input that nobody takes ends the shell and holds nobody.
func TestShellStuck(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	peer, done := join(t, r)
	defer func() { peer.Close(); <-done }()
	guest, theirs := socketPair(t)
	defer guest.Close()
	s := &Shell{run: r, guest: theirs, r: guestwire.NewShellReader(theirs), what: filepath.Base("x"), done: func() {}}
	client, ours := socketPair(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), ours) }()
	cw := guestwire.NewShellWriter(client)
	data := make([]byte, guestwire.MaxShellData)
	_ = client.SetWriteDeadline(time.Now().Add(time.Second))
	for cw.Write(guestwire.ShellFrame{Kind: guestwire.ShellInput, Data: data}) == nil {
	}
	if err := w.m.Kill(t.Context(), r.ID()); err != nil { // it ends with the run although both directions wait
		t.Fatal(err)
	}
	if err := <-served; err == nil {
		t.Error("no error")
	}
	client.Close()
}
