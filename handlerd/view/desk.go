package view

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Bounds of the views of one daemon.
const (
	TicketTime    = 30 * time.Second // in which a ticket is used
	MaxTickets    = 64               // that are not used yet
	MaxViewers    = 32               // at one time, of all runs
	MaxRunViewers = 8                // of one run
	MaxStills     = 2                // that are taken at one time; further ones wait
	DialTime      = 20 * time.Second // for the display's VNC server to answer, which is started with the first viewer
	GreetTime     = 10 * time.Second // for both sides' beginnings
	SendTime      = 20 * time.Second // for a viewer to take what it is sent, or the display what a person did
	PingTime      = 20 * time.Second // between two looks whether a viewer is still there
)

// A Grant is what a ticket is good for.
type Grant struct {
	Run  string
	What string // "browser" or "display"
	Name string // what the viewer calls it; text of our own
	// Login is whose ticket it is, as whoever serves the page tells logins apart; "" for the owner of the unix socket.
	Login string
	// Dial connects to the display's VNC server.
	Dial func(ctx context.Context) (net.Conn, error)
	// Context ends the view, with the run or the browser. Its cause is what the viewer is told.
	Context context.Context
	// Hands lets pointer and keys pass, until none came for that long; 0: they never do.
	Hands time.Duration
	// Gone, if not nil, is called once: when the view has ended and nothing of it reaches the display any more, or when the
	// ticket is good for nothing. It is told why.
	Gone func(why error)
}

// Errors of a Desk.
var (
	// ErrNoTicket is all that is said of a ticket that is not good: one that was never given, was used, came late, or is
	// another login's.
	ErrNoTicket = errors.New("there is no such ticket: it was used, came late, or is another's")
	// ErrLate is why a ticket's Grant is gone that nobody came with in time.
	ErrLate = errors.New("nobody came with the ticket in its time")
	// ErrIdle is how a view with Hands ends that nobody uses.
	ErrIdle = errors.New("nothing was done in it for too long")
	// ErrClosed is what a Desk says that is closed.
	ErrClosed = errors.New("handlerd is ending")
)

// A FullError says that there is no room for one more.
type FullError struct{ Text string }

func (e *FullError) Error() string { return e.Text }

// A Desk gives tickets and serves those who come with them. Its methods may be called concurrently.
type Desk struct {
	log    *slog.Logger
	stills chan struct{}

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	tickets map[[sha256.Size]byte]*ticket
	viewers map[string]int // by run
}

type ticket struct {
	grant Grant
	until time.Time
	late  *time.Timer
}

// NewDesk makes a desk; log may be nil.
func NewDesk(log *slog.Logger) *Desk {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// Nobody's request: it ends by Close.
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Desk{log: log, stills: make(chan struct{}, MaxStills), ctx: ctx, cancel: cancel,
		tickets: map[[sha256.Size]byte]*ticket{}, viewers: map[string]int{}}
}

// Ticket gives a ticket, of 26 letters and digits, and when it is good for nothing any more. It counts once.
func (d *Desk) Ticket(g Grant) (text string, until time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return "", time.Time{}, ErrClosed
	case len(d.tickets) >= MaxTickets:
		return "", time.Time{}, &FullError{fmt.Sprintf("%d tickets for views were given and not used, the most there can be; each ends after %v", MaxTickets, TicketTime)}
	}
	text = rand.Text()
	key := sha256.Sum256([]byte(text))
	t := &ticket{grant: g, until: time.Now().Add(TicketTime)}
	t.late = time.AfterFunc(TicketTime, func() {
		if d.take(key) != nil {
			g.gone(ErrLate)
		}
	})
	d.tickets[key] = t
	return text, t.until, nil
}

func (g *Grant) gone(why error) {
	if g.Gone != nil {
		g.Gone(why)
	}
}

// Revoke makes a ticket good for nothing that was not used yet, and says whether it was one.
func (d *Desk) Revoke(text string, why error) bool {
	t := d.take(sha256.Sum256([]byte(text)))
	if t == nil {
		return false
	}
	t.late.Stop()
	t.grant.gone(why)
	return true
}

// take takes a ticket out, so that it counts once; nil where there is none.
func (d *Desk) take(key [sha256.Size]byte) *ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tickets[key]
	delete(d.tickets, key)
	return t
}

// A Visit is somebody who came with a good ticket. Exactly one of Serve and Abort is called.
type Visit struct {
	desk  *Desk
	grant Grant
}

// Visit uses a ticket up, whether or not the login is the one that it was given to. Its error is ErrNoTicket, ErrClosed,
// the cause of a view's end, or a *FullError.
func (d *Desk) Visit(text, login string) (*Visit, error) {
	t := d.take(sha256.Sum256([]byte(text)))
	if t == nil {
		return nil, ErrNoTicket
	}
	t.late.Stop()
	err := d.admit(t, login)
	if err != nil {
		t.grant.gone(err)
		return nil, err
	}
	return &Visit{d, t.grant}, nil
}

func (d *Desk) admit(t *ticket, login string) error {
	if subtle.ConstantTimeCompare([]byte(t.grant.Login), []byte(login)) != 1 || time.Now().After(t.until) {
		return ErrNoTicket
	}
	if err := context.Cause(t.grant.Context); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := 0
	for _, n := range d.viewers {
		all += n
	}
	switch {
	case d.closed:
		return ErrClosed
	case all >= MaxViewers:
		return &FullError{fmt.Sprintf("%d views are open, the most there can be: close one", all)}
	case d.viewers[t.grant.Run] >= MaxRunViewers:
		return &FullError{fmt.Sprintf("%d views of run %s are open, the most there can be: close one", MaxRunViewers, t.grant.Run)}
	}
	d.viewers[t.grant.Run]++
	d.wg.Add(1)
	return nil
}

// Abort gives a visit's place back without a viewer.
func (v *Visit) Abort() { v.leave(io.EOF) }

func (v *Visit) leave(why error) {
	d := v.desk
	d.mu.Lock()
	if d.viewers[v.grant.Run]--; d.viewers[v.grant.Run] <= 0 {
		delete(d.viewers, v.grant.Run)
	}
	d.mu.Unlock()
	v.grant.gone(why)
	d.wg.Done()
}

// Viewers tells how many views of a run are open.
func (d *Desk) Viewers(run string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.viewers[run]
}

// Still takes one picture of what dial leads to, as a PNG.
func (d *Desk) Still(ctx context.Context, dial func(context.Context) (net.Conn, error)) ([]byte, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, ErrClosed
	}
	d.wg.Add(1)
	d.mu.Unlock()
	defer d.wg.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.ctx, func() { cancel(ErrClosed) })()
	select {
	case d.stills <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-d.stills }()
	dialed, done := context.WithTimeout(ctx, DialTime)
	conn, err := dial(dialed)
	done()
	if err != nil {
		return nil, err
	}
	return Still(ctx, conn)
}

// Close ends every view and every still, and returns when they are gone. It is idempotent.
func (d *Desk) Close() error {
	d.mu.Lock()
	d.closed = true
	left := d.tickets
	d.tickets = map[[sha256.Size]byte]*ticket{}
	d.mu.Unlock()
	for _, t := range left {
		t.late.Stop()
		t.grant.gone(ErrClosed)
	}
	d.cancel(ErrClosed)
	d.wg.Wait()
	return nil
}
