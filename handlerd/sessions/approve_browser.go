package sessions

import (
	"context"
	"errors"
	"fmt"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/policy"
)

// errUnattended is why a run that nobody attends asks nothing (F.4).
var errUnattended = errors.New("the run is unattended, so nobody is asked")

// AskBrowser puts a question of the guarded browser before a person and waits for the answer (F.4, H): it is
// browser.Options.Ask. An error says why nobody answered, in words for the agent.
func (m *Manager) AskBrowser(ctx context.Context, b browser.Question) (allow bool, err error) {
	m.mu.Lock()
	r := m.runs[b.Run]
	m.mu.Unlock()
	switch {
	case r == nil:
		return false, errors.New("its run has ended")
	case r.neverAsk:
		return false, errUnattended
	}
	q, err := r.browserQuestion(b)
	if err != nil {
		return false, err
	}
	a, err := m.opts.Approvals.Ask(ctx, q)
	if errors.Is(err, context.DeadlineExceeded) {
		err = approvals.ErrExpired
	}
	if err != nil {
		return false, err
	}
	return a.Allow, nil
}

// browserQuestion is what a person is asked. An interaction is for once. A visit of an origin that neither rules nor
// answers allow yet can be for longer: as a rule of the agent's (D.4), in the same words as one about a connection.
func (r *Run) browserQuestion(b browser.Question) (approvals.Question, error) {
	about := approvals.Browser{
		Run: r.id, Agent: r.plan.Agent, Session: b.Session, Tool: b.Tool, Action: b.Action, Visit: b.Visit, Pages: b.Pages,
		Title: b.Title, Says: b.Says, Frame: b.Frame, Targets: b.Targets, Values: b.Values, Digest: b.Digest, Picture: b.Picture,
	}
	for _, e := range b.Elements {
		about.Elements = append(about.Elements, types.BrowserElement{Role: e.Role, Name: e.Name})
	}
	q := about.Question()
	if b.Expiry > 0 {
		q.Expiry = min(b.Expiry, approvals.BrowserExpiry)
	}
	if !b.Visit {
		return q, nil
	}
	if len(b.Targets) != 1 {
		return q, errors.New("it is not said where the browser would go")
	}
	host, port, err := policy.ParseURL(b.Targets[0])
	if err != nil {
		return q, fmt.Errorf("where the browser would go: %w", err)
	}
	rule := policy.Wanted(host, port)
	q.Scopes = []string{types.ScopeOnce, types.ScopeRun, types.ScopeAlways}
	q.Detail = fmt.Sprintf("once is until this browser closes; for this run, or always, is a network rule of the agent itself: %s", ruleText(rule, host))
	q.Apply = r.applyRule(rule)
	q.Moot = func() (allow, decided bool) {
		network := r.network.get()
		if _, denied := network.Denies(host, port); denied {
			return false, true
		}
		allow = network.Decide(host, port).Action == policy.Allow
		return allow, allow
	}
	return q, nil
}

// ruleText is a rule as a question shows it.
func ruleText(rule, host string) string {
	if rule == host {
		return rule + " (ports 80 and 443)"
	}
	return rule
}

// applyRule makes an answer for longer than once true: as a rule.
func (r *Run) applyRule(rule string) func(types.ApprovalAnswer) (string, error) {
	return func(a types.ApprovalAnswer) (string, error) {
		if a.Scope == types.ScopeOnce {
			return "", nil
		}
		change := types.RuleChange{Agent: r.plan.Agent, Kind: policy.KindDeny, Rule: rule, Scope: a.Scope}
		if a.Allow {
			change.Kind = policy.KindAllow
		}
		if a.Scope == types.ScopeRun {
			change.Run = r.id
		}
		done, err := r.m.ChangeRules(change)
		return done.Note, err
	}
}
