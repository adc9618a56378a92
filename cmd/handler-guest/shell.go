package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// A shell is a process of its own, "handler-guest shell": it holds the terminal and the connection, becomes the parent
// of whatever its command leaves behind, and so can end the whole tree when either end is done. PID 1 only connects,
// since it is the one process whose memory the agent cannot read, and starts it.

// maxShells bounds the requests that wait for PID 1; the daemon allows no more shells at a time.
const maxShells = 16

const (
	shellFD   = 3                      // the connection, in a shell's process
	askTime   = 10 * time.Second       // for the daemon to say what it wants
	leaveTime = 500 * time.Millisecond // for what a command leaves behind, between TERM and KILL
)

// serveShells starts a shell for each token that the daemon sends; env is that of the command.
func serveShells(tokens <-chan string, runDir string, env []string) {
	for token := range tokens {
		go func() {
			if err := startShell(token, filepath.Join(runDir, sandbox.SocketShell), env); err != nil {
				fmt.Fprintf(os.Stderr, "handler-guest: shell: %v\n", err)
			}
		}()
	}
}

// startShell connects to shell.sock, says the token, and gives the connection to a process. The reaper takes its end.
func startShell(token, socket string, env []string) error {
	c, err := net.DialTimeout("unix", socket, dialTime)
	if err != nil {
		return err
	}
	defer c.Close()
	w := guestwire.NewShellWriter(c)
	if err := w.Write(guestwire.ShellFrame{Kind: guestwire.ShellToken, Data: []byte(token)}); err != nil {
		return err
	}
	err = spawnShell(c.(*net.UnixConn), env)
	if err != nil {
		_ = w.Write(guestwire.ShellFrame{Kind: guestwire.ShellFailed, Text: "the sandbox cannot start a process for the shell: " + err.Error()})
	}
	return err
}

func spawnShell(c *net.UnixConn, env []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	conn, err := c.File()
	if err != nil {
		return err
	}
	defer conn.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = syscall.ForkExec(self, []string{"handler-guest", "shell"}, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), shellFD: conn.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	return err
}

// runShell is the life of a shell's process.
func runShell() int {
	unix.CloseOnExec(shellFD)
	f := os.NewFile(shellFD, "shell")
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return exitSetup
	}
	w := guestwire.NewShellWriter(conn)
	code, err := serveShell(conn.(*net.UnixConn), w)
	if err != nil {
		_ = w.Write(guestwire.ShellFrame{Kind: guestwire.ShellFailed, Text: err.Error()})
	}
	_ = conn.Close()
	return code
}

// serveShell starts what the daemon asks for and sees it to its end.
func serveShell(conn *net.UnixConn, w *guestwire.ShellWriter) (int, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return exitSetup, fmt.Errorf("set dumpable: %w", err)
	}
	kill, err := becomeParent()
	if err != nil {
		return exitSetup, err
	}
	r := guestwire.NewShellReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(askTime))
	f, err := r.Next()
	if err != nil || f.Kind != guestwire.ShellOpen {
		return exitSetup, errors.Join(errors.New("the daemon asked for nothing"), err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	t, err := openTTY(f.Open)
	if err != nil {
		return exitSetup, err
	}
	pid, code, err := fork(shellArgv(f.Open.Argv), shellEnv(os.Environ(), f.Open), t.child(), t.attr())
	t.closeChild()
	if err != nil {
		return code, err
	}
	if err := w.Write(guestwire.ShellFrame{Kind: guestwire.ShellStarted}); err != nil {
		return exitSetup, err
	}
	s := shell{conn: conn, w: w, tty: t, kill: kill, box: newInbox(), gone: make(chan struct{})}
	go s.read(r)
	go s.feed()
	for kind, f := range t.outputs() {
		s.copying.Go(func() { s.copy(kind, f) })
	}
	return s.run(reap(pid)), nil
}

// shellArgv is the command, or the best shell there is. It is no login shell: that would read a profile which sets
// another PATH than the agent's.
func shellArgv(argv []string) []string {
	if len(argv) > 0 {
		return argv
	}
	if _, err := os.Stat("/bin/bash"); err == nil {
		return []string{"/bin/bash"}
	}
	return []string{"/bin/sh"}
}

// shellEnv is the agent's environment with a TERM that the sandbox knows.
func shellEnv(env []string, r guestwire.ShellRequest) []string {
	if !r.Terminal {
		return env
	}
	term := r.Term
	if !knownTerm(term) {
		term = "xterm-256color"
	}
	return append(env, "TERM="+term)
}

// knownTerm tells whether the sandbox's terminfo describes a terminal. The name was checked: it is no path.
func knownTerm(name string) bool {
	if name == "" {
		return false
	}
	for _, dir := range []string{"/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo"} {
		if _, err := os.Stat(filepath.Join(dir, name[:1], name)); err == nil {
			return true
		}
	}
	return false
}
