package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// bindings turns settings and secrets of each bound addon into variables. They are in the sandbox's environment, for
// the addon's commands, and in its MCP server's, since an agent may not pass its own on.
func (b *builder) bindings() error {
	for _, m := range b.bound {
		binding := b.in.Agent.Bindings[m.Name]
		b.boxed[m.Name] = b.ownSandbox(m, binding)
		env, err := b.bind(m, binding)
		if err != nil {
			return fmt.Errorf("the addon %s: %w", m.Name, err)
		}
		if b.boxed[m.Name] {
			if err := b.box(m, binding, env); err != nil {
				return fmt.Errorf("the addon %s: %w", m.Name, err)
			}
			continue
		}
		for _, name := range sortedKeys(env) {
			b.share(name, env[name], "addon "+m.Name)
		}
		if m.MCP == nil {
			continue
		}
		if err := b.addonServer(m, binding, env); err != nil {
			return fmt.Errorf("the addon %s: %w", m.Name, err)
		}
	}
	return nil
}

// share sets a variable of the whole sandbox. Where two addons disagree on one, neither is right for the other's
// commands: it is taken out, and that is said.
func (b *builder) share(name, value, by string) {
	env := b.plan.Sandbox.Env
	other, set := b.envBy[name]
	switch {
	case set && other == "":
	case set && env[name] != value:
		delete(env, name)
		b.envBy[name] = ""
		b.notice("%s and %s both have a value for %s: only their MCP servers see it, their commands do not", other, by, name)
	default:
		env[name], b.envBy[name] = value, by
	}
}

// placementOf says where the addon's MCP server runs.
func placementOf(m *addons.Manifest, binding agents.Binding) string {
	if binding.Placement == "" && m.MCP != nil {
		return m.MCP.Placement
	}
	return binding.Placement
}

// ownSandbox tells whether the addon's MCP server is hosted in a sandbox of its own.
func (b *builder) ownSandbox(m *addons.Manifest, binding agents.Binding) bool {
	return m.MCP != nil && placementOf(m, binding) == addons.PlacementHosted && !slices.Contains(b.in.Hosted, m.Name)
}

// box makes the sandbox of its own of a hosted server. What bind gave is its alone: the agent's sandbox has the addon's
// commands and skills, and neither its secrets nor its hosts.
func (b *builder) box(m *addons.Manifest, binding agents.Binding, env map[string]string) error {
	if m.Build == nil || len(m.MCP.Command) == 0 {
		return errors.New("its MCP server needs [build] and a command")
	}
	if binding.ChromiumSandbox == agents.ChromiumSandboxOff {
		return errors.New("the browser of a hosted server always has its own sandbox (A.7)")
	}
	box := &Box{
		Images:  []sandbox.ImageMount{{Image: sandbox.AddonImage(m.Name), Target: addonDir(m)}},
		Command: append([]string{addonDir(m) + "/bin/" + m.MCP.Command[0]}, m.MCP.Command[1:]...),
		Env:     baseEnv(addonDir(m) + "/bin"),
	}
	maps.Copy(box.Env, env)
	for _, s := range b.plan.Secrets {
		if strings.HasPrefix(s.Name, m.Name+".") {
			box.Secrets = append(box.Secrets, s)
		}
	}
	b.plan.Secrets = slices.DeleteFunc(b.plan.Secrets, func(s SecretFile) bool { return strings.HasPrefix(s.Name, m.Name+".") })
	l := newRuleList()
	l.notice = func(text string) { b.notice("the server %s: %s", m.Name, text) }
	l.add(RuleAllow, "addon "+m.Name, m.Hosts...)
	l.addNetwork("agent "+b.in.Agent.Name, binding.Network)
	if l.err != nil {
		return fmt.Errorf("network: %w", l.err)
	}
	box.Network.Rules = l.rules
	for _, name := range sortedKeys(m.Settings) { // its commands beside the agent know them too
		key := "HANDLER_SETTING_" + strings.ToUpper(name)
		b.share(key, env[key], "addon "+m.Name)
	}
	return b.hostServer(m, binding, box)
}

// hostServer adds a server that handlerd hosts, as the agent reaches it.
func (b *builder) hostServer(m *addons.Manifest, binding agents.Binding, box *Box) error {
	limits, err := binding.Limits.Parse()
	if err != nil {
		return err
	}
	b.plan.Hosted = append(b.plan.Hosted, Hosted{Name: m.Name, Allow: binding.Tools, Deny: binding.DenyTools, Settings: settingsOf(m, binding), Box: box, Limits: limits})
	b.plan.SessionDefaults.MCPServers = append(b.plan.SessionDefaults.MCPServers, MCPServer{
		Name: m.Name, Command: sandbox.GuestTarget + "/handler-guest", Args: []string{"mcp", m.Name, policy.SessionToken}, Env: []Pair{},
	})
	return nil
}

// bind checks a binding against the addon's manifest and gives the variables of its settings and secrets.
func (b *builder) bind(m *addons.Manifest, binding agents.Binding) (map[string]string, error) {
	env := map[string]string{}
	for _, name := range sortedKeys(binding.Settings) {
		if _, ok := m.Settings[name]; !ok {
			return nil, fmt.Errorf("it has no setting %s%s", name, known(sortedKeys(m.Settings)))
		}
	}
	for _, name := range sortedKeys(m.Settings) {
		setting := m.Settings[name]
		value, given := binding.Settings[name]
		if !given {
			value = setting.Default
		}
		if len(setting.Values) > 0 && !slices.Contains(setting.Values, value) {
			return nil, fmt.Errorf("its setting %s cannot be %q: one of %s", name, value, strings.Join(setting.Values, ", "))
		}
		env["HANDLER_SETTING_"+strings.ToUpper(name)] = value
	}
	for _, name := range sortedKeys(binding.Secrets) {
		if _, ok := m.Secrets[name]; !ok {
			return nil, fmt.Errorf("it has no secret %s%s", name, known(sortedKeys(m.Secrets)))
		}
	}
	for _, name := range sortedKeys(m.Secrets) {
		secret, given := binding.Secrets[name]
		if !given && m.Secrets[name].Required {
			return nil, fmt.Errorf("it needs the secret %s: add [bindings.%s.secrets.%s] with file, pass, secret_service, credential or command to the agent", name, m.Name, name)
		}
		if !given {
			continue
		}
		target := sandbox.SecretsTarget + "/" + m.Name + "/" + name
		env["HANDLER_SECRET_"+strings.ToUpper(name)] = target
		b.plan.Secrets = append(b.plan.Secrets, SecretFile{Name: m.Name + "." + name, Source: b.source(secret), Path: target, Mode: secretMode})
	}
	if binding.ChromiumSandbox == agents.ChromiumSandboxOff && m.MCP == nil {
		return nil, errors.New("chromium_sandbox says nothing to an addon without an MCP server")
	}
	return env, nil
}

// source expands the host paths of a secret's source.
func (b *builder) source(s agents.Secret) Source {
	s = s.Clone()
	if s.File != "" {
		s.File = b.host(s.File)
	}
	if len(s.Command) > 0 && strings.ContainsRune(s.Command[0], '/') {
		s.Command[0] = b.host(s.Command[0])
	}
	return s
}

// addonServer adds the stdio server of an addon (B.3), by its absolute path: an agent may search programs elsewhere.
func (b *builder) addonServer(m *addons.Manifest, binding agents.Binding, env map[string]string) error {
	off := binding.ChromiumSandbox == agents.ChromiumSandboxOff
	if binding.Limits != (agents.ServerLimits{}) {
		return errors.New("limits hold for a server that is hosted in a sandbox of its own: the guarded browser has [browser.limits], and what runs beside the agent has the agent's")
	}
	if binding.Network.Given() {
		return errors.New("network holds for a server that is hosted in a sandbox of its own: the guarded browser has [browser] network, and what runs beside the agent has the agent's")
	}
	if placementOf(m, binding) == addons.PlacementHosted {
		if off {
			return errors.New("the browser of a hosted server always has its own sandbox (A.7)")
		}
		if len(binding.Secrets) > 0 {
			return errors.New("the guarded browser takes no secrets, and no login with them (F.1): leave them out, or use the browser beside the agent: placement = \"sandbox\"")
		}
		return b.hostServer(m, binding, nil)
	}
	if len(binding.Tools)+len(binding.DenyTools) > 0 {
		return errors.New("tools and deny_tools hold for a server that handlerd hosts: add placement = \"hosted\"")
	}
	if m.Build == nil || len(m.MCP.Command) == 0 {
		return errors.New("its MCP server needs [build] and a command")
	}
	s := MCPServer{Name: m.Name, Command: addonDir(m) + "/bin/" + m.MCP.Command[0], Args: append([]string{}, m.MCP.Command[1:]...), Env: []Pair{}}
	for _, name := range sortedKeys(env) {
		s.Env = append(s.Env, Pair{Name: name, Value: env[name]})
	}
	if off {
		s.Env = append(s.Env, Pair{Name: "HANDLER_CHROMIUM_SANDBOX", Value: agents.ChromiumSandboxOff})
		b.notice("the browser of addon %s runs without Chromium's own sandbox (chromium_sandbox = \"off\")", m.Name)
	}
	b.plan.SessionDefaults.MCPServers = append(b.plan.SessionDefaults.MCPServers, s)
	return nil
}

// servers adds the person's own servers and checks all of them against the harness (B.5, B.7).
func (b *builder) servers() error {
	all := &b.plan.SessionDefaults.MCPServers
	if *all == nil {
		*all = []MCPServer{}
	}
	for _, s := range b.in.Agent.MCP {
		server := MCPServer{Type: s.Type, Name: s.Name, URL: s.URL, Headers: []Pair{}}
		for _, name := range sortedKeys(s.Headers) {
			server.Headers = append(server.Headers, Pair{Name: name, Value: s.Headers[name]})
		}
		*all = append(*all, server)
	}
	h, folded := b.in.Harness, map[string]string{}
	for _, s := range *all {
		transport := s.Type
		if transport == "" {
			transport = "stdio"
		}
		if !slices.Contains(h.MCPTransports, transport) {
			return fmt.Errorf("the MCP server %s is a %s one, and the harness %s takes %s", s.Name, transport, h.Name, transports(h.MCPTransports))
		}
		fold := policy.FoldName(s.Name)
		if other, twice := folded[fold]; twice {
			return fmt.Errorf("the MCP servers %q and %q have names that agents cannot tell apart: rename one", other, s.Name)
		}
		folded[fold] = s.Name
	}
	return b.serverFile()
}

func transports(list []string) string {
	if len(list) == 0 {
		return "no MCP server at all"
	}
	return "only " + strings.Join(list, ", ")
}

// settingsOf gives a binding's settings with the manifest's defaults; bind has checked them.
func settingsOf(m *addons.Manifest, binding agents.Binding) map[string]string {
	all := map[string]string{}
	for name, setting := range m.Settings {
		all[name] = setting.Default
		if value, given := binding.Settings[name]; given {
			all[name] = value
		}
	}
	return all
}
