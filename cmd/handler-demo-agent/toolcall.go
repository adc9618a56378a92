package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// A call is one tool call as the client sees it. It is announced by newCall and ended by finish, whatever happens.
type call struct {
	t     *turn
	id    string
	title string
	key   string // what "always" is remembered under
	input json.RawMessage
	kind  string
}

// newCall announces a tool call.
func (t *turn) newCall(title, name, kind string, input any) *call {
	t.s.mu.Lock()
	t.s.callSeq++
	id := fmt.Sprintf("call_%d_%d", len(t.s.rec.History), t.s.callSeq) // unique over the session's lives, too
	t.s.mu.Unlock()
	c := &call{t: t, id: id, title: title, key: name, input: mustJSON(input), kind: kind}
	t.s.send(jsonrpc.Update{SessionUpdate: jsonrpc.UpdateToolCall, ToolCall: jsonrpc.ToolCall{
		ToolCallID: c.id, Title: title, Name: name, Kind: kind, Status: jsonrpc.StatusPending, RawInput: c.input,
	}})
	return c
}

func (c *call) begin() {
	c.t.s.send(jsonrpc.Update{SessionUpdate: jsonrpc.UpdateToolCallUpdate, ToolCall: jsonrpc.ToolCall{
		ToolCallID: c.id, Status: jsonrpc.StatusInProgress,
	}})
}

// finish ends the call; if err is not nil, it failed and its text joins the content.
func (c *call) finish(content []jsonrpc.ContentBlock, err error) {
	status := jsonrpc.StatusCompleted
	if err != nil {
		status = jsonrpc.StatusFailed
		if len(content) == 0 {
			content = []jsonrpc.ContentBlock{jsonrpc.Text(err.Error())}
		}
	}
	parts := []jsonrpc.ToolContent{}
	for _, b := range content {
		parts = append(parts, jsonrpc.ToolContent{Type: "content", Content: &b})
	}
	c.t.s.send(jsonrpc.Update{SessionUpdate: jsonrpc.UpdateToolCallUpdate, Content: mustJSON(parts), ToolCall: jsonrpc.ToolCall{
		ToolCallID: c.id, Status: status,
	}})
}

// The ids of the options are ours to choose; ACP gives their kinds a meaning.
var permissionOptions = []jsonrpc.PermissionOption{
	{OptionID: "yes", Name: "Allow", Kind: jsonrpc.AllowOnce},
	{OptionID: "yes-always", Name: "Allow for this session", Kind: jsonrpc.AllowAlways},
	{OptionID: "no", Name: "Refuse", Kind: jsonrpc.RejectOnce},
	{OptionID: "no-always", Name: "Refuse for this session", Kind: jsonrpc.RejectAlways},
}

// ask asks the person whether the call may be made. It gives nil, errRefused, errCancelled or what went wrong; a
// question that could not be put is a refusal.
func (c *call) ask() error {
	c.t.s.mu.Lock()
	allowed, known := c.t.s.granted[c.key]
	c.t.s.mu.Unlock()
	if known && allowed {
		return nil
	}
	if known {
		return errRefused
	}
	var res jsonrpc.PermissionResult
	err := c.t.s.peer.Call(c.t.ctx, jsonrpc.MethodRequestPermission, jsonrpc.PermissionParams{
		SessionID: c.t.s.rec.ID,
		ToolCall: jsonrpc.PermissionToolCall{ToolCall: jsonrpc.ToolCall{
			ToolCallID: c.id, Title: c.title, Kind: c.kind, Status: jsonrpc.StatusPending, RawInput: c.input,
		}},
		Options: permissionOptions,
	}, &res)
	if err != nil {
		return fmt.Errorf("ask for permission: %w", err)
	}
	if res.Outcome.Outcome == "cancelled" {
		return errCancelled
	}
	i := slices.IndexFunc(permissionOptions, func(o jsonrpc.PermissionOption) bool {
		return res.Outcome.Outcome == "selected" && o.OptionID == res.Outcome.OptionID
	})
	if i < 0 {
		return fmt.Errorf("the answer to the question for permission was no option of it: %q", res.Outcome.OptionID)
	}
	kind := permissionOptions[i].Kind
	if kind == jsonrpc.AllowAlways || kind == jsonrpc.RejectAlways {
		c.t.s.mu.Lock()
		c.t.s.granted[c.key] = kind == jsonrpc.AllowAlways
		c.t.s.mu.Unlock()
	}
	if kind == jsonrpc.AllowOnce || kind == jsonrpc.AllowAlways {
		return nil
	}
	return errRefused
}

// mcpCall calls an MCP tool, with permission if ask is set, and gives its text and the call's error. Pictures go to
// the client as content of the tool call.
func (t *turn) mcpCall(tool, kind string, args any, ask bool) (string, error) {
	srv, err := t.s.find(t.ctx, tool)
	if err != nil {
		if t.ctx.Err() == nil {
			c := t.newCall(tool, tool, kind, args)
			c.finish(nil, err)
		}
		return "", err
	}
	tool = strings.TrimPrefix(tool, srv.cfg.Name+".")
	c := t.newCall(srv.cfg.Name+": "+tool, "mcp__"+srv.cfg.Name+"__"+tool, kind, args)
	if ask {
		if err := c.ask(); err != nil {
			c.finish(nil, err)
			return "", err
		}
	}
	c.begin()
	res, err := srv.call(t.ctx, tool, args)
	if err != nil {
		if errors.Is(err, context.Canceled) && t.ctx.Err() != nil {
			err = errors.New("cancelled")
		}
		c.finish(nil, err)
		return "", err
	}
	blocks, text := convert(res)
	if res.IsError {
		err = errors.New(errorText(text))
	}
	c.finish(blocks, err)
	return text, err
}

// convert turns an MCP result into ACP content, and gives its text.
func convert(res *mcp.CallToolResult) (blocks []jsonrpc.ContentBlock, text string) {
	var texts []string
	for _, c := range res.Content {
		switch c := c.(type) {
		case mcp.TextContent:
			if c.Text != "" {
				texts = append(texts, c.Text)
				blocks = append(blocks, jsonrpc.Text(c.Text))
			}
		case mcp.ImageContent:
			blocks = append(blocks, jsonrpc.ContentBlock{Type: jsonrpc.BlockImage, Data: c.Data, MimeType: c.MIMEType})
		case mcp.AudioContent:
			blocks = append(blocks, jsonrpc.ContentBlock{Type: jsonrpc.BlockAudio, Data: c.Data, MimeType: c.MIMEType})
		case mcp.EmbeddedResource:
			r := &jsonrpc.Resource{}
			switch rc := c.Resource.(type) {
			case mcp.TextResourceContents:
				*r = jsonrpc.Resource{URI: rc.URI, MimeType: rc.MIMEType, Text: rc.Text}
				texts = append(texts, rc.Text)
			case mcp.BlobResourceContents:
				*r = jsonrpc.Resource{URI: rc.URI, MimeType: rc.MIMEType, Blob: rc.Blob}
			}
			blocks = append(blocks, jsonrpc.ContentBlock{Type: jsonrpc.BlockResource, Resource: r})
		case mcp.ResourceLink:
			blocks = append(blocks, jsonrpc.ContentBlock{Type: jsonrpc.BlockResourceLink, URI: c.URI, Name: c.Name, MimeType: c.MIMEType})
		}
	}
	return blocks, strings.Join(texts, "\n")
}

// errorPrefix is what playwright-mcp puts before the part of an error that says something.
var errorPrefix = regexp.MustCompile(`^(?:Error: |browserBackend\.callTool: |async initializeServer: )+`)

// errorText makes one line of a failed tool's text. playwright-mcp writes it below "### Error"; when the browser did
// not start, the reason is in the browser's own last words, further down.
func errorText(text string) string {
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "### Error"))
	line, rest, _ := strings.Cut(text, "\n")
	line = errorPrefix.ReplaceAllString(strings.TrimSpace(line), "")
	if line == "" {
		return "the tool failed and said nothing"
	}
	for l := range strings.Lines(rest) {
		if _, words, ok := strings.Cut(l, ":FATAL:"); ok {
			line += ": " + strings.TrimSpace(words)
			break
		}
	}
	return clip(line, 500)
}

// clip cuts s to n bytes at a rune, and says so.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes more)", strings.ToValidUTF8(s[:n], ""), len(s)-n)
}

// callTool is the step "call".
func (t *turn) callTool(tool string, args json.RawMessage) error {
	text, err := t.mcpCall(tool, jsonrpc.KindOther, args, true)
	if err != nil {
		return err
	}
	t.say(clip(orNoText(text), 8000) + "\n")
	return nil
}

func orNoText(text string) string {
	if strings.TrimSpace(text) == "" {
		return "The tool gave no text."
	}
	return text
}
