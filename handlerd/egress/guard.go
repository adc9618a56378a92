package egress

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

var errIdle = errors.New("nothing moved for too long")

// lastWords is what a cancelled request gets to send its answer before its client's connection is cut.
const lastWords = 2 * time.Second

// A guard ends an exchange that is idle or takes too long (D.7). Touching it costs one atomic store; the timer looks
// only when the limit could have passed.
type guard struct {
	idle, total time.Duration
	began       time.Time
	last        atomic.Int64 // since began
	cancel      context.CancelCauseFunc
	client      net.Conn

	mu      sync.Mutex
	stopped bool
	timer   *time.Timer
}

func newGuard(idle, total time.Duration, cancel context.CancelCauseFunc, client net.Conn) *guard {
	g := &guard{idle: idle, total: total, began: time.Now(), cancel: cancel, client: client}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(min(idle, total), g.look)
	return g
}

func (g *guard) touch() { g.last.Store(int64(time.Since(g.began))) }

func (g *guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	age := time.Since(g.began)
	rest := min(g.idle-(age-time.Duration(g.last.Load())), g.total-age)
	if rest > 0 {
		g.timer.Reset(rest)
		return
	}
	// A handler that is blocked in a write to its client does not see the cancelled context.
	g.cancel(errIdle)
	g.timer = time.AfterFunc(lastWords, g.cut)
}

func (g *guard) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		g.client.Close()
	}
}

// stop ends the guard; after it the client's connection is not touched.
func (g *guard) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	g.timer.Stop()
}
