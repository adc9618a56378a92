package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// connect gives a client of a running daemon, starting one where none listens.
func (u *ui) connect(ctx context.Context) (*client.Client, dirs.Dirs, error) {
	d, err := u.dirs()
	if err != nil {
		return nil, d, err
	}
	c := client.New(d.Socket())
	v, err := c.Version(ctx)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
		// It was ending as it took the connection, such as one that was killed: whether another is there is seen now.
		v, err = c.Version(ctx)
	}
	switch {
	case err == nil && v.Version != version && v.Busy == 0:
		// One that an update left, with nothing to do: its guest and agents are gone from the disk or are new.
		if err := stopDaemon(ctx, d); err != nil {
			return nil, d, err
		}
	case err == nil:
		if v.Version != version {
			u.say("handlerd is version %s, handler %s, and it is busy; to end it: handler daemon stop", v.Version, version)
		}
		return c, d, nil
	case !client.NotRunning(err):
		return nil, d, fault.Wrap(fault.Failed, err, "see "+d.Log()+", or end it: handler daemon stop", "handlerd does not answer on %s", d.Socket())
	}
	if err := startDaemon(ctx, d); err != nil {
		return nil, d, err
	}
	return c, d, nil
}

// idleExit is how long a daemon that the command line started stays with nothing to do.
const idleExit = "15m"

// startDaemon starts handlerd in a session of its own and returns when it listens. Two commands that start one at
// the same time end up with the same one: handlerd takes a lock, and the loser says so by leaving the socket.
func startDaemon(ctx context.Context, d dirs.Dirs) error {
	exe, err := daemonPath()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.State, 0o700); err != nil {
		return fault.Wrap(fault.Failed, err, "", "handlerd's log")
	}
	log, err := os.OpenFile(d.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "", "handlerd's log")
	}
	defer log.Close()
	ready, readyW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(exe, "--idle-exit", idleExit, "--ready-fd", "3", "--log-file", d.Log())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{readyW}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	readyW.Close()
	if err != nil {
		return fault.Wrap(fault.Failed, err, "", "handlerd could not be started")
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Now()) })
	defer stop()
	// The daemon writes "ready", or what went wrong, and closes.
	said, err := io.ReadAll(io.LimitReader(ready, 64<<10))
	if string(said) == "ready\n" {
		return cmd.Process.Release()
	}
	if err != nil {
		return fault.Wrap(fault.Failed, errors.Join(ctx.Err(), err), "see "+d.Log(), "handlerd did not come up")
	}
	if len(said) == 0 {
		said = fmt.Appendf(nil, "handlerd ended at once; see %s", d.Log())
	}
	_ = cmd.Wait()
	text, hint, _ := strings.Cut(string(said), "\x00")
	return fault.New(fault.Failed, cmp.Or(hint, "handler doctor"), "%s", text)
}

// daemonPath finds handlerd beside this program.
func daemonPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	exe := filepath.Join(filepath.Dir(self), "handlerd")
	if _, err := os.Stat(exe); err != nil {
		return "", fault.New(fault.Failed, "install all of Handler: make install", "handlerd is not beside %s", self)
	}
	return exe, nil
}

func newDaemon(u *ui) *cobra.Command {
	status := &cobra.Command{
		Use: "status", Short: "Say whether handlerd runs", Args: usageArgs(cobra.NoArgs),
		Example: "  handler daemon status\n  handler daemon status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := u.dirs()
			if err != nil {
				return err
			}
			v, err := client.New(d.Socket()).Version(cmd.Context())
			if client.NotRunning(err) {
				if err := u.result(map[string]any{"running": false}, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, "not running; it starts by itself when it is needed")
					return err
				}); err != nil {
					return err
				}
				return errReported{1}
			}
			if err != nil {
				return err
			}
			return u.daemonStatus(d, v)
		},
	}
	stop := &cobra.Command{
		Use: "stop", Short: "End handlerd and every run", Args: usageArgs(cobra.NoArgs),
		Example: "  handler daemon stop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := u.dirs()
			if err != nil {
				return err
			}
			return stopDaemon(cmd.Context(), d)
		},
	}
	return group("daemon", "Look at, end, or install the daemon behind the commands", status, stop,
		newDaemonLogs(u), newDaemonInstall(u), newDaemonUninstall(u))
}

// daemonStatus says which daemon runs, who started it, and what to do when it is another version's.
func (u *ui) daemonStatus(d dirs.Dirs, v types.Version) error {
	return u.result(map[string]any{
		"running": true, "version": v.Version, "pid": v.PID, "runs": v.Runs, "started": v.Started,
		"startedBy": v.StartedBy, "socket": d.Socket(), "current": v.Version == version,
		"goroutines": v.Goroutines, "descriptors": v.Descriptors,
	}, func(w io.Writer) error {
		by := "a command, when it was needed"
		if v.StartedBy == types.BySystemd {
			by = "systemd"
		}
		fmt.Fprintf(w, "running: version %s, pid %d, started %s by %s, %s\n", v.Version, v.PID, ago(v.Started), by, plural(v.Runs, "run"))
		fmt.Fprintf(w, "  socket %s\n", d.Socket())
		if v.Version == version {
			return nil
		}
		again := "handler daemon stop"
		if v.StartedBy == types.BySystemd {
			again = "systemctl --user restart handlerd"
		}
		_, err := fmt.Fprintf(w, "  this command is version %s; to have its handlerd, which ends every run: %s\n", version, again)
		return err
	})
}

// stopDaemon ends the daemon and returns when its process is gone; none running is no error.
func stopDaemon(ctx context.Context, d dirs.Dirs) error {
	c := client.New(d.Socket())
	v, err := c.Version(ctx)
	if client.NotRunning(err) {
		return nil
	}
	if err != nil {
		return err
	}
	fd, err := openProcess(v.PID)
	if err != nil {
		return err
	}
	defer fd.Close()
	if err := c.Stop(ctx); err != nil {
		return err
	}
	return fd.wait(ctx, time.Minute)
}
