package mcpbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/policy/rawjson"
)

// callTool is one tools/call: mcp-go's own goes over a result a dozen times, which for a page of 200 KB takes longer than
// all else together. A call whose ctx ends is cancelled in the server, too.
func (b *Box) callTool(ctx context.Context, params mcp.CallToolParams) (*mcp.CallToolResult, error) {
	req := transport.JSONRPCRequest{JSONRPC: mcp.JSONRPC_VERSION, Method: string(mcp.MethodToolsCall), Params: params,
		ID: mcp.NewRequestId(fmt.Sprintf("call-%d", b.tokens.Add(1)))}
	answer, err := b.wire.SendRequest(ctx, req)
	if err != nil {
		if ctx.Err() != nil {
			b.cancelCall(req.ID)
		}
		return nil, err
	}
	if answer.Error != nil {
		return nil, answer.Error.AsError()
	}
	return readResult(answer.Result)
}

// cancelCall tells the server that nobody waits any more. It does not wait for it: the caller has its error, and a server
// that reads nothing must not hold it up.
func (b *Box) cancelCall(id mcp.RequestId) {
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{
		Method: string(mcp.MethodNotificationCancelled),
		Params: mcp.NotificationParams{AdditionalFields: map[string]any{"requestId": id, "reason": "the call was given up"}}}}
	go func() { // it ends with the connection at the latest, or by its time
		ctx, cancel := context.WithTimeout(context.Background(), wireWrite)
		defer cancel()
		_ = b.wire.SendNotification(ctx, n) // a connection that takes none is ended by it
	}()
}

// A part is one part of a result, of whatever kind.
type part struct {
	Type        string           `json:"type"`
	Text        string           `json:"text"`
	Data        string           `json:"data"`
	MIMEType    string           `json:"mimeType"`
	URI         string           `json:"uri"`
	Name        string           `json:"name"`
	Title       string           `json:"title"`
	Description string           `json:"description"`
	Size        *int64           `json:"size"`
	Resource    *resource        `json:"resource"`
	Annotations *mcp.Annotations `json:"annotations"`
	Meta        *mcp.Meta        `json:"_meta"`
}

// A resource is one that a part brings along.
type resource struct {
	URI      string         `json:"uri"`
	MIMEType string         `json:"mimeType"`
	Text     *string        `json:"text"`
	Blob     *string        `json:"blob"`
	Meta     map[string]any `json:"_meta"`
}

// A result is what a call gave, as it is written.
type result struct {
	Content    []part          `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	Meta       *mcp.Meta       `json:"_meta"`
}

// readResult reads what a call gave.
func readResult(raw json.RawMessage) (*mcp.CallToolResult, error) {
	m, err := quickResult(raw)
	if err != nil {
		m = result{} // whatever is wrong with it or only uncommon, encoding/json has the word
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("what it answers is no result: %w", err)
		}
	}
	if m.Content == nil {
		return nil, errors.New("what it answers is no result: content is missing")
	}
	r := &mcp.CallToolResult{IsError: m.IsError}
	r.Meta = m.Meta
	if len(m.Structured) > 0 && string(m.Structured) != "null" {
		r.StructuredContent = m.Structured
	}
	for i, p := range m.Content {
		c, err := p.content()
		if err != nil {
			return nil, fmt.Errorf("part %d of its result: %w", i+1, err)
		}
		r.Content = append(r.Content, c)
	}
	return r, nil
}

// quickResult is encoding/json for results as they nearly always are, several times as fast: an error says that this one
// is not, or is none.
func quickResult(raw json.RawMessage) (m result, err error) {
	s, err := rawjson.Whole(raw)
	if err != nil {
		return m, err
	}
	o, err := rawjson.ParseObject(raw, s, "content", "structuredContent", "isError", "_meta")
	if err != nil {
		return m, err
	}
	for name, to := range map[string]any{"structuredContent": &m.Structured, "isError": &m.IsError, "_meta": &m.Meta} {
		if v := o.Get(name); v.Present() {
			if err := json.Unmarshal(v.Of(raw), to); err != nil {
				return m, err
			}
		}
	}
	parts, err := rawjson.ParseArray(raw, o.Get("content"), wireParts)
	if err != nil {
		return m, err
	}
	m.Content = make([]part, len(parts))
	for i, s := range parts {
		if m.Content[i].quick(raw, s) {
			continue
		}
		m.Content[i] = part{}
		if err := json.Unmarshal(s.Of(raw), &m.Content[i]); err != nil {
			return m, err
		}
	}
	return m, nil
}

// quick reads a part that has only what texts, pictures and sounds must have; false if it has more.
func (p *part) quick(raw []byte, s rawjson.Span) bool {
	o, err := rawjson.ParseObject(raw, s)
	if err != nil {
		return false
	}
	for _, m := range o.Members {
		to := map[string]*string{"type": &p.Type, "text": &p.Text, "data": &p.Data, "mimeType": &p.MIMEType}[m.Name]
		if to == nil {
			return false
		}
		if *to, err = rawjson.String(raw, m.Value); err != nil {
			return false
		}
	}
	return true
}

// content gives the part as mcp-go has it.
func (p part) content() (mcp.Content, error) {
	about := mcp.Annotated{Annotations: p.Annotations}
	switch p.Type {
	case mcp.ContentTypeText:
		return mcp.TextContent{Annotated: about, Meta: p.Meta, Type: p.Type, Text: p.Text}, nil
	case mcp.ContentTypeImage:
		return mcp.ImageContent{Annotated: about, Meta: p.Meta, Type: p.Type, Data: p.Data, MIMEType: p.MIMEType}, nil
	case mcp.ContentTypeAudio:
		return mcp.AudioContent{Annotated: about, Meta: p.Meta, Type: p.Type, Data: p.Data, MIMEType: p.MIMEType}, nil
	case mcp.ContentTypeLink:
		return mcp.ResourceLink{Annotated: about, Meta: p.Meta, Type: p.Type, URI: p.URI, Name: p.Name, Title: p.Title,
			Description: p.Description, MIMEType: p.MIMEType, Size: p.Size}, nil
	case mcp.ContentTypeResource:
		e := mcp.EmbeddedResource{Annotated: about, Meta: p.Meta, Type: p.Type}
		switch r := p.Resource; {
		case r == nil:
			return nil, errors.New("the resource is missing")
		case r.Text != nil:
			e.Resource = mcp.TextResourceContents{Meta: r.Meta, URI: r.URI, MIMEType: r.MIMEType, Text: *r.Text}
		case r.Blob != nil:
			e.Resource = mcp.BlobResourceContents{Meta: r.Meta, URI: r.URI, MIMEType: r.MIMEType, Blob: *r.Blob}
		default:
			return nil, errors.New("the resource has neither text nor blob")
		}
		return e, nil
	}
	return nil, fmt.Errorf("%q is no kind of content", Shorten(p.Type, 40))
}
