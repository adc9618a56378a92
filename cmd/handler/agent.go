package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/settings"
)

// catalog gives what the person and Handler have: agents, harnesses, addons.
func (u *ui) catalog() (catalog.Catalog, error) {
	d, err := u.dirs()
	if err != nil {
		return catalog.Catalog{}, err
	}
	return catalog.Catalog{Config: d.Config, State: d.State, Home: d.Home}, nil
}

// agentFlags are the settings of an agent that add and edit take.
type agentFlags struct {
	harness, toolbox, description            string
	scopes, allow, deny, private             []string
	presets, secrets, env, addons            []string
	settings, forget, dropScope              []string
	unbind, answers                          []string
	unattended                               string
	forgetAnswers                            bool
	unknown, approvals                       string
	browser                                  browserFlags
	hosted                                   bindingFlags
	limits                                   limitFlags
	display, displaySize                     string
	displayStrict, hostFS, hostTerm, denyMCP bool
}

func (f *agentFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.toolbox, "toolbox", "", "toolbox to run in (default: the default one)")
	fl.StringVar(&f.description, "description", "", "what it is for")
	fl.StringArrayVar(&f.scopes, "scope", nil, "folder it sees, with :ro or :rw behind (repeatable; none: the folder a run starts in)")
	fl.StringArrayVar(&f.allow, "allow", nil, "host it reaches: host, *.suffix, host:port or \"GET,HEAD http://host/path*\" (repeatable)")
	fl.StringArrayVar(&f.deny, "deny", nil, "what it never reaches: the same, or \"POST upstream/NAME/path*\" (repeatable)")
	fl.StringSliceVar(&f.private, "private", nil, "private address:port or prefix:port it reaches (repeatable)")
	fl.StringVar(&f.unknown, "unknown", "", "a host that no rule names: refuse (the default), or ask you (handler approvals)")
	fl.StringVar(&f.approvals, "approvals", "", "where else Handler asks what it asks you: acp (the editor too, which may say yes by itself) or none (the default)")
	fl.StringSliceVar(&f.presets, "preset", nil, "hosts of a service, such as npm: see handler policy presets (repeatable)")
	fl.StringArrayVar(&f.secrets, "secret", nil, "NAME=FILE, a 0600 file with a key of the harness's provider, or ADDON.NAME=FILE of an addon's; instead of FILE: pass:ENTRY, secret-service:ATTRIBUTE=VALUE,…, secret-service-label:LABEL, credential:NAME, command:PROGRAM ARG…; nothing takes it away (repeatable)")
	fl.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for the agent; no secrets (repeatable)")
	fl.StringSliceVar(&f.addons, "addon", nil, "addon to bind, besides the default ones (repeatable)")
	fl.StringArrayVar(&f.settings, "set", nil, "ADDON.SETTING=VALUE of a bound addon (repeatable)")
	fl.StringSliceVar(&f.unbind, "unbind", nil, "addon to take away (repeatable)")
	f.limits.register(cmd)
	f.browser.register(cmd)
	f.hosted.register(cmd)
	displayFlag(cmd, &f.display, "show windows and paste images: on your screen, or vnc for a screen of the sandbox's own that you watch (handler web)")
	fl.StringVar(&f.displaySize, "display-size", "", "of a screen of the sandbox's own: WIDTHxHEIGHT in pixels (default "+agents.DefaultDisplaySize+")")
	fl.BoolVar(&f.displayStrict, "display-strict", false, "refuse a screen on which the agent could do more than show windows (A.6)")
	fl.BoolVar(&f.hostFS, "host-fs", false, "let it read and write files through the editor (P2)")
	fl.BoolVar(&f.hostTerm, "host-terminal", false, "let it run terminals in the editor, outside the sandbox (P4)")
	fl.StringVar(&f.unattended, "unattended", "", "what it asks where nobody is there: refuse (the default), reads or allow (P5)")
	fl.StringArrayVar(&f.answers, "answer", nil, "allow: or deny:, with title=, tool= or kind=, such as deny:title=*deploy* (repeatable)")
	fl.BoolVar(&f.forgetAnswers, "forget-answers", false, "take all its answers away, before those that are given")
	fl.BoolVar(&f.denyMCP, "deny-client-mcp", false, "refuse MCP servers that the editor gives (P6)")
}

// apply changes a as the flags say that were given.
func (f *agentFlags) apply(cmd *cobra.Command, a *agents.Agent, c catalog.Catalog) error {
	given := cmd.Flags().Changed
	if given("toolbox") {
		a.Toolbox = f.toolbox
	}
	if given("description") {
		a.Description = f.description
	}
	if given("display") {
		if err := a.SetDisplay(f.display); err != nil {
			return err
		}
	}
	if given("display-size") {
		a.DisplaySize = f.displaySize
	}
	if given("display-strict") {
		a.DisplayStrict = f.displayStrict
	}
	if given("host-fs") {
		a.Policy.HostFS = f.hostFS
	}
	if given("host-terminal") {
		a.Policy.HostTerminal = f.hostTerm
	}
	if given("unattended") {
		a.Policy.Unattended = f.unattended
	}
	if f.forgetAnswers {
		a.Policy.Answers = nil
	}
	if given("deny-client-mcp") {
		a.Policy.ClientMCP = map[bool]string{true: "deny", false: "allow"}[f.denyMCP]
	}
	if err := f.limits.save(cmd, &a.Limits); err != nil {
		return err
	}
	if err := f.browser.save(cmd, &a.Browser); err != nil {
		return err
	}
	had := len(a.Scopes)
	// One after the other: each judges the whole agent, so that a fault would be told as often as there are steps.
	for _, step := range []func() error{
		func() error { return f.applyScopes(a, c) },
		func() error { return a.Allow(ruleLists(f.allow)...) },
		func() error { return a.Deny(ruleLists(f.deny)...) },
		func() error { return a.AllowPrivate(f.private...) },
		func() error { return a.AddPresets(f.presets...) },
		func() error {
			if !given("unknown") {
				return nil
			}
			return a.SetUnknown(f.unknown)
		},
		func() error {
			if !given("approvals") {
				return nil
			}
			return a.SetApprovals(f.approvals)
		},
		func() error { return each(ruleLists(f.forget), func(rule string) error { return forget(a, rule) }) },
		func() error { return each(f.dropScope, a.RemoveScope) },
		func() error { return each(f.answers, a.AddAnswer) },
		func() error { return eachPair(f.env, a.SetEnv) },
		func() error { return f.applyBindings(a, c) },
		func() error { return f.applySecrets(a, c) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if had > 0 && len(a.Scopes) == 0 {
		return fmt.Errorf("that is the last scope, and without one the agent would see whatever folder a run starts in, to write; "+
			"give another in the same command (--scope), or: handler agent rm %s", a.Name)
	}
	return nil
}

func (f *agentFlags) applyScopes(a *agents.Agent, c catalog.Catalog) error {
	return each(f.scopes, func(s string) error {
		path, mode := s, ""
		if rest, ok := strings.CutSuffix(s, ":ro"); ok {
			path, mode = rest, "ro"
		} else if rest, ok := strings.CutSuffix(s, ":rw"); ok {
			path, mode = rest, "rw"
		}
		if !strings.HasPrefix(path, "~/") {
			abs, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			path = abs
		}
		if info, err := os.Stat(c.Expand(path)); err != nil || !info.IsDir() {
			return fmt.Errorf("the scope %s is no folder that exists", path)
		}
		return a.AddScope(path, mode)
	})
}

func (f *agentFlags) applyBindings(a *agents.Agent, c catalog.Catalog) error {
	if len(f.addons)+len(f.settings)+len(f.unbind) == 0 && !f.hosted.given() {
		return nil
	}
	defaults, err := c.DefaultAddons()
	if err != nil {
		return err
	}
	return errors.Join(
		each(f.addons, func(name string) error { return a.Bind(name, defaults, nil) }),
		eachPair(f.settings, func(key, value string) error {
			addon, setting, ok := strings.Cut(key, ".")
			if !ok {
				return fmt.Errorf("--set %s=%s: write ADDON.SETTING=VALUE", key, value)
			}
			return a.Bind(addon, defaults, func(b *agents.Binding) {
				if b.Settings == nil {
					b.Settings = map[string]string{}
				}
				b.Settings[setting] = value
			})
		}),
		f.hosted.apply(a, defaults),
		each(f.unbind, func(name string) error { return a.Unbind(name, defaults) }),
	)
}

// applySecrets sets secrets last, when what they belong to is bound.
func (f *agentFlags) applySecrets(a *agents.Agent, c catalog.Catalog) error {
	return eachPair(f.secrets, func(name, source string) error {
		if addon, _, ok := strings.Cut(name, "."); ok && a.Bindings == nil {
			defaults, err := c.DefaultAddons()
			if err != nil {
				return err
			}
			if slices.Contains(defaults, addon) {
				if err := a.Bind(addon, defaults, nil); err != nil {
					return err
				}
			}
		}
		return a.SetSecret(name, source)
	})
}

func each(list []string, f func(string) error) error {
	for _, s := range list {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

func eachPair(list []string, f func(name, value string) error) error {
	return each(list, func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is not NAME=VALUE", s)
		}
		return f(name, value)
	})
}

func newAgent(u *ui) *cobra.Command {
	return group("agent", "Save, look at and change agents: a harness with scopes, network, addons under a name",
		newAgentAdd(u), newAgentList(u), newAgentShow(u), newAgentEdit(u), newAgentRemove(u))
}

func newAgentAdd(u *ui) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Save an agent", Args: usageArgs(cobra.ExactArgs(1)),
		Example: `  handler agent add web --harness claude-code --scope ~/src/shop --allow api.example.org --display
  handler agent add reader --harness claude-code --scope ~/docs:ro --unbind playwright`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			if f.harness == "" {
				return fault.New(fault.Usage, "see: handler harness list", "say which agent program it is: --harness NAME")
			}
			a := &agents.Agent{Name: args[0], Harness: f.harness}
			if err := agents.ValidName(a.Name); err != nil {
				return fault.New(fault.Usage, "", "%v", err)
			}
			if err := f.apply(cmd, a, c); err != nil {
				return fault.New(fault.Usage, "", "%v", err)
			}
			if err := u.saveAgent(c, a, false); err != nil {
				return err
			}
			u.sayAll(f.doubts(cmd))
			return nil
		},
	}
	cmd.Flags().StringVar(&f.harness, "harness", "", "agent program: see handler harness list")
	f.register(cmd)
	return cmd
}

// saveAgent saves an agent that renders, and says so.
func (u *ui) saveAgent(c catalog.Catalog, a *agents.Agent, replace bool) error {
	if err := c.Check(a); err != nil {
		return fault.Wrap(fault.Usage, err, "", "agent %s is not saved", a.Name)
	}
	if err := u.checkScopes(c, a, replace); err != nil {
		return err
	}
	if err := agents.Save(c.AgentsDir(), a, replace); err != nil {
		var exists *agents.ExistsError
		if errors.As(err, &exists) {
			return fault.New(fault.Usage, "change it: handler agent edit "+a.Name, "%v", err)
		}
		return fault.New(fault.Usage, "", "%v", err)
	}
	return u.result(map[string]string{"agent": a.Name, "file": a.File}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "saved agent %s in %s; next: handler run %s \"…\"\n", a.Name, a.File, a.Name)
		return err
	})
}

// checkScopes refuses scopes that every run would refuse.
func (u *ui) checkScopes(c catalog.Catalog, a *agents.Agent, saved bool) error {
	d, err := u.dirs()
	if err != nil {
		return err
	}
	rules, err := d.Scopes()
	if err != nil {
		return fault.Wrap(fault.Usage, err, settings.Mend, "Handler's settings")
	}
	return c.CheckScopes(rules, a, saved)
}

func newAgentList(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the agents: yours, and one for every harness", Args: usageArgs(cobra.NoArgs),
		Example: "  handler agent list\n  handler agent list --json",
		RunE: func(*cobra.Command, []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			list, err := c.ListAgents()
			if err != nil {
				return err
			}
			return u.result(list, func(w io.Writer) error {
				rows := [][]string{{"AGENT", "HARNESS", "SCOPES", "SAVED"}}
				for _, a := range list {
					saved := "–"
					if a.File != "" {
						saved = a.File
					}
					scopes := strings.Join(a.Scopes, ", ")
					if scopes == "" {
						scopes = "where it is started"
					}
					if a.Problem != "" {
						scopes, saved = "✗ "+a.Problem, a.File
					}
					rows = append(rows, []string{a.Name, a.Harness, scopes, saved})
				}
				return table(w, rows)
			})
		},
	}
}

func newAgentShow(u *ui) *cobra.Command {
	var plan bool
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Print an agent's settings, or with --plan all that a run of it would be", Args: usageArgs(cobra.ExactArgs(1)),
		Example: "  handler agent show web\n  handler agent show claude-code --plan",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			a, err := c.Agent(args[0])
			if err != nil {
				return err
			}
			if !plan {
				// The same keys as in the file.
				keys := map[string]any{}
				if err := configfile.Decode(a.Name, agents.Format(a), &keys); err != nil {
					return err
				}
				return u.result(keys, func(w io.Writer) error {
					_, err := w.Write(agents.Format(a))
					return err
				})
			}
			cwd, err := os.Getwd()
			if err != nil {
				return err
			}
			p, err := c.Plan(args[0], cwd)
			if err != nil {
				return err
			}
			data, err := p.JSON()
			if err != nil {
				return err
			}
			_, err = u.out.Write(data)
			return err
		},
	}
	cmd.Flags().BoolVar(&plan, "plan", false, "print the Plan as JSON: sandbox, servers, network, with nothing started")
	return cmd
}

func newAgentEdit(u *ui) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "edit NAME", Short: "Change an agent by flags, or in your editor when there are none", Args: usageArgs(cobra.ExactArgs(1)),
		Example: `  handler agent edit web --allow api.example.org --private 10.0.0.5:8080
  handler agent edit web --forget api.example.org
  handler agent edit web --placement playwright=hosted --deny-tools playwright=browser_file_upload
  handler agent edit web`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			a, err := c.Agent(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().NFlag() > 0 && !(cmd.Flags().NFlag() == 1 && u.json) {
				if err := f.apply(cmd, a, c); err != nil {
					return fault.New(fault.Usage, "", "%v", err)
				}
				if err := u.saveAgent(c, a, true); err != nil {
					return err
				}
				u.sayAll(f.doubts(cmd))
				u.sayLive(cmd.Context(), a.Name)
				return nil
			}
			edited, err := u.editAgent(cmd, a)
			if err != nil {
				return err
			}
			if err := u.saveAgent(c, edited, true); err != nil {
				return err
			}
			u.sayLive(cmd.Context(), a.Name)
			return nil
		},
	}
	f.register(cmd)
	cmd.Flags().StringArrayVar(&f.forget, "forget", nil, "network rule or preset to take away, or ADDON=RULE of a hosted server (repeatable)")
	cmd.Flags().StringArrayVar(&f.dropScope, "drop-scope", nil, "scope to take away (repeatable)")
	return cmd
}

func newAgentRemove(u *ui) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Remove a saved agent; its state stays", Args: usageArgs(cobra.ExactArgs(1)),
		Example: "  handler agent rm web",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := u.catalog()
			if err != nil {
				return err
			}
			if err := agents.Remove(c.AgentsDir(), args[0]); err != nil {
				return fault.New(fault.NotFound, "see: handler agent list", "%v", err)
			}
			return u.result(map[string]string{"removed": args[0]}, func(io.Writer) error { return nil })
		},
	}
}

// absolute makes a path of the command line absolute; "" stays.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}
