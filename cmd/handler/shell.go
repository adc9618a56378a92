package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

func newShell(u *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shell RUN [--] [COMMAND…]",
		Short: "Open a terminal inside a run's sandbox, or run a command there",
		Long: `Opens a shell in the sandbox of a live run, beside the agent: the same folders, network, environment and user. With
COMMAND it runs that instead. Where standard input and output are a terminal the command gets one, else pipes.

What it shows comes from the sandbox, where the agent can read and change all of it: type no password there. It ends
with the run, with everything it started; so it does when you type ~. at the beginning of a line.

The exit code is the command's own.`,
		Example: `  handler shell k3f9
  handler shell k3f9 -- git status
  echo 'ls | wc -l' | handler shell k3f9 -- bash -s`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args[1:]
			if len(command) > 0 && command[0] == "--" {
				command = command[1:]
			}
			return u.shell(cmd, args[0], command)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows RUN is the command's
	return cmd
}

func (u *ui) shell(cmd *cobra.Command, id string, command []string) error {
	if id == "" {
		return errNoID()
	}
	c, err := u.running(cmd)
	if err != nil {
		return err
	}
	if c == nil {
		return u.orEnded(fault.New(fault.NotFound, "see: handler ps", "there is no run %q", id), id)
	}
	req := types.ShellRequest{Command: command, Terminal: terminal(u.in) && terminal(u.out)}
	if req.Terminal {
		req.Term = u.getenv("TERM")
		req.Rows, req.Cols = terminalSize(u.out)
	}
	ctx := cmd.Context()
	shell, err := c.Shell(ctx, id, req)
	if err != nil {
		return u.orEnded(err, id)
	}
	defer shell.Close()
	defer context.AfterFunc(ctx, func() { shell.Close() })()
	code, err := 0, error(nil)
	if req.Terminal {
		code, err = u.onTerminal(shell)
	} else {
		code, err = shell.Serve(u.in, u.out, u.errout)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // what the shell says of its end is only that
	case errors.Is(err, client.ErrLeave):
		return fault.New(fault.Failed, "", "you left the shell; what ran in it was ended")
	case err != nil:
		if runGone(ctx, c, id) != nil {
			if _, end := waitGone(ctx, c, id); end != nil {
				return end // such as a limit, which tells more than that the shell ended
			}
		}
		return err
	case code != 0:
		return errReported{code}
	}
	return nil
}

// runGone gives an error where the run is no longer live, or is being taken apart.
func runGone(ctx context.Context, c *client.Client, id string) error {
	run, err := c.Run(ctx, id)
	if err == nil && run.State == types.StateStopping {
		return fault.New(fault.NotFound, "", "run %s is ending", id)
	}
	return err
}

// onTerminal gives every key to the shell, and puts the person's terminal back as it was.
func (u *ui) onTerminal(shell *client.Shell) (code int, err error) {
	u.say("what this shell shows comes from the sandbox; to leave: exit, or ~. at the beginning of a line")
	old, err := term.MakeRaw(int(u.in.Fd()))
	if err != nil {
		return 0, fault.Wrap(fault.Failed, err, "", "your terminal")
	}
	defer func() {
		// A sandbox can ask the terminal things, whose answers come as if they were typed: they are no command of the
		// person's to the shell that reads next.
		_ = unix.IoctlSetInt(int(u.in.Fd()), unix.TCFLSH, unix.TCIFLUSH)
		term.Restore(int(u.in.Fd()), old)
	}()
	resized := make(chan os.Signal, 1)
	done := make(chan struct{})
	defer close(done)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	go func() {
		for {
			select {
			case <-resized:
				if rows, cols := terminalSize(u.out); rows > 0 {
					_ = shell.Resize(rows, cols) // one that has ended needs none
				}
			case <-done:
				return
			}
		}
	}()
	code, err = shell.Serve(&leaving{r: u.in, begin: true}, u.out, u.errout)
	if err != nil {
		// Whatever had the screen was cut off, and could not give it back.
		_, _ = io.WriteString(u.out, leaveScreen)
	}
	_, _ = io.WriteString(u.out, leaveModes) // a sandbox may end its shell and leave them
	return code, err
}

// leaveScreen ends the other screen, which a full-screen program sets.
const leaveScreen = "\x1b[?1049l\r\n"

// leaveModes ends what else programs set: the mouse, pasting in brackets, a hidden cursor, colours.
const leaveModes = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m"

// terminalSize gives 0 where it is not known.
func terminalSize(f *os.File) (rows, cols uint16) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 || w > 0xffff || h > 0xffff {
		return 0, 0
	}
	return uint16(h), uint16(w)
}

// leaving passes keys on, and ends at ~. at the beginning of a line, as ssh does: a sandbox that answers nothing must
// not hold the person. ~~ is a plain ~.
type leaving struct {
	r     io.Reader
	begin bool // of a line
	tilde bool // one was typed there, and not passed on yet
}

// Read passes on what is typed; it returns client.ErrLeave to end the shell.
func (l *leaving) Read(p []byte) (int, error) {
	in := make([]byte, max(1, len(p)/2)) // a tilde that was held back may come besides
	n, err := l.r.Read(in)
	out := p[:0]
	for _, c := range in[:n] {
		switch {
		case l.tilde && c == '.':
			return len(out), client.ErrLeave
		case l.tilde:
			l.tilde = false
			if c != '~' {
				out = append(out, '~')
			}
		case l.begin && c == '~':
			l.tilde = true
			continue
		}
		out = append(out, c)
		l.begin = c == '\r' || c == '\n'
	}
	return len(out), err
}
