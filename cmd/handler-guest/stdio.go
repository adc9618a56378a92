package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/handlerd/handler/sandbox"
)

// How long the guest waits at the end for what the command has written to be taken.
const (
	drainOutput = 2 * time.Second        // by the daemon, after the last process has ended
	drainErrors = 100 * time.Millisecond // by us, when the command has ended but an orphan may hold its stderr
)

// stdio is the command's standard input, output and error.
//
// They are pipes and not acp.sock itself, although that would save a copy: the daemon must see the end when the
// command closes its output while it lives; a program that makes its input non-blocking must not make its output
// non-blocking by that (one open file description); and a socket cannot be opened again as /dev/stdin.
type stdio struct {
	conn      *net.UnixConn // nil when the command inherits ours
	ctl       *control
	in        *os.File // we write
	out       *os.File // we read
	err       *os.File // we read
	theirs    []*os.File
	outDone   chan struct{}
	errorDone chan struct{}
}

// openStdio joins acp.sock if there is one.
func openStdio(runDir string, ctl *control) (*stdio, error) {
	s := &stdio{ctl: ctl, outDone: make(chan struct{}), errorDone: make(chan struct{})}
	path := filepath.Join(runDir, sandbox.SocketACP)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		s.theirs = []*os.File{null, os.Stdout, os.Stderr}
		close(s.outDone)
		close(s.errorDone)
		return s, nil
	}
	conn, err := net.DialTimeout("unix", path, dialTime)
	if err != nil {
		return nil, fmt.Errorf("agent connection: %w", err)
	}
	if ctl.conn == nil {
		return nil, errors.New("agent connection: there is acp.sock but no guest.sock")
	}
	s.conn = conn.(*net.UnixConn)
	var inR, outW, errW *os.File
	var errs [3]error
	inR, s.in, errs[0] = os.Pipe()
	s.out, outW, errs[1] = os.Pipe()
	s.err, errW, errs[2] = os.Pipe()
	s.theirs = []*os.File{inR, outW, errW}
	return s, errors.Join(errs[:]...)
}

// child returns the command's descriptors, blocking as programs expect them.
func (s *stdio) child() []uintptr {
	fds := make([]uintptr, len(s.theirs))
	for i, f := range s.theirs {
		fds[i] = f.Fd()
		if s.conn != nil { // what we inherit is not ours to change
			_ = syscall.SetNonblock(int(fds[i]), false)
		}
	}
	return fds
}

// closeChild closes our copies of the command's ends, so that ends are seen.
func (s *stdio) closeChild() {
	if s.conn == nil {
		return
	}
	for _, f := range s.theirs {
		_ = f.Close()
	}
}

// run starts the copying. io.Copy splices from the socket; what the command has closed is shut down on it.
func (s *stdio) run() {
	if s.conn == nil {
		return
	}
	go func() {
		_, _ = io.Copy(s.in, s.conn)
		_ = s.in.Close()
		_ = s.conn.CloseRead() // a daemon that still writes learns that nobody reads
	}()
	go func() {
		defer close(s.outDone)
		_, _ = io.Copy(s.conn, s.out)
		_ = s.out.Close() // if the daemon is gone, the command's next write says so
		_ = s.conn.CloseWrite()
	}()
	go func() {
		defer close(s.errorDone)
		s.ctl.copyStderr(s.err)
	}()
}

// drainStderr waits a moment for the last lines, so that they come before the exit.
func (s *stdio) drainStderr() { waitFor(s.errorDone, drainErrors) }

// drain waits until the daemon has taken all output, in bounds.
func (s *stdio) drain() {
	waitFor(s.errorDone, drainErrors)
	waitFor(s.outDone, drainOutput)
}

func waitFor(done <-chan struct{}, most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
