package mcpbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// Bounds of what a server lists.
const (
	MaxTools     = 256     // tools of one server
	MaxToolBytes = 4 << 20 // of all of them together, schemas included
	maxPages     = 64      // answers that one list comes in
)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

// Tools asks the server for its tools. Their schemas are as the server wrote them. Icons, tasks and _meta are left out:
// what they lead to is not passed on.
func (b *Box) Tools(ctx context.Context) ([]mcp.Tool, error) {
	if err := b.Gone(); err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, b.spec.CallTime)
	defer cancel()
	tools, err := b.listTools(call)
	switch {
	case err == nil:
		return tools, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case call.Err() != nil:
		return nil, b.Fail(fmt.Errorf("%s did not list its tools within %v", b.spec.Program, b.spec.CallTime))
	}
	if gone := b.goneBy(ctx, err); gone != nil {
		return nil, gone
	}
	return nil, fmt.Errorf("the tools of %s: %w", b.spec.Program, err)
}

func (b *Box) listTools(ctx context.Context) ([]mcp.Tool, error) {
	var tools []mcp.Tool
	size, cursor := 0, ""
	for range maxPages {
		// The client's own would read schemas into a form that has no room for all of them.
		id := mcp.NewRequestId(fmt.Sprintf("list-%d", b.tokens.Add(1)))
		req := transport.JSONRPCRequest{JSONRPC: mcp.JSONRPC_VERSION, ID: id, Method: string(mcp.MethodToolsList)}
		if cursor != "" {
			req.Params = map[string]string{"cursor": cursor}
		}
		answer, err := b.wire.SendRequest(ctx, req)
		if err != nil {
			return nil, err
		}
		if answer.Error != nil {
			return nil, answer.Error.AsError()
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(answer.Result, &page); err != nil {
			return nil, errors.New("what it answers is no list of tools")
		}
		for _, raw := range page.Tools {
			if size += len(raw); size > MaxToolBytes || len(tools) >= MaxTools {
				return nil, fmt.Errorf("it lists more than %d tools or %s", MaxTools, SizeText(MaxToolBytes))
			}
			tool, err := readTool(raw)
			if err != nil {
				return nil, err
			}
			tools = append(tools, tool)
		}
		if cursor = page.NextCursor; cursor == "" {
			return tools, nil
		}
	}
	return nil, fmt.Errorf("its list has more than %d pages", maxPages)
}

// readTool reads one tool.
func readTool(raw json.RawMessage) (mcp.Tool, error) {
	var t struct {
		Name         string             `json:"name"`
		Title        string             `json:"title"`
		Description  string             `json:"description"`
		InputSchema  json.RawMessage    `json:"inputSchema"`
		OutputSchema json.RawMessage    `json:"outputSchema"`
		Annotations  mcp.ToolAnnotation `json:"annotations"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return mcp.Tool{}, errors.New("one of its tools is none")
	}
	if !toolName.MatchString(t.Name) {
		return mcp.Tool{}, fmt.Errorf("a tool's name is %q: letters, digits, \"_\", \"-\" and \".\", at most 128", Shorten(t.Name, 80))
	}
	if !isObject(t.InputSchema) {
		return mcp.Tool{}, fmt.Errorf("the tool %s has no schema of its arguments", t.Name)
	}
	tool := mcp.Tool{Name: t.Name, Title: t.Title, Description: t.Description, RawInputSchema: t.InputSchema, Annotations: t.Annotations}
	if isObject(t.OutputSchema) {
		tool.RawOutputSchema = t.OutputSchema
	}
	return tool, nil
}

func isObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
}
