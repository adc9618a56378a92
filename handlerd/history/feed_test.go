package history

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api/types"
)

// TestFeedBeginsOnce: a change that comes between a follower's waking and its taking leaves a second waking with nothing
// to take. That is not told: a call with nothing means that the following begins.
func TestFeedBeginsOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := NewFeed()
	told, begun, ended := make(chan string, 8), make(chan bool, 8), make(chan error, 1)
	go func() {
		ended <- f.Follow(ctx, func(changes []types.Change) error {
			if len(changes) == 0 {
				begun <- true
			}
			for _, c := range changes {
				told <- c.Ended
			}
			return nil
		})
	}()
	<-begun
	var wake chan struct{}
	f.mu.Lock()
	for w := range f.watchers {
		wake = w.wake
		for _, run := range []string{"one", "two"} {
			c := types.Change{Ended: run}
			w.add(c, subject(c))
			for run == "one" && len(w.wake) > 0 { // it has woken, and waits for the lock
				time.Sleep(time.Millisecond)
			}
		}
	}
	f.mu.Unlock()
	got := []string{<-told, <-told}
	for len(wake) > 0 { // the second waking
		time.Sleep(time.Millisecond)
	}
	f.Announce(types.Change{Ended: "three"})
	got = append(got, <-told)
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("Follow: %v", err)
	}
	if diff := cmp.Diff([]string{"one", "two", "three"}, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if n := len(begun); n > 0 {
		t.Errorf("it began %d times more", n)
	}
}
