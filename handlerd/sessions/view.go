package sessions

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/view"
	"github.com/handlerd/handler/sandbox/rundir"
)

// Windows is what the runs need to know of the guarded browser to show it (handlerd/browser).
type Windows interface {
	Window(run string) (*browser.Window, error)
	TakeOver(ctx context.Context, run string) (*browser.Hold, error)
}

// A sight is something of a run that can be watched.
type sight struct {
	run  *Run
	what string
	dial func(context.Context) (net.Conn, error)
	ctx  context.Context // done when it is gone
	says string          // what the person should know of it
}

// View gives a ticket for watching the display that the run whose id begins with id has to itself, or the window of its
// guarded browser. login is whose the ticket is. Errors are *fault.Fault.
func (m *Manager) View(_ context.Context, id string, req types.ViewRequest, login string) (types.ViewTicket, error) {
	s, err := m.sight(id, req.What)
	if err != nil {
		return types.ViewTicket{}, err
	}
	text, until, err := m.views.Ticket(view.Grant{
		Run: s.run.id, What: s.what, Name: "Handler: " + s.what + " of run " + s.run.id, Login: login, Dial: s.dial, Context: s.ctx,
	})
	if err != nil {
		return types.ViewTicket{}, viewFault(err)
	}
	return types.ViewTicket{Ticket: text, Path: types.PathView, Expires: until, ViewOnly: true, Says: s.says}, nil
}

// sight finds what can be watched of a running run.
func (m *Manager) sight(id, what string) (*sight, error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if r.state.Load() != types.StateRunning {
		return nil, fault.New(fault.Failed, "see: handler ps", "the run %s is not running: it is %s", r.id, r.state.Load())
	}
	switch what {
	case types.ViewDisplay:
		if !r.screen {
			return nil, fault.New(fault.Failed, "start it with --display=vnc, or: handler agent edit "+r.plan.Agent+" --display=vnc",
				"the run %s has no display of its own", r.id)
		}
		return &sight{r, what, r.dialScreen, r.ctx,
			"The agent has this display to itself, and may show what it likes on it. You see it; your mouse and keys do not reach it."}, nil
	case types.ViewBrowser:
		return r.browserSight()
	}
	return nil, fault.New(fault.Usage, "ask for \""+types.ViewDisplay+"\" or \""+types.ViewBrowser+"\"", "%.40q is nothing that can be watched", what)
}

// browserSight is the window of the run's guarded browser.
func (r *Run) browserSight() (*sight, error) {
	if r.browser != types.BrowserGuarded || r.m.opts.Browser == nil {
		return nil, fault.New(fault.Failed, "handler agent edit "+r.plan.Agent+" --placement playwright=hosted --browser-view, for its next run",
			"the run %s has no guarded browser", r.id)
	}
	w, err := r.m.opts.Browser.Window(r.id)
	switch {
	case !r.plan.Browser.View || errors.Is(err, browser.ErrNoWindow):
		return nil, fault.New(fault.Failed, "handler agent edit "+r.plan.Agent+" --browser-view, for its next run",
			"the browser of run %s was started without a window, and gets none in mid-life", r.id)
	case errors.Is(err, browser.ErrNotOpen):
		return nil, fault.New(fault.Failed, "try again then", "the browser of run %s is not open yet: it opens when the agent first uses it", r.id)
	case err != nil:
		return nil, viewFault(err)
	}
	return &sight{r, types.ViewBrowser, w.Dial, w.Context,
		"This is the browser that Handler guards: the agent acts in it by its tools alone. You see it; your mouse and keys do not reach it."}, nil
}

// Visit uses a ticket up. Errors are *fault.Fault.
func (m *Manager) Visit(ticket, login string) (*view.Visit, error) {
	v, err := m.views.Visit(ticket, login)
	if err != nil {
		return nil, viewFault(err)
	}
	return v, nil
}

// Still keeps a picture of what can be watched of a run as an artifact. Errors are *fault.Fault, or the store's.
func (m *Manager) Still(ctx context.Context, id string, req types.ViewRequest) (types.Artifact, error) {
	s, err := m.sight(id, req.What)
	if err != nil {
		return types.Artifact{}, err
	}
	if m.opts.Artifacts == nil {
		return types.Artifact{}, fault.New(fault.Failed, "handler doctor", "this handlerd keeps no artifacts")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	picture, err := m.views.Still(ctx, s.dial)
	if err != nil {
		return types.Artifact{}, viewFault(err)
	}
	a, err := m.opts.Artifacts.Add(ctx, artifacts.Meta{Owner: m.opts.Principal, Run: s.run.id, Agent: s.run.plan.Agent,
		Name: s.what + "-" + time.Now().Format("150405") + ".png", Source: "a still of the " + s.what}, bytes.NewReader(picture))
	if err != nil {
		return types.Artifact{}, err
	}
	return m.opts.Artifacts.Describe(a), nil
}

// dialScreen connects to the VNC server of the run's display, as dial does to a port.
func (r *Run) dialScreen(ctx context.Context) (net.Conn, error) {
	done, err := r.ports.begin(r.id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	conn, err := r.dir.DialScreen(ctx)
	if err != nil {
		done()
		return nil, r.screenFault(ctx, err)
	}
	closeConn := sync.OnceValue(func() error {
		defer done()
		return conn.Close()
	})
	stop := context.AfterFunc(r.ctx, func() { _ = closeConn() })
	return &portConn{conn, func() error { stop(); return closeConn() }}, nil
}

func (r *Run) screenFault(ctx context.Context, err error) error {
	var refused *rundir.DialError
	switch {
	case r.ctx.Err() != nil:
		return fault.New(fault.Failed, "see: handler ps", "the run %s has ended", r.id)
	case errors.As(err, &refused):
		return &fault.Fault{Kind: fault.Failed, Text: "the sandbox of run " + r.id + " says: " + printable(refused.Text, maxNotice), Hint: "handler logs " + r.id, Err: err}
	case ctx.Err() != nil:
		return fault.New(fault.Failed, "handler logs "+r.id, "the display of run %s did not answer in time", r.id)
	}
	return fault.Wrap(fault.Failed, err, "handler logs "+r.id, "the display of run %s", r.id)
}

// viewFault says what an error of a view means to the person.
func viewFault(err error) error {
	var f *fault.Fault
	var full *view.FullError
	var protocol *view.ProtocolError
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, view.ErrNoTicket):
		return fault.New(fault.Refused, "ask for another: each counts once, for "+view.TicketTime.String(), "refused by K.1: %v", err)
	case errors.As(err, &full):
		return fault.New(fault.Refused, "", "%s", full.Text)
	case errors.As(err, &protocol):
		return fault.New(fault.Failed, "", "the view ended: %v", protocol)
	}
	return fault.Wrap(fault.Failed, err, "try again", "the view")
}
