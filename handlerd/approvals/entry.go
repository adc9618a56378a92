package approvals

import (
	"slices"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
)

// A state of an entry.
type state int

const (
	opening   state = iota // is being written down; nobody sees it yet
	pending                // waits
	answering              // somebody's answer is being made true
	closing                // expired, withdrawn or moot, which is being written down
	ended
)

// An entry is one question in the queue. What changes is protected by the queue's mu; answer and err are read after
// done is closed.
type entry struct {
	id    string
	q     Question
	asked time.Time

	state   state
	waiting int         // who waits for the answer
	timer   *time.Timer // of the expiry; nil while opening

	done   chan struct{}
	answer types.ApprovalAnswer
	err    error
}

// An ending is what became of a question.
type ending struct{ id, state string }

// key is what makes two questions one; "" for a question that none may join.
func (e *entry) key() string {
	if e.q.Key == "" || e.q.Kind == types.ApprovalBrowser {
		return ""
	}
	return e.q.Run + "\x00" + e.q.Kind + "\x00" + e.q.Key
}

// shown says whether people see it.
func (e *entry) shown() bool { return e.state == pending || e.state == answering }

func (e *entry) scopes() []string {
	scopes := slices.Clone(e.q.Scopes)
	if !slices.Contains(scopes, types.ScopeOnce) {
		scopes = append([]string{types.ScopeOnce}, scopes...)
	}
	return scopes
}

func (e *entry) view() types.Approval {
	return types.Approval{
		ID: e.id, Kind: e.q.Kind, Run: e.q.Run, Agent: e.q.Agent, Session: e.q.Session, Subject: e.q.Subject, Text: e.q.Text, Detail: e.q.Detail,
		Scopes: e.scopes(), Waiting: e.waiting, Asked: e.asked, Expires: e.asked.Add(e.q.Expiry), Browser: e.q.Browser,
	}
}

// record is a line of the audit log about the question. The id is not in it: the log outlives the question, and is read
// by more programs than may answer. What is typed or selected is not either, only the digest of the arguments: the
// line of the tool's call has the same.
func (e *entry) record(verdict, reason string) audit.Record {
	if b := e.q.Browser; b != nil && b.Digest != "" {
		reason += "; arguments sha256:" + b.Digest
	}
	return audit.Record{
		Kind: audit.KindApproval, Run: e.q.Run, Agent: e.q.Agent, Session: e.q.Session, Subject: e.q.Subject, Verdict: verdict, Reason: reason,
	}
}

// A pace is how fast one run may ask: a bucket of askBurst, one back in askEvery.
type pace struct {
	tokens float64
	filled time.Time
}

// fill brings the bucket up to date.
func (p *pace) fill(now time.Time) {
	if passed := now.Sub(p.filled); passed > 0 {
		p.tokens = min(askBurst, p.tokens+float64(passed)/float64(askEvery))
		p.filled = now
	}
}

// pace says whether a run may ask one more question now. The caller holds mu.
func (q *Queue) pace(run string) bool {
	now := time.Now()
	for name, p := range q.paces {
		if p.fill(now); p.tokens >= askBurst && name != run {
			delete(q.paces, name) // as good as new
		}
	}
	p := q.paces[run]
	if p == nil {
		p = &pace{tokens: askBurst, filled: now}
		q.paces[run] = p
	}
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}
