package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// Exit codes of our own, as shells and container engines use them.
const (
	exitSetup    = 125
	exitNotExec  = 126
	exitNotFound = 127
)

const dialTime = 10 * time.Second // to reach a socket of the daemon during set-up

// run is the guest's whole life; it returns the exit code.
func run(o options) int {
	kill, err := becomeParent()
	if err != nil {
		fmt.Fprintf(os.Stderr, "handler-guest: %v\n", err)
		return exitSetup
	}
	ctl, err := dialControl(o.runDir)
	if err != nil {
		fmt.Fprintf(os.Stderr, "handler-guest: %v\n", err)
		return exitSetup
	}
	fail := func(code int, err error) int {
		fmt.Fprintf(os.Stderr, "handler-guest: %v\n", err)
		ctl.send(guestwire.Frame{Kind: guestwire.Failed, Text: err.Error()})
		ctl.finish()
		return code
	}
	env, err := prepare(o)
	if err != nil {
		return fail(exitSetup, err)
	}
	scr, err := startScreen(o, env)
	if err != nil {
		return fail(exitSetup, err)
	}
	io, err := openStdio(o.runDir, ctl)
	if err != nil {
		return fail(exitSetup, err)
	}
	// From here on a signal is for the command; until here it ends the guest, which has nothing to clean up.
	sigs := make(chan os.Signal, 8)
	signal.Notify(sigs, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	pid, code, err := start(o.argv, env, io)
	if err != nil {
		return fail(code, err)
	}
	ctl.send(guestwire.Frame{Kind: guestwire.Started, PID: pid})
	io.run()
	go serveShells(ctl.shells, o.runDir, env)
	go serveDials(ctl.dials, o.runDir, scr)
	s := supervisor{command: pid, kill: kill, ctl: ctl, io: io}
	return s.run(sigs, reap(pid))
}

// prepare does all that must be there before the command is: files, runtime folder, proxy. It returns the
// command's environment.
func prepare(o options) ([]string, error) {
	if o.files {
		if err := fetchFiles(o.runDir); err != nil {
			return nil, err
		}
	}
	env := os.Environ()
	if o.runtimeDir != "" {
		dir, err := usableRuntimeDir(o.runtimeDir)
		if err != nil {
			return nil, err
		}
		if dir != "" {
			env = append(env, "XDG_RUNTIME_DIR="+dir) // the last one counts
		}
	}
	if o.proxyAddr != "" {
		l, err := net.Listen("tcp", o.proxyAddr)
		if err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
		go serveProxy(l, filepath.Join(o.runDir, sandbox.SocketEgress))
	}
	return env, nil
}

// start starts argv in a session of its own. code is what to exit with when it fails.
func start(argv, env []string, io *stdio) (pid, code int, err error) {
	defer io.closeChild()
	return fork(argv, env, io.child(), &syscall.SysProcAttr{Setsid: true})
}

// fork starts argv. code is what to exit with when it fails. It does not use os/exec, whose Wait would race with the
// reaper for the command's status.
func fork(argv, env []string, files []uintptr, attr *syscall.SysProcAttr) (pid, code int, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		if !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
			return 0, exitNotExec, fmt.Errorf("command %s cannot be executed: %w", argv[0], errors.Unwrap(err))
		}
		return 0, exitNotFound, fmt.Errorf("command %s not found in the sandbox; is it in the toolbox, the harness or an addon?", argv[0])
	}
	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: env, Files: files, Sys: attr})
	switch {
	case errors.Is(err, syscall.ENOENT):
		return 0, exitNotFound, fmt.Errorf("command %s: its interpreter or loader is not in the sandbox", argv[0])
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return 0, exitSetup, fmt.Errorf("command %s: %w; the sandbox's process or memory limit is too low", argv[0], err)
	case err != nil:
		return 0, exitNotExec, fmt.Errorf("command %s cannot be executed: %w", argv[0], err)
	}
	return pid, 0, nil
}

// usableRuntimeDir makes the runtime folder a private one of ours. Where the engine mounted it for us it gets mode
// 0700; where it is another's and open to all, a folder in it. A folder that is not there gives "".
func usableRuntimeDir(dir string) (string, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("runtime folder: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
		if info.Mode().Perm() != 0o700 {
			if err := os.Chmod(dir, 0o700); err != nil {
				return "", fmt.Errorf("runtime folder: %w", err)
			}
		}
		return dir, nil
	}
	dir = filepath.Join(dir, "u")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("runtime folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // whatever the umask took away
		return "", fmt.Errorf("runtime folder: %w", err)
	}
	return dir, nil
}

// fetchFiles takes the one transfer on files.sock, writes the files and acknowledges.
func fetchFiles(runDir string) error {
	conn, err := net.DialTimeout("unix", filepath.Join(runDir, sandbox.SocketFiles), dialTime)
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	defer conn.Close()
	answer := guestwire.Frame{Kind: guestwire.Written}
	err = guestwire.ReadFiles(conn, writeFile)
	if err != nil {
		err = fmt.Errorf("files: %w", err)
		answer = guestwire.Frame{Kind: guestwire.Failed, Text: err.Error()}
	}
	line, appendErr := guestwire.Append(nil, answer)
	_, writeErr := conn.Write(line)
	return errors.Join(err, appendErr, writeErr)
}

// writeFile makes one file that is not there yet, with exactly this mode, and its parent folders, 0700.
func writeFile(name string, mode fs.FileMode, size int64, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, content, size)
	if err == nil {
		err = f.Chmod(mode)
	}
	return errors.Join(err, f.Close())
}
