package mcpbox

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

// FuzzLines: whatever a sandbox says in place of a server, a call ends and nothing panics.
func FuzzLines(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":"call-1","result":{"content":[{"type":"text","text":"### Result\n{}"}],"isError":false}}`,
		`{"jsonrpc":"2.0","id":"call-1","result":{"content":[{"type":"image","data":7},{"type":"resource","resource":null},null,{"type":"audio"}]}}`,
		`{"jsonrpc":"2.0","id":"call-1","result":{"content":null,"structuredContent":{"a":[]},"_meta":[]}}`,
		`{"jsonrpc":"2.0","id":"call-1","error":{"code":1e99,"message":null}}`, `{"id":null,"method":"ping"}`, `{"id":{},"result":[]}`, `{"id":1,"method":7}`,
		`{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage"}`, `[]`, `{"jsonrpc":"2.0","id":"call-1","result":{"resultType":"input_required","inputRequests":{}}}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		ours, theirs := net.Pipe()
		w := newWire(ours, "it", nil)
		c := client.NewClient(w, client.WithProtocolVersion(protocol))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		go func() {
			buf := make([]byte, 1<<16)
			_, _ = theirs.Read(buf)
			_, _ = theirs.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}` + "\n"))
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			_, _ = theirs.Write(append(lines, '\n'))
			_, _ = theirs.Write([]byte("{\"jsonrpc\":\"2.0\",\"id\":\"call-1\","))
			_, _ = theirs.Write(append(lines[min(len(lines), 1):], '\n'))
			theirs.Close()
		}()
		req := mcp.InitializeRequest{}
		req.Params.ProtocolVersion = protocol
		_, _ = c.Initialize(ctx, req)
		b := &Box{wire: w}
		if r, err := b.callTool(ctx, mcp.CallToolParams{Name: "click"}); err == nil && r == nil {
			t.Error("neither a result nor an error")
		}
		if ctx.Err() != nil {
			t.Error("the call did not end")
		}
		w.Close()
	})
}
