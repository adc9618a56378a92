package sessions

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox/fake"
)

const asking = `# mine
harness = "script"
bindings = {}

[network]
allow = [
  "named.example.org", # ours
]
deny = ["bad.example.org"]
unknown = "ask"
`

// ask asks as the proxy does about a destination that no rule names.
func ask(t *testing.T, r *Run, host string, port uint16) policy.Verdict {
	t.Helper()
	v := r.network.get().Decide(host, port)
	if v.Action != policy.Ask {
		t.Fatalf("%s:%d is not asked about: %+v", host, port, v)
	}
	return r.askNetwork(t.Context(), host, port, v)
}

// answer has a person answer the next question while f asks it.
func answer(t *testing.T, w *world, a types.ApprovalAnswer, f func()) types.ApprovalDone {
	t.Helper()
	watcher, err := w.m.opts.Approvals.Watch("")
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan types.ApprovalDone, 1)
	go func() {
		defer close(done)
		for {
			e, err := watcher.Next(ctx)
			if err != nil {
				return
			}
			if e.State == types.ApprovalAsked {
				d, err := w.m.opts.Approvals.Answer(e.Approval.ID, a)
				if err != nil {
					t.Error(err)
				}
				done <- d
				return
			}
		}
	}()
	f()
	d, ok := <-done
	cancel()
	if !ok {
		t.Error("no question came")
	}
	return d
}

func decide(r *Run, host string, port uint16) policy.Action {
	return r.network.get().Decide(host, port).Action
}

// TestAskNetwork asks a person, or nobody, and makes the answers true for as long as they say.
func TestAskNetwork(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": asking})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Abort()
	defer r.Abort()

	v := ask(t, r, "new.example.org", 443)
	if v.Action != policy.Refuse || !strings.Contains(v.String(), `new.example.org is not allowed for agent "web", and nobody is there to be asked`) ||
		!strings.Contains(v.Hint, "web") || !strings.Contains(v.Hint, "handler approvals watch") {
		t.Errorf("nobody there: %s", v)
	}
	var got policy.Verdict
	for _, test := range []struct {
		host        string
		port        uint16
		answer      types.ApprovalAnswer
		want        policy.Action // of the connection
		here, there policy.Action // of the next ones, in this run and in another of the agent
	}{
		{"once.example.org", 443, types.ApprovalAnswer{Allow: true}, policy.Allow, policy.Ask, policy.Ask},
		{"no.example.org", 443, types.ApprovalAnswer{}, policy.Refuse, policy.Ask, policy.Ask},
		{"run.example.org", 443, types.ApprovalAnswer{Allow: true, Scope: types.ScopeRun}, policy.Allow, policy.Allow, policy.Ask},
		{"never.example.org", 8443, types.ApprovalAnswer{Scope: types.ScopeRun}, policy.Refuse, policy.Refuse, policy.Ask},
		{"always.example.org", 8443, types.ApprovalAnswer{Allow: true, Scope: types.ScopeAlways}, policy.Allow, policy.Allow, policy.Allow},
		{"banned.example.org", 443, types.ApprovalAnswer{Scope: types.ScopeAlways}, policy.Refuse, policy.Refuse, policy.Refuse},
	} {
		done := answer(t, w, test.answer, func() { got = ask(t, r, test.host, test.port) })
		if got.Action != test.want || got.Action == policy.Refuse && !strings.Contains(got.Reason, "the person refused "+test.host) {
			t.Errorf("%s: %+v", test.host, got)
		}
		if here, there := decide(r, test.host, test.port), decide(other, test.host, test.port); here != test.here || there != test.there {
			t.Errorf("%s: then %d here, %d there", test.host, here, there)
		}
		if saved := test.answer.Scope == types.ScopeAlways; saved != strings.Contains(done.Note, "web.toml") {
			t.Errorf("%s: note %q", test.host, done.Note)
		}
	}
	plan, err := w.m.opts.Plan("web", w.scope)
	if err != nil {
		t.Fatal(err)
	}
	rules := []string{}
	for _, rule := range plan.Network.Rules {
		rules = append(rules, rule.Kind+" "+rule.Text)
	}
	if diff := cmp.Diff([]string{"allow named.example.org", "allow always.example.org:8443", "deny bad.example.org", "deny banned.example.org"}, rules); diff != "" {
		t.Error(diff)
	}
	w.audited(t, audit.KindStart, audit.KindApproval, audit.KindApproval, audit.KindRules)
}

// TestNeverAsk never asks.
func TestNeverAsk(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": asking})
	r, err := w.m.Start(t.Context(), types.RunRequest{Agent: "web", Cwd: w.scope, NeverAsk: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	watcher, err := w.m.opts.Approvals.Watch("")
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	if v := ask(t, r, "new.example.org", 443); v.Action != policy.Refuse || !strings.Contains(v.Reason, "unattended") {
		t.Errorf("%+v", v)
	}
}

// A question about a host of which the person allowed some requests says so: a yes is for all of the host.
func TestQuestionOfNarrowedHost(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": asking})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	if _, err := w.m.ChangeRules(types.RuleChange{Run: r.id, Kind: "allow", Rule: "GET http://api.example.org/public*", Scope: types.ScopeRun}); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"api.example.org":   "web wants to reach api.example.org:80, of which the rules allow only GET http://api.example.org/public*",
		"named.example.org": "web wants to reach named.example.org:8443, of which the rules allow only ports 80 and 443",
		"new.example.org":   "web wants to reach new.example.org:80, which no rule names",
	} {
		port := uint16(80)
		if host == "named.example.org" {
			port = 8443
		}
		done := answer(t, w, types.ApprovalAnswer{}, func() { ask(t, r, host, port) })
		if done.Approval.Text != want {
			t.Errorf("asked: %s", done.Approval.Text)
		}
	}
}

// A rule for one connection does not take a denial back: with a wider rule that allows, the host would stay open.
func TestOnceLiftsNothing(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": asking})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	for _, c := range []types.RuleChange{
		{Run: r.id, Kind: "allow", Rule: "*.example.org", Scope: types.ScopeRun},
		{Run: r.id, Kind: "deny", Rule: "secret.example.org", Scope: types.ScopeRun},
	} {
		if _, err := w.m.ChangeRules(c); err != nil {
			t.Fatal(err)
		}
	}
	done, err := w.m.ChangeRules(types.RuleChange{Run: r.id, Kind: "allow", Rule: "secret.example.org", Scope: types.ScopeOnce})
	if err != nil || !strings.Contains(done.Note, "it has no effect: secret.example.org is denied") {
		t.Errorf("%+v, %v", done, err)
	}
	for range 2 {
		if got := decide(r, "secret.example.org", 443); got != policy.Refuse {
			t.Errorf("the denied host: %v", got)
		}
	}
}

// TestChangeRules changes the rules of live runs, and answers the question that waits for it by the way.
func TestChangeRules(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": asking, "docs": plain})
	change := func(c types.RuleChange) (types.RuleChanged, *fault.Fault) {
		t.Helper()
		done, err := w.m.ChangeRules(c)
		if err != nil {
			return done, fault.Of(err)
		}
		return done, nil
	}
	if _, f := change(types.RuleChange{Agent: "web", Kind: "allow", Rule: "x.example.org", Scope: types.ScopeRun}); f == nil || f.Kind != fault.NotFound {
		t.Errorf("no run is live: %v", f)
	}
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	docs, err := w.start(t, "docs")
	if err != nil {
		t.Fatal(err)
	}
	defer docs.Abort()

	// Once is one connection, also for an agent that refuses what it does not know.
	for _, run := range []*Run{r, docs} {
		done, f := change(types.RuleChange{Run: run.id, Kind: "allow", Rule: "*.once.example.org", Scope: types.ScopeOnce})
		if f != nil || len(done.Runs) != 1 || done.Agent != run.plan.Agent {
			t.Fatalf("%+v %v", done, f)
		}
		if v := ask(t, run, "a.once.example.org", 443); v.Action != policy.Allow {
			t.Errorf("the first: %+v", v)
		}
		if v := run.network.get().Decide("a.once.example.org", 443); v.Action == policy.Allow {
			t.Errorf("the second: %+v", v)
		}
	}
	if v := docs.network.get().Decide("a.once.example.org", 443); v.Action != policy.Refuse {
		t.Errorf("docs asks: %+v", v)
	}
	// A rule that is added answers who waits for it.
	watcher, err := w.m.opts.Approvals.Watch(r.id)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	waits := make(chan policy.Verdict, 1)
	go func() {
		waits <- r.askNetwork(t.Context(), "late.example.org", 443, r.network.get().Decide("late.example.org", 443))
	}()
	for e := (types.ApprovalEvent{}); e.State != types.ApprovalAsked; {
		if e, err = watcher.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, f := change(types.RuleChange{Agent: "web", Kind: "allow", Rule: "*.example.org", Scope: types.ScopeRun}); f != nil {
		t.Fatal(f)
	}
	if v := <-waits; v.Action != policy.Allow {
		t.Errorf("%+v", v)
	}
	// Deny wins, and the same words take it back.
	done, f := change(types.RuleChange{Agent: "web", Kind: "allow", Rule: "bad.example.org:8443", Scope: types.ScopeRun})
	if f != nil || !strings.Contains(done.Note, "no effect") {
		t.Errorf("%+v %v", done, f)
	}
	if done, f = change(types.RuleChange{Agent: "web", Kind: "allow", Rule: "bad.example.org", Scope: types.ScopeAlways}); f != nil || done.Created {
		t.Errorf("%+v %v", done, f)
	}
	if decide(r, "bad.example.org", 8443) != policy.Allow || decide(r, "bad.example.org", 22) != policy.Ask {
		t.Error("the denial is still there")
	}
	if text, err := os.ReadFile(done.File); err != nil || !strings.Contains(string(text), "# mine") || !strings.Contains(string(text), "deny = []") {
		t.Errorf("%v\n%s", err, text)
	}
	// A harness's own name gets a file.
	if done, f = change(types.RuleChange{Agent: "script", Kind: "private", Rule: "10.0.0.5:8080"}); f != nil || !done.Created || filepath.Base(done.File) != "script.toml" || !strings.Contains(done.Note, "new") {
		t.Errorf("%+v %v", done, f)
	}
	list, err := w.m.Rules(r.id[:2])
	if err != nil || len(list) != 4 || list[1].By != "you, for run "+r.id || list[1].Scope != types.ScopeRun || list[3].By != "you, always" {
		t.Errorf("%+v %v", list, err)
	}
}

func TestChangeRulesRefused(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	for _, c := range []types.RuleChange{
		{Agent: "web", Kind: "allow", Rule: "*"},
		{Agent: "web", Kind: "maybe", Rule: "x.example.org"},
		{Agent: "web", Kind: "allow", Rule: "x.example.org", Scope: "ever"},
		{Agent: "web", Kind: "deny", Rule: "x.example.org", Scope: types.ScopeOnce},
		{Agent: "web", Kind: "allow", Rule: "http://x.example.org/path", Scope: types.ScopeOnce},
		{Agent: "docs", Run: r.id, Kind: "deny", Rule: "x.example.org", Scope: types.ScopeRun},
		{Agent: "web", Run: r.id, Kind: "deny", Rule: "x.example.org"},
		{Kind: "deny", Rule: "x.example.org"},
		{Agent: "nobody", Kind: "deny", Rule: "x.example.org"},
	} {
		if done, err := w.m.ChangeRules(c); err == nil {
			t.Errorf("%+v: %+v", c, done)
		}
	}
	rule, err := policy.ParseRule(policy.KindAllow, "x.example.org", "you")
	if err != nil {
		t.Fatal(err)
	}
	for range MaxLiveRules {
		if err := r.network.add(rule, types.ScopeOnce); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.network.add(rule, types.ScopeOnce); err == nil {
		t.Error("any number of rules can be added")
	}
}

// TestRuleOfNobody: a rule for an agent that there is not is refused and leaves no trace.
func TestRuleOfNobody(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": asking})
	_, err := w.m.ChangeRules(types.RuleChange{Agent: "nope", Kind: policy.KindAllow, Scope: types.ScopeAlways, Rule: "x.example"})
	if err == nil || fault.Of(err).Kind != fault.NotFound {
		t.Errorf("got %v", err)
	}
	records, err := audit.Tail(w.audit, 10, nil)
	if err != nil || len(records) != 0 {
		t.Errorf("the audit log has %v, %v", records, err)
	}
}
