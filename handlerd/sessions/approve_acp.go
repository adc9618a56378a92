package sessions

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
)

// byClient is where an answer was given, for the audit log: nobody knows whether a person gave it.
const byClient = "the ACP client"

// A desk puts what Handler asks about a run before the run's ACP client (H): only where the agent says so, since a
// client may answer by itself. While a session is open, the client counts as somebody who is there.
type desk struct {
	r *Run

	mu       sync.Mutex
	sessions []string      // open ones, the one with the youngest turn last; protected by mu
	changed  chan struct{} // holds a token when sessions changed
}

// A clientCall is [acp.Relay.Call].
type clientCall func(ctx context.Context, to acp.Side, method string, params []byte) (acp.OwnAnswer, error)

func newDesk(r *Run) *desk { return &desk{r: r, changed: make(chan struct{}, 1)} }

// maxDeskSessions bounds the sessions that a desk remembers.
const maxDeskSessions = acp.MaxSessions

// saw follows which sessions are open. A nil desk follows nothing.
func (d *desk) saw(e acp.Event) {
	if d == nil || e.Session == "" || e.Kind != acp.SessionOpened && e.Kind != acp.SessionClosed && e.Kind != acp.TurnStarted {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := slices.Contains(d.sessions, e.Session)
	if e.Kind == acp.TurnStarted && !known { // no session that was opened
		return
	}
	d.sessions = slices.DeleteFunc(d.sessions, func(s string) bool { return s == e.Session })
	if e.Kind != acp.SessionClosed {
		d.sessions = append(d.sessions, e.Session)
		d.sessions = d.sessions[max(0, len(d.sessions)-maxDeskSessions):]
	}
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// session is the one to ask in about something of session's; "" if there is none.
func (d *desk) session(session string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.sessions, session) {
		return session
	}
	if len(d.sessions) == 0 {
		return ""
	}
	return d.sessions[len(d.sessions)-1]
}

// serve has the client asked while a session is open, until ctx ends or the client shows that it cannot be.
func (d *desk) serve(ctx context.Context, call clientCall) {
	for {
		for d.session("") == "" {
			select {
			case <-d.changed:
			case <-ctx.Done():
				return
			}
		}
		if err := d.attend(ctx, call); err != nil || ctx.Err() != nil {
			if ctx.Err() == nil {
				d.r.notice("the ACP client is no longer asked what Handler asks: %v", err)
			}
			return
		}
	}
}

// attend has the client asked until no session is open any more. An error says why it cannot be.
func (d *desk) attend(ctx context.Context, call clientCall) error {
	w, err := d.r.m.opts.Approvals.Watch(d.r.id)
	if err != nil {
		return err
	}
	defer w.Close()
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	asking.Go(func() { d.untilNone(ctx, leave) })
	open := map[string]context.CancelFunc{}
	for {
		e, err := w.Next(ctx)
		switch {
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case e.Approval == nil:
		case e.State == types.ApprovalAsked:
			question, end := context.WithCancel(ctx)
			open[e.Approval.ID] = end
			asking.Go(func() {
				defer end()
				if err := d.ask(question, call, *e.Approval); err != nil {
					leave(err)
				}
			})
		case open[e.Approval.ID] != nil:
			open[e.Approval.ID]()
			delete(open, e.Approval.ID)
		}
	}
}

// untilNone leaves when no session is open any more.
func (d *desk) untilNone(ctx context.Context, leave context.CancelCauseFunc) {
	for d.session("") != "" {
		select {
		case <-d.changed:
		case <-ctx.Done():
			return
		}
	}
	leave(nil)
}

// ask asks the client one question and gives its answer to the queue. An error says that the client can be asked
// nothing.
func (d *desk) ask(ctx context.Context, call clientCall, a types.Approval) error {
	session := d.session(a.Session)
	if session == "" {
		return nil // it has just closed the last one
	}
	var png []byte
	if a.Browser != nil && a.Browser.Picture != nil {
		png, _ = d.r.m.opts.Approvals.Picture(a.ID) // it may be over already, which call hears of
	}
	params, err := json.Marshal(permission(session, a, png))
	if err != nil {
		return err
	}
	got, err := call(ctx, acp.Client, jsonrpc.MethodRequestPermission, params)
	switch {
	case ctx.Err() != nil, errors.Is(err, acp.ErrGone):
		return nil // the question is over, or the run
	case err != nil:
		return err
	case got.Error != nil:
		return fmt.Errorf("it answered %s", cut(string(got.Error), maxReason))
	}
	answer := types.ApprovalAnswer{Allow: allows(got.Result), Scope: types.ScopeOnce, By: byClient}
	if _, err := d.r.m.opts.Approvals.Answer(a.ID, answer); err != nil {
		d.r.m.log.Info("the answer of an ACP client came too late, or does not count", "run", d.r.id, slog.Any("error", err))
	}
	return nil
}

// allows says whether a client's answer is a yes: one that is anything else, and a cancelled one, is a no.
func allows(result []byte) bool {
	var p jsonrpc.PermissionResult
	return json.Unmarshal(result, &p) == nil && p.Outcome.Outcome == "selected" && p.Outcome.OptionID == jsonrpc.AllowOnce
}

// permission is the request for one question. Its tool call is nobody's, under an id that the agent does not know.
func permission(session string, a types.Approval, png []byte) map[string]any {
	content := []any{map[string]any{"type": "content", "content": map[string]any{"type": "text", "text": describe(a)}}}
	if len(png) > 0 {
		content = append(content, map[string]any{"type": "content", "content": map[string]any{
			"type": "image", "mimeType": "image/png", "data": base64.StdEncoding.EncodeToString(png),
		}})
	}
	kind := "fetch"
	if a.Browser != nil && !a.Browser.Visit {
		kind = "other"
	}
	return map[string]any{
		"sessionId": session,
		"toolCall": map[string]any{
			"toolCallId": "handler-" + rand.Text(), "title": title(a), "kind": kind, "status": "pending", "content": content,
		},
		"options": []jsonrpc.PermissionOption{
			{OptionID: jsonrpc.AllowOnce, Name: "Allow once", Kind: jsonrpc.AllowOnce},
			{OptionID: jsonrpc.RejectOnce, Name: "Refuse", Kind: jsonrpc.RejectOnce},
		},
	}
}

// title is the question without a page's words in it, since editors show Markdown there too.
func title(a types.Approval) string {
	text := a.Text
	if b := a.Browser; b != nil && !b.Visit {
		text = fmt.Sprintf("%s wants to act in the browser (%s)", a.Agent, a.Subject)
	}
	return "Handler asks: " + text
}

// describe is a question in Markdown, which is what editors show: everything of a page's or an agent's is code, so that
// it is neither a link nor a heading.
func describe(a types.Approval) string {
	var out strings.Builder
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&out, "- %s: `%s`\n", what, strings.ReplaceAll(text, "`", "'"))
		}
	}
	b := a.Browser
	if b == nil {
		line("asked by Handler", a.Subject)
		return out.String()
	}
	for _, p := range b.Pages {
		line("site", p.Site)
		line("page", p.URL)
	}
	line("title, as the page says", b.Title)
	if b.Frame != nil {
		line("in a frame of the site", b.Frame.Site)
		line("frame", b.Frame.URL)
	}
	line("action", b.Action)
	for _, e := range b.Elements {
		line("element, as the page says", approvals.Element(e))
	}
	line("the page says", b.Says)
	for _, v := range b.Values {
		line("value", v)
	}
	for _, t := range b.Targets {
		line("leads to the site", t.Site)
		line("address", t.URL)
	}
	if b.More > 0 {
		fmt.Fprintf(&out, "- and %d more of these, which are not shown\n", b.More)
	}
	line("arguments, SHA-256", b.Digest)
	return out.String()
}
