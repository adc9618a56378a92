package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newStill(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "still RUN", Short: "Keep a picture of the display that a run has to itself", Args: usageArgs(cobra.ExactArgs(1)),
		Long: `Takes a picture of the display of a run that was started with --display=vnc, or whose agent has display = "vnc", and keeps
it as an artifact, whose file is printed. The agent may show there what it likes.`,
		Example: "  handler run web --display=vnc \"open the shop\" &\n  handler still k3f9",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			a, err := c.Still(cmd.Context(), args[0])
			if err != nil {
				return u.orEnded(err, args[0])
			}
			return u.result(a, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, a.Path)
				return err
			})
		},
	}
}
