package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/policy"
)

type network = policy.Network

// A refusal is what a tool answers when a check says no: which one, why, and what to do.
type refusal struct{ rule, reason, hint string }

func refuse(rule, reason, hint string) error { return &refusal{rule, reason, hint} }

func (r *refusal) Error() string {
	text := "refused by " + r.rule + ": " + r.reason
	if r.hint != "" {
		text += ". " + r.hint
	}
	return text
}

// A use is one call of a tool, while it holds its session.
type use struct {
	s      *session
	call   gateway.Call
	tool   tool
	policy Policy
	worker Worker   // nil until open
	notes  []string // what the agent should know besides the result
	landed bool     // the browser was closed for what this call saw, and its error says why
	late   bool     // something took too long
	looked bool     // the landing check was just made, and nothing was done since
}

// A run is what a tool does.
type run func(ctx context.Context, u *use) (*mcp.CallToolResult, error)

// Call implements [gateway.Instance].
func (i *instance) Call(ctx context.Context, c gateway.Call) (*mcp.CallToolResult, error) {
	t, ok := findTool(c.Tool)
	if !ok {
		return asResult(refuse("F.1", fmt.Sprintf("there is no tool %q", shorten(c.Tool, 80)), "tools/list names those that there are")), nil
	}
	s, err := i.b.session(c)
	if err != nil {
		return asResult(err), nil
	}
	if err := secretArguments(c.Args); err != nil {
		return asResult(err), nil
	}
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.busy }()
	ctx, end, p, err := s.begin(ctx)
	if err != nil {
		return asResult(err), nil
	}
	defer end()
	u := &use{s: s, call: c, tool: t, policy: p}
	if note := s.back(); note != "" {
		u.notes = append(u.notes, note)
	}
	result, err := u.do(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return asResult(cause), nil // what it did give is of a turn that is over
	}
	if err != nil {
		result = asResult(err)
	}
	return u.noted(result), nil
}

// do checks what is the same for all tools and runs this one.
func (u *use) do(ctx context.Context) (*mcp.CallToolResult, error) {
	if u.tool.kind == interacts && u.policy.ReadOnly {
		return nil, refuse("F.4", "this run may only read pages", "Your person started it so, or its agent is")
	}
	result, err := u.tool.run(ctx, u)
	var gone *GoneError
	if errors.As(err, &gone) && u.worker != nil {
		select { // its sandbox is being taken down: whoever comes next is to find nothing of it
		case <-u.worker.Done():
		case <-ctx.Done():
		}
	}
	if err != nil && u.worker != nil && !u.landed && ctx.Err() == nil && !u.alive() {
		return nil, u.crashed()
	}
	if err != nil && u.late && !u.landed && ctx.Err() == nil {
		if stuck := u.stuck(ctx); stuck != nil {
			return nil, stuck
		}
	}
	return result, err
}

// crashed says that the worker went in the middle of the call.
func (u *use) crashed() error {
	why := ended(u.worker)
	u.s.closeThis(u.worker, why)
	if known := u.s.tell(); known != "" { // it is told here and now
		why = known
	}
	return refuse("F.8", "the browser is gone: "+shorten(why, 300),
		"Whether this call did something is not known. The next one starts a new browser with no pages: begin with browser_navigate")
}

// open gives the worker. fresh is for tools that begin with no page: those others have nothing to do in a new browser.
func (u *use) open(ctx context.Context, fresh bool) error {
	if !u.running() {
		why := u.s.tell()
		if why != "" {
			u.notes = append(u.notes, "The browser before is gone ("+shorten(why, 300)+"), with its pages.")
		}
		if !fresh {
			reason := "there is no page yet"
			if why != "" {
				reason = "the browser is gone: " + shorten(why, 300)
				u.notes = nil
			}
			return refuse("F.3", reason, "Begin with browser_navigate")
		}
	}
	w, err := u.s.open(ctx, u.policy)
	if err != nil {
		return err
	}
	u.worker = w
	return nil
}

// running says whether there is a browser, once one that has just ended is put away.
func (u *use) running() bool {
	u.s.b.mu.Lock()
	w := u.s.worker
	u.s.b.mu.Unlock()
	if w == nil {
		return false
	}
	select {
	case <-w.Done():
		u.s.closeThis(w, ended(w))
		return false
	default:
		return true
	}
}

// ended says why a worker that is gone is gone.
func ended(w Worker) string {
	if err := w.Err(); err != nil {
		return err.Error()
	}
	return "it ended by itself"
}

// noted puts the notes before the result.
func (u *use) noted(r *mcp.CallToolResult) *mcp.CallToolResult {
	if len(u.notes) > 0 {
		r.Content = append([]mcp.Content{mcp.NewTextContent(strings.Join(u.notes, "\n"))}, r.Content...)
	}
	return r
}

// asResult is an error as a model reads it.
func asResult(err error) *mcp.CallToolResult {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = refuse("F.8", "the browser took too long", "")
	case errors.Is(err, context.Canceled):
		err = errors.New("the call was cancelled")
	}
	return mcp.NewToolResultError(err.Error())
}

// decode reads the arguments into a struct with json tags: nothing else may be in them.
func (u *use) decode(into any) error {
	d := json.NewDecoder(bytes.NewReader(u.call.Args))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something behind them")
		}
	}
	if err != nil {
		return refuse("F.1", "the arguments of "+u.tool.name+" are not as its schema says: "+shorten(strings.TrimPrefix(err.Error(), "json: "), 200), "")
	}
	return nil
}

func findTool(name string) (tool, bool) {
	for _, t := range tools() {
		if t.name == name {
			return t, true
		}
	}
	return tool{}, false
}
