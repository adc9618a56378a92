package sessions

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
)

// MaxLiveRules bounds the rules that are added to one run while it lives.
const MaxLiveRules = 1000

// A liveNetwork is the network rules of a run: those of its plan, and what a person adds while it lives. It is safe for
// concurrent use; the proxy reads it at every request.
type liveNetwork struct {
	current atomic.Pointer[policy.Network] // what judges; nil until begin

	mu      sync.Mutex
	base    policy.Network // protected by mu; the plan's
	added   []addedRule    // protected by mu; oldest first
	changed func()         // protected by mu; called after every change; nil until begin
}

// An addedRule is one that came after the start.
type addedRule struct {
	policy.Rule
	scope string // types.Scope*
}

// begin gives it the plan's rules. What was added before counts too: a person may be faster than a start. changed is
// called after every later change, without a lock held.
func (l *liveNetwork) begin(base policy.Network, changed func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	base.Rules = slices.Clone(base.Rules)
	l.base, l.changed = base, changed
	for _, a := range l.added {
		l.lift(a.Rule, a.scope)
	}
	l.rebuild()
}

// get gives the rules of this moment.
func (l *liveNetwork) get() policy.Network {
	if n := l.current.Load(); n != nil {
		return *n
	}
	return policy.Network{}
}

// asks says whether a person is to be asked about what no rule names.
func (l *liveNetwork) asks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base.Unknown == policy.UnknownAsk
}

// add makes a rule count from the next connection on. An allow rule takes back a denial in the same words, but for one
// that is for one connection.
func (l *liveNetwork) add(r policy.Rule, scope string) error {
	l.mu.Lock()
	if len(l.added) >= MaxLiveRules {
		l.mu.Unlock()
		return fault.New(fault.Failed, "write them into the agent's file, and start it anew", "the run has %d rules that were added while it lives, the most there can be", MaxLiveRules)
	}
	l.lift(r, scope)
	same := func(a addedRule) bool { return a.Kind == r.Kind && a.String() == r.String() }
	if scope != types.ScopeOnce {
		l.added = slices.DeleteFunc(l.added, same) // the newer scope counts
	}
	l.added = append(l.added, addedRule{r, scope})
	l.rebuild()
	changed := l.changed
	l.mu.Unlock()
	if changed != nil {
		changed()
	}
	return nil
}

// lift takes denials back that an allow rule names in the same words. A rule for one connection takes none back: what
// was denied would stay open after it, where a wider rule allows it. The caller holds mu.
func (l *liveNetwork) lift(r policy.Rule, scope string) {
	if r.Kind != policy.KindAllow || scope == types.ScopeOnce {
		return
	}
	denied := func(d policy.Rule) bool { return d.Kind == policy.KindDeny && d.String() == r.String() }
	l.base.Rules = slices.DeleteFunc(l.base.Rules, denied)
	l.added = slices.DeleteFunc(l.added, func(a addedRule) bool { return denied(a.Rule) })
}

// rebuild makes what judges. Rules for one connection are not in it: they make what no rule names a question, which
// takeOnce answers, so that two connections never share one. The caller holds mu.
func (l *liveNetwork) rebuild() {
	n := l.base
	n.Rules = slices.Clone(l.base.Rules)
	for _, a := range l.added {
		if a.scope == types.ScopeOnce {
			n.Unknown = policy.UnknownAsk
		} else {
			n.Rules = append(n.Rules, a.Rule)
		}
	}
	l.current.Store(&n)
}

// takeOnce uses up the oldest rule for one connection that names a destination, and says whether there was one.
func (l *liveNetwork) takeOnce(host string, port uint16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.added, func(a addedRule) bool {
		one := policy.Network{Rules: []policy.Rule{a.Rule}}
		return a.scope == types.ScopeOnce && one.Decide(host, port).Action == policy.Allow
	})
	if i < 0 {
		return false
	}
	l.added = slices.Delete(l.added, i, i+1)
	l.rebuild()
	return true
}

// list gives every rule in the order in which they are asked.
func (l *liveNetwork) list() []types.LiveRule {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []types.LiveRule{}
	for _, r := range l.base.Rules {
		list = append(list, types.LiveRule{Kind: r.Kind, Rule: r.String(), By: r.By})
	}
	for _, a := range l.added {
		list = append(list, types.LiveRule{Kind: a.Kind, Rule: a.String(), By: a.By, Scope: a.scope})
	}
	return list
}
