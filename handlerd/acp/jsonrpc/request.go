package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
)

// A Request is one request or notification of the other end. A request must be answered once, by Reply, Refuse or
// Go; answers to a notification, and second answers, are dropped.
type Request struct {
	Method string
	ID     json.RawMessage // as it was written; nil for a notification
	Params json.RawMessage // nil if absent

	peer     *Peer
	answered atomic.Bool
	release  func()
	ctx      context.Context // for Go: ends with the connection or by $/cancel_request
}

// Notification says that no answer is awaited.
func (r *Request) Notification() bool { return r.ID == nil }

// Peer is the connection that the request came over, for calls back to the other end.
func (r *Request) Peer() *Peer { return r.peer }

// Decode decodes the parameters into v; the error it gives is what to answer.
func (r *Request) Decode(v any) error {
	if len(r.Params) == 0 {
		return Errorf(CodeInvalidParams, "%s needs params", r.Method)
	}
	if err := json.Unmarshal(r.Params, v); err != nil {
		return Errorf(CodeInvalidParams, "params of %s: %v", r.Method, err)
	}
	return nil
}

// Reply answers with a result; nil is written as {}.
func (r *Request) Reply(result any) {
	if result == nil {
		result = struct{}{}
	}
	r.answer(wire{ID: r.ID, Result: result})
}

// Refuse answers with an error: an *Error as it is, any other with CodeInternal and its text.
func (r *Request) Refuse(err error) { r.answer(wire{ID: r.ID, Error: toError(err)}) }

// Go lets the handler return while fn works on; what fn gives is the answer. Its context ends when the other end
// cancels the request or has gone; an answer of context.Canceled then becomes CodeCancelled.
func (r *Request) Go(fn func(ctx context.Context) (any, error)) {
	if !r.peer.mayStart() {
		r.Refuse(ErrClosed)
		return
	}
	go func() {
		defer r.peer.wg.Done()
		result, err := fn(r.ctx)
		switch {
		case err == nil:
			r.Reply(result)
		case errors.Is(err, context.Canceled) && r.ctx.Err() != nil:
			r.Refuse(Errorf(CodeCancelled, "%s was cancelled", r.Method))
		default:
			r.Refuse(err)
		}
	}()
}

// mayStart counts one more goroutine, unless Close waits for them already.
func (p *Peer) mayStart() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

func (r *Request) answer(w wire) {
	if r.ID == nil || r.answered.Swap(true) {
		return
	}
	r.release()
	// The request's own context may have ended; the answer still goes out while there is a connection.
	if err := r.peer.send(context.Background(), w); err != nil && !errors.Is(err, ErrClosed) {
		r.peer.log.Error("an answer could not be sent", "method", r.Method, "err", err)
	}
}

// dispatch hands a request or notification to the handler.
func (p *Peer) dispatch(ctx context.Context, m message) {
	req := &Request{Method: m.method, ID: m.id, Params: m.params, peer: p, ctx: ctx, release: func() {}}
	if m.id != nil {
		key := string(m.id)
		own, cancel := context.WithCancel(ctx)
		if why := p.serve(key, cancel); why != nil {
			cancel()
			req.Refuse(why)
			return
		}
		req.ctx = own
		req.release = func() {
			cancel()
			p.mu.Lock()
			delete(p.serving, key)
			p.mu.Unlock()
		}
	}
	if p.opts.Handler == nil {
		req.Refuse(Errorf(CodeMethodNotFound, "no method %q here", m.method))
		return
	}
	p.opts.Handler(req.ctx, req)
}

func (p *Peer) serve(key string, cancel context.CancelFunc) *Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.serving[key]; ok {
		return Errorf(CodeInvalidRequest, "a request with this id is being worked on already")
	}
	if len(p.serving) >= p.opts.MaxServing {
		return Errorf(CodeInternal, "%d requests are being worked on already, which is the bound", p.opts.MaxServing)
	}
	p.serving[key] = cancel
	return nil
}

func (p *Peer) cancelServing(raw json.RawMessage) {
	var params CancelRequestParams
	if json.Unmarshal(raw, &params) != nil {
		return
	}
	p.mu.Lock()
	cancel := p.serving[string(params.RequestID)]
	p.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
