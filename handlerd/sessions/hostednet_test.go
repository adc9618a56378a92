package sessions

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox/fake"
)

// A rechecked is a hosted server that counts how often it was told to look at its rules.
type rechecked struct{ n int }

func (*rechecked) Open(context.Context, gateway.Caller) (gateway.Instance, error) { return nil, nil }
func (*rechecked) Event(acp.Event)                                                {}
func (*rechecked) Stop()                                                          {}
func (*rechecked) Close() error                                                   { return nil }
func (s *rechecked) Recheck()                                                     { s.n++ }

// TestServerRules: a rule of a hosted server counts for a live run's server, at once, and not for its agent; the agent's does
// not count for the server; a denial is looked at again by whatever is open.
func TestServerRules(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	server := &rechecked{}
	r.hosted.networks, r.hosted.servers = map[string]*liveNetwork{}, map[string]HostedServer{"notes": server}
	base, err := policy.ParseRule(policy.KindAllow, "old.example.org", "addon notes")
	if err != nil {
		t.Fatal(err)
	}
	rules := r.hostedNetwork("notes", policy.Network{Agent: "web", Server: "notes", Rules: []policy.Rule{base}})
	allowed := func(host string) (server, agent bool) {
		return rules().Decide(host, 443).Action == policy.Allow, r.network.get().Decide(host, 443).Action == policy.Allow
	}
	done, err := w.m.ChangeRules(types.RuleChange{Agent: "web", Server: "notes", Kind: "allow", Rule: "new.example.org", Scope: types.ScopeRun})
	if diff := cmp.Diff(types.RuleChanged{Agent: "web", Server: "notes", Kind: "allow", Rule: "new.example.org", Scope: types.ScopeRun, Runs: []string{r.id}}, done); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if s, a := allowed("new.example.org"); !s || a || server.n != 1 {
		t.Errorf("the server %v, the agent %v, looked at %d times", s, a, server.n)
	}
	if _, err := w.m.ChangeRules(types.RuleChange{Run: r.id, Server: "notes", Kind: "deny", Rule: "old.example.org", Scope: types.ScopeRun}); err != nil {
		t.Error(err)
	}
	if s, _ := allowed("old.example.org"); s || server.n != 2 {
		t.Errorf("still allowed, looked at %d times", server.n)
	}
	if _, err := w.m.ChangeRules(types.RuleChange{Run: r.id, Kind: "allow", Rule: "agents.example.org", Scope: types.ScopeRun}); err != nil {
		t.Error(err)
	}
	if s, a := allowed("agents.example.org"); s || !a || server.n != 3 { // a guarded browser goes by them
		t.Errorf("the server %v, the agent %v, looked at %d times", s, a, server.n)
	}
	live, err := w.m.Rules(r.id)
	want := types.LiveRule{Kind: "deny", Rule: "old.example.org", By: "you, for run " + r.id, Scope: types.ScopeRun, Server: "notes"}
	if err != nil || live[len(live)-1] != want {
		t.Errorf("%v %v", live, err)
	}
	for hint, c := range map[string]types.RuleChange{
		"handler gateway list " + r.id:                    {Run: r.id, Server: "other", Kind: "allow", Rule: "x.example.org", Scope: types.ScopeRun},
		"leave --once out, or say --run":                  {Run: r.id, Server: "notes", Kind: "allow", Rule: "x.example.org", Scope: types.ScopeOnce},
		"handler policy allow web x.example.org":          {Agent: "web", Server: "playwright", Kind: "allow", Rule: "x.example.org", Scope: types.ScopeRun},
		"handler agent edit web --placement notes=hosted": {Agent: "web", Server: "notes", Kind: "allow", Rule: "x.example.org", Scope: types.ScopeAlways},
	} {
		if _, err := w.m.ChangeRules(c); err == nil || !strings.Contains(fault.Of(err).Hint, hint) {
			t.Errorf("%+v: %v, want %s", c, fault.Of(err), hint)
		}
	}
	w.audited(t, audit.KindStart, audit.KindRules, audit.KindRules, audit.KindRules, audit.KindRules, audit.KindRules)
}
