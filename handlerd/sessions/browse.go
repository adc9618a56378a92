package sessions

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox/beneath"
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
		Window: r.plan.Browser.View, Life: r.plan.Browser.Life, Search: r.plan.Browser.Search, Rules: rules, Network: browser.PublicNetwork(r.plan.Agent),
	}
	l := r.plan.Browser.Limits
	p.Idle, p.Worker = l.Idle, browser.WorkerLimits{Memory: l.Memory, Storage: l.Files, Tmp: l.Tmp, Processes: l.Processes}
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

// BoxFailed puts into a run's log what the proxy of one of its browsers or hosted servers could not reach.
func (m *Manager) BoxFailed(run string, f egress.Failure) {
	if r := m.live(run); r != nil {
		r.egressFailed(f)
	}
}

// OpenScopeFile opens a regular file of a run's scopes for an upload: browser.Options.OpenFile.
func (m *Manager) OpenScopeFile(run, path string) (io.ReadCloser, error) {
	r := m.live(run)
	if r == nil {
		return nil, errors.New("the run is over")
	}
	return openScoped(r.scopes, path)
}

// openScoped opens a regular file by its absolute path, beneath the innermost scope that holds it (package beneath): what
// a sandbox does not see of a scope, such as what the host has mounted in it, is not opened either.
func openScoped(open []openScope, path string) (io.ReadCloser, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q is no absolute path", cut(path, maxNamedBytes))
	}
	s, rel, ok := innermost(open, filepath.Clean(path))
	if !ok {
		return nil, fmt.Errorf("%q is not in the workspace: %s", cut(path, maxNamedBytes), named(scopePaths(open)))
	}
	root, err := beneath.Root(s.path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := beneath.Open(int(root.Fd()), filepath.ToSlash(rel))
	switch shown := cut(path, maxNamedBytes); {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%q leads through a symlink", shown)
	case errors.Is(err, unix.EXDEV):
		return nil, fmt.Errorf("%q lies on another file system than its workspace", shown)
	case errors.Is(err, beneath.ErrNotRegular):
		return nil, fmt.Errorf("%q is no regular file", shown)
	case err != nil:
		return nil, fmt.Errorf("%q: %w", shown, errors.Unwrap(err))
	}
	return f, nil
}

func scopePaths(open []openScope) []string {
	var all []string
	for _, s := range open {
		all = append(all, s.path)
	}
	return all
}

// BoxRefused writes down what the proxy of a run's browser, or of another hosted server's sandbox, refused.
func (m *Manager) BoxRefused(run string, rec egress.Record) {
	if r := m.live(run); r != nil {
		r.auditEgress(rec)
	}
}
