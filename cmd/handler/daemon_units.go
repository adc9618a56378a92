package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/cmd/handler/internal/units"
	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/packaging/systemd"
)

// unitTimeout bounds what is asked of systemd: the end of a daemon with its runs takes the longest.
const unitTimeout = 90 * time.Second

// systemd connects to the person's, or says what Handler does without.
func (u *ui) systemd(ctx context.Context, d dirs.Dirs) (*units.Manager, error) {
	m, err := units.Connect(ctx, u.getenv("DBUS_SESSION_BUS_ADDRESS"), d.XDGRun)
	if errors.Is(err, units.ErrNoSystemd) {
		hint := "handlerd needs none: every command starts it when it is needed, and it ends when it is not"
		if exists("/run/systemd/system") {
			hint += "\nfor a session at all times: sudo loginctl enable-linger " + userName()
		}
		return nil, fault.New(fault.Failed, hint, "%v", err)
	}
	return m, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "YOU"
}

// unitDir is where a person's own units are.
func (u *ui) unitDir(d dirs.Dirs) string {
	if base := u.getenv("XDG_CONFIG_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "systemd/user")
	}
	return filepath.Join(d.Home, ".config/systemd/user")
}

func newDaemonInstall(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "install", Short: "Have systemd start handlerd by its socket, with its watchdog and journal", Args: usageArgs(cobra.NoArgs),
		Long: `Writes handlerd.service and handlerd.socket to ~/.config/systemd/user, enables the socket and starts it: systemd
listens, and starts this handlerd at the first connection. Without it every command starts the daemon when it is needed.`,
		Example: "  handler daemon install",
		RunE:    func(cmd *cobra.Command, _ []string) error { return u.daemonInstall(cmd.Context()) },
	}
}

func (u *ui) daemonInstall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	d, err := u.dirs()
	if err != nil {
		return err
	}
	exe, err := daemonPath()
	if err != nil {
		return err
	}
	m, err := u.systemd(ctx, d)
	if err != nil {
		return err
	}
	defer m.Close()
	// One that a command started has the socket, and its lock.
	if v, err := client.New(d.Socket()).Version(ctx); err == nil && v.Busy > 0 {
		return fault.New(fault.Failed, "let it end first, or: handler daemon stop", "handlerd has %s and %s to do",
			plural(v.Runs, "run"), plural(v.Busy, "request"))
	}
	if err := stopDaemon(ctx, d); err != nil {
		return err
	}
	paths, err := m.Install(ctx, u.unitDir(d), exe)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "handlerd's units are not installed")
	}
	lingers := exists("/var/lib/systemd/linger/" + userName())
	if err := u.result(map[string]any{"installed": paths, "handlerd": exe, "lingers": lingers}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "installed %s and %s; systemd starts %s when it is needed\n", paths[0], paths[1], exe)
		return err
	}); err != nil {
		return err
	}
	if !lingers {
		u.say("when you log out, systemd ends handlerd and every run; to have them go on: loginctl enable-linger %s", userName())
	}
	return nil
}

func newDaemonUninstall(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "uninstall", Short: "Undo install: end handlerd and every run, and remove its units", Args: usageArgs(cobra.NoArgs),
		Example: "  handler daemon uninstall",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), unitTimeout)
			defer cancel()
			d, err := u.dirs()
			if err != nil {
				return err
			}
			m, err := u.systemd(ctx, d)
			if err != nil {
				return err
			}
			defer m.Close()
			paths, err := m.Uninstall(ctx, u.unitDir(d))
			if err != nil {
				return fault.Wrap(fault.Failed, err, "systemctl --user status handlerd.socket", "handlerd's units are not removed")
			}
			if paths == nil {
				paths = []string{}
			}
			return u.result(map[string]any{"removed": paths}, func(w io.Writer) error {
				text := "there was nothing to remove"
				if len(paths) > 0 {
					text = "removed handlerd's units; every command starts it when it is needed"
				}
				_, err := fmt.Fprintln(w, text)
				return err
			})
		},
	}
}

func newDaemonLogs(u *ui) *cobra.Command {
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use: "logs", Short: "Show what handlerd itself has to say: its journal, or its log file", Args: usageArgs(cobra.NoArgs),
		Long: `Shows handlerd's own log: the journal where systemd starts it (handler daemon install), else the file that a daemon
started by a command writes. What a run said is: handler logs RUN.`,
		Example: "  handler daemon logs\n  handler daemon logs --follow",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return fault.New(fault.Usage, "", "there are no %d lines", lines)
			}
			d, err := u.dirs()
			if err != nil {
				return err
			}
			if exists(filepath.Join(u.unitDir(d), systemd.Service)) {
				if journal, err := exec.LookPath("journalctl"); err == nil {
					return u.journal(cmd.Context(), journal, follow, lines)
				}
			}
			return u.daemonLog(cmd.Context(), d.Log(), follow, lines)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	cmd.Flags().IntVarP(&lines, "lines", "n", 200, "how many of the last lines")
	return cmd
}

// journal shows what systemd keeps of the daemon's log.
func (u *ui) journal(ctx context.Context, program string, follow bool, lines int) error {
	args := []string{"--user", "--unit", systemd.Service, "--output", "cat", "--no-pager", "--lines", fmt.Sprint(lines)}
	if follow {
		args = append(args, "--follow")
	}
	cmd := exec.CommandContext(ctx, program, args...)
	out := &lineWriter{line: u.daemonLine}
	cmd.Stdout, cmd.Stderr = out, u.errout
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fault.Wrap(fault.Failed, err, "journalctl --user -u handlerd", "the journal")
	}
	return nil
}

// daemonLine shows one line of the daemon's log; names in it may be an agent's choice.
func (u *ui) daemonLine(line string) error {
	if u.json {
		return writeJSONLine(u.out, map[string]string{"line": line})
	}
	_, err := fmt.Fprintln(u.out, plain(line))
	return err
}

// A lineWriter calls line for each whole line that is written to it.
type lineWriter struct {
	part []byte
	line func(string) error
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte{'\n'})
		if !ok {
			return len(p), nil
		}
		if err := l.line(string(line)); err != nil {
			return 0, err
		}
		l.part = append([]byte(nil), rest...)
	}
}

// followPause is how often a log that is followed is looked at: it is a file, which tells nobody of its growth.
const followPause = 250 * time.Millisecond

// daemonLog shows the end of the daemon's log file, and with follow what comes, over the daemon's turning of the file.
func (u *ui) daemonLog(ctx context.Context, path string, follow bool, lines int) error {
	var whole []byte
	found := false
	var file *os.File // of now; nil while there is none
	for _, p := range []string{path + dirs.OldLog, path} {
		f, err := os.Open(p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fault.Wrap(fault.Failed, err, "", "handlerd's log")
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		if err != nil {
			return fault.Wrap(fault.Failed, err, "", "handlerd's log")
		}
		found, whole, file = true, append(whole, data...), f
		if p != path {
			file = nil
		}
	}
	if !found && !follow {
		return fault.New(fault.NotFound, "", "there is no log yet: handlerd was never started by a command here")
	}
	rows := strings.Split(strings.TrimSuffix(string(whole), "\n"), "\n")
	for _, row := range rows[max(0, len(rows)-lines):] {
		if len(whole) == 0 {
			break
		}
		if err := u.daemonLine(row); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	return followFile(ctx, path, file, &lineWriter{line: u.daemonLine})
}

// followFile writes what is appended to file, which is at path, to w, and goes on with the next one there when it is
// turned; nil for one that is not there yet.
func followFile(ctx context.Context, path string, file *os.File, w io.Writer) error {
	tick := time.NewTicker(followPause)
	defer tick.Stop()
	for {
		if file == nil {
			f, err := os.Open(path)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if err == nil {
				defer f.Close()
				file = f
			}
		}
		if file != nil {
			// Whether it was turned is asked first: what is read then is all there will be.
			turned := !sameFile(path, file)
			if _, err := io.Copy(w, file); err != nil {
				return err
			}
			if turned {
				file = nil
				continue
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func sameFile(path string, file *os.File) bool {
	now, err := os.Stat(path)
	old, oerr := file.Stat()
	return err == nil && oerr == nil && os.SameFile(now, old)
}
