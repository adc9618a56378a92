package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/catalog"
)

func newHarness(u *ui) *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the agent programs that Handler knows", Args: usageArgs(cobra.NoArgs),
		Example: "  handler harness list",
		RunE: func(*cobra.Command, []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			known, err := c.HarnessList()
			if err != nil {
				return err
			}
			u.sayAll(known.Problems)
			all := known.Harnesses
			return u.result(all, func(w io.Writer) error {
				rows := [][]string{{"HARNESS", "AGENT", "VERSION", "MCP", "FROM"}}
				for _, m := range all {
					rows = append(rows, []string{m.Name, m.Title, m.Version, strings.Join(m.MCPTransports, ", "), m.From})
				}
				return table(w, rows)
			})
		},
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show one harness", Args: usageArgs(cobra.ExactArgs(1)), Example: "  handler harness show claude-code",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			reg, err := c.Harnesses()
			if err != nil {
				return err
			}
			m, err := reg.Get(args[0])
			if err != nil {
				return notFound(err)
			}
			return u.result(catalog.HarnessFacts(m), func(w io.Writer) error {
				fmt.Fprintf(w, "%s (%s) %s\n", m.Name, m.Title, m.Version)
				fmt.Fprintf(w, "  from       %s\n", m.File)
				fmt.Fprintf(w, "  command    %s\n", strings.Join(m.Command, " "))
				fmt.Fprintf(w, "  MCP        %s, by %s\n", strings.Join(m.MCPTransports, ", "), m.SessionMCP)
				fmt.Fprintf(w, "  hosts      %s\n", strings.Join(m.Hosts, ", "))
				if len(m.LoginHosts) > 0 {
					fmt.Fprintf(w, "  login      %s, while no key is given\n", strings.Join(m.LoginHosts, ", "))
				}
				for _, s := range m.State {
					fmt.Fprintf(w, "  state      %s: %s, one a%s %s\n", s.Name, s.Path, map[bool]string{true: "n", false: ""}[s.Per == "agent"], s.Per)
				}
				for _, up := range m.Upstreams {
					var secrets []string
					for _, a := range up.Auth {
						secrets = append(secrets, a.Secret)
					}
					fmt.Fprintf(w, "  provider   %s at %s; give one of the secrets: %s\n", up.Name, up.URL, strings.Join(secrets, ", "))
				}
				return nil
			})
		},
	}
	var req types.BuildRequest
	build := &cobra.Command{
		Use: "build NAME", Short: "Build a harness over the toolbox", Args: usageArgs(cobra.ExactArgs(1)), Example: "  handler harness build claude-code",
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Kind, req.Name = types.KindHarness, args[0]
			return u.build(cmd.Context(), req)
		},
	}
	buildFlags(build, &req)
	return group("harness", "Agent programs: how each is installed, configured and started", list, show, build)
}
