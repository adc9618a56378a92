package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/fault"
)

func notFound(err error) error { return fault.New(fault.NotFound, "", "%v", err) }

func newAddon(u *ui) *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the addons", Args: usageArgs(cobra.NoArgs), Example: "  handler addon list",
		RunE: func(*cobra.Command, []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			known, err := c.AddonList()
			if err != nil {
				return err
			}
			u.sayAll(known.Problems)
			all := known.Addons
			return u.result(all, func(w io.Writer) error {
				rows := [][]string{{"ADDON", "VERSION", "BOUND", "FROM", ""}}
				for _, m := range all {
					bound := "where an agent says so"
					if m.Default {
						bound = "by default"
					}
					rows = append(rows, []string{m.Name, m.Version, bound, m.From, m.Description})
				}
				return table(w, rows)
			})
		},
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show one addon with its settings and secrets", Args: usageArgs(cobra.ExactArgs(1)), Example: "  handler addon show playwright",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			reg, err := c.Addons()
			if err != nil {
				return err
			}
			m, err := reg.Get(args[0])
			if err != nil {
				return notFound(err)
			}
			return u.result(catalog.AddonFacts(m), func(w io.Writer) error {
				fmt.Fprintf(w, "%s %s: %s\n", m.Name, m.Version, m.Description)
				fmt.Fprintf(w, "  from       %s\n", m.File)
				fmt.Fprintf(w, "  commands   %s\n", strings.Join(m.Commands, ", "))
				if m.MCP != nil {
					fmt.Fprintf(w, "  MCP        %s, in the %s\n", strings.Join(m.MCP.Command, " "), m.MCP.Placement)
				}
				if len(m.Hosts) > 0 {
					fmt.Fprintf(w, "  hosts      %s\n", strings.Join(m.Hosts, ", "))
				}
				for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
					fmt.Fprintf(w, "  setting    %s (default %q): %s\n", name, m.Settings[name].Default, m.Settings[name].Description)
				}
				for _, name := range slices.Sorted(maps.Keys(m.Secrets)) {
					fmt.Fprintf(w, "  secret     %s: %s\n", name, m.Secrets[name].Description)
				}
				return nil
			})
		},
	}
	var req types.BuildRequest
	build := &cobra.Command{
		Use: "build NAME", Short: "Build an addon over the toolbox and run its check", Args: usageArgs(cobra.ExactArgs(1)), Example: "  handler addon build playwright",
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Kind, req.Name = types.KindAddon, args[0]
			return u.build(cmd.Context(), req)
		},
	}
	buildFlags(build, &req)
	check := &cobra.Command{
		Use: "check NAME", Short: "Run an addon's check, offline, in a sandbox", Args: usageArgs(cobra.ExactArgs(1)), Example: "  handler addon check playwright",
		RunE: func(cmd *cobra.Command, args []string) error {
			return u.build(cmd.Context(), types.BuildRequest{Kind: types.KindAddon, Name: args[0], CheckOnly: true})
		},
	}
	return group("addon", "Commands, skills and MCP servers that sandboxes get", list, show, build, check)
}
