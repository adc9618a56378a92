package sessions

import (
	"maps"
	"slices"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
)

// hostedNetwork gives the live rules of a hosted server that has a sandbox of its own.
func (r *Run) hostedNetwork(server string, base policy.Network) func() policy.Network {
	l := &liveNetwork{}
	l.begin(base, r.recheckHosted)
	r.hosted.mu.Lock()
	defer r.hosted.mu.Unlock()
	r.hosted.networks[server] = l
	return l.get
}

// recheckHosted cuts what the run's browsers and servers have open and their rules refuse by now.
func (r *Run) recheckHosted() {
	r.hosted.mu.Lock()
	servers := slices.Collect(maps.Values(r.hosted.servers))
	r.hosted.mu.Unlock()
	for _, s := range servers {
		s.Recheck()
	}
}

// rulesOf gives the rules that a change is about: the agent's, or a hosted server's; nil where the run has no such server.
func (r *Run) rulesOf(server string) *liveNetwork {
	if server == "" {
		return r.network
	}
	r.hosted.mu.Lock()
	defer r.hosted.mu.Unlock()
	return r.hosted.networks[server]
}

// checkServer refuses changes of a hosted server's rules that cannot be.
func checkServer(c types.RuleChange) error {
	switch {
	case c.Server == "":
	case c.Server == addons.GuardedBrowser:
		return fault.New(fault.Usage, "leave --addon out: handler policy "+c.Kind+" "+c.Agent+" "+c.Rule, "the guarded browser has no rules of its own: what the agent may reach, or is denied, is for its browser too")
	case c.Scope == types.ScopeOnce:
		return fault.New(fault.Usage, "leave --once out, or say --run", "a hosted server waits for nobody, so no rule of its is for one connection")
	}
	return nil
}

// noServer says that no live run has the server that a change is about.
func noServer(c types.RuleChange, run string) error {
	return fault.New(fault.NotFound, "see: handler gateway list "+run, "run %s hosts no server %s in a sandbox of its own", run, printable(c.Server, 80))
}

// hostedRules lists the rules of the run's hosted servers.
func (r *Run) hostedRules() []types.LiveRule {
	r.hosted.mu.Lock()
	networks := maps.Clone(r.hosted.networks)
	r.hosted.mu.Unlock()
	var list []types.LiveRule
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		for _, rule := range networks[name].list() {
			rule.Server = name
			list = append(list, rule)
		}
	}
	return list
}
