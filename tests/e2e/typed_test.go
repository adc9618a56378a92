package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// cmdTyped runs the command line on a terminal of its own and types what a file says, a step a line:
//
//	> "TEXT"      types TEXT, a Go string
//	< REGEXP      waits until what was shown since the last such step fits
//	size R C      changes the terminal's size
//	run handler ARG…   runs another command line to its end, without a terminal
func cmdTyped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[2] != "handler" {
		ts.Fatalf("usage: typed CODE FILE handler ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	master, slave, err := openTerminal()
	ts.Check(err)
	defer master.Close()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(of(ts).bin, "handler"), args[3:]...)
	cmd.Env, cmd.Dir = append(scriptEnv(ts), "TERM=xterm-256color"), ts.MkAbs(".")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	slave.Close()
	ts.Check(err)
	t := &typist{ts: ts, master: master}
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		if line = strings.TrimSpace(line); line != "" {
			t.step(line)
		}
	}
	for t.read() {
	}
	err = cmd.Wait()
	_, _ = ts.Stdout().Write([]byte(t.all.String())) // a strings.Builder
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d; the terminal showed:\n%s", code, want, t.all.String())
	}
}

// A typist is the person at a terminal.
type typist struct {
	ts     *testscript.TestScript
	master *os.File
	all    strings.Builder
	seen   int // of all, by "<" steps
}

// read reads once; false when the terminal has ended, or shows nothing for the whole limit.
func (t *typist) read() bool {
	buf := make([]byte, 4096)
	_ = t.master.SetReadDeadline(time.Now().Add(commandLimit / 3))
	n, err := t.master.Read(buf)
	t.all.Write(buf[:n])
	return err == nil
}

func (t *typist) step(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case ">":
		text, err := strconv.Unquote(rest)
		t.ts.Check(err)
		_, err = t.master.WriteString(variable.ReplaceAllStringFunc(text, func(m string) string { return t.ts.Getenv(m[2 : len(m)-1]) }))
		t.ts.Check(err)
	case "<":
		re, err := regexp.Compile(rest)
		t.ts.Check(err)
		for {
			if at := re.FindStringIndex(t.all.String()[t.seen:]); at != nil {
				t.seen += at[1]
				return
			}
			if !t.read() {
				t.ts.Fatalf("the terminal never showed %q; it showed:\n%s", rest, t.all.String())
			}
		}
	case "size":
		var rows, cols uint16
		_, err := fmt.Sscan(rest, &rows, &cols)
		t.ts.Check(err)
		t.ts.Check(setSize(t.master, rows, cols))
	case "run":
		words := strings.Fields(variable.ReplaceAllStringFunc(rest, func(m string) string { return t.ts.Getenv(m[2 : len(m)-1]) }))
		if len(words) < 2 || words[0] != "handler" {
			t.ts.Fatalf("usage: run handler ARG…")
		}
		if code := runHandler(t.ts, words[1:]...); code != 0 {
			t.ts.Fatalf("%q: exit code %d", words, code)
		}
	default:
		t.ts.Fatalf("no step %q", line)
	}
}

// openTerminal makes a pseudo-terminal of 24 rows and 80 columns.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	raw, err := master.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var number int
	var unlock, name error
	err = raw.Control(func(fd uintptr) {
		unlock = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		number, name = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if err = errors.Join(err, unlock, name, setSize(master, 24, 80)); err != nil {
		return nil, nil, err
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}

func setSize(f *os.File, rows, cols uint16) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	return errors.Join(err, set)
}
