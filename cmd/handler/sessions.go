package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/cmd/handler/internal/runner"
	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

func newSessions(u *ui) *cobra.Command {
	cmd := group("sessions", "List, read and remove conversations with agents", newSessionsList(u), newSessionsShow(u), newSessionsRm(u))
	cmd.Long = `Every conversation with an agent is kept, whoever its client is: an editor, handler run or the page. It outlives its run,
and goes on in another where the agent can take it up again: handler run AGENT PROMPT --continue.

An id is accepted by its unique beginning.`
	cmd.Example = "  handler sessions\n  handler sessions show k3f9\n  handler attach k3f9"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return u.listSessions(cmd.Context(), client.SessionFilter{Limit: 30})
	}
	return cmd
}

func newSessionsList(u *ui) *cobra.Command {
	f := client.SessionFilter{}
	cmd := &cobra.Command{
		Use: "list", Short: "List sessions, the last used first", Args: usageArgs(cobra.NoArgs),
		Example: "  handler sessions list --agent web\n  handler sessions list --query \"failing test\"\n  handler sessions list --live --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := u.knowAgent(f.Agent); err != nil {
				return err
			}
			return u.listSessions(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Agent, "agent", "", "only those of this agent")
	fl.StringVar(&f.Query, "query", "", "only those with this in their title, agent, folder or one of their prompts")
	fl.BoolVar(&f.Live, "live", false, "only those that are open in a run")
	fl.IntVar(&f.Limit, "limit", 30, "how many, at most 500")
	return cmd
}

func (u *ui) listSessions(ctx context.Context, f client.SessionFilter) error {
	c, d, err := u.connect(ctx)
	if err != nil {
		return err
	}
	list, err := c.Sessions(ctx, f)
	if err != nil {
		return err
	}
	return u.result(list, func(w io.Writer) error {
		if len(list) == 0 {
			_, err := fmt.Fprintln(w, "no sessions")
			return err
		}
		rows := [][]string{{"ID", "AGENT", "STATE", "USED", "FOLDER", "TITLE"}}
		for _, s := range list {
			rows = append(rows, []string{s.ID, s.Agent, sessionState(s), ago(s.Updated), tilde(s.Cwd, d.Home), runner.Fit(plain(s.Title), 60)})
		}
		return table(w, rows)
	})
}

// sessionState says in a word or two what a session is doing.
func sessionState(s types.Session) string {
	switch {
	case s.Run != "":
		return s.Turn + " in " + s.Run
	case s.Continues != "":
		return "can go on"
	}
	return "ended"
}

func newSessionsShow(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "show SESSION", Short: "Print a conversation as it was", Args: usageArgs(cobra.ExactArgs(1)),
		Long:    "Prints a conversation as handler run prints it. With --json it prints the events, one a line, as the API gives them.",
		Example: "  handler sessions show k3f9\n  handler sessions show k3f9 --json | jq -r 'select(.kind == \"prompt\")'",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			return u.showEvents(cmd.Context(), c, u.viewer(d, runner.Options{}), args[0], 0, false)
		},
	}
}

func newAttach(u *ui) *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use: "attach SESSION", Short: "Follow a live session, whoever its client is, and answer what it asks", Args: usageArgs(cobra.ExactArgs(1)),
		Long: `Prints the last turn of a session and what comes after, until the session ends or you press Ctrl-C, which ends
nothing but this: what is asked then stays open.

On a terminal it asks you what Handler asks about the run, and of a session of the page's what the agent asks; an answer from
elsewhere takes a question away. You count as somebody who is there, as on the terminal of handler run. The questions of an
agent whose client is an editor or handler run are shown, and answered there. On a pipe, with --json or --watch nothing is asked
here: see handler approvals.`,
		Example: "  handler attach k3f9t2\n  handler attach k3f9t2 --watch\n  handler sessions list --live",
		RunE: func(cmd *cobra.Command, args []string) error {
			return u.attach(cmd.Context(), args[0], !watch && !u.json && terminal(u.in) && terminal(u.errout))
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "only watch: answer nothing, and do not count as somebody who is there")
	return cmd
}

// attach follows a live session from its last prompt on. With person, who is at the terminal, it asks there.
func (u *ui) attach(ctx context.Context, id string, person bool) error {
	c, d, err := u.connect(ctx)
	if err != nil {
		return err
	}
	s, err := c.Session(ctx, id)
	if err != nil {
		return err
	}
	if s.Run == "" {
		return fault.New(fault.Failed, "read it: handler sessions show "+s.ID, "session %s is not live", s.ID)
	}
	v := u.viewer(d, runner.Options{
		Agent: s.Agent, Terminal: person, Stdin: u.in, By: "handler attach",
		Watch: func(ctx context.Context, each func(types.ApprovalEvent) error) error {
			return c.WatchApprovals(ctx, s.Run, each)
		},
		Answer:  c.Answer,
		Picture: func(ctx context.Context, a types.Approval) string { return u.pictureText(ctx, c, d, a, u.errout) },
		Reply:   func(ctx context.Context, a types.QuestionAnswer) error { return c.AnswerQuestion(ctx, s.ID, a) },
	})
	last := int64(1)
	err = c.SessionEvents(ctx, s.ID, 0, false, func(e types.Event) error {
		if e.Kind == types.EventPrompt {
			last = e.Seq
		}
		v.Before(e)
		return nil
	})
	if err != nil {
		return err
	}
	if person {
		v.Attend(ctx)
		defer v.Leave()
	}
	return u.showEvents(ctx, c, v, s.ID, last-1, true)
}

var errSessionEnded = errors.New("the session has ended")

// viewer makes one that prints to where results go.
func (u *ui) viewer(d dirs.Dirs, o runner.Options) *runner.Viewer {
	o.Stdout, o.Stderr, o.Color, o.Width, o.Home = u.out, u.errout, u.color(u.out), width(u.out), d.Home
	return runner.NewViewer(o)
}

// showEvents prints the events of a session with numbers above after, and with follow those that come until it ends.
func (u *ui) showEvents(ctx context.Context, c *client.Client, v *runner.Viewer, id string, after int64, follow bool) error {
	err := c.SessionEvents(ctx, id, after, follow, func(e types.Event) error {
		if u.json {
			if err := writeJSONLine(u.out, e); err != nil {
				return err
			}
		} else if err := v.Print(e); err != nil {
			return err
		}
		if follow && e.Kind == types.EventRun {
			// It may be open in another run already.
			if s, err := c.Session(ctx, id); err != nil || s.Run == "" && s.Events == e.Seq {
				return errSessionEnded
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errSessionEnded), follow && ctx.Err() != nil:
		err = nil
	case follow && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)):
		err = fault.New(fault.Failed, "read it: handler sessions show "+id, "handlerd ended, or the session was removed")
	}
	return errors.Join(err, v.End())
}

func newSessionsRm(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "rm SESSION…", Short: "Remove sessions with their events and artifacts", Args: usageArgs(cobra.MinimumNArgs(1)),
		Long: `Removes what Handler keeps of conversations: their events and the artifacts that they made. What the agent keeps of
them in its own state stays. The run of a session of the page's is ended first; one that is live in an editor's or a terminal's
run is not removed.`,
		Example: "  handler sessions rm k3f9 t0xs",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := c.RemoveSession(cmd.Context(), id); err != nil {
					return err
				}
			}
			return u.result(map[string]int{"removed": len(args)}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "removed %s\n", plural(len(args), "session"))
				return err
			})
		},
	}
}

// last stands for the last session of an agent and a folder where one can be named.
const lastSession = "last"

// continued finds the session that goes on: the one whose id begins with named, or with "last" the last of an agent in a
// folder.
func (u *ui) continued(ctx context.Context, c *client.Client, agent, cwd, named string) (types.Session, error) {
	var s types.Session
	if named == lastSession {
		if resolved, err := filepath.EvalSymlinks(cwd); err == nil {
			cwd = resolved
		}
		list, err := c.Sessions(ctx, client.SessionFilter{Agent: agent, Cwd: cwd, Limit: 1})
		if err != nil {
			return s, err
		}
		if len(list) == 0 {
			return s, fault.New(fault.NotFound, "name one of handler sessions list --agent "+agent+": --continue=SESSION", "agent %s has no session in %s", agent, cwd)
		}
		s = list[0]
	} else {
		var err error
		if s, err = c.Session(ctx, named); err != nil {
			return s, err
		}
	}
	switch {
	case s.Agent != agent:
		return s, fault.New(fault.Usage, "handler run "+s.Agent+" PROMPT… --continue="+s.ID, "session %s is one of agent %s", s.ID, s.Agent)
	case s.Run != "":
		return s, fault.New(fault.Refused, "follow it: handler attach "+s.ID+"; or end its run: handler kill "+s.Run, "session %s is live in run %s", s.ID, s.Run)
	case s.Continues == "":
		return s, fault.New(fault.Refused, "begin another: leave --continue out; read this one: handler sessions show "+s.ID,
			"agent %s (%s) cannot take up a session again: it has neither session/load nor session/resume", s.Agent, s.Harness)
	}
	return s, nil
}

// sessionIDs are the sessions that are kept, the last used first.
func (u *ui) sessionIDs(f client.SessionFilter) completer {
	return func(ctx context.Context) []string {
		c, _, ok := u.daemon()
		if !ok {
			return nil
		}
		list, err := c.Sessions(ctx, f)
		if err != nil {
			return nil
		}
		var names []string
		for _, s := range list {
			names = append(names, s.ID+"\t"+s.Agent+", "+ago(s.Updated)+": "+runner.Fit(plain(s.Title), 50))
		}
		return names
	}
}
