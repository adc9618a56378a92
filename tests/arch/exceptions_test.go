package arch

import (
	"strings"
	"testing"
)

// An exception lets one package off one rule. Every one has a reason, and one that is no longer needed fails the test.
type exception struct {
	rule   string // "floor", "dial", "exec", "env", "global", "dependency"
	pkg    string // below the module
	what   string // the import, call or variable
	reason string
}

// exceptions are all there are. Before adding one, think of moving the code to the floor where it belongs.
func exceptions() []exception {
	return []exception{
		{"floor", "handlerd/api", "handlerd/api/client", "the server's tests speak through the one Go client, so that both are held to each other"},
	}
}

// A ledger applies the exceptions of some rules and remembers which were needed.
type ledger struct {
	list []exception
	used map[int]bool
}

func newLedger(list []exception, rules ...string) *ledger {
	l := &ledger{used: make(map[int]bool)}
	for _, e := range list {
		for _, rule := range rules {
			if e.rule == rule {
				l.list = append(l.list, e)
			}
		}
	}
	return l
}

// excused tells whether an exception covers what, and marks it needed.
func (l *ledger) excused(rule, pkg, what string) bool {
	for i, e := range l.list {
		if e.rule == rule && e.pkg == pkg && e.what == what {
			l.used[i] = true
			return true
		}
	}
	return false
}

// unneeded gives a finding for each exception that nothing used, and for each without a reason.
func (l *ledger) unneeded() []finding {
	var found []finding
	for i, e := range l.list {
		if !l.used[i] {
			found = append(found, finding{e.pkg, "the exception from the rule " + e.rule + " for " + e.what + " is no longer needed; take it out of tests/arch/exceptions_test.go"})
		}
		if strings.TrimSpace(e.reason) == "" {
			found = append(found, finding{e.pkg, "the exception from the rule " + e.rule + " for " + e.what + " gives no reason"})
		}
	}
	return found
}

func TestExceptionsNameKnownRules(t *testing.T) {
	known := map[string]bool{"floor": true, "dial": true, "exec": true, "env": true, "global": true, "dependency": true}
	for _, e := range exceptions() {
		if !known[e.rule] {
			t.Errorf("exception of %s names the unknown rule %q", e.pkg, e.rule)
		}
	}
}

func TestLedger(t *testing.T) {
	l := newLedger([]exception{
		{"dial", "a", "net.Dial", "needed"},
		{"dial", "b", "net.Dial", "not needed"},
		{"exec", "c", "os/exec", "of another rule"},
		{"dial", "a", "net.Dialer", ""},
	}, "dial")
	if !l.excused("dial", "a", "net.Dial") || !l.excused("dial", "a", "net.Dialer") {
		t.Error("a listed exception does not excuse")
	}
	if l.excused("dial", "c", "net.Dial") || l.excused("exec", "c", "os/exec") {
		t.Error("what is not listed is excused")
	}
	expect(t, l.unneeded(), "gives no reason", "b: the exception from the rule dial")
}
