package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/types"
)

func newStill(u *ui) *cobra.Command {
	var browser bool
	cmd := &cobra.Command{
		Use: "still RUN", Short: "Keep a picture of a run's own display, or of its guarded browser", Args: usageArgs(cobra.ExactArgs(1)),
		Long: `Takes a picture of the display of a run that was started with --display=vnc, or whose agent has display = "vnc", and keeps
it as an artifact, whose file is printed. The agent may show there what it likes.

With --browser it is a picture of the guarded browser's window, where the agent has [browser] view = true.`,
		Example: "  handler run web --display=vnc \"open the shop\" &\n  handler still k3f9\n  handler still k3f9 --browser",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			what := types.ViewDisplay
			if browser {
				what = types.ViewBrowser
			}
			a, err := c.Still(cmd.Context(), args[0], what)
			if err != nil {
				return u.orEnded(err, args[0])
			}
			return u.result(a, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, a.Path)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&browser, "browser", false, "of the guarded browser instead")
	return cmd
}
