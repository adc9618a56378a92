package acp

import (
	"context"
	"fmt"
	"time"

	"github.com/handlerd/handler/policy"
)

// Bounds of what one side may say (P7). They are far above what a person, a model or a history that is replayed makes,
// and far below what would keep a processor busy.
const (
	DefaultRate  = 5000  // messages a second of one side
	DefaultBurst = 20000 // messages of one side at once, before the rate holds
)

// A bucket is a token bucket. It is for one goroutine.
type bucket struct {
	rate, burst, tokens float64
	filled              time.Time
	now                 func() time.Time
}

func newBucket(rate, burst int, now func() time.Time) *bucket {
	return &bucket{rate: float64(rate), burst: float64(burst), tokens: float64(burst), filled: now(), now: now}
}

// take takes a token, if there is one.
func (b *bucket) take() bool {
	now := b.now()
	if passed := now.Sub(b.filled); passed > 0 {
		b.tokens = min(b.burst, b.tokens+passed.Seconds()*b.rate)
		b.filled = now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// owe takes a token that may not be there yet, and gives how long that is.
func (b *bucket) owe() time.Duration {
	if b.take() {
		return 0
	}
	b.tokens--
	return time.Duration(-b.tokens / b.rate * float64(time.Second))
}

// A pace is the bound on what one side says.
type pace struct {
	said   *bucket
	errors *bucket // requests that were refused for it: answering those costs, too
}

func newPace(rate, burst int) *pace {
	return &pace{said: newBucket(rate, burst, time.Now), errors: newBucket(rate, burst, time.Now)}
}

// paced holds a side to its rate. A request over it is refused, which it tells; anything else waits for its time, and
// with it all that comes after, so that nothing is lost.
func (r *Relay) paced(ctx context.Context, from Side, m Message) (refused bool) {
	p := r.sides[from].pace
	if p.said.take() {
		return false
	}
	if m.Kind != Request {
		r.pause(ctx, p.said.owe())
		return false
	}
	r.refuse(ctx, from, m, CodeInvalidRequest, verdict("P7",
		fmt.Sprintf("the %s sends more than %d messages a second", from, r.o.Rate), "send it again a little later"))
	r.pause(ctx, p.errors.owe())
	return true
}

// pause waits, at most until the relay ends.
func (r *Relay) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// DefaultMaxPrompts is how many prompts of one session may be unanswered at a time (P7). Agents queue what comes
// during a turn.
const DefaultMaxPrompts = 16

// tooManyPrompts tells why a session can take no other prompt now.
func (r *Relay) tooManyPrompts(session string) (policy.Verdict, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turns[session] < r.o.MaxPrompts {
		return policy.Verdict{}, false
	}
	return verdict("P7", fmt.Sprintf("%d prompts of this session are not answered yet", r.o.MaxPrompts),
		"wait for an answer, or send session/cancel"), true
}
