package sessions

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
)

// askNetwork is egress's question about a destination that no rule names (D.4): a rule for one connection answers it,
// else a person, where the agent says so and somebody is there. v is the refusal in the same words.
func (r *Run) askNetwork(ctx context.Context, host string, port uint16, v policy.Verdict) policy.Verdict {
	v.Action = policy.Refuse
	subject := net.JoinHostPort(host, strconv.Itoa(int(port)))
	if r.network.takeOnce(host, port) {
		r.audit(audit.Record{Kind: audit.KindNetwork, Verdict: audit.Allowed, Rule: "D.4", Subject: subject, Reason: "by you, once"})
		return policy.Verdict{}
	}
	if !r.network.asks() {
		return v
	}
	if r.neverAsk {
		v.Reason += ", and the run is unattended, so nobody is asked"
		return v
	}
	a, err := r.m.opts.Approvals.Ask(ctx, r.question(host, port, subject))
	switch {
	case err == nil && a.Allow:
		return policy.Verdict{}
	case err == nil:
		v.Reason = fmt.Sprintf("the person refused %s for agent %q", subject, r.plan.Agent)
		v.Hint = ""
	case errors.Is(err, approvals.ErrNobody):
		v.Reason += ", and nobody is there to be asked"
		v.Hint += " — or be there: handler approvals watch"
	case errors.Is(err, approvals.ErrExpired):
		v.Reason += fmt.Sprintf(", and nobody answered within %s", approvals.NetworkExpiry)
	case errors.Is(err, approvals.ErrTooMany), errors.Is(err, approvals.ErrTooOften):
		v.Reason += ", and it was not asked about: " + err.Error()
	case errors.Is(err, approvals.ErrUnwritten):
		v.Reason += ", and the question could not be written down"
	}
	return v
}

// question is what a person is asked about a destination.
func (r *Run) question(host string, port uint16, subject string) approvals.Question {
	rule := policy.Wanted(host, port)
	named := "which no rule names"
	if allowed := r.network.get().AllowedOf(host); allowed != "" { // a yes is for all of the host, and takes that back
		named = "of which the rules allow " + allowed
	}
	return approvals.Question{
		Kind: types.ApprovalNetwork, Run: r.id, Agent: r.plan.Agent, Subject: subject, Key: subject,
		Text:   fmt.Sprintf("%s wants to reach %s, %s", r.plan.Agent, subject, named),
		Detail: fmt.Sprintf("for this run, or always: %s", ruleText(rule, host)),
		Scopes: []string{types.ScopeOnce, types.ScopeRun, types.ScopeAlways},
		Expiry: approvals.NetworkExpiry,
		Apply:  r.applyRule(rule),
		Moot: func() (allow, decided bool) {
			v := r.network.get().Decide(host, port)
			return v.Action == policy.Allow, v.Action != policy.Ask
		},
	}
}

// rulesChanged is called after every change of the run's rules.
func (r *Run) rulesChanged() {
	r.egress.Recheck()
	r.recheckHosted()
	r.m.opts.Approvals.Review(r.id)
}

// ChangeRules adds a network rule: for the next connection or for the life of one run or of all runs of an agent, or
// in the agent's file and for its live runs besides. It counts from the next connection on; what is open to a
// destination that is denied now is cut. The audit log has it before it counts. Errors are *fault.Fault.
func (m *Manager) ChangeRules(c types.RuleChange) (types.RuleChanged, error) {
	if c.Scope == "" {
		c.Scope = types.ScopeAlways
	}
	if err := checkChange(c); err != nil {
		return types.RuleChanged{}, err
	}
	runs, err := m.runsOf(c)
	if err != nil {
		return types.RuleChanged{}, err
	}
	done := types.RuleChanged{Agent: c.Agent, Server: c.Server, Kind: c.Kind, Rule: c.Rule, Scope: c.Scope, Runs: []string{}}
	if done.Agent == "" {
		done.Agent = runs[0].plan.Agent
	}
	if c.Scope == types.ScopeAlways {
		if err := m.saveRule(c, &done); err != nil {
			return types.RuleChanged{}, err
		}
	}
	for _, r := range runs {
		by := map[string]string{
			types.ScopeOnce: "you, once", types.ScopeRun: "you, for run " + r.id, types.ScopeAlways: "you, always",
		}[c.Scope]
		rule, err := policy.ParseRule(c.Kind, c.Rule, by)
		if err != nil {
			return types.RuleChanged{}, fault.New(fault.Usage, "", "%v", err)
		}
		rules := r.rulesOf(c.Server)
		if rules == nil && c.Scope == types.ScopeAlways {
			continue // of a run that began before the server was bound
		}
		if rules == nil {
			return types.RuleChanged{}, noServer(c, r.id)
		}
		if err := m.auditRule(r.id, r.plan.Agent, c, by); err != nil {
			return types.RuleChanged{}, err
		}
		if err := rules.add(rule, c.Scope); err != nil {
			return types.RuleChanged{}, err
		}
		done.Runs = append(done.Runs, r.id)
		if note := stillDenied(rules.get(), rule); note != "" {
			done.Note = joinNotes(done.Note, note)
		}
	}
	return done, nil
}

func checkChange(c types.RuleChange) error {
	switch c.Scope {
	case types.ScopeOnce:
		if c.Kind != policy.KindAllow {
			return fault.New(fault.Usage, "leave --once out, or say --run", "only an allow rule can be for one connection")
		}
	case types.ScopeRun:
	case types.ScopeAlways:
		if c.Run != "" {
			return fault.New(fault.Usage, "leave the run out", "a rule that is saved is for every run of the agent")
		}
	default:
		return fault.New(fault.Usage, "it is one of: once, run, always", "a rule cannot hold %q", printable(c.Scope, 40))
	}
	if c.Agent == "" && c.Run == "" {
		return fault.New(fault.Usage, "", "no agent and no run is named")
	}
	if err := checkServer(c); err != nil {
		return err
	}
	rule, err := policy.ParseRule(c.Kind, c.Rule, "you")
	if err != nil {
		return fault.New(fault.Usage, "see: handler policy allow --help", "%v", err)
	}
	if c.Scope == types.ScopeOnce && rule.Path != "" {
		return fault.New(fault.Usage, "leave the path out, or say --run", "a rule for one connection names a host, not a request")
	}
	return nil
}

// runsOf gives the live runs that a change is about, oldest first; for what is not saved there must be one.
func (m *Manager) runsOf(c types.RuleChange) ([]*Run, error) {
	if c.Run != "" {
		r, err := m.find(c.Run)
		if err != nil {
			return nil, err
		}
		if c.Agent != "" && r.plan.Agent != c.Agent {
			return nil, fault.New(fault.Usage, "see: handler ps", "run %s is one of agent %s, not of %s", r.id, r.plan.Agent, c.Agent)
		}
		return []*Run{r}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var runs []*Run
	for _, r := range m.runs {
		if r.plan.Agent == c.Agent {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b *Run) int { return a.since.Compare(b.since) })
	if len(runs) == 0 && c.Scope != types.ScopeAlways {
		return nil, fault.New(fault.NotFound, "for good: handler policy "+c.Kind+" "+c.Agent+" "+c.Rule, "no run of agent %s is live", c.Agent)
	}
	return runs, nil
}

// saveRule puts a rule into the agent's file.
func (m *Manager) saveRule(c types.RuleChange, done *types.RuleChanged) error {
	// What was never there to change is nothing for the audit log.
	if _, err := m.opts.Plan(c.Agent, "/"); err != nil && fault.Of(err).Kind == fault.NotFound {
		return err
	}
	if err := m.auditRule("", c.Agent, c, "you, always"); err != nil {
		return err
	}
	m.saveMu.Lock()
	defer m.saveMu.Unlock()
	var err error
	if done.File, done.Created, err = m.opts.SaveRule(c.Agent, c.Server, c.Kind, c.Rule); err != nil {
		return errors.Join(err, m.auditRule("", c.Agent, c, "was not saved"))
	}
	done.Note = "saved in " + done.File
	if done.Created {
		done.Note += ", which is new: until now the agent was only the harness's own name"
	}
	return nil
}

// auditRule writes a change of the rules down, before it counts.
func (m *Manager) auditRule(run, agent string, c types.RuleChange, by string) error {
	subject := c.Kind + " " + c.Rule
	if c.Server != "" {
		subject += " for the server " + c.Server
	}
	err := m.opts.Audit.Append(audit.Record{Kind: audit.KindRules, Run: run, Agent: agent, Subject: subject, Reason: by})
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the rule does not count")
	}
	return nil
}

// stillDenied says that an allow rule for a host has no effect, since another rule denies it.
func stillDenied(n policy.Network, rule policy.Rule) string {
	if rule.Kind != policy.KindAllow || rule.Host == "" || rule.Suffix || rule.Path != "" {
		return ""
	}
	port := rule.Port
	if port == 0 {
		port = 443
	}
	if v := n.Decide(rule.Host, port); v.Action == policy.Refuse {
		return "it has no effect: " + v.Reason
	}
	return ""
}

func joinNotes(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return a + "; " + b
}

// Rules gives the network rules of the live run whose id begins with id.
func (m *Manager) Rules(id string) ([]types.LiveRule, error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	return append(r.network.list(), r.hostedRules()...), nil
}
