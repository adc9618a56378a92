package toolbox

import (
	"context"
	"errors"
	"testing"
)

// A build that has to wait says so at once, and a person who does not want to wait ends it.
func TestWaitsForAnotherBuild(t *testing.T) {
	r := newRoom(t, "", "")
	if err := r.take(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := r.BuildToolbox(ctx, "", BuildOptions{}, func(e Event) {
		r.event(e)
		if e.Begin {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if steps := r.steps(t); len(steps) != 1 || steps[0] != "waiting for another build" {
		t.Errorf("steps %q", steps)
	}
	if err := r.Remove(ctx, "addon", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("remove: %v", err)
	}
	r.release()
	if err := r.take(t.Context(), nil); err != nil {
		t.Error(err)
	}
	r.release()
}
