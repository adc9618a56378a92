package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/guestwire"
)

// tty is a command's terminal, of which we hold the master, or its three pipes.
type tty struct {
	in, out, err *os.File // ours; with a terminal in is out and err is nil
	theirs       []*os.File
	terminal     bool
}

// openTTY makes what a request wants.
func openTTY(r guestwire.ShellRequest) (*tty, error) {
	if r.Terminal {
		return openTerminal(r.Rows, r.Cols)
	}
	t := &tty{}
	var inR, outW, errW *os.File
	var errs [3]error
	inR, t.in, errs[0] = os.Pipe()
	t.out, outW, errs[1] = os.Pipe()
	t.err, errW, errs[2] = os.Pipe()
	t.theirs = []*os.File{inR, outW, errW}
	return t, errors.Join(errs[:]...)
}

// openTerminal makes a pseudo-terminal in the sandbox's own instance of devpts.
func openTerminal(rows, cols uint16) (*tty, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	t := &tty{in: master, out: master, terminal: true}
	var number int
	err = t.control(func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	if rows == 0 || cols == 0 {
		rows, cols = 24, 80
	}
	t.resize(rows, cols)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	t.theirs = []*os.File{slave, slave, slave}
	return t, nil
}

// control calls f with the master, without taking it from Go's poller as Fd would.
func (t *tty) control(f func(fd int) error) error {
	raw, err := t.out.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	return errors.Join(raw.Control(func(fd uintptr) { inner = f(int(fd)) }), inner)
}

// child gives the command's descriptors, blocking as programs expect them.
func (t *tty) child() []uintptr {
	var fds []uintptr
	for _, f := range t.theirs {
		fds = append(fds, f.Fd())
	}
	return fds
}

func (t *tty) attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: t.terminal, Ctty: 0}
}

func (t *tty) closeChild() {
	for _, f := range t.theirs {
		_ = f.Close() // a terminal's is there three times
	}
}

// outputs are what the command writes to, by the kind of frame.
func (t *tty) outputs() map[byte]*os.File {
	if t.terminal {
		return map[byte]*os.File{guestwire.ShellOutput: t.out}
	}
	return map[byte]*os.File{guestwire.ShellOutput: t.out, guestwire.ShellErrors: t.err}
}

// resize sets the terminal's size, of which the kernel tells its programs. A pipe has none.
func (t *tty) resize(rows, cols uint16) {
	if !t.terminal || rows == 0 || cols == 0 {
		return
	}
	_ = t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// endInput says that there is no more: on a terminal as a person does, with Ctrl-D.
func (t *tty) endInput() {
	if t.terminal {
		_, _ = t.in.Write([]byte{4})
		return
	}
	_ = t.in.Close()
}

// close closes all that is ours.
func (t *tty) close() {
	for _, f := range []*os.File{t.in, t.out, t.err} {
		if f != nil {
			_ = f.Close()
		}
	}
}
