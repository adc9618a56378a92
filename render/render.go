package render

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// An Input is all that a Plan depends on.
type Input struct {
	Agent   *agents.Agent
	Harness *harness.Manifest  // the one that Agent.Harness names
	Addons  []*addons.Manifest // every addon there is: Render picks those that the agent binds

	// Skills are the files of the bound addons' skills, by addon; ReadSkills reads them. An addon with skills that
	// has no entry here fails the render.
	Skills map[string][]SkillFile

	// Hosted names the addons whose MCP servers handlerd itself serves where they are hosted (addons.PlacementHosted). Any
	// other's runs in a sandbox of its own.
	Hosted []string

	Home     string // the person's home on the host, absolute: "~/" in the agent
	Cwd      string // the folder the run is started in: the scope of an agent that has none
	StateDir string // where Handler keeps state volumes on the host, absolute (B.10)
}

// A secret file is for the sandbox's user only.
const secretMode = 0o600

// builder makes one Plan; each of its steps adds what one part of the input says.
type builder struct {
	in    Input
	plan  *Plan
	bound []*addons.Manifest

	envBy map[string]string // who set a variable of the sandbox; "" where two disagreed
	boxed map[string]bool   // the addons whose MCP server has a sandbox of its own
}

// Render makes the Plan of an agent (contract B). It checks the agent again (agents.Agent.Validate) and everything
// that only harness and addons together can tell: settings, secrets and upstreams that nobody knows, transports that
// the harness lacks, servers whose names agents cannot tell apart (B.5). Nothing is dropped silently: what cannot be
// rendered is an error, what a person should know is a notice. The Plan shares nothing with the input.
func Render(in Input) (*Plan, error) {
	if in.Agent == nil || in.Harness == nil {
		return nil, errors.New("render: agent and harness are needed")
	}
	if err := in.Agent.Validate(); err != nil {
		return nil, fail(in, err)
	}
	if in.Harness.Name != in.Agent.Harness {
		return nil, fail(in, fmt.Errorf("its harness is %s, not %s", in.Agent.Harness, in.Harness.Name))
	}
	for what, dir := range map[string]string{"home": in.Home, "state folder": in.StateDir} {
		if !path.IsAbs(dir) {
			return nil, fail(in, fmt.Errorf("the %s %q is not absolute", what, dir))
		}
	}
	b := &builder{in: in, plan: new(Plan), envBy: map[string]string{}, boxed: map[string]bool{}}
	for _, step := range []func() error{b.pick, b.base, b.scopes, b.environment, b.bindings, b.servers, b.state, b.files,
		b.upstreams, b.network} {
		if err := step(); err != nil {
			return nil, fail(in, err)
		}
	}
	return b.plan, nil
}

func fail(in Input, err error) error { return fmt.Errorf("agent %s: %w", in.Agent.Name, err) }

// pick finds the addons that the agent binds, sorted by name.
func (b *builder) pick() error {
	known := map[string]*addons.Manifest{}
	for _, m := range b.in.Addons {
		known[m.Name] = m
	}
	if b.in.Agent.Bindings == nil {
		for _, name := range sortedKeys(known) {
			if known[name].Default {
				b.bound = append(b.bound, known[name])
			}
		}
		return nil
	}
	for _, name := range sortedKeys(b.in.Agent.Bindings) {
		m := known[name]
		if m == nil {
			return fmt.Errorf("it binds the addon %s, which cannot be used here — handler addon list shows what there is", name)
		}
		b.bound = append(b.bound, m)
	}
	return nil
}

// base is what agent and harness say by themselves.
func (b *builder) base() error {
	a, h, p := b.in.Agent, b.in.Harness, b.plan
	limits, err := a.Limits.Parse()
	if err != nil {
		return err
	}
	if p.Limits, err = a.Limits.Run(); err != nil {
		return err
	}
	p.Agent, p.Harness, p.Display, p.DisplayStrict = a.Name, h.Name, a.Display, a.DisplayStrict
	if p.ScreenWidth, p.ScreenHeight, err = a.ScreenSize(); err != nil {
		return err
	}
	p.SessionMCP, p.SessionsPerRun, p.MCPTransports = h.SessionMCP, h.SessionsPerRun, slices.Clone(h.MCPTransports)
	p.Browser = Browser{Rules: a.Browser.Network == agents.BrowserRules, ReadOnly: a.Browser.ReadOnly, Search: cmp.Or(a.Browser.Search, agents.DefaultBrowserSearch), View: a.Browser.Watched()}
	if p.Browser.Life, err = a.Browser.Life(); err != nil {
		return err
	}
	if p.Browser.Limits, err = a.Browser.Limits.Parse(); err != nil {
		return fmt.Errorf("browser.%w", err)
	}
	p.Policy = Policy{HostFS: a.Policy.HostFS, HostTerminal: a.Policy.HostTerminal, DenyClientMCP: a.Policy.ClientMCP == agents.ClientMCPDeny,
		ApprovalsACP: slices.Contains(a.Policy.Approvals, agents.ApprovalsACP), Unattended: a.Policy.Unattended}
	for _, r := range a.Policy.Answers {
		p.Policy.Answers = append(p.Policy.Answers, policy.AnswerRule(r))
	}
	p.Sandbox = sandbox.Spec{
		Labels:  map[string]string{sandbox.LabelAgent: a.Name},
		Image:   sandbox.ToolboxImage(a.Toolbox),
		Command: slices.Clone(h.Command),
		Limits:  limits,
	}
	if h.Build != nil {
		p.Sandbox.Images = append(p.Sandbox.Images, sandbox.ImageMount{Image: sandbox.HarnessImage(h.Name), Target: sandbox.HarnessTarget})
	}
	for _, m := range b.bound {
		if m.Build != nil {
			p.Sandbox.Images = append(p.Sandbox.Images, sandbox.ImageMount{Image: sandbox.AddonImage(m.Name), Target: addonDir(m)})
		}
	}
	if a.Policy.HostTerminal {
		b.notice("the agent may run commands on the host, through the client (host_terminal)")
	}
	if a.Policy.HostFS {
		b.notice("the agent may read and write files of its scopes through the client (host_fs)")
	}
	return nil
}

func (b *builder) notice(format string, args ...any) {
	b.plan.Notices = append(b.plan.Notices, fmt.Sprintf(format, args...))
}

func addonDir(m *addons.Manifest) string { return sandbox.AddonsTarget + "/" + m.Name }

// scopes mounts the agent's folders, or the one that the run is started in, at their own paths. The working
// directory is the run's folder where a scope holds it, else the first scope.
func (b *builder) scopes() error {
	list := slices.Clone(b.in.Agent.Scopes)
	if len(list) == 0 {
		if b.in.Cwd == "" {
			return errors.New("it has no scope, and the run is started in no folder — name one: handler agent edit, or start it in a project's folder")
		}
		list = []agents.Scope{{Path: b.in.Cwd}}
	}
	spec := &b.plan.Sandbox
	for _, s := range list {
		dir := b.host(s.Path)
		if !path.IsAbs(dir) || path.Clean(dir) != dir {
			return fmt.Errorf("the scope %q is not a plain absolute path", dir)
		}
		if slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool { return m.Target == dir }) {
			return fmt.Errorf("the scope %s is there twice", dir)
		}
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: dir, Target: dir, ReadOnly: s.Mode == agents.ModeReadOnly})
		if spec.Dir == "" || within(b.in.Cwd, dir) {
			spec.Dir = dir
		}
	}
	if within(b.in.Cwd, spec.Dir) {
		spec.Dir = b.in.Cwd
	}
	slices.SortFunc(spec.Mounts, func(x, y sandbox.Mount) int { return strings.Compare(x.Target, y.Target) })
	return nil
}

// host expands "~/" of a path on the host.
func (b *builder) host(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return path.Join(b.in.Home, rest)
	}
	return p
}

// inside expands "~/" of a path in the sandbox.
func inside(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return sandbox.HomeTarget + "/" + rest
	}
	return p
}

// systemPath is where a toolbox's own programs are.
const systemPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// environment is what Handler sets, then the harness, then the agent; a later one wins. There is no TERM: the agent
// has no terminal.
func (b *builder) environment() error {
	var dirs []string
	for _, m := range b.bound {
		if m.Build != nil && len(m.Commands) > 0 {
			dirs = append(dirs, addonDir(m)+"/bin")
		}
	}
	if b.in.Harness.Build != nil {
		dirs = append(dirs, sandbox.HarnessTarget+"/bin")
	}
	env := baseEnv(dirs...)
	maps.Copy(env, b.in.Harness.Env)
	maps.Copy(env, b.in.Agent.Env)
	b.plan.Sandbox.Env = env
	return nil
}

// baseEnv is what every sandbox has, with dirs before the system's in PATH.
func baseEnv(dirs ...string) map[string]string {
	return map[string]string{
		"HOME": sandbox.HomeTarget,
		"PATH": strings.Join(append(dirs, systemPath), ":"),
		"LANG": "C.UTF-8",
		"USER": "agent", "LOGNAME": "agent",
		"SHELL": "/bin/bash",
	}
}

// network joins the rules, each with who asked for it (B.4). The order is that of the words of the contract:
// harness, addons, servers, agent.
func (b *builder) network() error {
	a, l := b.in.Agent, newRuleList()
	l.notice = func(text string) { b.notice("%s", text) }
	add := l.add
	add(RuleAllow, "harness "+b.in.Harness.Name, b.in.Harness.Hosts...)
	if len(b.plan.Upstreams) == 0 {
		add(RuleAllow, "harness "+b.in.Harness.Name, b.in.Harness.LoginHosts...)
	}
	for _, m := range b.bound {
		if !b.boxed[m.Name] { // else its hosts are its server's alone
			add(RuleAllow, "addon "+m.Name, m.Hosts...)
		}
	}
	for _, s := range a.MCP {
		kind, text, hostErr := serverRule(s.URL)
		if hostErr != nil {
			return fmt.Errorf("the MCP server %s: %w", s.Name, hostErr)
		}
		add(kind, "mcp server "+s.Name, text)
	}
	l.addNetwork("agent "+a.Name, a.Network)
	b.plan.Network = Network{Rules: l.rules, Unknown: a.Network.Unknown}
	return l.err
}

// upstreams serves those of the harness whose key the agent gives, by the first way to authenticate that it has a
// secret for (D.9). What the agent says of an upstream and nobody would read is an error.
func (b *builder) upstreams() error {
	a := b.in.Agent
	wanted := map[string]bool{}
	for _, u := range b.in.Harness.Upstreams {
		served := false
		for _, auth := range u.Auth {
			wanted[auth.Secret] = true
			secret, given := a.Secrets[auth.Secret]
			if served || !given {
				continue
			}
			served = true
			if err := b.serve(u, auth, b.source(secret)); err != nil {
				return err
			}
		}
		if _, changed := a.Upstreams[u.Name]; changed && !served {
			return fmt.Errorf("upstreams.%s is not served: none of its secrets is given (%s)", u.Name, strings.Join(secretNames(u), ", "))
		}
	}
	for _, name := range sortedKeys(a.Secrets) {
		if !wanted[name] {
			return fmt.Errorf("secrets.%s: the harness %s has no upstream with that secret%s", name, a.Harness, known(sortedKeys(wanted)))
		}
	}
	for _, name := range sortedKeys(a.Upstreams) {
		if !slices.ContainsFunc(b.in.Harness.Upstreams, func(u harness.Upstream) bool { return u.Name == name }) {
			return fmt.Errorf("upstreams.%s: the harness %s has no such upstream", name, a.Harness)
		}
	}
	return nil
}

func (b *builder) serve(u harness.Upstream, auth harness.Auth, secret Source) error {
	changed := b.in.Agent.Upstreams[u.Name]
	url := u.URL
	if changed.URL != "" {
		url = changed.URL
	}
	methods, paths, err := narrowed(u, changed)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(u.Env) {
		if _, ok := b.in.Agent.Env[name]; ok {
			return fmt.Errorf("env.%s is what the upstream %s sets, since the agent gives %s: take one of them out", name, u.Name, auth.Secret)
		}
	}
	b.plan.Upstreams = append(b.plan.Upstreams, Upstream{
		Name: u.Name, URL: url, Methods: methods, Paths: paths,
		Header: auth.Header, Prefix: auth.Prefix, Extra: maps.Clone(auth.Extra), Secret: secret, Env: maps.Clone(u.Env),
	})
	return nil
}

func secretNames(u harness.Upstream) []string {
	var names []string
	for _, auth := range u.Auth {
		names = append(names, auth.Secret)
	}
	return names
}

// known ends a message with what there is.
func known(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ": there is " + strings.Join(names, ", ")
}

// within tells whether p is dir or lies below it; both are clean.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
