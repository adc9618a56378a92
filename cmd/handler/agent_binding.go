package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
)

// bindingFlags are the settings of bound addons' MCP servers: where they run, which tools they have, what they reach.
// Each is ADDON=VALUE.
type bindingFlags struct {
	placement, tools, denyTools   []string
	allow, deny, private, presets []string
	limits                        []string
}

func (f *bindingFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.placement, "placement", nil, "ADDON=hosted: its MCP server runs behind Handler, in a sandbox of its own, or ADDON=sandbox: beside the agent; ADDON= as its manifest says (repeatable)")
	fl.StringArrayVar(&f.tools, "tools", nil, "ADDON=TOOL,…: the only tools of a hosted server, \"*\" for any characters; ADDON= for all (repeatable)")
	fl.StringArrayVar(&f.denyTools, "deny-tools", nil, "ADDON=TOOL,…: tools that a hosted server does not have; ADDON= for none (repeatable)")
	fl.StringArrayVar(&f.allow, "addon-allow", nil, "ADDON=HOST that a hosted server reaches, besides its addon's hosts; the agent does not (repeatable)")
	fl.StringArrayVar(&f.deny, "addon-deny", nil, "ADDON=HOST that a hosted server never reaches (repeatable)")
	fl.StringArrayVar(&f.private, "addon-private", nil, "ADDON=ADDRESS:PORT, private, that a hosted server reaches (repeatable)")
	fl.StringArrayVar(&f.presets, "addon-preset", nil, "ADDON=PRESET that a hosted server reaches: see handler policy presets (repeatable)")
	fl.StringArrayVar(&f.limits, "addon-limit", nil, "ADDON=NAME=VALUE of a hosted server's limits: memory, processes, tmp, home, shm, call_time, idle, lifetime, results; ADDON=NAME= for the default (repeatable)")
}

func (f *bindingFlags) given() bool {
	return len(f.placement)+len(f.tools)+len(f.denyTools)+len(f.allow)+len(f.deny)+len(f.private)+len(f.presets)+len(f.limits) > 0
}

// apply changes the bindings of a; an addon that is not bound is bound by it, as by --set.
func (f *bindingFlags) apply(a *agents.Agent, defaults []string) error {
	for _, flag := range []struct {
		name, form string
		given      []string
		set        func(*agents.Binding, string) error
	}{
		{"placement", "ADDON=hosted or ADDON=sandbox", f.placement, func(b *agents.Binding, v string) error { b.Placement = v; return nil }},
		{"tools", "ADDON=TOOL,…", f.tools, func(b *agents.Binding, v string) error { b.Tools = toolList(v); return nil }},
		{"deny-tools", "ADDON=TOOL,…", f.denyTools, func(b *agents.Binding, v string) error { b.DenyTools = toolList(v); return nil }},
		{"addon-allow", "ADDON=HOST", f.allow, func(b *agents.Binding, v string) error { return b.Network.Allows(v) }},
		{"addon-deny", "ADDON=HOST", f.deny, func(b *agents.Binding, v string) error { return b.Network.Denies(v) }},
		{"addon-private", "ADDON=ADDRESS:PORT", f.private, func(b *agents.Binding, v string) error { return b.Network.AllowsPrivate(v) }},
		{"addon-preset", "ADDON=PRESET", f.presets, func(b *agents.Binding, v string) error { return b.Network.AddPresets(v) }},
		{"addon-limit", "ADDON=NAME=VALUE", f.limits, setServerLimit},
	} {
		for _, given := range flag.given {
			addon, value, ok := strings.Cut(given, "=")
			if !ok || addon == "" {
				return fmt.Errorf("--%s %s: write %s", flag.name, given, flag.form)
			}
			var wrong error
			if err := a.Bind(addon, defaults, func(b *agents.Binding) { wrong = flag.set(b, value) }); wrong != nil || err != nil {
				if wrong == nil {
					wrong = err
				}
				return fmt.Errorf("--%s %s: %w", flag.name, given, wrong)
			}
		}
	}
	return nil
}

// setServerLimit reads NAME=VALUE.
func setServerLimit(b *agents.Binding, text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("write ADDON=NAME=VALUE, such as notes=memory=512MiB")
	}
	return b.Limits.Set(name, value)
}

// toolList reads names of tools; none for "".
func toolList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// forget takes a network rule of the agent's away, or with ADDON= before it, one of a hosted server's.
func forget(a *agents.Agent, rule string) error {
	addon, of, ok := strings.Cut(rule, "=")
	b, bound := a.Bindings[addon]
	if !ok || !bound {
		return a.Forget(rule)
	}
	found := b.Network.Forgets(of)
	a.Bindings[addon] = b
	if !found {
		return fmt.Errorf("the server %s of agent %s has no network rule %s", addon, a.Name, of)
	}
	return nil
}

// addonPairs completes ADDON=VALUE: the addon first, then the values that there are.
func (u *ui) addonPairs(values ...string) completer {
	return func(ctx context.Context) []string {
		var pairs []string
		for _, name := range u.addonNames(ctx) {
			addon, about, _ := strings.Cut(name, "\t")
			if len(values) == 0 {
				pairs = append(pairs, addon+"=\t"+about)
			}
			for _, v := range values {
				pairs = append(pairs, addon+"="+v+"\t"+about)
			}
		}
		return pairs
	}
}
