package runner

import (
	"context"
	"strings"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/policy"
)

// handle gets what the agent sends, in order.
func (r *run) handle(ctx context.Context, req *jsonrpc.Request) {
	switch req.Method {
	case jsonrpc.MethodSessionUpdate:
		var p jsonrpc.UpdateParams
		if req.Decode(&p) == nil { // an update of a shape we do not know is none of ours
			r.update(ctx, p.SessionID, &p.Update)
		}
		req.Reply(nil)
	case jsonrpc.MethodRequestPermission:
		r.permission(req)
	case jsonrpc.MethodElicitation:
		r.elicitation(req)
	case policy.MethodAnswered:
		r.answeredFor(req)
	default:
		req.Refuse(jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "handler run has no method %q", req.Method))
	}
}

func (r *run) update(ctx context.Context, session string, u *jsonrpc.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if session != r.session || r.session == "" {
		return // what a session says before it is ours is set-up, of another it is not for us
	}
	switch u.SessionUpdate {
	case jsonrpc.UpdateAgentMessage, jsonrpc.UpdateAgentThought:
		r.chunk(ctx, u)
	case jsonrpc.UpdateToolCall, jsonrpc.UpdateToolCallUpdate:
		r.toolUpdate(ctx, u)
	case jsonrpc.UpdatePlan:
		r.flushTools()
		r.screen.emit(event{Event: evPlan, Entries: u.Entries})
	case jsonrpc.UpdateNotice:
		r.notice(u.Severity, strings.Trim(u.Title+": "+u.Description, ": "))
	}
}

// notice shows a remark, of the agent or of ours. It runs with mu held.
func (r *run) notice(severity, text string) {
	if text == "" {
		return
	}
	if severity == "" {
		severity = "info"
	}
	r.flushTools()
	r.screen.emit(event{Event: evNotice, Severity: severity, Text: text})
}

func (r *run) chunk(ctx context.Context, u *jsonrpc.Update) {
	b, err := u.Block()
	if err != nil {
		return
	}
	r.flushTools()
	kind := evText
	if u.SessionUpdate == jsonrpc.UpdateAgentThought {
		kind = evThought
	}
	switch b.Type {
	case jsonrpc.BlockText:
		if b.Text != "" {
			r.screen.emit(event{Event: kind, Text: b.Text})
		}
	case jsonrpc.BlockResourceLink:
		r.screen.emit(event{Event: kind, Text: b.URI + "\n"})
	default:
		r.images(ctx, nil, u.Content)
	}
}

// toolUpdate takes in what an update says of a tool call. A call is shown when enough is known of it, and at the
// latest when something else is to be shown.
func (r *run) toolUpdate(ctx context.Context, u *jsonrpc.Update) {
	if u.ToolCallID == "" {
		return
	}
	t := r.tool(u.ToolCallID)
	t.merge(u.ToolCall)
	if content, err := u.ToolContents(); err == nil && content != nil {
		t.content = content
	}
	started := t.Status != "" && t.Status != jsonrpc.StatusPending
	if !t.shown && (given(t.RawInput) || started) {
		r.show(t)
	}
	r.images(ctx, t, u.Content)
	r.images(ctx, t, u.RawOutput)
	if t.ended || (t.Status != jsonrpc.StatusCompleted && t.Status != jsonrpc.StatusFailed) {
		return
	}
	t.ended = true
	seconds := round(r.opts.Now().Sub(t.began))
	r.screen.emit(event{Event: evToolDone, Tool: t.ToolCallID, Name: t.label(), Status: t.Status, Seconds: &seconds, Detail: t.result()})
	t.content, t.RawOutput = nil, nil // may be large, and is done with
}

// tool gives the tool call of an id, a new one if there is none.
func (r *run) tool(id string) *tool {
	if t := r.tools[id]; t != nil {
		return t
	}
	t := &tool{ToolCall: jsonrpc.ToolCall{ToolCallID: id}, began: r.opts.Now()}
	r.tools[id] = t
	r.order = append(r.order, id)
	r.waiting = append(r.waiting, id)
	r.calls++
	if len(r.order) > maxTools {
		delete(r.tools, r.order[0])
		r.order = r.order[1:]
	}
	return t
}

// show prints the line of a tool call, after those that came before it.
func (r *run) show(t *tool) {
	for len(r.waiting) > 0 {
		next := r.tools[r.waiting[0]]
		r.waiting = r.waiting[1:]
		if next == nil {
			continue
		}
		next.shown = true
		r.screen.emit(event{
			Event: evTool, Tool: next.ToolCallID, Name: next.label(), Kind: next.Kind, Detail: next.detail(), Input: next.RawInput,
		})
		if next == t {
			return
		}
	}
}

// flushTools shows every tool call that waits.
func (r *run) flushTools() { r.show(nil) }
