package sessions

import (
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/fake"
)

// TestUnrecordedIsRefused: a run that cannot be written down does not start, and one whose verdict cannot be ends.
func TestUnrecordedIsRefused(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	_, done := join(t, r)
	if err := w.m.opts.Audit.Close(); err != nil { // stands in for a full disk
		t.Fatal(err)
	}
	r.verdict(audit.Record{Kind: audit.KindMessage, Verdict: audit.Edited}, "edited")
	if err := <-done; err == nil || !strings.Contains(err.Error(), "nothing runs that cannot be written down") {
		t.Errorf("the run ended with %v", err)
	}
	_, err = w.start(t, "web")
	if f := fault.Of(err); err == nil || f.Kind != fault.Failed || !strings.Contains(f.Hint, "free some space") {
		t.Errorf("a run started: %v", err)
	}
	w.nothingLeft(t)
}

// TestStartIsWrittenFirst: the record of a start is there before anything of the run is, and its end is too.
func TestStartIsWrittenFirst(t *testing.T) {
	var atStart []audit.Record
	var w *world
	w = newWorld(t, fake.Options{Fault: func(s fake.Step, _ string) error {
		if s == fake.StepExec {
			atStart, _ = audit.Tail(w.audit, 9, nil)
			return fault.New(fault.Failed, "", "broken on purpose")
		}
		return nil
	}}, map[string]string{"web": plain})
	if _, err := w.start(t, "web"); err == nil {
		t.Fatal("it started")
	}
	if len(atStart) != 1 || atStart[0].Kind != audit.KindStart || atStart[0].Agent != "web" {
		t.Errorf("at the sandbox's start: %+v", atStart)
	}
	w.audited(t, audit.KindStart, audit.KindStop)
	if _, err := audit.Verify(w.audit, ""); err != nil {
		t.Error(err)
	}
}
