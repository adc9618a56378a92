package main_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox/guestwire"
	"github.com/handlerd/handler/sandbox/rundir"
)

// A testShell is the daemon's end of a shell's connection.
type testShell struct {
	t    *testing.T
	conn net.Conn
	r    *guestwire.ShellReader
	w    *guestwire.ShellWriter
	seen bytes.Buffer // output
	errs bytes.Buffer
}

func openShell(t *testing.T, d *rundir.Dir, req guestwire.ShellRequest) *testShell {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := d.OpenShell(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	s := &testShell{t: t, conn: conn, r: guestwire.NewShellReader(conn), w: guestwire.NewShellWriter(conn)}
	s.send(guestwire.ShellFrame{Kind: guestwire.ShellOpen, Open: req})
	return s
}

func (s *testShell) send(f guestwire.ShellFrame) {
	s.t.Helper()
	if err := s.w.Write(f); err != nil {
		s.t.Fatal(err)
	}
}

func (s *testShell) input(text string) {
	s.t.Helper()
	s.send(guestwire.ShellFrame{Kind: guestwire.ShellInput, Data: []byte(text)})
}

// until reads until a frame for which stop is true, and gives it.
func (s *testShell) until(stop func(guestwire.ShellFrame) bool) guestwire.ShellFrame {
	s.t.Helper()
	for {
		f, err := s.r.Next()
		if err != nil {
			s.t.Fatalf("%v; output %q, errors %q", err, s.seen.String(), s.errs.String())
		}
		switch f.Kind {
		case guestwire.ShellOutput:
			s.seen.Write(f.Data)
		case guestwire.ShellErrors:
			s.errs.Write(f.Data)
		}
		if stop(f) {
			return f
		}
	}
}

func (s *testShell) started() {
	s.t.Helper()
	s.until(func(f guestwire.ShellFrame) bool { return f.Kind == guestwire.ShellStarted })
}

// says waits for text in the output.
func (s *testShell) says(text string) {
	s.t.Helper()
	s.until(func(guestwire.ShellFrame) bool { return strings.Contains(s.seen.String(), text) })
}

func (s *testShell) end() guestwire.ShellFrame {
	s.t.Helper()
	return s.until(func(f guestwire.ShellFrame) bool {
		return f.Kind == guestwire.ShellExit || f.Kind == guestwire.ShellFailed
	})
}

// sh is a request for a command on pipes.
func sh(script string) guestwire.ShellRequest {
	return guestwire.ShellRequest{Argv: []string{"/bin/sh", "-c", script}}
}

// Pipes: input, output, errors, the input's end and the exit code all pass; two shells at once are not mixed up.
func TestShellPipes(t *testing.T) {
	both(t, func(t *testing.T, place func(*exec.Cmd)) {
		g := startGuest(t, place, rundir.Options{}, `read x; exit 0`)
		within(t, "start", g.dir.Started())
		one := openShell(t, g.dir, sh(`echo oops >&2; cat; exit 9`))
		two := openShell(t, g.dir, sh(`tr a-z A-Z`))
		one.started()
		two.started()
		two.input("second\n")
		one.input("first\n")
		two.send(guestwire.ShellFrame{Kind: guestwire.ShellInputEnd})
		if f := two.end(); f.Kind != guestwire.ShellExit || f.Code != 0 || two.seen.String() != "SECOND\n" {
			t.Errorf("%+v, %q", f, two.seen.String())
		}
		one.send(guestwire.ShellFrame{Kind: guestwire.ShellInputEnd})
		if f := one.end(); f.Code != 9 || one.seen.String() != "first\n" || one.errs.String() != "oops\n" {
			t.Errorf("%+v, %q, %q", f, one.seen.String(), one.errs.String())
		}
		if _, err := one.r.Next(); err != io.EOF {
			t.Errorf("after the exit: %v", err)
		}
		_, _ = g.acp.Write([]byte("end\n"))
		if code := g.wait(patience); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
}

// A terminal: the command is the leader of its session on it, knows its size and hears of a new one, Ctrl-C interrupts,
// and a TERM that the sandbox does not know becomes one that it does.
func TestShellTerminal(t *testing.T) {
	g := startGuest(t, in["host"], rundir.Options{}, `read x; exit 0`)
	within(t, "start", g.dir.Started())
	s := openShell(t, g.dir, guestwire.ShellRequest{Terminal: true, Term: "no-such-terminal", Rows: 31, Cols: 97, Argv: []string{"/bin/sh", "-c",
		`trap 'stty size; printf "<resized>"' WINCH; trap 'printf "<interrupted>"; exit 5' INT
		 test -t 0 && test -t 2 && stty size; echo "term=$TERM"; ps -o sid= -p $$ | grep -qw $$ && echo leader; printf "<ready>"
		 while :; do sleep 0.02; done`}})
	s.started()
	s.says("<ready>")
	for _, want := range []string{"31 97", "term=xterm-256color", "leader"} {
		if !strings.Contains(s.seen.String(), want) {
			t.Errorf("no %q in %q", want, s.seen.String())
		}
	}
	s.send(guestwire.ShellFrame{Kind: guestwire.ShellResize, Rows: 40, Cols: 120})
	s.says("<resized>")
	if !strings.Contains(s.seen.String(), "40 120") {
		t.Errorf("%q", s.seen.String())
	}
	s.input("\x03")
	if f := s.end(); f.Code != 5 || !strings.Contains(s.seen.String(), "<interrupted>") {
		t.Errorf("%+v %q", f, s.seen.String())
	}
}

// What a shell leaves behind goes with it, even what made a session of its own and ignores all signals it can: when its
// command ends, and when its connection does. (As PID 1 this test would have the host's /proc: tests/e2e has a whole
// sandbox.)
func TestShellTreeEnds(t *testing.T) {
	g := startGuest(t, in["host"], rundir.Options{}, `read x; exit 0`)
	within(t, "start", g.dir.Started())
	mark := "mark-" + strconv.Itoa(os.Getpid()) + strings.ReplaceAll(t.Name(), "/", "-")
	stubborn := `setsid sh -c 'trap "" TERM HUP INT; echo up; while :; do sleep 1; done' ` + mark + ` & `
	s := openShell(t, g.dir, sh(stubborn+`read x; exit 3`))
	s.started()
	s.says("up")
	s.input("\n")
	if f := s.end(); f.Code != 3 {
		t.Errorf("%+v", f)
	}
	if pids := left(t, mark); len(pids) != 0 {
		t.Errorf("left after the command: %v", pids)
	}
	s = openShell(t, g.dir, guestwire.ShellRequest{Terminal: true, Argv: []string{"/bin/sh", "-c", stubborn + "sleep 1000"}})
	s.started()
	s.says("up")
	if len(left(t, mark)) == 0 {
		t.Fatal("it is not there")
	}
	s.conn.Close()
	// There is no event for the end of what is nobody's child here: the process table is read until it says so.
	for deadline := time.Now().Add(patience); len(left(t, mark)) > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("left after the connection: %v", left(t, mark))
		}
	}
}

// A command that reads nothing does not keep the guest from seeing the end of the connection, and more input than the
// window ends the shell.
func TestShellWindow(t *testing.T) {
	g := startGuest(t, in["host"], rundir.Options{}, `read x; exit 0`)
	within(t, "start", g.dir.Started())
	mark := fmt.Sprintf("100%d", os.Getpid())
	s := openShell(t, g.dir, sh("echo up; exec sleep "+mark))
	s.started()
	s.says("up")
	data := bytes.Repeat([]byte("x"), guestwire.MaxShellData)
	for range guestwire.ShellWindow / guestwire.MaxShellData * 2 {
		if s.w.Write(guestwire.ShellFrame{Kind: guestwire.ShellInput, Data: data}) != nil {
			break // it was ended, as it must be
		}
	}
	if f := s.end(); f.Kind != guestwire.ShellExit || f.Signal == "" {
		t.Errorf("%+v", f)
	}
	if pids := left(t, "sleep\x00"+mark); len(pids) != 0 {
		t.Errorf("left: %v", pids)
	}
}

// A command that is not there is an answer, with what to do.
func TestShellNotFound(t *testing.T) {
	g := startGuest(t, in["host"], rundir.Options{}, `read x; exit 0`)
	within(t, "start", g.dir.Started())
	s := openShell(t, g.dir, guestwire.ShellRequest{Argv: []string{"no-such-program"}})
	if f := s.end(); f.Kind != guestwire.ShellFailed || !strings.Contains(f.Text, "no-such-program not found") {
		t.Errorf("%+v", f)
	}
}

// The agent's end ends a shell, interactive ones too, before anybody is killed.
func TestShellEndsWithAgent(t *testing.T) {
	both(t, func(t *testing.T, place func(*exec.Cmd)) {
		g := startGuest(t, place, rundir.Options{}, `read x; exit 4`)
		within(t, "start", g.dir.Started())
		s := openShell(t, g.dir, guestwire.ShellRequest{Terminal: true})
		s.started()
		began := time.Now()
		_, _ = g.acp.Write([]byte("end\n"))
		if code := g.wait(patience); code != 4 {
			t.Errorf("exit %d", code)
		}
		if took := time.Since(began); took > 1900*time.Millisecond {
			t.Errorf("it took %v: the shell was killed and did not end", took)
		}
		for {
			if f, err := s.r.Next(); err != nil {
				break
			} else if f.Kind == guestwire.ShellFailed {
				t.Errorf("%+v", f)
			}
		}
	})
}
