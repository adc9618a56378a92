package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/fault"
)

// newRoot makes the whole command line.
func newRoot(u *ui) *cobra.Command {
	root := &cobra.Command{
		Use:   "handler",
		Short: "Run any ACP coding agent in a strict sandbox, with a browser you can watch",
		Long: `Handler runs any coding agent that speaks ACP in a strict rootless podman sandbox whose only way out is a
proxy that checks every destination, and gives the agent a browser.`,
		Example: `  handler run demo --yes "run ls -la then say done"
  handler run claude-code "what does this project do?"
  handler doctor`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(u.out)
	root.SetErr(u.errout)
	root.PersistentFlags().BoolVar(&u.json, "json", false, "print JSON for programs")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fault.New(fault.Usage, "see: "+cmd.CommandPath()+" --help", "%v", err)
	})
	root.AddCommand(
		newACP(u), newRun(u), newPS(u), newSessions(u), newAttach(u), newShell(u), newForward(u), newKill(u), newLogs(u),
		newAgent(u), newHarness(u), newAddon(u), newToolbox(u), newPolicy(u), newGateway(u), newStill(u), newApprovals(u), newArtifacts(u), newAudit(u), newSecret(u),
		newWeb(u), newDoctor(u), newDaemon(u), newVersion(u), newMan(),
	)
	u.addCompletions(root)
	return root
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		if cmd.HasSubCommands() && len(args) > 0 {
			hint := "see: " + cmd.CommandPath() + " --help"
			cmd.SuggestionsMinimumDistance = 2 // without it only beginnings count
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "did you mean: " + cmd.CommandPath() + " " + strings.Join(near, ", ")
			}
			return fault.New(fault.Usage, hint, "unknown command %q", strings.TrimSpace(cmd.CommandPath()+" "+args[0]))
		}
		usage := fmt.Sprintf("usage: %s", cmd.UseLine())
		if missing := missingArgs(cmd.Use, len(args)); missing != "" {
			return fault.New(fault.Usage, usage, "%s is missing", missing)
		}
		return fault.New(fault.Usage, usage, "%v", err)
	}
}

// missingArgs gives the arguments that a command needs, by the words of its usage, and that are not among the n given.
func missingArgs(use string, n int) string {
	var needed []string
	for _, word := range strings.Fields(use)[1:] {
		if !strings.HasPrefix(word, "[") {
			needed = append(needed, word)
		}
	}
	return strings.Join(needed[min(n, len(needed)):], " ")
}

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// dirs finds Handler's folders, or says what to do about it.
func (u *ui) dirs() (dirs.Dirs, error) {
	d, err := dirs.Find(u.getenv)
	if errors.Is(err, dirs.ErrRoot) {
		return d, fault.New(fault.Usage,
			"run it as an ordinary user:\n  sudo -iu YOU handler …\nto try it from a root shell, in the source tree: make demo",
			"%v", err)
	}
	if err != nil {
		return d, fault.New(fault.Failed, "", "%v", err)
	}
	return d, nil
}
