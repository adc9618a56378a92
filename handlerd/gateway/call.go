package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// call is every tools/call: what the gateway itself refuses, the call within its time, its record, its bounds. A
// model reads what went wrong and can act on it, so nothing here is a protocol error.
func (c *client) call(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	began := time.Now()
	if c.g.o.Admit != nil {
		if err := c.g.o.Admit(); err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
	}
	args, err := arguments(req)
	rec := c.record(req.Params.Name, args)
	var result *mcp.CallToolResult
	select {
	case c.g.calls <- struct{}{}:
		defer func() { <-c.g.calls }()
	default:
		err = fmt.Errorf("%d calls of this run are under way already: wait for one of them", MaxRunCalls)
	}
	if err != nil {
		rec.Refused = err.Error()
	} else if c.g.isStopped(c.name) {
		rec.Refused = ErrStopped.Error()
	}
	recorded := make(chan error, 1)
	go func(rec Record) { recorded <- c.g.o.Record(rec) }(rec) // it waits for the disk, and the call does not wait for it
	if rec.Refused != "" {
		result = mcp.NewToolResultError(rec.Refused)
	} else {
		result = c.use(ctx, Call{Caller: c.caller, Session: rec.Session, Tool: rec.Tool, Args: args, Progress: c.progress(req)})
	}
	rec.Failed, rec.Took = result.IsError, time.Since(began)
	return c.written(rec, <-recorded, result), nil
}

// record begins the record of a call.
func (c *client) record(tool string, args json.RawMessage) Record {
	sum := sha256.Sum256(args)
	return Record{Server: c.name, Tool: tool, Session: c.g.o.Session(c.caller.Token), Digest: hex.EncodeToString(sum[:])}
}

// written gives the result when the call is in the audit, and tells how it ended.
func (c *client) written(rec Record, err error, result *mcp.CallToolResult) *mcp.CallToolResult {
	if c.g.o.Ended != nil {
		c.g.o.Ended(rec)
	}
	if err != nil {
		c.g.log.Error("a tool call is not in the audit", "run", c.g.o.Run, "server", c.name, "error", err)
		return mcp.NewToolResultError("the result is withheld: the call could not be written to the audit log (is the disk full?)")
	}
	return result
}

// arguments gives the arguments with their keys in order.
func arguments(req mcp.CallToolRequest) (json.RawMessage, error) {
	args := req.GetArguments()
	if args == nil {
		if req.Params.Arguments != nil {
			return nil, errors.New("the arguments are no JSON object")
		}
		return json.RawMessage("{}"), nil
	}
	b, err := json.Marshal(args)
	if err != nil {
		return nil, errors.New("the arguments are no JSON object")
	}
	if len(b) > MaxArguments {
		return nil, fmt.Errorf("the arguments have %d bytes, and at most %d are taken: send less at a time, a file by its path", len(b), MaxArguments)
	}
	return b, nil
}

// use calls the instance, until the result, the end of its time, the client's cancellation or the person's.
func (c *client) use(ctx context.Context, call Call) *mcp.CallToolResult {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limits := c.hosted.Limits.whole()
	late := fmt.Errorf("the call took longer than %v and was ended", limits.Call)
	timer := time.AfterFunc(limits.Call, func() { cancel(late) })
	defer timer.Stop()
	watch := make(chan struct{})
	go func() {
		defer close(watch)
		select {
		case <-c.g.stopped[c.name]:
			cancel(ErrStopped)
		case <-ctx.Done():
		}
	}()
	result, err := c.instance.Call(ctx, call)
	if cause := context.Cause(ctx); cause != nil && (err != nil || errors.Is(cause, ErrStopped)) {
		err, result = cause, nil // whatever it gave, the person wants none of it
	}
	cancel(nil)
	<-watch
	switch {
	case err != nil:
		return mcp.NewToolResultError(cutText(err.Error()))
	case result == nil:
		return mcp.NewToolResultError("the server gave no result")
	}
	b := bounds{c: c, call: call, text: limits.Text}
	return b.bound(result)
}

// progress tells the client, if it gave a token to be told by.
func (c *client) progress(req mcp.CallToolRequest) func(done, total float64, text string) {
	if req.Params.Meta == nil || req.Params.Meta.ProgressToken == nil {
		return func(float64, float64, string) {}
	}
	token := req.Params.Meta.ProgressToken
	return func(done, total float64, text string) {
		params := map[string]any{"progressToken": token, "progress": done}
		if total > 0 {
			params["total"] = total
		}
		if text != "" {
			params["message"] = text
		}
		n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{
			Method: string(mcp.MethodNotificationProgress), Params: mcp.NotificationParams{AdditionalFields: params}}}
		select {
		case c.progressed <- progressed{notice: n}:
		default: // one that finds no room is lost: the next says more
		}
	}
}
