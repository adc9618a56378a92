package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
)

// browserFlags are the switches of the guarded browser.
type browserFlags struct {
	network, lifetime, search string
	readOnly, view            bool
	limits                    []string
}

func (f *browserFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.network, "browser-network", "", "pages of the guarded browser come from: public (the default, every public host) or rules (the agent's own network rules)")
	fl.BoolVar(&f.readOnly, "browser-read-only", false, "the guarded browser reads pages and never acts on them")
	fl.BoolVar(&f.view, "browser-view", true, "the guarded browser has a window that you can watch (handler web)")
	fl.StringVar(&f.lifetime, "browser-lifetime", "", "how long a guarded browser lives where nobody is there, at most 15m (default 5m)")
	fl.StringVar(&f.search, "browser-search", "", "result page that the guarded browser searches with, %s for the words (default "+agents.DefaultBrowserSearch+")")
	fl.StringArrayVar(&f.limits, "browser-limit", nil, "NAME=VALUE of a guarded browser's limits: memory, processes, tmp, files, idle; NAME= for the default (repeatable)")
}

// save puts what was given into the agent, which is checked as a whole later.
func (f *browserFlags) save(cmd *cobra.Command, b *agents.Browser) error {
	given := cmd.Flags().Changed
	if given("browser-network") {
		b.Network = f.network
	}
	if given("browser-read-only") {
		b.ReadOnly = f.readOnly
	}
	if given("browser-view") {
		b.View = &f.view
	}
	if given("browser-lifetime") {
		b.Lifetime = f.lifetime
	}
	if given("browser-search") {
		b.Search = f.search
	}
	for _, given := range f.limits {
		name, value, ok := strings.Cut(given, "=")
		if !ok {
			return fmt.Errorf("--browser-limit %s: write NAME=VALUE, such as memory=3GiB", given)
		}
		if err := b.Limits.Set(name, value); err != nil {
			return fmt.Errorf("--browser-limit %s: %w", given, err)
		}
	}
	return nil
}
