package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/guestwire"
	"github.com/handlerd/handler/sandbox/proctree"
)

// How long what remains may take to end by itself before it is killed.
const (
	afterCommand = 2 * time.Second        // since the command ended
	afterDaemon  = 5 * time.Second        // since the daemon went away; the sandbox is to be gone in 10 s
	killAgain    = 100 * time.Millisecond // between KILLs, for what forks faster than one can count
)

// becomeParent makes orphans ours and returns what signals every process but ours.
func becomeParent() (kill func(unix.Signal), err error) {
	if os.Getpid() == 1 {
		// PID 1 of a PID namespace: orphans come by themselves, and -1 is everyone in the namespace. Not being
		// dumpable keeps the agent, which has our uid, from tracing or stopping us.
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("set dumpable: %w", err)
		}
		return func(sig unix.Signal) { _ = unix.Kill(-1, sig) }, nil
	}
	// Anywhere else -1 would be the person's whole session: only what descends from us is ours.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	return func(sig unix.Signal) {
		procs, err := proctree.Scan()
		if err != nil {
			return
		}
		for _, p := range proctree.Below(procs, os.Getpid()) {
			if !p.Dead() {
				_ = proctree.Signal(p, sig)
			}
		}
	}, nil
}

// reap waits for every child there will ever be. It sends the status of the command once and closes the channel when
// no child is left: as PID 1 or subreaper, that is when nothing of the sandbox is left.
func reap(command int) <-chan unix.WaitStatus {
	ended := make(chan unix.WaitStatus, 1)
	go func() {
		defer close(ended)
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
			switch {
			case err == unix.EINTR:
			case err != nil: // ECHILD
				return
			case pid == command && (status.Exited() || status.Signaled()):
				ended <- status
			}
		}
	}()
	return ended
}

// supervisor sees the command to its end, and everything else.
type supervisor struct {
	command int
	kill    func(unix.Signal)
	ctl     *control
	io      *stdio

	code     int
	ended    bool // the command has
	stopping bool // TERM was asked for: whoever asked says when to KILL
	timer    *time.Timer
}

// run returns the exit code when no process is left.
func (s *supervisor) run(sigs <-chan os.Signal, children <-chan unix.WaitStatus) int {
	s.timer = time.NewTimer(time.Hour)
	s.timer.Stop()
	gone := s.ctl.gone
	for {
		select {
		case sig := <-sigs:
			s.forward(sig.(unix.Signal))
		case sig := <-s.ctl.signals:
			s.forward(sig)
		case <-gone:
			gone = nil
			s.terminate()
			s.timer.Reset(afterDaemon)
		case <-s.timer.C:
			s.kill(unix.SIGKILL)
			s.timer.Reset(killAgain)
		case status, ok := <-children:
			if !ok {
				s.io.drain()
				s.ctl.finish()
				return s.code
			}
			s.commandEnded(status)
		}
	}
}

// forward gives a signal to the command, and those that end things to everyone.
func (s *supervisor) forward(sig unix.Signal) {
	switch sig {
	case unix.SIGTERM:
		s.stopping = true
		s.terminate()
	case unix.SIGKILL:
		s.kill(unix.SIGKILL)
		s.timer.Reset(killAgain)
	default:
		if !s.ended { // not reaped: the number is still the command's
			_ = unix.Kill(s.command, sig)
		}
	}
}

// terminate asks everyone to end; CONT lets those hear it that are stopped.
func (s *supervisor) terminate() {
	s.kill(unix.SIGTERM)
	s.kill(unix.SIGCONT)
}

func (s *supervisor) commandEnded(status unix.WaitStatus) {
	s.ended = true
	f := guestwire.Frame{Kind: guestwire.Exit, Code: status.ExitStatus()}
	if status.Signaled() {
		f.Code, f.Signal = 128+int(status.Signal()), signalName(status.Signal())
	}
	s.code = f.Code
	s.io.drainStderr()
	s.ctl.send(f)
	if !s.stopping {
		s.terminate()
		s.timer.Reset(afterCommand)
	}
}

// signalName returns a name without SIG, such as "TERM" or "RTMIN+2".
func signalName(sig unix.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name[len("SIG"):]
	}
	return fmt.Sprintf("RTMIN+%d", int(sig)-34)
}
