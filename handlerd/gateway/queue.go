package gateway

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// A queue is the calls and lists of one connection that were read and not answered. Reading goes on while they wait for
// their turn, so that a cancellation behind them is seen; so what waits is bounded, and whatever comes too much is
// refused.
type queue struct {
	busy chan struct{} // one for each under way

	mu      sync.Mutex
	waiting int               // protected by mu
	bytes   int               // of their messages; protected by mu
	places  map[string]*place // by request id; protected by mu
}

// A place is one call in a queue.
type place struct {
	q      *queue
	id     string
	size   int
	ctx    context.Context // ends when it is given up
	cancel context.CancelFunc
}

func newQueue() *queue {
	return &queue{busy: make(chan struct{}, MaxCalls), places: map[string]*place{}}
}

// enter takes a place for a message of so many bytes; nil where there is none. leave gives it back.
func (q *queue) enter(ctx context.Context, id string, size int) *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting >= MaxWaiting || q.bytes+size > MaxWaitingBytes {
		return nil
	}
	p := &place{q: q, id: id, size: size}
	p.ctx, p.cancel = context.WithCancel(ctx)
	q.waiting++
	q.bytes += size
	q.places[id] = p // of two with one id, which a client must not have, the last can be given up
	return p
}

// giveUp ends the call with an id, wherever it is.
func (q *queue) giveUp(id string) {
	q.mu.Lock()
	p := q.places[id]
	q.mu.Unlock()
	if p != nil {
		p.cancel()
	}
}

// turn waits for the call's turn; false if it was given up before.
func (p *place) turn() bool {
	defer func() {
		p.q.mu.Lock()
		defer p.q.mu.Unlock()
		p.q.waiting--
		p.q.bytes -= p.size
	}()
	select {
	case p.q.busy <- struct{}{}:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// over gives the call's turn to another.
func (p *place) over() { <-p.q.busy }

// leave ends the call's time in the queue.
func (p *place) leave() {
	p.cancel()
	p.q.mu.Lock()
	defer p.q.mu.Unlock()
	if p.q.places[p.id] == p {
		delete(p.q.places, p.id)
	}
}

// cancelled reads which request a notifications/cancelled is about; "" where it is no such message.
func cancelled(a ask, line []byte) string {
	if a.Method != string(mcp.MethodNotificationCancelled) {
		return ""
	}
	var m struct {
		Params struct {
			RequestID mcp.RequestId `json:"requestId"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &m) != nil {
		return ""
	}
	return m.Params.RequestID.String()
}
