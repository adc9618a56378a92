package acp

import (
	"cmp"
	"slices"
	"sync"

	"github.com/handlerd/handler/policy/rawjson"
)

// DefaultMaxPending is how many requests of one side may be unanswered at a time (P7).
const DefaultMaxPending = 1024

// A call is one request that has no answer yet.
type call struct {
	id      []byte // as it was written
	method  string
	session string // params.sessionId, where there is one
	number  uint64 // calls are answered in their order when a side ends

	question *question // of a question that went to the client
	// answered tells that Handler has answered it in the other side's place. It stays, so that its id is not given to
	// another request before the other side's own answer has come: that would be taken for the other one's.
	answered bool
}

// why a request was not taken in.
type addResult int

const (
	added addResult = iota
	duplicate
	full
	sealed
)

// pending are the unanswered requests of one side. Every request is in it, so an answer that is not is one that
// nobody asked for.
type pending struct {
	mu     sync.Mutex
	calls  map[string]call // by Envelope.Key; protected by mu
	next   uint64          // protected by mu
	max    int
	closed bool // no request is taken any more; protected by mu
}

func newPending(limit int) *pending {
	if limit <= 0 {
		limit = DefaultMaxPending
	}
	return &pending{calls: make(map[string]call), max: limit}
}

// add takes a request in.
func (p *pending) add(key string, c call) addResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return sealed
	}
	if _, ok := p.calls[key]; ok {
		return duplicate
	}
	if len(p.calls) >= p.max {
		return full
	}
	c.number = p.next
	p.next++
	p.calls[key] = c
	return added
}

// take gives the request that an answer is for, which then is pending no more.
func (p *pending) take(key string) (call, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.calls[key]
	delete(p.calls, key)
	return c, ok
}

// remember adds what a request asks.
func (p *pending) remember(key string, q *question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.calls[key]; ok {
		c.question = q
		p.calls[key] = c
	}
}

// count gives the number that the next request will have.
func (p *pending) count() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// answerQuestions gives a session's questions with a number below before, in order, which count as answered then.
func (p *pending) answerQuestions(session string, before uint64) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var calls []call
	for key, c := range p.calls {
		if isQuestion(c.method) && c.session == session && c.number < before && !c.answered {
			calls = append(calls, c)
			c.answered = true
			p.calls[key] = c
		}
	}
	sortCalls(calls)
	return calls
}

// has tells whether a request is pending.
func (p *pending) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.calls[key]
	return ok
}

// seal gives all that is pending, in order, and takes nothing more. Again, it gives nothing.
func (p *pending) seal() []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	calls := make([]call, 0, len(p.calls))
	for _, c := range p.calls {
		if !c.answered {
			calls = append(calls, c)
		}
	}
	clear(p.calls)
	sortCalls(calls)
	return calls
}

func sortCalls(calls []call) {
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.number, b.number) })
}

// newCall makes the call of a request line.
func newCall(line []byte, e Envelope) call {
	return call{id: slices.Clone(e.ID.Of(line)), method: e.Method, session: stringAt(line, e.Params, "sessionId")}
}

// maxSession bounds a session's id as this package keeps it.
const maxSession = 1024

// stringAt gives the string under a path of keys of the object at s, for looking on: "" for none.
func stringAt(line []byte, s rawjson.Span, path ...string) string {
	if !s.Present() {
		return ""
	}
	at := rawjson.Lookup(line, s.Start, path...)
	if at < 0 || line[at] != '"' {
		return ""
	}
	end, err := rawjson.Skip(line[:min(len(line), at+maxSession)], at)
	if err != nil {
		return "" // too long
	}
	v, err := rawjson.String(line, rawjson.Span{Start: at, End: end})
	if err != nil {
		return ""
	}
	return v
}
