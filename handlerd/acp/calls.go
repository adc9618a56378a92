package acp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/handlerd/handler/policy/rawjson"
)

// MaxCalls is how many requests of Handler's own may be unanswered by one side at a time.
const MaxCalls = 64

// Errors of [Relay.Call].
var (
	ErrGone      = errors.New("that side of the relay has ended")
	ErrManyCalls = fmt.Errorf("%d requests of handler's own are not answered yet", MaxCalls)

	errNotRequest = errors.New("the method or the params are no JSON-RPC request")
)

// ownPrefix begins the ids of Handler's own requests. 128 random bits follow, so that neither end can name one that it
// was not asked under.
const ownPrefix = "handler-"

// An OwnAnswer is the answer to a request of Handler's own.
type OwnAnswer struct {
	Result []byte // JSON; nil where Error is there
	Error  []byte // JSON, as the side wrote it
}

// own are Handler's unanswered requests to one side.
type own struct {
	mu     sync.Mutex
	calls  map[string]chan OwnAnswer // by Envelope.Key; protected by mu; nil for one that nobody waits for any more
	idle   []string                  // keys of those, oldest first; protected by mu
	closed bool                      // protected by mu
}

func newOwn() *own { return &own{calls: make(map[string]chan OwnAnswer)} }

// add makes room for a request.
func (o *own) add(key string, answer chan OwnAnswer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return ErrGone
	case len(o.calls)-len(o.idle) >= MaxCalls:
		return ErrManyCalls
	}
	o.calls[key] = answer
	return nil
}

// leave forgets who waits, not that an answer may still come: it is Handler's, and goes nowhere.
func (o *own) leave(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.calls[key]; !there {
		return
	}
	o.calls[key] = nil
	if o.idle = append(o.idle, key); len(o.idle) > MaxCalls {
		delete(o.calls, o.idle[0])
		o.idle = o.idle[1:]
	}
}

// take gives an answer to whoever waits for it. It tells whether the request was Handler's own.
func (o *own) take(key string, a OwnAnswer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	answer, ours := o.calls[key]
	if !ours {
		return false
	}
	delete(o.calls, key)
	o.idle = slices.DeleteFunc(o.idle, func(k string) bool { return k == key })
	if answer != nil {
		answer <- a // has room for it
	}
	return true
}

// has tells whether a request is Handler's own.
func (o *own) has(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ours := o.calls[key]
	return ours
}

// close ends every wait.
func (o *own) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, answer := range o.calls {
		if answer != nil {
			close(answer)
		}
	}
	clear(o.calls)
	o.idle = nil
}

// Call sends a request of Handler's own to one side, in order with what is carried, and gives its answer: how handlerd
// asks a client something (contract H) or an agent. params is a JSON object. The id is random, the other side never
// sees request or answer, and it cannot answer in this one's place. When ctx ends first, the side is told by
// $/cancel_request, and an answer that comes later goes nowhere. The error is ctx's, ErrGone or ErrManyCalls.
func (r *Relay) Call(ctx context.Context, to Side, method string, params []byte) (OwnAnswer, error) {
	id := rawjson.AppendString(nil, ownPrefix+rand.Text())
	line := []byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"method":` + string(rawjson.AppendString(nil, method)) + `,"params":` + string(params) + `}`)
	e, err := Scan(line)
	if err != nil || e.Kind != Request || !e.Params.Present() || line[e.Params.Start] != '{' || slices.Contains(params, '\n') {
		return OwnAnswer{}, errNotRequest
	}
	s := r.sides[to]
	answer := make(chan OwnAnswer, 1)
	if err := s.own.add(e.Key, answer); err != nil {
		return OwnAnswer{}, err
	}
	if err := s.out.line(ctx, line); err != nil {
		s.own.leave(e.Key)
		if errors.Is(err, errEnded) {
			return OwnAnswer{}, ErrGone
		}
		return OwnAnswer{}, context.Cause(ctx)
	}
	select {
	case a, ok := <-answer:
		if !ok {
			return OwnAnswer{}, ErrGone
		}
		return a, nil
	case <-ctx.Done():
		s.own.leave(e.Key)
		withdraw := []byte(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + string(id) + `}}`)
		given, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.CancelGrace)
		defer cancel()
		_ = s.out.line(given, withdraw) // a side that has ended needs none
		return OwnAnswer{}, context.Cause(ctx)
	}
}

// ownAnswer takes an answer to a request of Handler's own. It tells whether it was one.
func (r *Relay) ownAnswer(from Side, m Message) bool {
	if !strings.HasPrefix(m.Key, "s"+ownPrefix) || !r.sides[from].own.has(m.Key) {
		return false
	}
	var a OwnAnswer
	if m.Error.Present() && !rawjson.IsNull(m.Line, m.Error) {
		a.Error = slices.Clone(m.Error.Of(m.Line))
	} else {
		a.Result = slices.Clone(m.part(m.Result))
	}
	return r.sides[from].own.take(m.Key, a)
}
