package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/handlerd/handler/handlerd/fault"
)

// newMan makes the man pages, for make install and packagers: it is not for people, and so it is hidden.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the man pages, one a command", Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		Long:    "Writes a man page for every command into DIR. SOURCE_DATE_EPOCH sets their date.",
		Example: "  handler man /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fault.Wrap(fault.Failed, err, "", "the folder of the man pages")
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // it is a date
			if err := doc.GenManTree(root, manHeader(), args[0]); err != nil {
				return fault.Wrap(fault.Failed, err, "", "the man pages")
			}
			return nil
		},
	}
}

func manHeader() *doc.GenManHeader {
	return &doc.GenManHeader{Title: "HANDLER", Section: "1", Source: "Handler " + version, Manual: "Handler"}
}
