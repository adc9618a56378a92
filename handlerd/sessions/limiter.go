package sessions

import (
	"fmt"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/audit"
)

// Bounds of the verdicts that are written down for one run. An agent causes one with every message and every
// connection, and the audit log is rotated: without a bound, one agent could push all that others did out of it.
const (
	verdictBurst  = 200
	verdictRate   = 5 // a second, when the burst is used up
	verdictsRun   = 10_000
	missedEvery   = time.Minute
	maxSubject    = 256 // bytes of a method's or a host's name, which the agent makes up
	maxReason     = 512
	maxPolicyLine = 1 << 10
)

// A limiter is a token bucket that counts what it turned away.
type limiter struct {
	now func() time.Time

	mu     sync.Mutex
	tokens float64   // protected by mu
	filled time.Time // protected by mu; when tokens was right
	left   int       // protected by mu; how many the run may still have written
	missed int       // protected by mu; turned away and not yet told
	since  time.Time // protected by mu; when the first of missed was turned away
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, tokens: verdictBurst, filled: now(), left: verdictsRun}
}

// take tells whether one more may be written, and how many were turned away if it is time to tell of them. last is the
// one with which the run has had all that it may have: those after it are told of when the run ends.
func (l *limiter) take() (ok bool, missed int, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if passed := now.Sub(l.filled); passed > 0 {
		l.tokens = min(verdictBurst, l.tokens+passed.Seconds()*verdictRate)
		l.filled = now
	}
	if ok = l.tokens >= 1 && l.left > 0; ok {
		l.tokens--
		l.left--
	} else {
		if l.missed == 0 {
			l.since = now
		}
		l.missed++
	}
	if l.missed > 0 && l.left > 0 && now.Sub(l.since) >= missedEvery {
		missed, l.missed = l.missed, 0
	}
	return ok, missed, ok && l.left == 0
}

// rest gives how many were turned away and not told of.
func (l *limiter) rest() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed := l.missed
	l.missed = 0
	return missed
}

// verdict writes down what was decided about something that the agent can cause, within its bounds.
func (r *Run) verdict(rec audit.Record, text string) { r.written(r.verdicts, "policy", rec, text) }

// allowedAnswer is verdict for a question of the agent's that was answered yes. It has bounds of its own: refusals,
// which an agent can have as many of as it likes, do not keep out what it was allowed to do.
func (r *Run) allowedAnswer(rec audit.Record, text string) {
	r.written(r.allowed, "answers", rec, text)
}

func (r *Run) written(l *limiter, payer string, rec audit.Record, text string) {
	ok, missed, last := l.take()
	r.tellMissed(missed)
	if !ok {
		return
	}
	if last {
		defer r.tellLast()
	}
	rec.Subject, rec.Reason, rec.Hint = cut(rec.Subject, maxSubject), cut(rec.Reason, maxReason), cut(rec.Hint, maxReason)
	r.log.charge(payer, "policy", cut(text, maxPolicyLine))
	r.recorder.refused(rec)
	r.audit(rec)
}

// tellLast says in the log and the audit that nothing more of what this run makes Handler decide will be there.
func (r *Run) tellLast() {
	text := fmt.Sprintf("%d verdicts of this run were written, the most there can be; the rest are counted", verdictsRun)
	r.log.add("policy", text)
	r.audit(audit.Record{Kind: audit.KindMessage, Reason: text})
}

// tellMissed says in the log and the audit that n verdicts are not there.
func (r *Run) tellMissed(n int) {
	if n == 0 {
		return
	}
	text := fmt.Sprintf("%d more verdicts were not written", n)
	r.log.add("policy", text)
	r.audit(audit.Record{Kind: audit.KindMessage, Reason: text})
}
