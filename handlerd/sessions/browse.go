package sessions

import (
	"errors"
	"io"

	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/policy"
)

// live gives a run by its whole id; nil where there is none.
func (m *Manager) live(id string) *Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[id]
}

// BrowserPolicy is what a run may do with its guarded browser, as of now: browser.Options.Policy.
func (m *Manager) BrowserPolicy(run string) (browser.Policy, bool) {
	r := m.live(run)
	if r == nil || r.ctx.Err() != nil {
		return browser.Policy{}, false
	}
	rules := r.network.get()
	p := browser.Policy{
		Agent: r.plan.Agent, Unattended: r.hosted.run.Unattended, ReadOnly: r.plan.Browser.ReadOnly || r.hosted.run.ReadOnly,
		Life: r.plan.Browser.Life, Rules: rules, Network: browser.PublicNetwork(r.plan.Agent),
	}
	if r.plan.Browser.Rules {
		p.Network = rules
		return p, true
	}
	for _, rule := range rules.Rules { // what the person denied the agent is denied its browser too
		if rule.Kind == policy.KindDeny {
			p.Network.Rules = append(p.Network.Rules, rule)
		}
	}
	return p, true
}

// OpenScopeFile opens a regular file of a run's scopes for an upload: browser.Options.OpenFile.
func (m *Manager) OpenScopeFile(run, path string) (io.ReadCloser, error) {
	r := m.live(run)
	if r == nil {
		return nil, errors.New("the run is over")
	}
	var scopes []string
	for _, s := range r.scopes {
		scopes = append(scopes, s.path)
	}
	f, err := browser.OpenBeneath(scopes, path)
	if err != nil {
		return nil, err // and no typed nil
	}
	return f, nil
}

// BrowserRefused writes down what the proxy of a run's browser refused.
func (m *Manager) BrowserRefused(run string, rec egress.Record) {
	if r := m.live(run); r != nil {
		r.auditEgress(rec)
	}
}
