package sessions

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/rundir"
)

// Bounds of the connections into a run's ports.
const (
	MaxDials    = 128              // of one run at a time, forwards and previews together
	MaxForwards = 16               // ports of one run that the person has open
	DialTime    = 10 * time.Second // for the sandbox to connect to one of its ports
)

// ports are the connections into a run's ports, and which of them the person has opened. end comes once, when no new
// one may begin.
type ports struct {
	mu    sync.Mutex
	dials int              // protected by mu
	open  map[int]*Forward // by port; protected by mu
	ended bool             // protected by mu
	wg    sync.WaitGroup   // of both
}

// begin takes a place for one connection; done gives it back, once.
func (p *ports) begin(run string) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, fault.New(fault.Failed, "see: handler ps", "the run %s is ending", run)
	}
	if p.dials >= MaxDials {
		return nil, fault.New(fault.Failed, "close some of them and try again",
			"%d connections into the ports of run %s are open, the most there can be", p.dials, run)
	}
	p.dials++
	p.wg.Add(1)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.dials--
		p.mu.Unlock()
		p.wg.Done()
	}), nil
}

// end lets nothing more begin and waits for what there is, which the end of the run's context closes.
func (p *ports) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.wg.Wait()
}

// A portConn is a connection into a port of a run. Closing it gives its place back; the run's end closes it.
type portConn struct {
	*net.UnixConn
	close func() error
}

func (c *portConn) Close() error { return c.close() }

// dial connects to a port of the sandbox's loopback. Errors are *fault.Fault with a text that is safe to show.
func (r *Run) dial(ctx context.Context, port int) (*portConn, error) {
	if r.state.Load() != types.StateRunning {
		return nil, fault.New(fault.Failed, "see: handler ps", "the run %s is not running: it is %s", r.id, r.state.Load())
	}
	done, err := r.ports.begin(r.id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, DialTime)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	conn, err := r.dir.Dial(ctx, port)
	if err != nil {
		done()
		return nil, r.dialFault(ctx, port, err)
	}
	closeConn := sync.OnceValue(func() error {
		defer done()
		return conn.Close()
	})
	stop := context.AfterFunc(r.ctx, func() { _ = closeConn() })
	return &portConn{conn, func() error { stop(); return closeConn() }}, nil
}

func (r *Run) dialFault(ctx context.Context, port int, err error) error {
	var refused *rundir.DialError
	hint := fmt.Sprintf("start the server in the sandbox, on port %d of 127.0.0.1", port)
	switch {
	case r.ctx.Err() != nil:
		return fault.New(fault.Failed, "see: handler ps", "the run %s has ended", r.id)
	case errors.As(err, &refused):
		return &fault.Fault{Kind: fault.Failed, Text: "the sandbox of run " + r.id + " says: " + printable(refused.Text, maxNotice), Hint: hint, Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.New(fault.Failed, "handler logs "+r.id, "the sandbox of run %s did not connect to its port %d within %v", r.id, port, DialTime)
	}
	return fault.Wrap(fault.Failed, err, "handler logs "+r.id, "port %d of the sandbox of run %s", port, r.id)
}
