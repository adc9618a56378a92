package gateway

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzMessages: whatever a sandbox writes after its hello, the connection ends when the client does, and nothing panics.
func FuzzMessages(f *testing.F) {
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n"
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"a":[1,{"b":null}]},"_meta":{"progressToken":{"x":1}}}}`,
		`{"jsonrpc":"2.0","id":{"a":1},"method":"tools/call","params":{"name":"progress","task":{"ttl":-1},"_meta":{"progressToken":1.5}}}`,
		`{"jsonrpc":"2.0","id":[1],"method":"tools/list","params":{"cursor":"AAAA","_meta":null}}`,
		`{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":7}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized","params":[1,2]}`,
		`{"jsonrpc":"2.0","id":"5","result":{"roots":[]}}`, `{"jsonrpc":"2.0","id":6,"error":{"code":"x"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}`,
		`{"jsonrpc":"2.0","id":8,"method":"completion/complete","params":{"ref":{"type":"ref/prompt"},"argument":null}}`,
		`{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"x"}}`, `{"jsonrpc":"2.0","id":9,"method":"tasks/get","params":{"taskId":""}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `null`, `{"jsonrpc":"2.0","id":1e999,"method":"ping"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		if bytes.Contains(lines, []byte("wait")) || len(lines) > 1<<16 {
			return // it waits, as it is made to
		}
		g, err := New(Options{Run: "k3f9", Agent: "web", Servers: map[string]Hosted{"tools": {Server: newTools()}}, Record: func(Record) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer theirs.Close()
			g.serve(theirs)
		}()
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		_, _ = ours.Write([]byte(`{"type":"mcp","server":"tools","token":""}` + "\n" + initialize))
		_, _ = ours.Write(append(lines, '\n'))
		ours.Close()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the connection does not end")
		}
	})
}
