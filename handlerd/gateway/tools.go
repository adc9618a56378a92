package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Bounds of an error about a tool that there is not: the tools that it names, and the bytes of one's name.
const (
	maxNamed = 40
	maxName  = 100
)

// serve answers a call or a list of tools, for which the instance is asked for its tools now and not before.
func (c *client) serve(ctx context.Context, a ask, line []byte) mcp.JSONRPCMessage {
	err := c.load(ctx)
	if a.Method == string(mcp.MethodToolsList) {
		if err != nil { // a list has no other way to say what went wrong
			return mcp.NewJSONRPCError(a.ID, mcp.INTERNAL_ERROR, cutText(err.Error()), nil)
		}
		return c.mcp.HandleMessage(ctx, line)
	}
	if err == nil && (a.Params.Name == "" || c.mcp.GetTool(a.Params.Name) != nil) {
		return c.mcp.HandleMessage(ctx, line)
	}
	if err == nil {
		err = c.noSuchTool(a.Params.Name)
	}
	return c.notCalled(ctx, a, line, err)
}

// turnAway answers what finds no place in the queue.
func (c *client) turnAway(ctx context.Context, a ask, line []byte) mcp.JSONRPCMessage {
	err := fmt.Errorf("%d calls of this connection wait already, or %d MiB of them: wait for their results", MaxWaiting, MaxWaitingBytes>>20)
	if a.Method == string(mcp.MethodToolsList) || a.Params.Name == "" {
		return mcp.NewJSONRPCError(a.ID, mcp.INTERNAL_ERROR, err.Error(), nil)
	}
	return c.notCalled(ctx, a, line, err)
}

// notCalled answers a call that reaches no tool, as a tool does.
func (c *client) notCalled(ctx context.Context, a ask, line []byte, err error) mcp.JSONRPCMessage {
	// mcp-go would answer with a protocol error, which a model never sees: here the tool is there, and says so itself.
	stranger := c.newServer()
	stranger.AddTool(mcp.Tool{Name: a.Params.Name, RawInputSchema: []byte(`{"type":"object"}`)}, func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return c.refuse(req, err)
	})
	return stranger.HandleMessage(ctx, line)
}

// load asks the instance for its tools, once; a failure is tried again by the next message.
func (c *client) load(ctx context.Context) error {
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.g.isStopped(c.name) {
		return ErrStopped
	}
	if c.loaded {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, CallTime, fmt.Errorf("the server did not list its tools within %v", CallTime))
	defer cancel()
	tools, err := c.instance.Tools(ctx)
	if err != nil {
		return err
	}
	denied := map[string]string{}
	for _, t := range tools {
		if ok, why := c.hosted.Filter.Allows(t.Name); !ok {
			denied[t.Name] = why
			continue
		}
		if err := c.add(t); err != nil {
			return err
		}
	}
	c.loaded, c.denied = true, denied
	return nil
}

// add adds a tool to what mcp-go serves. It panics at some schemas, which come from a server that is not ours.
func (c *client) add(t mcp.Tool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the server's tool %s cannot be offered: %v", quote(t.Name), p)
		}
	}()
	c.mcp.AddTools(server.ServerTool{Tool: t, Handler: c.call})
	return nil
}

// noSuchTool says what there is instead.
func (c *client) noSuchTool(name string) error {
	if why, there := c.denied[name]; there {
		return fmt.Errorf("the tool %s is not let through: %s; do not try it again", quote(name), why)
	}
	var names []string
	for n := range c.mcp.ListTools() {
		names = append(names, n)
	}
	slices.Sort(names)
	switch more := len(names) - maxNamed; {
	case len(names) == 0:
		return errors.New("the server " + c.name + " has no tools")
	case more > 0:
		names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("there is no tool %s; the server %s has: %s", quote(name), c.name, strings.Join(names, ", "))
}

// refuse answers and records a call that reaches no tool.
func (c *client) refuse(req mcp.CallToolRequest, why error) (*mcp.CallToolResult, error) {
	if c.g.o.Admit != nil {
		if err := c.g.o.Admit(); err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
	}
	args, err := arguments(req)
	if err != nil {
		why = err
	}
	name := req.Params.Name
	rec := c.record(strings.ToValidUTF8(name[:min(len(name), maxName)], ""), args)
	rec.Refused, rec.Failed = why.Error(), true
	return c.written(rec, c.g.o.Record(rec), mcp.NewToolResultError(cutText(why.Error()))), nil
}
