package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
)

// keepTime bounds the keeping of what was cut, since the result waits for it.
const keepTime = 10 * time.Second

// bounds cuts one result to its bounds.
type bounds struct {
	c    *client
	call Call
	text int // bytes of one text, and of the structured content
	kept int
}

// bound cuts what a result has too much of, says so in its place, and where the whole is.
func (b *bounds) bound(r *mcp.CallToolResult) *mcp.CallToolResult {
	if len(r.Content) > MaxParts {
		dropped := len(r.Content) - MaxParts
		r.Content = append(r.Content[:MaxParts:MaxParts], mcp.NewTextContent(fmt.Sprintf("[%d more parts were left out]", dropped)))
	}
	for i, part := range r.Content {
		switch p := part.(type) {
		case mcp.TextContent:
			if short := cutTo(p.Text, b.text); short != p.Text {
				p.Text = short
				if len(p.Text) > b.text { // cut, and not only mended
					p.Text += b.keep("text.txt", part.(mcp.TextContent).Text)
				}
				r.Content[i] = p
			}
		case mcp.ImageContent:
			if n := base64.StdEncoding.DecodedLen(len(p.Data)); n > MaxImage {
				r.Content[i] = mcp.NewTextContent(fmt.Sprintf("[a picture of %d bytes was left out: at most %d are passed on]", n, MaxImage))
			}
		case mcp.AudioContent:
			if len(p.Data) > MaxImage {
				r.Content[i] = mcp.NewTextContent("[a sound was left out: it is too large]")
			}
		case mcp.EmbeddedResource:
			r.Content[i] = b.resource(p)
		case mcp.ResourceLink:
			if len(p.URI)+len(p.Name)+len(p.Title)+len(p.Description)+len(p.MIMEType) > b.text {
				r.Content[i] = mcp.NewTextContent("[a link to a resource was left out: it is too long]")
			}
		}
	}
	b.structured(r)
	return r
}

// resource bounds a resource that a result brings along.
func (b *bounds) resource(e mcp.EmbeddedResource) mcp.Content {
	switch r := e.Resource.(type) {
	case mcp.TextResourceContents:
		if short := cutTo(r.Text, b.text); short != r.Text {
			whole := r.Text
			if r.Text = short; len(short) > b.text {
				r.Text += b.keep("text.txt", whole)
			}
			e.Resource = r
		}
	case mcp.BlobResourceContents:
		if n := base64.StdEncoding.DecodedLen(len(r.Blob)); n > MaxImage {
			return mcp.NewTextContent(fmt.Sprintf("[a resource of %d bytes was left out: at most %d are passed on]", n, MaxImage))
		}
	}
	return e
}

// structured leaves out structured content that is too large: cut in the middle it would be none. A client that knows the
// schema of a tool's output takes no result without it but an error, so that is what the result becomes then.
func (b *bounds) structured(r *mcp.CallToolResult) {
	if r.StructuredContent == nil {
		return
	}
	whole, err := json.Marshal(r.StructuredContent)
	if err == nil && len(whole) <= b.text {
		return
	}
	r.StructuredContent = nil
	note := "[the structured content cannot be written as JSON and was left out]"
	if err == nil {
		note = fmt.Sprintf("[the structured content of %d bytes was left out: at most %d are passed on; ask for less at a time]", len(whole), b.text) +
			b.keep("structured.json", string(whole))
	}
	if t := b.c.mcp.GetTool(b.call.Tool); t != nil && (len(t.Tool.RawOutputSchema) > 0 || t.Tool.OutputSchema.Type != "") {
		r.IsError = true
		note += "\n[what the tool does was done; this is an error only since its result is not whole]"
	}
	r.Content = append(r.Content, mcp.NewTextContent(note))
}

// keep keeps the whole of what was cut, and says where; what cannot be kept is said too.
func (b *bounds) keep(name, whole string) string {
	if b.c.g.o.Keep == nil {
		return ""
	}
	if b.kept++; b.kept > MaxKept {
		return fmt.Sprintf("\n[it is not kept whole: at most %d parts of one result are]", MaxKept)
	}
	ctx, cancel := context.WithTimeout(b.c.g.ctx, keepTime)
	defer cancel()
	id, err := b.c.g.o.Keep(ctx, Kept{Server: b.c.name, Tool: b.call.Tool, Session: b.call.Session, Name: name, Content: []byte(whole)})
	if err != nil {
		return cutTo("\n[it is not kept whole: "+err.Error()+"]", 500)
	}
	return "\n[your person has the whole as artifact " + id + "]"
}

// cutText is cutTo at MaxText, for texts of the gateway's own.
func cutText(s string) string { return cutTo(s, MaxText) }

// cutTo bounds a text at a character's border and says how much of how much there is.
func cutTo(s string, most int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s\n[cut: %d of %d bytes]", s[:end], end, len(s))
}
