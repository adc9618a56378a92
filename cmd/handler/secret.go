package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/types"
)

func newSecret(u *ui) *cobra.Command {
	check := &cobra.Command{
		Use: "check AGENT", Short: "Say of each secret of an agent whether it can be read; exit code 1 if one cannot", Args: usageArgs(cobra.ExactArgs(1)),
		Long: `Has the daemon read every secret that a run of the agent would read, and says whether that worked and how long it
took, never what a secret is. It may ask you for a passphrase, as a run would.`,
		Example: "  handler secret check web\n  handler secret check web --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			checks, err := c.CheckSecrets(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := u.result(checks, func(w io.Writer) error { return printSecrets(w, args[0], checks) }); err != nil {
				return err
			}
			for _, s := range checks {
				if !s.OK {
					return errReported{1}
				}
			}
			return nil
		},
	}
	return group("secret", "See whether an agent's secrets can be read", check)
}

func printSecrets(w io.Writer, agent string, checks []types.SecretCheck) error {
	if len(checks) == 0 {
		_, err := fmt.Fprintf(w, "agent %s has no secrets\n", plain(agent))
		return err
	}
	var rows [][]string
	for _, s := range checks {
		mark := "✓"
		if !s.OK {
			mark = "✗"
		}
		rows = append(rows, []string{mark + " " + s.Name, s.Source, s.Use, fmt.Sprintf("%d ms", s.TookMS)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, s := range checks {
		if !s.OK {
			if _, err := fmt.Fprintf(w, "%s: %s\n", plain(s.Name), plain(s.Problem)); err != nil {
				return err
			}
		}
	}
	return nil
}
