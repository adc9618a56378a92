package fault_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/fault"
)

// A hint is said once, whoever wraps the fault that has it, and the outer one wins.
func TestHintsAreSaidOnce(t *testing.T) {
	inner := fault.New(fault.NotFound, "see: handler agent list", "there is no agent %q", "x")
	for name, c := range map[string]struct {
		err  *fault.Fault
		text string
	}{
		"no hint":    {fault.Wrap(fault.Usage, inner, "", "the start"), "the start: there is no agent \"x\"\n  see: handler agent list"},
		"own hint":   {fault.Wrap(fault.Usage, inner, "type more", "the start"), "the start: there is no agent \"x\"\n  type more"},
		"twice":      {fault.Wrap(fault.Usage, fault.Wrap(fault.Failed, inner, "", "a"), "", "b"), "b: a: there is no agent \"x\"\n  see: handler agent list"},
		"in between": {fault.Wrap(fault.Usage, fmt.Errorf("agent: %w", inner), "", "b"), "b: agent: there is no agent \"x\"\n  see: handler agent list"},
		"a plain":    {fault.Wrap(fault.Usage, errors.New("no"), "", "b"), "b: no"},
	} {
		if got := c.err.Error(); got != c.text {
			t.Errorf("%s: %q, want %q", name, got, c.text)
		}
		if n := strings.Count(c.err.Error(), "handler agent list"); n > 1 {
			t.Errorf("%s: the hint is there %d times", name, n)
		}
	}
	if !errors.Is(fault.Wrap(fault.Usage, inner, "", "x"), inner) {
		t.Error("the cause is lost")
	}
}
