package sessions

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/egress"
)

// Bounds of what a run says of its traffic.
const (
	MaxTraffic   = 100 // hosts in a run's status, those with the most bytes
	summaryHosts = 10  // hosts in the line at its end

	troubleEvery = time.Minute // before the same trouble is told again
	MaxTroubles  = 200         // kinds of trouble that are told of one run; the agent makes up the names
)

// troubles say what the rules let out and what did not come to anything: a name that does not resolve, a provider that
// does not answer. Without them such a run would wait in silence.
type troubles struct {
	now func() time.Time

	mu   sync.Mutex
	told map[string]time.Time // protected by mu
}

// first tells whether a text has not been told lately.
func (t *troubles) first(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	last, known := t.told[text]
	if known && now.Sub(last) < troubleEvery || !known && len(t.told) >= MaxTroubles {
		return false
	}
	if t.told == nil {
		t.told = map[string]time.Time{}
	}
	t.told[text] = now
	return true
}

// egressFailed puts it into the run's log. The room is its own: it pushes out nothing that handlerd says.
func (r *Run) egressFailed(f egress.Failure) {
	text := f.Text
	if f.Upstream != "" {
		text = "provider " + f.Upstream + ": " + text
	}
	if text = cut(text, maxPolicyLine); r.troubles.first(text) {
		r.log.charge("network", "handlerd", "network: "+text)
	}
}

// traffic gives the bytes by host, most first, at most n hosts, and what the others come to.
func traffic(s egress.Snapshot, n int) (top []types.HostTraffic, rest types.HostTraffic) {
	top = []types.HostTraffic{} // JSON has an array, if an empty one
	for _, h := range s.Hosts {
		top = append(top, types.HostTraffic{Host: h.Host, Requests: h.Requests, Sent: h.Sent, Received: h.Received})
	}
	slices.SortStableFunc(top, func(a, b types.HostTraffic) int { return int(min(1, max(-1, b.Sent+b.Received-a.Sent-a.Received))) })
	for _, h := range top[min(n, len(top)):] {
		rest.Requests += h.Requests
		rest.Sent += h.Sent
		rest.Received += h.Received
	}
	rest.Host = fmt.Sprintf("%d other hosts", max(0, len(top)-n))
	return top[:min(n, len(top))], rest
}

// tellTrafficOf says at the end of a run, or of a browser or hosted server of its, where the bytes went. who is "" for the
// agent itself.
func (r *Run) tellTrafficOf(who, session string, count egress.Snapshot) {
	if len(count.Hosts) == 0 {
		return
	}
	top, rest := traffic(count, summaryHosts)
	if len(count.Hosts) > len(top) {
		top = append(top, rest)
	}
	var parts []string
	for _, h := range top {
		parts = append(parts, fmt.Sprintf("%s %d connections, %d bytes out, %d bytes in", h.Host, h.Requests, h.Sent, h.Received))
	}
	text := strings.Join(parts, "; ")
	subject := fmt.Sprintf("%d hosts", len(count.Hosts))
	if who == "" {
		r.log.add("handlerd", "network: "+text)
	} else {
		r.log.add("handlerd", "network of "+who+": "+text)
		subject = who + ": " + subject
	}
	r.audit(audit.Record{Kind: audit.KindNetwork, Verdict: audit.Allowed, Rule: "D.7", Session: session, Subject: subject, Reason: text})
}
