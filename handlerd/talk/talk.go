// Package talk is handlerd as the ACP client of sessions that have no other: those that the page and the API begin or
// continue. One session has one run; it goes on while the page is closed or loaded anew and ends with its run, with the
// daemon, or when somebody ends it. What is said is not kept here: the run's recorder does that, for every client alike.
//
// A question of the agent's is never answered here without the person: it waits until an answer comes, the agent
// withdraws it, the turn is cancelled or the run ends. Nothing of this machine is offered to the agent: no files, no
// terminals (P4).
package talk

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// Runs starts runs (handlerd/sessions). Errors are *fault.Fault.
type Runs interface {
	Start(ctx context.Context, req types.RunRequest) (Run, error)
}

// A Run is a started run that waits for its client. Exactly one of Serve and Abort is called.
type Run interface {
	ID() string
	// Serve joins client to the agent until either ends, and returns when nothing of the run is left and client is closed.
	Serve(ctx context.Context, client net.Conn) error
	// Abort ends the run without a client.
	Abort()
	// AnsweredBy says who is about to answer a question of the agent's, by the question's id; "" says nothing.
	AnsweredBy(question, by string)
}

// History is what is kept of sessions (handlerd/history). Errors are *fault.Fault.
type History interface {
	// Get gives the session whose id begins with id.
	Get(ctx context.Context, id string) (types.Session, error)
	// Known gives the id of the session that an agent knows by its own id; "" for none. A session that a run opens is
	// there once the agent's answer is.
	Known(ctx context.Context, agent, acp string) (string, error)
	// Change changes what is kept of a session, but for its title: that Rename does.
	Change(ctx context.Context, id string, change func(*types.Session)) error
	Rename(ctx context.Context, id, title string) error
	// Append adds an event, and gives its number.
	Append(ctx context.Context, id, kind, update string, data any) (int64, error)
	// Follow calls each with the events after the one numbered after, in order, and those that come, until ctx is done or
	// each fails.
	Follow(ctx context.Context, id string, after int64, each func([]types.Event) error) error
}

// Options are what a Talk is made of. Runs and History have to be there.
type Options struct {
	Runs    Runs
	History History
	// Cwd gives the folder that a session of an agent begins in, when cwd was asked for; "" asks for none.
	Cwd func(agent, cwd string) (string, error)
	// LoginHint says what to do when an agent wants a login first; "" where there is nothing to say.
	LoginHint func(agent string) string
	// Busy is told of every session while it lives; done is called once, at its end.
	Busy   func() (done func())
	Logger *slog.Logger
}

// A Talk holds the sessions whose client is handlerd. It is safe for concurrent use.
type Talk struct {
	opts Options
	log  *slog.Logger

	ctx  context.Context // ends at Close
	stop context.CancelFunc
	wg   sync.WaitGroup // of all goroutines; only under mu and not closed is it added to

	mu      sync.Mutex
	closed  bool                     // protected by mu
	live    map[string]*conversation // by the session's id; protected by mu
	opening map[string]chan struct{} // sessions that are being continued; closed when that has ended; protected by mu
}

// New makes a Talk.
func New(o Options) *Talk {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Cwd == nil {
		o.Cwd = func(_, cwd string) (string, error) { return cwd, nil }
	}
	if o.LoginHint == nil {
		o.LoginHint = func(string) string { return "" }
	}
	if o.Busy == nil {
		o.Busy = func() func() { return func() {} }
	}
	t := &Talk{opts: o, log: o.Logger, live: map[string]*conversation{}, opening: map[string]chan struct{}{}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// Close ends every session's run and returns when nothing of them is left, or ctx is done. No session begins after it.
func (t *Talk) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.stop()
	ended := make(chan struct{})
	go func() { t.wg.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("sessions of the page are left"), ctx.Err())
	}
}

// spawn runs f in a goroutine that Close waits for; false when Close has begun.
func (t *Talk) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Go(f)
	return true
}

// Live tells whether handlerd is the client of a session now, and how many of the agent's questions wait.
func (t *Talk) Live(id string) (questions int, ours bool) {
	t.mu.Lock()
	c := t.live[id]
	t.mu.Unlock()
	if c == nil {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.questions), true
}

// find gives the session whose id begins with id, and its conversation where handlerd is its client now.
func (t *Talk) find(ctx context.Context, id string) (types.Session, *conversation, error) {
	s, err := t.opts.History.Get(ctx, id)
	if err != nil {
		return s, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return s, t.live[s.ID], nil
}

// mine gives the conversation of a session whose client handlerd is now.
func (t *Talk) mine(ctx context.Context, id string) (types.Session, *conversation, error) {
	s, c, err := t.find(ctx, id)
	if err == nil && c == nil {
		err = notOurs(s)
	}
	return s, c, err
}

// notOurs says why a session takes nothing here.
func notOurs(s types.Session) error {
	switch {
	case s.Run != "" && s.Client == types.ClientPage: // its run is just ending or beginning
		return fault.New(fault.Refused, "try again in a moment", "session %s is just beginning or ending", s.ID)
	case s.Run != "":
		return fault.New(fault.Refused, "answer there, or end its run and continue it here: handler kill "+s.Run,
			"another program is the client of session %s: %s", s.ID, clients[s.Client])
	case s.Continues == "":
		return fault.New(fault.Refused, "begin a new one", "session %s has ended, and its agent cannot continue it", s.ID)
	}
	return fault.New(fault.Refused, "continue it first", "session %s has ended", s.ID)
}

// clients says in words who the client of a session is.
var clients = map[string]string{
	types.ClientEditor:  "an editor (handler acp)",
	types.ClientCommand: "a command (handler run)",
}

// End ends a session's run and returns when nothing of it is left, or ctx is done. The session stays.
func (t *Talk) End(ctx context.Context, id string) error {
	s, c, err := t.find(ctx, id)
	if err != nil {
		return err
	}
	if c == nil {
		if s.Run == "" {
			return nil // it has ended
		}
		return notOurs(s)
	}
	return c.end(ctx)
}

// Title names a session; "" goes back to the agent's title.
func (t *Talk) Title(ctx context.Context, id, title string) error {
	if err := checkTitle(title); err != nil {
		return err
	}
	s, err := t.opts.History.Get(ctx, id)
	if err != nil {
		return err
	}
	return t.opts.History.Rename(ctx, s.ID, title)
}
