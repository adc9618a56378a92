package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

const (
	defaultMaxPending = 1024
	defaultMaxServing = 256
	writeQueue        = 64              // lines that wait for the writer; a sender waits beyond
	closeGrace        = 2 * time.Second // for handlers to end, and again for the queue to drain, in Close
)

// Options tune a Peer; the zero value works.
type Options struct {
	// Handler gets every request and notification, in order and one at a time. It must not wait for the other end
	// (that is what Request.Go is for): the reader waits for it. If nil, requests are answered with
	// CodeMethodNotFound.
	Handler func(ctx context.Context, req *Request)
	// Garbage, if not nil, gets each line that is no message (at most 64 KiB of it) instead of the other end
	// getting an error for it: what a client wants of an agent that prints noise. The slice is lent.
	Garbage func(line []byte, why *Error)

	MaxLine    int // bytes of one line; 0 is DefaultMaxLine
	MaxPending int // calls of ours that wait for an answer; 0 is 1024
	MaxServing int // requests of theirs that wait for ours; 0 is 256, beyond are refused
	Logger     *slog.Logger
}

// A Peer is one end of a connection. Its methods may be called from any goroutine.
type Peer struct {
	rwc  io.ReadWriteCloser
	opts Options
	log  *slog.Logger

	out     chan []byte
	quit    chan struct{} // closed by Close: the writer drains and ends
	dead    chan struct{} // closed when the writer has ended
	done    chan struct{} // closed when the reader has ended
	stop    context.CancelFunc
	closing sync.Once
	wg      sync.WaitGroup // what Request.Go started

	mu      sync.Mutex
	nextID  uint64
	pending map[string]chan message
	serving map[string]context.CancelFunc
	err     error // why the reader ended
	closed  bool  // Close has begun
}

// New starts a peer over rwc, whose Close must end a blocked Read and Write. The context that handlers get ends with
// ctx, when the other end has gone, and at Close. The caller must Close the peer, and not from within a handler.
func New(ctx context.Context, rwc io.ReadWriteCloser, opts Options) *Peer {
	if opts.MaxLine == 0 {
		opts.MaxLine = DefaultMaxLine
	}
	if opts.MaxPending == 0 {
		opts.MaxPending = defaultMaxPending
	}
	if opts.MaxServing == 0 {
		opts.MaxServing = defaultMaxServing
	}
	p := &Peer{
		rwc: rwc, opts: opts, log: opts.Logger,
		out: make(chan []byte, writeQueue), quit: make(chan struct{}), dead: make(chan struct{}), done: make(chan struct{}),
		pending: make(map[string]chan message), serving: make(map[string]context.CancelFunc),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	ctx, p.stop = context.WithCancel(ctx)
	go p.write()
	go p.read(ctx)
	return p
}

// Done is closed when nothing more comes in: the other end has gone, or the peer was closed.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Err says why Done was closed: nil while it is not and after an orderly end.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Call sends a request and waits for its answer, which it decodes into result unless that is nil or the answer is
// null. It gives an *Error if the other end refused, ErrClosed if it has gone. When ctx ends first, the other end is
// told so by $/cancel_request and ctx's error is given. It must not be called from within the handler; use
// Request.Go there.
func (p *Peer) Call(ctx context.Context, method string, params, result any) error {
	answer := make(chan message, 1)
	id, err := p.register(answer)
	if err != nil {
		return err
	}
	defer func() {
		p.mu.Lock()
		delete(p.pending, id)
		p.mu.Unlock()
	}()
	if err := p.send(ctx, wire{ID: json.RawMessage(id), Method: method, Params: params}); err != nil {
		return err
	}
	select {
	case m := <-answer:
		return m.decode(method, result)
	case <-ctx.Done():
		p.cancelCall(id)
		return ctx.Err()
	case <-p.done:
		select { // the answer may have been the last line
		case m := <-answer:
			return m.decode(method, result)
		default:
			return p.gone()
		}
	}
}

func (m message) decode(method string, result any) error {
	if m.fault != nil {
		return m.fault
	}
	if result == nil || len(m.result) == 0 || string(m.result) == "null" {
		return nil
	}
	if err := json.Unmarshal(m.result, result); err != nil {
		return fmt.Errorf("the answer to %s has a wrong shape: %w", method, err)
	}
	return nil
}

// Notify sends a notification. It waits only when the queue to the other end is full.
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	return p.send(ctx, wire{Method: method, Params: params})
}

// Close ends the peer: handlers' contexts end, what they answer within two seconds and what was queued still goes
// out, then the connection is closed and every goroutine has ended. It may be called more than once.
func (p *Peer) Close() error {
	var err error
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.stop()
		ended := make(chan struct{})
		go func() { p.wg.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(closeGrace):
		}
		close(p.quit)
		select {
		case <-p.dead:
		case <-time.After(closeGrace):
		}
		err = p.rwc.Close()
		<-p.dead
		<-p.done
		<-ended
	})
	return err
}

func (p *Peer) register(answer chan message) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) >= p.opts.MaxPending {
		return "", ErrTooManyPending
	}
	id := strconv.FormatUint(p.nextID, 10)
	p.nextID++
	p.pending[id] = answer
	return id, nil
}

// cancelCall tells the other end that nobody waits for id any more. It never waits: a full queue means an end that
// does not read anyhow.
func (p *Peer) cancelCall(id string) {
	line, err := encode(wire{Method: MethodCancelRequest, Params: CancelRequestParams{RequestID: json.RawMessage(id)}})
	if err != nil {
		return
	}
	select {
	case p.out <- line:
	default:
	}
}

func (p *Peer) gone() error {
	if err := p.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return ErrClosed
}

func (p *Peer) send(ctx context.Context, w wire) error {
	line, err := encode(w)
	if err != nil {
		return fmt.Errorf("encode %s: %w", w.Method, err)
	}
	select {
	case <-p.quit:
		return ErrClosed
	case <-p.dead:
		return p.gone()
	default:
	}
	select {
	case p.out <- line:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.quit:
		return ErrClosed
	case <-p.dead:
		return p.gone()
	}
}

// write is the only writer. After a failed write it ends, and senders get ErrClosed: a broken pipe is an end like
// any other.
func (p *Peer) write() {
	defer close(p.dead)
	for {
		select {
		case line := <-p.out:
			if _, err := p.rwc.Write(line); err != nil {
				p.log.Debug("write to the other end failed", "err", err)
				return
			}
		case <-p.quit:
			for {
				select {
				case line := <-p.out:
					if _, err := p.rwc.Write(line); err != nil {
						return
					}
				default:
					return
				}
			}
		}
	}
}

// read is the only reader.
func (p *Peer) read(ctx context.Context) {
	defer close(p.done)
	defer p.stop()
	lines := NewLineReader(p.rwc, p.opts.MaxLine)
	for {
		line, err := lines.Next()
		switch {
		case err == nil && len(line) == 0:
		case err == nil:
			p.handle(ctx, line)
		case errors.Is(err, ErrLineTooLong):
			p.tooLong(ctx, line)
		default:
			p.mu.Lock()
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				p.err = err
			}
			p.mu.Unlock()
			return
		}
	}
}

func (p *Peer) handle(ctx context.Context, line []byte) {
	m, bad := parse(line)
	if bad != nil {
		p.garbage(ctx, line, m.id, bad)
		return
	}
	switch {
	case m.method == "":
		p.answered(m)
	case m.method == MethodCancelRequest:
		p.cancelServing(m.params)
	default:
		p.dispatch(ctx, m)
	}
}

func (p *Peer) garbage(ctx context.Context, line []byte, id json.RawMessage, why *Error) {
	p.log.Debug("a line is no message", "why", why.Message, "bytes", len(line))
	if p.opts.Garbage != nil {
		p.opts.Garbage(line[:min(len(line), readBuffer)], why)
		return
	}
	if id == nil {
		id = json.RawMessage("null")
	}
	_ = p.send(ctx, wire{ID: id, Error: why}) // an end that has gone needs no error
}

// tooLong answers for a line that was skipped. An answer that cannot be told apart fails every call: to wait for an
// answer that was thrown away would be to wait for ever.
func (p *Peer) tooLong(ctx context.Context, prefix []byte) {
	method, id, answer := peekEnvelope(prefix)
	why := Errorf(CodeInvalidRequest, "a message is longer than %d bytes", p.opts.MaxLine)
	switch {
	case answer && id != nil:
		p.answered(message{id: id, fault: why})
	case answer:
		p.mu.Lock()
		for key, ch := range p.pending {
			ch <- message{fault: why}
			delete(p.pending, key)
		}
		p.mu.Unlock()
	case method != "" && id == nil && p.opts.Garbage == nil:
		p.log.Warn("a long notification was dropped", "method", method)
	default:
		if !validID(id) {
			id = nil
		}
		p.garbage(ctx, prefix, id, why)
	}
}

func (p *Peer) answered(m message) {
	key := string(m.id)
	p.mu.Lock()
	ch := p.pending[key]
	delete(p.pending, key)
	p.mu.Unlock()
	if ch == nil {
		p.log.Debug("an answer to nothing was dropped")
		return
	}
	ch <- m
}
