package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
)

// changeFlags are those of policy allow and policy deny.
type changeFlags struct {
	once, always, private bool
	run, addon            string
}

// everyRun is what --run says without a run.
const everyRun = "every live run"

func newPolicyChange(u *ui, kind string) *cobra.Command {
	var f changeFlags
	verb, effect := "Allow", "counts from the next connection on"
	if kind == policy.KindDeny {
		verb, effect = "Deny", "counts from the next connection on, and what is open to such a destination is cut"
	}
	cmd := &cobra.Command{
		Use: kind + " AGENT RULE…", Short: verb + " a destination: for good, or only in runs that live now", Args: usageArgs(cobra.MinimumNArgs(2)),
		Long: fmt.Sprintf(`Adds a network rule to the agent's file, whose comments are kept, and to its live runs, where it %s.
With --run it is for live runs only and gone with them. The same words of the opposite kind are taken back; otherwise
a rule that denies wins.

RULE is what handler agent edit takes: a host, *.suffix, host:port, an address.`, effect),
		Example: fmt.Sprintf("  handler policy %s web api.example.org\n  handler policy %s web '*.example.org' --run\n  handler policy %s web api.example.org:8443 --run=k3f9", kind, kind, kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			return u.changeRules(cmd, args[0], kind, args[1:], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.run, "run", "", "until the run ends: every live run of the agent, or --run=ID")
	fl.Lookup("run").NoOptDefVal = everyRun
	fl.StringVar(&f.addon, "addon", "", "a rule of the addon's hosted server, which has rules of its own, instead of the agent's")
	fl.BoolVar(&f.always, "always", false, "for good: save it in the agent's file (the default)")
	if kind == policy.KindAllow {
		cmd.Example += "\n  handler policy allow web --private 10.0.0.5:8080"
		fl.BoolVar(&f.once, "once", false, "for the next connection of each live run of the agent")
		fl.BoolVar(&f.private, "private", false, "RULE is a private address:port or prefix:port")
	}
	return cmd
}

func (u *ui) changeRules(cmd *cobra.Command, agent, kind string, rules []string, f changeFlags) error {
	if err := oneOf(cmd, "once", "run", "always"); err != nil {
		return err
	}
	change := types.RuleChange{Agent: agent, Server: f.addon, Kind: kind, Scope: types.ScopeAlways}
	if f.private {
		change.Kind = policy.KindPrivate
	}
	switch {
	case f.once:
		change.Scope = types.ScopeOnce
	case cmd.Flags().Changed("run"):
		change.Scope = types.ScopeRun
		if f.run != everyRun {
			change.Run = f.run
		}
	}
	c, _, err := u.connect(cmd.Context())
	if err != nil {
		return err
	}
	all := []types.RuleChanged{}
	for _, rule := range rules {
		change.Rule = rule
		done, err := c.ChangeRules(cmd.Context(), change)
		if err != nil {
			return err
		}
		all = append(all, done)
	}
	return u.result(all, func(w io.Writer) error {
		for _, done := range all {
			fmt.Fprintln(w, changedText(done))
		}
		return nil
	})
}

// changedText says what a change of the rules did.
func changedText(d types.RuleChanged) string {
	verb := map[string]string{policy.KindAllow: "allowed", policy.KindDeny: "denied", policy.KindPrivate: "allowed private"}[d.Kind]
	held := map[string]string{
		types.ScopeOnce: "once", types.ScopeRun: "until the run ends", types.ScopeAlways: "always",
	}[d.Scope]
	whose := "agent " + d.Agent
	if d.Server != "" {
		whose = "the server " + plain(d.Server) + " of " + whose
	}
	text := fmt.Sprintf("%s %s for %s, %s", verb, plain(d.Rule), whose, held)
	if len(d.Runs) > 0 {
		text += " · from the next connection on in run " + strings.Join(d.Runs, ", ")
	}
	if d.Note != "" {
		text += "\n  " + plain(d.Note)
	}
	return text
}

func newPolicyLive(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "live RUN", Short: "List the rules that judge a live run now, those that were added to it among them", Args: usageArgs(cobra.ExactArgs(1)),
		Example: "  handler policy live k3f9",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			rules, err := c.Rules(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return u.result(rules, func(w io.Writer) error {
				if len(rules) == 0 {
					_, err := fmt.Fprintln(w, "no rule: everything is refused")
					return err
				}
				rows := [][]string{}
				for _, r := range rules {
					by := r.By
					if r.Server != "" {
						by = plain("the server " + r.Server + ": " + by)
					}
					rows = append(rows, []string{r.Kind, r.Rule, by})
				}
				return table(w, rows)
			})
		},
	}
}

// logFlags are those of policy log.
type logFlags struct {
	agent, run string
	follow     bool
	last       int
}

func newPolicyLog(u *ui) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "log [AGENT]", Short: "Show what the network rules refused and what you were asked, with the remedy", Args: usageArgs(cobra.MaximumNArgs(1)),
		Long: `Prints the newest network verdicts of the audit log, oldest of them first: refusals with what to type about them,
questions with their answers, and changes of the rules. What was allowed by a rule is not in it.`,
		Example: "  handler policy log web\n  handler policy log --run k3f9 --follow\n  handler policy log --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if f.agent != "" && f.agent != args[0] {
					return fault.New(fault.Usage, "", "two agents are named: %s and %s", args[0], f.agent)
				}
				f.agent = args[0]
			}
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			known := u.knowAgent(f.agent)
			if known != nil && f.follow {
				return known
			}
			shown := false
			err = c.Verdicts(cmd.Context(), f.agent, f.run, f.last, f.follow, func(v types.NetworkVerdict) error {
				shown = true
				if u.json {
					return writeJSONLine(u.out, v)
				}
				return printVerdict(u.out, v)
			})
			if err != nil || shown || f.follow {
				return ignoreCancel(cmd.Context(), err)
			}
			if known != nil { // of one that was removed there would be something left
				return known
			}
			u.say("nothing was refused, asked or changed")
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.agent, "agent", "", "only this agent's")
	fl.StringVar(&f.run, "run", "", "only this run's")
	fl.BoolVarP(&f.follow, "follow", "f", false, "go on with what comes, until Ctrl-C")
	fl.IntVarP(&f.last, "lines", "n", 100, "how many of the past")
	return cmd
}

func printVerdict(w io.Writer, v types.NetworkVerdict) error {
	verdict := v.Verdict
	switch {
	case v.Kind == audit.KindRules:
		verdict = "rule"
	case verdict == "":
		verdict = "–"
	}
	reason := plain(v.Reason)
	if v.Rule != "" {
		reason = v.Rule + ": " + reason
	}
	when := v.Time.Local().Format("15:04:05")
	if time.Since(v.Time) > 12*time.Hour {
		when = v.Time.Local().Format("2006-01-02 15:04:05")
	}
	run := v.Run
	if run == "" {
		run = "–"
	}
	if _, err := fmt.Fprintf(w, "%s  %-4s  %s  %-7s  %s  %s\n", when, run, plain(v.Agent), verdict, plain(v.Subject), reason); err != nil {
		return err
	}
	if v.Hint == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "          %s\n", plain(v.Hint))
	return err
}
