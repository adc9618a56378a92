package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/handlerd/handler/cmd/handler/internal/runner"
	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// runFlags are those of handler run.
type runFlags struct {
	answerFlags
	display string
	images  []string
	cwd     string
	goOn    string // a session that goes on, by its id; "" for none
	limits  limitFlags
}

func newRun(u *ui) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run AGENT PROMPT…",
		Short: "Run an agent on a prompt, in a strict sandbox, and print what it does",
		Long: `Runs AGENT in a strict sandbox, sends it PROMPT and prints its answer, its tool calls and its questions as they
come. Pictures that it makes are kept as artifacts (handler artifacts) and their paths printed. An agent that names no scopes sees the folder this
is started in.

AGENT is one you saved (handler agent list), or the name of a harness.`,
		Example: `  handler run claude-code "what does this project do?"
  handler run web "open http://127.0.0.1:5173 and tell me what is broken" --display
  handler run demo --yes "run ls -la then say done" --json
  handler run claude-code "and now the tests" --continue
  handler run claude-code --memory 2GB --lifetime 1h "fix the failing test"`,
		Args: usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf(cmd, "yes", "read-only"); err != nil {
				return err
			}
			return u.run(cmd.Context(), args[0], strings.Join(args[1:], " "), f)
		},
	}
	f.register(cmd)
	fl := cmd.Flags()
	displayFlag(cmd, &f.display, "show the agent's windows on your screen (Wayland), or vnc: on one of the sandbox's own that you watch (handler web)")
	fl.StringArrayVar(&f.images, "image", nil, "picture to send with the prompt (repeatable)")
	fl.StringVar(&f.goOn, "continue", "", "go on with a session of the agent: the last one in this folder, or --continue=SESSION")
	fl.Lookup("continue").NoOptDefVal = lastSession
	fl.StringVarP(&f.cwd, "cwd", "C", "", "folder to start in (default: this one)")
	f.limits.register(cmd)
	return cmd
}

// run is one prompt from start to summary.
func (u *ui) run(ctx context.Context, agent, prompt string, f runFlags) error {
	cwd, err := filepath.Abs(f.cwd)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "cd to a folder that exists", "the current folder")
	}
	if f.cwd != "" {
		if err := u.checkCwd(agent, cwd); err != nil {
			return err
		}
	}
	req := types.RunRequest{Agent: agent, Cwd: cwd, AsksItself: true, Client: types.ClientCommand, Limits: f.limits.request()}
	if err := wantDisplay(f.display, &req); err != nil {
		return err
	}
	c, d, err := u.connect(ctx)
	if err != nil {
		return err
	}
	var goesOn types.Session
	if f.goOn != "" {
		if goesOn, err = u.continued(ctx, c, agent, cwd, f.goOn); err != nil {
			return err
		}
		cwd = goesOn.Cwd // an agent that names no scopes sees the folder that it saw
	}
	began := time.Now()
	person := terminal(u.in) && terminal(u.errout)
	stream, err := u.startOn(ctx, c, f.request(req, f.unattended || !person))
	if err != nil {
		return err
	}
	defer stream.Close()
	if !u.json {
		u.headline(ctx, c, stream.RunID, d, time.Since(began))
	}
	// From here on Ctrl-C is the turn's: the first cancels it, the second ends the run.
	interrupt := make(chan os.Signal, 2)
	signal.Notify(interrupt, os.Interrupt)
	defer signal.Stop(interrupt)
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	outcome, err := runner.Run(ctx, stream, runner.Options{
		Prompt: prompt, Images: f.images, Cwd: sessionDir(ctx, c, stream.RunID, cwd), Agent: agent, Run: stream.RunID, Session: goesOn.ACP,
		Yes: f.yes, ReadOnly: f.readOnly, Unattended: f.unattended, Terminal: person,
		JSON: u.json, Color: u.color(u.out), Width: width(u.out),
		Stdin: u.in, Stdout: u.out, Stderr: u.errout,
		Watch: func(ctx context.Context, each func(types.ApprovalEvent) error) error {
			return c.WatchApprovals(ctx, stream.RunID, each)
		},
		Answer:    c.Answer,
		Picture:   func(ctx context.Context, a types.Approval) string { return u.pictureText(ctx, c, d, a, u.errout) },
		LoginHint: u.loginHint(agent),
		Kept:      keptAs(c, stream.RunID), Home: d.Home, Interrupt: interrupt,
		Summary: func(runner.Outcome) []string { return u.summary(ctx, c, stream.RunID) },
	})
	stream.Close()
	notices, end := waitGone(ctx, c, stream.RunID) // the runner has said how it ended
	for _, n := range notices {
		if !overtaken(n, end) {
			u.say("%s", plain(n))
		}
	}
	if outcome.Status != 0 {
		return errReported{outcome.Status}
	}
	return err
}

// keptAs finds the artifact that handlerd keeps of a picture of the run: it has seen every one before the client has.
func keptAs(c *client.Client, run string) func(context.Context, string) (id, path string, err error) {
	return func(ctx context.Context, sum string) (string, string, error) {
		list, err := c.Artifacts(ctx, client.ArtifactFilter{Run: run})
		if err != nil {
			return "", "", err
		}
		for _, a := range list.Artifacts {
			if a.SHA256 == sum {
				return a.ID, a.Path, nil
			}
		}
		return "", "", runner.ErrNotKept
	}
}

// overtaken tells whether a notice warned of the very limit that the run has met since.
func overtaken(notice string, end error) bool {
	limit, _, ok := strings.Cut(notice, ": ")
	return ok && end != nil && strings.HasPrefix(fault.Of(end).Text, limit+" limit: ")
}

// goneTimeout bounds how long a command waits for the run it has ended to be taken apart.
const goneTimeout = 15 * time.Second

// waitGone returns when nothing of a run is left, so that what a script does next finds none of it: the run's log ends
// last. It gives what the person should know of the run's end, such as files that their own tools would run, and why it
// ended where nobody meant it to.
func waitGone(ctx context.Context, c *client.Client, id string) (notices []string, end error) {
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	err := c.Log(ctx, id, true, func(l types.LogLine) error {
		if l.From == types.FromNotice {
			notices = append(notices, l.Text)
		}
		if l.End != nil {
			end = l.End.Fault()
		}
		return nil
	})
	if err != nil && end == nil { // a daemon that is gone has no run left to wait for
		end = fault.Wrap(fault.Failed, err, "handler logs "+id, "how run %s ended is not known", id)
	}
	return notices, end
}

// loginHint is what to type when an agent has no key.
func (u *ui) loginHint(agent string) string {
	c, err := u.catalog()
	if err != nil {
		return ""
	}
	return c.LoginHint(agent)
}

// sessionDir is where the session works: where the run was started, if the agent sees it, else its first scope.
func sessionDir(ctx context.Context, c *client.Client, id, cwd string) string {
	run, err := c.Run(ctx, id)
	if err != nil || len(run.Scopes) == 0 {
		return cwd
	}
	if resolved, err := filepath.EvalSymlinks(cwd); err == nil {
		for _, s := range run.Scopes {
			if rel, err := filepath.Rel(s.Path, resolved); err == nil && filepath.IsLocal(rel) {
				return resolved
			}
		}
	}
	return run.Scopes[0].Path
}

// headline says what was started, as far as a person needs it to trust it.
func (u *ui) headline(ctx context.Context, c *client.Client, id string, d dirs.Dirs, took time.Duration) {
	run, err := c.Run(ctx, id)
	if err != nil {
		return // it has ended already; the runner says so
	}
	parts := []string{fmt.Sprintf("● %s  %s in a strict sandbox", run.Agent, run.Harness)}
	for _, s := range run.Scopes {
		parts = append(parts, fmt.Sprintf("scope %s (%s)", tilde(s.Path, d.Home), s.Mode))
	}
	network := "network: " + plural(run.Hosts, "host")
	if run.Asks {
		network += ", you are asked about others"
	}
	if len(run.Providers) > 0 {
		network += " and " + strings.Join(run.Providers, ", ") + " with your key"
	}
	parts = append(parts, network)
	switch run.Browser {
	case "wayland":
		parts = append(parts, "browser on your screen")
	case types.BrowserGuarded:
		parts = append(parts, "guarded browser")
	case types.BrowserVNC:
		parts = append(parts, "browser on a display of the sandbox's own (handler still "+run.ID+")")
	case "headless":
		parts = append(parts, "browser without a window")
	}
	fmt.Fprintln(u.errout, runner.Text(strings.Join(parts, " · ")))
	for _, n := range run.Notices {
		fmt.Fprintf(u.errout, "  %s\n", plain(n))
	}
	fmt.Fprintf(u.errout, "  run %s started in %s\n", run.ID, seconds(took))
}

// summary is what the daemon knows of a run that ends.
func (u *ui) summary(ctx context.Context, c *client.Client, id string) []string {
	run, err := c.Run(ctx, id)
	if err != nil || run.Refused == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d refused by policy (handler logs %s)", run.Refused, id)}
}

func tilde(path, home string) string {
	if rel, err := filepath.Rel(home, path); err == nil && filepath.IsLocal(rel) {
		return filepath.Join("~", rel)
	}
	return path
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func width(f *os.File) int {
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return w
}
