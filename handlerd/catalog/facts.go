package catalog

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// byHandler is where what is shipped comes from.
const byHandler = "Handler"

// HarnessFacts gives a harness as people see it.
func HarnessFacts(m *harness.Manifest) types.Harness {
	v := types.Harness{
		Name: m.Name, Title: m.Title, Version: m.Version, Command: some(m.Command), MCPTransports: some(m.MCPTransports),
		SessionMCP: m.SessionMCP, Hosts: some(m.Hosts), LoginHosts: some(m.LoginHosts), Secrets: []string{}, Providers: []types.Provider{}, From: m.File,
	}
	if m.Shipped {
		v.From = byHandler
	}
	for _, up := range m.Upstreams {
		p := types.Provider{Name: up.Name, URL: up.URL, Secrets: []string{}}
		for _, a := range up.Auth {
			p.Secrets = append(p.Secrets, a.Secret)
		}
		v.Providers, v.Secrets = append(v.Providers, p), append(v.Secrets, p.Secrets...)
	}
	return v
}

// AddonFacts gives an addon as people see it.
func AddonFacts(m *addons.Manifest) types.Addon {
	v := types.Addon{
		Name: m.Name, Version: m.Version, Description: m.Description, Default: m.Default, Commands: some(m.Commands), Hosts: some(m.Hosts),
		Settings: []types.AddonSetting{}, Secrets: []types.AddonSecret{}, MCP: m.MCP != nil, From: m.File,
	}
	if m.Shipped {
		v.From = byHandler
	}
	if m.MCP != nil {
		v.Placement = m.MCP.Placement
	}
	for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
		s := m.Settings[name]
		v.Settings = append(v.Settings, types.AddonSetting{Name: name, Description: s.Description, Default: s.Default, Values: some(s.Values)})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Secrets)) {
		s := m.Secrets[name]
		v.Secrets = append(v.Secrets, types.AddonSecret{Name: name, Description: s.Description, Required: s.Required})
	}
	return v
}

// some gives a list that JSON writes as one even where it is empty.
func some(list []string) []string { return append([]string{}, list...) }

// HarnessList gives every harness, and what files are none.
func (c Catalog) HarnessList() (types.Harnesses, error) {
	reg, err := c.Harnesses()
	if err != nil {
		return types.Harnesses{}, err
	}
	v := types.Harnesses{Harnesses: []types.Harness{}, Problems: texts(reg.Problems())}
	for _, m := range reg.List() {
		v.Harnesses = append(v.Harnesses, HarnessFacts(m))
	}
	return v, nil
}

// AddonList gives every addon, and what folders are none.
func (c Catalog) AddonList() (types.Addons, error) {
	reg, err := c.Addons()
	if err != nil {
		return types.Addons{}, err
	}
	v := types.Addons{Addons: []types.Addon{}, Problems: texts(reg.Problems())}
	for _, m := range reg.List() {
		v.Addons = append(v.Addons, AddonFacts(m))
	}
	return v, nil
}

func texts(errs []error) []string {
	list := []string{}
	for _, err := range errs {
		list = append(list, err.Error())
	}
	return list
}

// Presets gives the network presets.
func Presets() []types.Preset {
	list := []types.Preset{}
	for _, p := range policy.AllPresets() {
		list = append(list, types.Preset{Name: p.Name, Title: p.Title, Rules: some(p.Rules), Note: p.Note})
	}
	return list
}

// LoginHint is what to do when an agent has no key: give it one of the secrets that its harness's providers take. ""
// where there is none.
func (c Catalog) LoginHint(agent string) string {
	a, err := c.Agent(agent)
	if err != nil {
		return ""
	}
	reg, err := c.Harnesses()
	if err != nil {
		return ""
	}
	h, err := reg.Get(a.Harness)
	if err != nil {
		return ""
	}
	var ways []string
	for _, name := range HarnessFacts(h).Secrets {
		ways = append(ways, "handler agent edit "+agent+" --secret "+name+"=FILE")
	}
	if len(ways) == 0 {
		return ""
	}
	return "give it a key, in a file of mode 0600: " + strings.Join(ways, "\n  or: ")
}

// defaults gives, with the keys of an agent's file, what holds where the file says nothing.
func (c Catalog) defaults() (json.RawMessage, error) {
	reg, err := c.Addons()
	if err != nil {
		return nil, err
	}
	bindings := map[string]any{}
	for _, m := range reg.List() {
		if !m.Default {
			continue
		}
		settings := map[string]string{}
		for name, s := range m.Settings {
			settings[name] = s.Default
		}
		b := map[string]any{"settings": settings, "chromium_sandbox": "on"}
		if m.MCP != nil {
			b["placement"] = m.MCP.Placement
		}
		bindings[m.Name] = b
	}
	return json.Marshal(map[string]any{
		"description": "", "toolbox": "default", "display": false, "display_strict": false,
		"scopes": []string{}, "bindings": bindings, "mcp": []string{},
		"network": map[string]any{"allow": []string{}, "deny": []string{}, "private": []string{}, "presets": []string{}, "unknown": agents.UnknownRefuse},
		"browser": map[string]any{
			"network": agents.BrowserPublic, "read_only": false, "lifetime": short(agents.DefaultBrowserLife), "search": agents.DefaultBrowserSearch,
		},
		"limits": map[string]any{
			"memory": agents.FormatBytes(sandbox.DefaultMemory), "cpus": 0, "processes": sandbox.DefaultProcesses,
			"tmp": agents.FormatBytes(sandbox.DefaultTmpBytes), "home": agents.FormatBytes(sandbox.DefaultHomeBytes),
			"shm": agents.FormatBytes(sandbox.DefaultShmBytes), "state": agents.FormatBytes(agents.DefaultState),
			"lifetime": agents.NoLimit, "idle": short(agents.DefaultIdle),
		},
		"policy": map[string]any{
			"host_fs": false, "host_terminal": false, "client_mcp": "allow", "approvals": []string{}, "unattended": agents.AnswerRefuse, "answers": []string{},
		},
		"secrets": map[string]any{}, "upstreams": map[string]any{}, "env": map[string]string{},
	})
}

// short writes a time without what is zero of it.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
