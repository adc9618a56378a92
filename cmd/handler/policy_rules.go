package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/policy"
)

// A listedRule is one line of policy rules.
type listedRule struct {
	Kind string   `json:"kind"`
	Rule string   `json:"rule"`
	By   []string `json:"by"`
}

// A listedUpstream is what of an upstream is served.
type listedUpstream struct {
	Name    string   `json:"name"`
	Methods []string `json:"methods"`
	Paths   []string `json:"paths"`
}

func newPolicyRules(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "rules AGENT", Short: "List the rules that a run of an agent would have, each with everyone who asked for it", Args: usageArgs(cobra.ExactArgs(1)),
		Long: `Lists every network rule of an agent: its own, and those that its harness, its addons, its servers and its presets
ask for; then what of its upstreams is served. Deny wins over allow, in whatever order they stand.`,
		Example: "  handler policy rules web\n  handler policy rules web --json",
		RunE: func(_ *cobra.Command, args []string) error {
			plan, network, err := u.planned(args[0])
			if err != nil {
				return err
			}
			rules, upstreams := []listedRule{}, []listedUpstream{}
			for _, e := range network.Entries() {
				rules = append(rules, listedRule{Kind: e.Rule.Kind, Rule: e.Rule.String(), By: e.By})
			}
			for _, up := range plan.Upstreams {
				upstreams = append(upstreams, listedUpstream{Name: up.Name, Methods: up.Methods, Paths: up.Paths})
			}
			answer := map[string]any{"agent": plan.Agent, "rules": rules, "upstreams": upstreams}
			return u.result(answer, func(w io.Writer) error { return printRules(w, rules, upstreams) })
		},
	}
}

func printRules(w io.Writer, rules []listedRule, upstreams []listedUpstream) error {
	if len(rules)+len(upstreams) == 0 {
		_, err := fmt.Fprintln(w, "no rules: nothing is reached")
		return err
	}
	rows := [][]string{{"KIND", "RULE", "ASKED FOR BY"}}
	for _, r := range rules {
		rows = append(rows, []string{r.Kind, r.Rule, strings.Join(r.By, ", ")})
	}
	for _, up := range upstreams {
		for _, path := range up.Paths {
			rows = append(rows, []string{"served", strings.Join(up.Methods, ",") + " upstream/" + up.Name + path, "upstream " + up.Name})
		}
	}
	return table(w, rows)
}

// A listedPreset is one line of policy presets.
type listedPreset struct {
	Name  string   `json:"name"`
	Title string   `json:"title"`
	Rules []string `json:"rules"`
	Note  string   `json:"note,omitempty"`
}

func newPolicyPresets(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "presets", Short: "List the presets with the hosts that each allows", Args: usageArgs(cobra.NoArgs),
		Example: "  handler policy presets\n  handler agent edit web --preset npm,github",
		RunE: func(*cobra.Command, []string) error {
			list := []listedPreset{}
			for _, p := range policy.AllPresets() {
				list = append(list, listedPreset{Name: p.Name, Title: p.Title, Rules: p.Rules, Note: p.Note})
			}
			return u.result(list, func(w io.Writer) error {
				for _, p := range list {
					fmt.Fprintf(w, "%s  %s\n", p.Name, p.Title)
					for _, r := range p.Rules {
						fmt.Fprintf(w, "    %s\n", r)
					}
					if p.Note != "" {
						fmt.Fprintf(w, "  but: %s\n", p.Note)
					}
				}
				return nil
			})
		},
	}
}
