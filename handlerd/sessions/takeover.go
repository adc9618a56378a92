package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/view"
)

// TakeoverIdle is how long a browser stays in the hands of a person who does nothing in it.
const TakeoverIdle = 30 * time.Minute

// backTime is how long a viewer may take to end when its browser is given back.
const backTime = 15 * time.Second

// A takeover is a person's hold of a run's guarded browser, and the ticket that its mouse and keys come by.
type takeover struct {
	hold   *browser.Hold
	ticket string
	gone   chan struct{} // closed when the browser is the agent's again
}

// takeovers are those of a run: at most one at a time.
type takeovers struct {
	mu  sync.Mutex
	now *takeover
}

// Takeover takes the guarded browser of the run whose id begins with id over for the login, or gives it back. Errors are
// *fault.Fault.
func (m *Manager) Takeover(ctx context.Context, id string, on bool, login string) (types.Takeover, error) {
	if !on {
		r, err := m.find(id)
		if err != nil {
			return types.Takeover{}, err
		}
		return r.giveBack(ctx)
	}
	s, err := m.sight(id, types.ViewBrowser)
	if err != nil {
		return types.Takeover{}, err
	}
	return s.run.takeOver(ctx, login)
}

func (r *Run) takeOver(ctx context.Context, login string) (types.Takeover, error) {
	hold, err := r.m.opts.Browser.TakeOver(ctx, r.id)
	if err != nil {
		return types.Takeover{}, r.takeFault(err)
	}
	t := &takeover{hold: hold, gone: make(chan struct{})}
	var until time.Time
	t.ticket, until, err = r.m.views.Ticket(view.Grant{
		Run: r.id, What: types.ViewBrowser, Name: "Handler: the browser of run " + r.id, Login: login, Dial: hold.Dial, Context: hold.Context,
		Hands: TakeoverIdle, Gone: func(why error) { r.takenBack(t, why) },
	})
	if err != nil {
		hold.GiveBack()
		return types.Takeover{}, viewFault(err)
	}
	r.takeovers.mu.Lock()
	r.takeovers.now = t
	r.takeovers.mu.Unlock()
	r.audit(audit.Record{Kind: audit.KindTakeover, Session: hold.Session, Subject: "the guarded browser", Reason: "taken over by you"})
	r.tell("you took its browser over: its browser tools are refused until you give it back")
	says := "You have the browser of " + r.plan.Agent + ": its browser tools are refused until you give it back. Your clipboard does not reach it, and its own does not reach you."
	return types.Takeover{On: true, IdleSeconds: int(TakeoverIdle.Seconds()), Says: says,
		Ticket: &types.ViewTicket{Ticket: t.ticket, Path: types.PathView, Expires: until, Says: says}}, nil
}

// giveBack ends what there is of a takeover, and returns when the browser is the agent's again.
func (r *Run) giveBack(ctx context.Context) (types.Takeover, error) {
	r.takeovers.mu.Lock()
	t := r.takeovers.now
	r.takeovers.mu.Unlock()
	if t == nil {
		return types.Takeover{Says: "Nobody had taken the browser of " + r.plan.Agent + " over."}, nil
	}
	t.hold.End()
	if !r.m.views.Revoke(t.ticket, browser.ErrGivenBack) {
		late := time.NewTimer(backTime)
		defer late.Stop()
		select {
		case <-t.gone:
		case <-late.C:
			return types.Takeover{}, fault.New(fault.Failed, "close the page that took it over, or: handler kill "+r.id, "the view that has the browser of run %s does not end", r.id)
		case <-ctx.Done():
			return types.Takeover{}, fault.Wrap(fault.Failed, context.Cause(ctx), "", "giving the browser back")
		}
	}
	return types.Takeover{Says: r.plan.Agent + " has its browser again."}, nil
}

// takenBack is the end of a takeover, whoever brings it about, once nothing of the person's reaches the browser any more.
func (r *Run) takenBack(t *takeover, why error) {
	defer close(t.gone)
	t.hold.GiveBack()
	r.takeovers.mu.Lock()
	if r.takeovers.now == t {
		r.takeovers.now = nil
	}
	r.takeovers.mu.Unlock()
	reason := "given back"
	switch {
	case errors.Is(why, browser.ErrGivenBack):
	case errors.Is(why, io.EOF):
		reason = "given back: the page that had it was closed"
	case errors.Is(why, view.ErrIdle):
		reason = fmt.Sprintf("given back: nothing was done in it for %v", TakeoverIdle)
	default:
		reason = "given back: " + printable(why.Error(), maxNotice)
	}
	r.audit(audit.Record{Kind: audit.KindTakeover, Session: t.hold.Session, Subject: "the guarded browser", Reason: reason})
	r.tell("its browser was %s", reason)
}

// tell puts a text of ours into the run's log and its conversation.
func (r *Run) tell(format string, args ...any) {
	text := printable(fmt.Sprintf(format, args...), maxNotice)
	r.log.add("handlerd", text)
	r.recorder.notice(text)
}

func (r *Run) takeFault(err error) error {
	var taken *browser.TakenError
	switch {
	case errors.As(err, &taken):
		return fault.New(fault.Refused, "give it back on the page that took it over, or close that page", "%v", taken)
	case errors.Is(err, browser.ErrNotOpen), errors.Is(err, browser.ErrNoWindow):
		_, says := r.browserSight()
		if says == nil { // it has just opened
			says = fault.New(fault.Failed, "try again", "the browser of run %s is just opening", r.id)
		}
		return says
	}
	return fault.New(fault.Failed, "try again", "the browser of run %s was not taken over: %s", r.id, printable(err.Error(), maxNotice))
}
