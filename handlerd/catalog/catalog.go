// Package catalog is what a person and Handler have: agents, harnesses and addons, read anew at each question so that
// a file that was just written counts, and the Plan that they make together. The command line and the daemon ask the
// same catalog, so that `handler agent show --plan` and `handler policy check` say what a run would be.
package catalog

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/render"
)

// A Catalog says where things are (K.3). It holds nothing else, so it may be copied and used concurrently.
type Catalog struct {
	Config string // ~/.config/handler
	State  string // ~/.local/state/handler: where the agents' state volumes lie
	Home   string // the person's home folder
}

// AgentsDir is where the person's agents are.
func (c Catalog) AgentsDir() string { return filepath.Join(c.Config, "agents") }

// Harnesses reads the shipped harnesses and the person's.
func (c Catalog) Harnesses() (*harness.Registry, error) {
	return harness.Load(filepath.Join(c.Config, "harness"))
}

// Addons reads the shipped addons and the person's.
func (c Catalog) Addons() (*addons.Registry, error) {
	return addons.Load(filepath.Join(c.Config, "addons"))
}

// DefaultAddons names the addons that an agent has which lists none.
func (c Catalog) DefaultAddons() ([]string, error) {
	reg, err := c.Addons()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range reg.List() {
		if m.Default {
			names = append(names, m.Name)
		}
	}
	return names, nil
}

// Expand puts the home folder in place of a leading "~".
func (c Catalog) Expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(c.Home, rest)
	}
	return path
}

// Agent gives the agent saved as name, or the one that every harness is under its own name. Errors are *fault.Fault.
func (c Catalog) Agent(name string) (*agents.Agent, error) {
	reg, err := c.Harnesses()
	if err != nil {
		return nil, err
	}
	a, err := agents.Find(c.AgentsDir(), name, reg.Names())
	var missing *agents.NotFoundError
	if errors.As(err, &missing) {
		// A harness of that name that cannot be used: what is wrong with it says more.
		var unknown *harness.NotFoundError
		if _, bad := reg.Get(name); bad != nil && !errors.As(bad, &unknown) {
			return nil, agentFault(bad)
		}
	}
	return a, agentFault(err)
}

func agentFault(err error) error {
	var missing *agents.NotFoundError
	var bad *configfile.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing):
		return &fault.Fault{Kind: fault.NotFound, Text: err.Error(), Hint: "see: handler agent list", Err: err}
	case errors.As(err, &bad):
		return &fault.Fault{Kind: fault.Usage, Text: err.Error(), Err: err}
	}
	return &fault.Fault{Kind: fault.Usage, Text: err.Error(), Err: err}
}

// ListAgents gives the saved agents, faulty ones too, and then the harnesses' own, each sorted by name.
func (c Catalog) ListAgents() ([]types.AgentInfo, error) {
	saved, err := agents.List(c.AgentsDir())
	if err != nil {
		return nil, err
	}
	reg, err := c.Harnesses()
	if err != nil {
		return nil, err
	}
	list := []types.AgentInfo{}
	for _, e := range saved {
		file := filepath.Join(c.AgentsDir(), e.Name+".toml")
		if e.Err != nil {
			list = append(list, types.AgentInfo{Name: e.Name, DisplayMode: agents.DisplayNone.Mode(), Scopes: []string{}, File: file, Problem: e.Err.Error()})
			continue
		}
		list = append(list, info(e.Agent, file))
	}
	for _, name := range reg.Names() {
		if !slices.ContainsFunc(list, func(l types.AgentInfo) bool { return l.Name == name }) {
			list = append(list, types.AgentInfo{Name: name, Harness: name, DisplayMode: agents.DisplayNone.Mode(), Scopes: []string{}})
		}
	}
	return list, nil
}

// Plan renders the agent called name for a run started in cwd, an absolute path. Errors are *fault.Fault.
func (c Catalog) Plan(name, cwd string) (*render.Plan, error) {
	a, err := c.Agent(name)
	if err != nil {
		return nil, err
	}
	return c.render(a, cwd)
}

// Check renders an agent that need not be saved, in a folder of no matter, to see that it can be: the code of a start
// judges it.
func (c Catalog) Check(a *agents.Agent) error {
	plan, err := c.render(a, "/nowhere")
	if err != nil {
		return err
	}
	_, err = c.Network(plan)
	return err
}

func (c Catalog) render(a *agents.Agent, cwd string) (*render.Plan, error) {
	if !filepath.IsAbs(cwd) {
		return nil, fault.New(fault.Usage, "", "the folder %q that the run starts in is not absolute", cwd)
	}
	reg, err := c.Harnesses()
	if err != nil {
		return nil, err
	}
	h, err := reg.Get(a.Harness)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "", "agent %s", a.Name)
	}
	all, err := c.Addons()
	if err != nil {
		return nil, err
	}
	skills := map[string][]render.SkillFile{}
	for _, m := range all.List() {
		if len(m.Skills) == 0 {
			continue
		}
		if skills[m.Name], err = render.ReadSkills(m); err != nil {
			return nil, fault.Wrap(fault.Usage, err, "", "the skills of addon %s", m.Name)
		}
	}
	plan, err := render.Render(render.Input{
		Agent: a, Harness: h, Addons: all.List(), Skills: skills, Home: c.Home, Cwd: cwd, StateDir: c.State,
		Hosted: []string{addons.GuardedBrowser},
	})
	if err != nil {
		return nil, &fault.Fault{Kind: fault.Usage, Text: err.Error(), Err: err}
	}
	return plan, nil
}

// Network gives a plan's rules, parsed.
func (c Catalog) Network(plan *render.Plan) (policy.Network, error) {
	return parseRules(policy.Network{Agent: plan.Agent, Unknown: plan.Network.Unknown}, plan.Network)
}

// ServerNetwork gives the rules of a plan's hosted server that has a sandbox of its own, parsed.
func (c Catalog) ServerNetwork(plan *render.Plan, h render.Hosted) (policy.Network, error) {
	return parseRules(policy.Network{Agent: plan.Agent, Server: h.Name}, h.Box.Network)
}

func parseRules(n policy.Network, given render.Network) (policy.Network, error) {
	for _, r := range given.Rules {
		rule, err := policy.ParseRule(r.Kind, r.Text, r.By)
		if err != nil {
			return policy.Network{}, fault.Wrap(fault.Usage, err, "", "a network rule of %s", r.By)
		}
		n.Rules = append(n.Rules, rule)
	}
	return n, nil
}
