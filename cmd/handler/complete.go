package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/policy"
)

// completeTime bounds what a completion waits for: a person has just pressed a key.
const completeTime = 2 * time.Second

// A completer gives names with what a shell may show beside each, as "name\tdescription". It starts nothing, and what it
// cannot find out is no name.
type completer func(ctx context.Context) []string

// addCompletions gives every command below root the completion of its arguments and flags, by the words of its usage.
func (u *ui) addCompletions(root *cobra.Command) {
	flags := map[string]completer{
		"harness": u.harnessNames, "toolbox": u.imageNames(types.KindToolbox), "preset": presetNames, "addon": u.addonNames,
		"unbind": u.addonNames, "run": u.runNames, "continue": u.sessionIDs(client.SessionFilter{Limit: 100}), "agent": u.agentNames, "base": words("auto", "mmdebstrap", "registry"),
		"placement": u.addonPairs(agents.PlacementHosted, agents.PlacementSandbox), "addon-limit": u.addonPairs("memory=", "processes=", "tmp=", "home=", "shm=", "call_time=", "idle=", "lifetime=", "results="),
		"browser-limit": words("memory=", "processes=", "tmp=", "files=", "idle="), "addon-preset": u.addonPairs(policy.PresetNames()...),
	}
	for _, name := range []string{"tools", "deny-tools", "addon-allow", "addon-deny", "addon-private"} {
		flags[name] = u.addonPairs()
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if names, many := u.argument(cmd); names != nil && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = complete(names, many)
		}
		for name, names := range flags {
			if cmd.Flags().Lookup(name) != nil && cmd.LocalNonPersistentFlags().Lookup(name) != nil {
				// Its only error is a flag that is not there or was given a completion already.
				_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
					return matching(cmd, names, typed, nil), cobra.ShellCompDirectiveNoFileComp
				})
			}
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
}

// strictCompletion makes a shell that cobra does not know a usage error; alone, it would print the help as if all was well.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = usageArgs(cobra.NoArgs), func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// argument says what a command's first argument names, and whether all the others name the same.
func (u *ui) argument(cmd *cobra.Command) (names completer, many bool) {
	use := strings.Fields(cmd.Use)
	if len(use) < 2 {
		return nil, false
	}
	word := strings.Trim(use[1], "[]")
	switch strings.TrimSuffix(word, "…") {
	case "AGENT":
		names = u.agentNames
	case "RUN":
		names = u.runNames
		if cmd.Name() == "logs" {
			names = u.loggedRuns
		}
	case "SESSION":
		names = u.sessionIDs(client.SessionFilter{Live: cmd.Name() == "attach", Limit: 100})
	case "ID":
		if cmd.Parent().Name() == "approvals" {
			names = u.questionIDs
		}
		if cmd.Parent().Name() == "artifacts" {
			names = u.artifactIDs
		}
	case "NAME":
		switch parent := cmd.Parent().Name(); {
		case parent == "agent" && cmd.Name() == "add":
			names = words() // a name of the person's own
		case parent == "agent":
			names = u.agentNames
		case parent == "harness":
			names = u.harnessNames
		case parent == "addon":
			names = u.addonNames
		case parent == "toolbox":
			names = u.imageNames(types.KindToolbox)
		}
	}
	return names, strings.HasSuffix(word, "…")
}

// complete completes the first argument, or with many each one by what was not named yet. Files are nobody's names.
func complete(names completer, many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) > 0 && !many && (cmd.Name() == "shell" || cmd.Name() == "get"):
			return nil, cobra.ShellCompDirectiveDefault // a command and its files, or where an artifact goes
		case len(args) > 0 && !many:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return matching(cmd, names, typed, args), cobra.ShellCompDirectiveNoFileComp
	}
}

func matching(cmd *cobra.Command, names completer, typed string, taken []string) []string {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	var found []string
	for _, name := range names(ctx) {
		word, about, _ := strings.Cut(name, "\t")
		if strings.HasPrefix(word, typed) && !slices.Contains(taken, word) {
			found = append(found, word+"\t"+plain(about))
		}
	}
	return found
}

func words(list ...string) completer { return func(context.Context) []string { return list } }

func presetNames(context.Context) []string { return policy.PresetNames() }

func (u *ui) agentNames(context.Context) []string {
	c, err := u.catalog()
	if err != nil {
		return nil
	}
	list, err := c.ListAgents()
	if err != nil {
		return nil
	}
	var names []string
	for _, a := range list {
		names = append(names, a.Name+"\t"+a.Harness)
	}
	return names
}

func (u *ui) harnessNames(context.Context) []string {
	c, err := u.catalog()
	if err != nil {
		return nil
	}
	reg, err := c.Harnesses()
	if err != nil {
		return nil
	}
	var names []string
	for _, h := range reg.List() {
		names = append(names, h.Name+"\t"+h.Title)
	}
	return names
}

func (u *ui) addonNames(context.Context) []string {
	c, err := u.catalog()
	if err != nil {
		return nil
	}
	reg, err := c.Addons()
	if err != nil {
		return nil
	}
	var names []string
	for _, a := range reg.List() {
		names = append(names, a.Name+"\t"+a.Description)
	}
	return names
}

// daemon gives a client of a daemon that may not be there: its calls fail then.
func (u *ui) daemon() (*client.Client, dirs.Dirs, bool) {
	d, err := u.dirs()
	return client.New(d.Socket()), d, err == nil
}

func (u *ui) runNames(ctx context.Context) []string {
	c, _, ok := u.daemon()
	if !ok {
		return nil
	}
	runs, err := c.Runs(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range runs {
		names = append(names, r.ID+"\t"+r.Agent+", since "+ago(r.Since))
	}
	return names
}

// loggedRuns are the live runs and those that ended, the youngest first, as far as their logs are kept.
func (u *ui) loggedRuns(ctx context.Context) []string {
	names := u.runNames(ctx)
	_, d, ok := u.daemon()
	if !ok {
		return names
	}
	for _, run := range endedRuns(d) {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, run.id+"\t") }) {
			names = append(names, run.id+"\tended "+ago(run.time))
		}
	}
	return names
}

func (u *ui) questionIDs(ctx context.Context) []string {
	c, _, ok := u.daemon()
	if !ok {
		return nil
	}
	list, err := c.Approvals(ctx, "")
	if err != nil {
		return nil
	}
	var names []string
	for _, a := range list {
		names = append(names, shortID(a.ID)+"\t"+a.Text)
	}
	return names
}

// A loggedRun is a run of which there is a log.
type loggedRun struct {
	id   string
	time time.Time // of its last line
}

// endedRuns gives the runs of which there is a log, live ones too, the youngest first.
func endedRuns(d dirs.Dirs) []loggedRun {
	entries, err := os.ReadDir(filepath.Join(d.State, "runs"))
	if err != nil {
		return nil
	}
	var list []loggedRun
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".jsonl")
		if info, err := e.Info(); ok && err == nil {
			list = append(list, loggedRun{id, info.ModTime()})
		}
	}
	slices.SortStableFunc(list, func(a, b loggedRun) int { return b.time.Compare(a.time) })
	return list
}

func (u *ui) imageNames(kind string) completer {
	return func(ctx context.Context) []string {
		c, _, ok := u.daemon()
		if !ok {
			return nil
		}
		images, err := c.Images(ctx)
		if err != nil {
			return nil
		}
		var names []string
		for _, i := range images {
			if i.Kind == kind {
				names = append(names, i.Name+"\t"+i.State)
			}
		}
		return names
	}
}
