package agents

import (
	"fmt"
	"slices"
	"strings"
)

// Edits, as flags of the command line and fields of the page make them. Each changes the Agent in memory; Save
// checks the whole and writes it. An edit that is already so changes nothing.

// AddScope adds a scope, or changes the mode of one that is there. Mode is "ro", "rw" or "" for rw.
func (a *Agent) AddScope(path, mode string) error {
	if err := hostPath(path); err != nil {
		return fmt.Errorf("scope: %w", err)
	}
	for i := range a.Scopes {
		if a.Scopes[i].Path == path {
			a.Scopes[i].Mode = mode
			return a.checkScopes()
		}
	}
	a.Scopes = append(a.Scopes, Scope{Path: path, Mode: mode})
	return a.checkScopes()
}

// RemoveScope takes a scope away.
func (a *Agent) RemoveScope(path string) error {
	i := slices.IndexFunc(a.Scopes, func(s Scope) bool { return s.Path == path })
	if i < 0 {
		return fmt.Errorf("agent %s has no scope %s", a.Name, path)
	}
	a.Scopes = slices.Delete(a.Scopes, i, i+1)
	return nil
}

// Allow adds network rules that allow; a denial in the same words is taken back.
func (a *Agent) Allow(rules ...string) error { return a.Network.Allows(rules...) }

// Deny adds network rules that deny; an allowance in the same words is taken back.
func (a *Agent) Deny(rules ...string) error { return a.Network.Denies(rules...) }

// AllowPrivate adds rules for private addresses: address:port or prefix:port.
func (a *Agent) AllowPrivate(rules ...string) error { return a.Network.AllowsPrivate(rules...) }

// AddPresets adds presets such as "npm".
func (a *Agent) AddPresets(names ...string) error { return a.Network.AddPresets(names...) }

// Allows is [Agent.Allow] for one network, of an agent or of a binding.
func (n *Network) Allows(rules ...string) error { return n.move(&n.Allow, &n.Deny, rules) }

// Denies is [Agent.Deny] for one network.
func (n *Network) Denies(rules ...string) error { return n.move(&n.Deny, &n.Allow, rules) }

// AllowsPrivate is [Agent.AllowPrivate] for one network.
func (n *Network) AllowsPrivate(rules ...string) error {
	return n.move(&n.Private, new([]string), rules)
}

// AddPresets is [Agent.AddPresets] for one network.
func (n *Network) AddPresets(names ...string) error {
	return n.move(&n.Presets, new([]string), names)
}

// SetUnknown says what becomes of a host that no rule names: "refuse" or "ask".
func (a *Agent) SetUnknown(what string) error {
	a.Network.Unknown = what
	return a.checkNetwork()
}

// SetApprovals says where Handler's own questions are asked besides its own commands: "acp", or "none" for nowhere.
func (a *Agent) SetApprovals(where string) error {
	a.Policy.Approvals = []string{where}
	if where == "none" {
		a.Policy.Approvals = nil
	}
	return a.checkPolicy()
}

func (n *Network) move(to, from *[]string, rules []string) error {
	for _, r := range rules {
		if i := slices.Index(*from, r); i >= 0 {
			*from = slices.Delete(*from, i, i+1)
		}
		if !slices.Contains(*to, r) {
			*to = append(*to, r)
		}
	}
	return n.check()
}

// Forget takes a rule or preset out of every list it is in.
func (a *Agent) Forget(rule string) error {
	if !a.Network.Forgets(rule) {
		return fmt.Errorf("agent %s has no network rule %s", a.Name, rule)
	}
	return nil
}

// Forgets takes a rule or preset out of every list it is in, and says whether it was in one.
func (n *Network) Forgets(rule string) (found bool) {
	for _, list := range []*[]string{&n.Allow, &n.Deny, &n.Private, &n.Presets} {
		if i := slices.Index(*list, rule); i >= 0 {
			*list, found = slices.Delete(*list, i, i+1), true
		}
	}
	return found
}

// SetSecret says where a secret of the harness's upstreams comes from, as ParseSecret reads it, or with a dot in its
// name, ADDON.SECRET, one of a binding's that is there. "" takes it away.
func (a *Agent) SetSecret(name, source string) error {
	secret, err := ParseSecret(source)
	if err != nil {
		return fmt.Errorf("secret %s: %w", name, err)
	}
	addon, key, ofAddon := strings.Cut(name, ".")
	if !ofAddon {
		a.Secrets = setSecret(a.Secrets, name, secret)
		return a.checkSecrets()
	}
	b, bound := a.Bindings[addon]
	if !bound {
		return fmt.Errorf("secret %s: agent %s has no binding of the addon %s: add it in the same command, --addon %s", name, a.Name, addon, addon)
	}
	b.Secrets = setSecret(b.Secrets, key, secret)
	a.Bindings[addon] = b
	return a.checkBindings()
}

func setSecret(all map[string]Secret, name string, secret Secret) map[string]Secret {
	all = copied(all)
	if secret.Kind() == "" {
		delete(all, name)
	} else {
		all[name] = secret
	}
	return all
}

// SetEnv sets a variable.
func (a *Agent) SetEnv(name, value string) error {
	if a.Env == nil {
		a.Env = map[string]string{}
	}
	a.Env[name] = value
	return a.checkEnv()
}

// Bind attaches an addon, or returns the binding that is there for change: edit gets it and what it leaves is
// kept. defaults are the names of the addons that an agent without bindings has; they stay bound.
func (a *Agent) Bind(addon string, defaults []string, edit func(*Binding)) error {
	a.spellOut(defaults)
	b := a.Bindings[addon]
	b.Settings, b.Secrets = copied(b.Settings), copied(b.Secrets)
	n := &b.Network
	for _, list := range []*[]string{&n.Allow, &n.Deny, &n.Private, &n.Presets} {
		*list = slices.Clone(*list)
	}
	if edit != nil {
		edit(&b)
	}
	a.Bindings[addon] = b
	return a.checkBindings()
}

// Unbind detaches an addon; the other defaults stay bound.
func (a *Agent) Unbind(addon string, defaults []string) error {
	a.spellOut(defaults)
	if _, ok := a.Bindings[addon]; !ok {
		return fmt.Errorf("agent %s has no addon %s", a.Name, addon)
	}
	delete(a.Bindings, addon)
	return nil
}

// spellOut writes down what nil bindings stand for, before one of them changes.
func (a *Agent) spellOut(defaults []string) {
	if a.Bindings != nil {
		return
	}
	a.Bindings = map[string]Binding{}
	for _, name := range defaults {
		a.Bindings[name] = Binding{}
	}
}

// copied makes a map that can be written to, never nil.
func copied[V any](m map[string]V) map[string]V {
	out := make(map[string]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
