package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func newGateway(u *ui) *cobra.Command {
	list := &cobra.Command{
		Use: "list RUN", Short: "List the MCP servers that Handler hosts for a run", Args: usageArgs(cobra.ExactArgs(1)),
		Example: "  handler gateway list k3f9",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			servers, err := c.Servers(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return u.result(servers, func(w io.Writer) error {
				if len(servers) == 0 {
					_, err := fmt.Fprintln(w, "no MCP servers are hosted for this run; the agent's bindings say placement = \"hosted\" where they are")
					return err
				}
				rows := [][]string{{"SERVER", "STATE"}}
				for _, s := range servers {
					state := "serves"
					if s.Stopped {
						state = "stopped by you"
					}
					rows = append(rows, []string{plain(s.Name), state})
				}
				return table(w, rows)
			})
		},
	}
	stop := &cobra.Command{
		Use: "stop RUN [SERVER]", Short: "End the tools that Handler hosts for a run, at once and for the rest of it", Args: usageArgs(cobra.RangeArgs(1, 2)),
		Long: `Ends the calls of a hosted MCP server that are under way, and refuses every later one for the rest of the run: the
browser of a run, for example. Without SERVER all of them are stopped. The agent is told that you stopped it.`,
		Example: "  handler gateway stop k3f9\n  handler gateway stop k3f9 playwright",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := u.connect(cmd.Context())
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			done, err := c.StopServers(cmd.Context(), args[0], name)
			if err != nil {
				return err
			}
			return u.result(map[string]any{"stopped": done}, func(w io.Writer) error {
				if len(done) == 0 {
					_, err := fmt.Fprintln(w, "stopped already")
					return err
				}
				_, err := fmt.Fprintf(w, "stopped %s\n", plain(strings.Join(done, ", ")))
				return err
			})
		},
	}
	return group("gateway", "The MCP servers that Handler hosts for agents", list, stop)
}
