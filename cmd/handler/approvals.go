package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/cmd/handler/internal/runner"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// scopeFlags say how long an answer or a rule holds.
type scopeFlags struct{ once, run, always bool }

func (f *scopeFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.once, "once", false, "for what waits now (the default)")
	fl.BoolVar(&f.run, "run", false, "until the run ends")
	fl.BoolVar(&f.always, "always", false, "for good: the rule is saved in the agent's file")
}

// oneOf makes more than one of some flags a usage error.
func oneOf(cmd *cobra.Command, names ...string) error {
	given := []string{}
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return fault.New(fault.Usage, "see: "+cmd.CommandPath()+" --help", "only one of %s can be", strings.Join(given, " and "))
	}
	return nil
}

func (f *scopeFlags) scope() string {
	switch {
	case f.run:
		return types.ScopeRun
	case f.always:
		return types.ScopeAlways
	}
	return types.ScopeOnce
}

func newApprovals(u *ui) *cobra.Command {
	cmd := group("approvals", "Answer what Handler asks you: what an agent wants and no rule decides",
		newApprovalsList(u), newApprovalsShow(u), newApprovalsAnswer(u, true), newApprovalsAnswer(u, false), newApprovalsWatch(u))
	cmd.Long = `An agent with unknown = "ask" (handler agent edit AGENT --unknown ask) has its connections to hosts that no rule
names held for 60 s while you are asked, and one that acts on web pages with the guarded browser waits for 2 minutes: here,
and on the terminal of handler run. You are only asked while somebody is there to be: while handler approvals watch runs,
the page is open, or the run's own terminal is, or that of handler attach. Without, it is refused at once.

Every click and everything typed on a page that is not your own is a question of its own, answered for that once.

An id is accepted by its beginning.`
	cmd.Example = "  handler approvals\n  handler approvals watch\n  handler approvals approve 3f9k --run"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return u.listApprovals(cmd) }
	return cmd
}

func newApprovalsList(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the questions that wait", Args: usageArgs(cobra.NoArgs),
		Example: "  handler approvals list\n  handler approvals list --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return u.listApprovals(cmd) },
	}
}

func (u *ui) listApprovals(cmd *cobra.Command) error {
	c, err := u.running(cmd)
	if err != nil {
		return err
	}
	list := []types.Approval{}
	if c != nil {
		if list, err = c.Approvals(cmd.Context(), ""); err != nil {
			return err
		}
	}
	return u.result(list, func(w io.Writer) error {
		if len(list) == 0 {
			_, err := fmt.Fprintln(w, "no questions wait")
			return err
		}
		rows := [][]string{{"ID", "RUN", "QUESTION", "ASKED", "ANSWER WITHIN"}}
		for _, a := range list {
			rows = append(rows, []string{shortID(a.ID), a.Run, a.Text, ago(a.Asked), left(a.Expires)})
		}
		return table(w, rows)
	})
}

// shortID is what of a question's id is shown, and enough to type.
func shortID(id string) string { return id[:min(6, len(id))] }

// left is the time that is left until t.
func left(t time.Time) string {
	return fmt.Sprintf("%d s", max(0, int(time.Until(t).Round(time.Second).Seconds())))
}

func newApprovalsShow(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a question whole", Args: usageArgs(cobra.ExactArgs(1)),
		Example: "  handler approvals show 3f9k",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			a, err := c.Approval(cmd.Context(), strings.ToLower(args[0]))
			if err != nil {
				return err
			}
			return u.result(a, func(w io.Writer) error {
				if err := printApproval(w, a); err != nil {
					return err
				}
				_, err := io.WriteString(w, u.pictureText(cmd.Context(), c, d, a, u.out))
				return err
			})
		},
	}
}

func printApproval(w io.Writer, a types.Approval) error {
	waiting := ""
	if a.Kind == types.ApprovalNetwork {
		waiting = " · " + plural(a.Waiting, "connection") + map[bool]string{true: " waits", false: " wait"}[a.Waiting == 1]
	}
	id, scopes, picture := shortID(a.ID), "", ""
	if len(a.Scopes) > 1 {
		scopes = " [--" + plain(strings.Join(a.Scopes, "|--")) + "]"
	}
	if a.Browser != nil && a.Browser.Picture != nil {
		picture = "  handler approvals show " + id + " (with a picture of it)\n"
	}
	_, err := fmt.Fprintf(w, "? %s\n  run %s%s · asked %s · refused in %s\n  %s\n%s  handler approvals approve %s%s\n  handler approvals deny %s%s\n",
		plain(a.Text), a.Run, waiting, ago(a.Asked), left(a.Expires), strings.Join(runner.Details(a), "\n  "), picture, id, scopes, id, scopes)
	return err
}

func newApprovalsAnswer(u *ui, allow bool) *cobra.Command {
	var f scopeFlags
	use, short, aliases := "deny ID", "Say no, once (the default), for the run or for good", []string{"refuse"}
	if allow {
		use, short, aliases = "approve ID", "Say yes, once (the default), for the run or for good", []string{"allow"}
	}
	verb, _, _ := strings.Cut(use, " ")
	cmd := &cobra.Command{
		Use: use, Short: short, Aliases: aliases, Args: usageArgs(cobra.ExactArgs(1)),
		Example: fmt.Sprintf("  handler approvals %s 3f9k\n  handler approvals %s 3f9k --always", verb, verb),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf(cmd, "once", "run", "always"); err != nil {
				return err
			}
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			done, err := c.Answer(cmd.Context(), strings.ToLower(args[0]), types.ApprovalAnswer{Allow: allow, Scope: f.scope(), By: "handler approvals"})
			if err != nil {
				return err
			}
			return u.result(done, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, answered(done))
				return err
			})
		},
	}
	f.register(cmd)
	return cmd
}

// answered says what an answer did: "allowed api.example.org:443 for agent web, for run k3f9".
func answered(done types.ApprovalDone) string {
	verb := "refused"
	if done.Answer.Allow {
		verb = "allowed"
	}
	held := map[string]string{
		types.ScopeOnce: "once", types.ScopeRun: "for run " + done.Approval.Run, types.ScopeAlways: "always",
	}[done.Answer.Scope]
	if len(done.Approval.Scopes) == 1 {
		held = "this once"
	}
	text := fmt.Sprintf("%s %s for agent %s, %s", verb, plain(done.Approval.Subject), done.Approval.Agent, held)
	if done.Note != "" {
		text += ": " + plain(done.Note)
	}
	return text
}

func newApprovalsWatch(u *ui) *cobra.Command {
	var run string
	cmd := &cobra.Command{
		Use: "watch", Short: "Be there to be asked: print questions as they come, until Ctrl-C", Args: usageArgs(cobra.NoArgs),
		Long: `Prints what Handler asks, with the commands that answer it, and how each question ends. While it runs, somebody
counts as being there: connections to hosts that no rule names, and what an agent does on web pages, wait for you instead
of being refused.`,
		Example: "  handler approvals watch\n  handler approvals watch --run k3f9\n  handler approvals watch --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			err = c.WatchApprovals(cmd.Context(), run, u.showEvent)
			if err == nil && cmd.Context().Err() == nil {
				return fault.New(fault.Failed, "handler approvals watch", "handlerd has ended")
			}
			return ignoreCancel(cmd.Context(), err)
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "only the questions of this run")
	return cmd
}

// ignoreCancel makes the person's Ctrl-C the ordinary end of what streams until then.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// showEvent prints what happens to a question.
func (u *ui) showEvent(e types.ApprovalEvent) error {
	if u.json {
		return writeJSONLine(u.out, e)
	}
	if e.Approval == nil {
		u.say("you are asked here from now on; Ctrl-C ends it")
		return nil
	}
	a := *e.Approval
	switch e.State {
	case types.ApprovalAsked:
		return printApproval(u.out, a)
	case types.ApprovalAnswered:
		_, err := fmt.Fprintf(u.out, "  %s  %s\n", shortID(a.ID), answered(types.ApprovalDone{Approval: a, Answer: *e.Answer}))
		return err
	case types.ApprovalExpired:
		_, err := fmt.Fprintf(u.out, "  %s  refused %s: nobody answered\n", shortID(a.ID), plain(a.Subject))
		return err
	}
	_, err := fmt.Fprintf(u.out, "  %s  withdrawn: nothing waits for %s any more\n", shortID(a.ID), plain(a.Subject))
	return err
}
