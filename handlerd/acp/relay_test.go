package acp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// A peer is what a test plays: one end of the relay.
type peer struct {
	t    *testing.T
	name string
	conn *net.UnixConn
	in   *bufio.Reader
}

func (p *peer) send(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := p.conn.Write([]byte(l + "\n")); err != nil {
			p.t.Fatalf("%s: %v", p.name, err)
		}
	}
}

// line gives the next line; "" at the end of the input.
func (p *peer) line() string {
	p.t.Helper()
	if err := p.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.in.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// expect wants these lines next, byte for byte.
func (p *peer) expect(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if got := p.line(); got != want {
			p.t.Fatalf("%s got\n  %.600s\nwant\n  %.600s", p.name, got, want)
		}
	}
}

// expectPart wants a line with these parts in it.
func (p *peer) expectPart(parts ...string) string {
	p.t.Helper()
	got := p.line()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			p.t.Fatalf("%s got\n  %.600s\nwithout\n  %s", p.name, got, part)
		}
	}
	return got
}

// A rig is a relay with a test at both ends.
type rig struct {
	client, agent *peer
	relay         *acp.Relay
	cancel        context.CancelCauseFunc
	end           chan acp.End

	mu     sync.Mutex
	events []string
}

// config is a run with one scope and one server of the plan.
func config() *policy.Config {
	return &policy.Config{
		Agent: "web", Scopes: []policy.Scope{{Path: "/src", RW: true}},
		Resolve: func(path string) (string, error) { return path, nil },
		Servers: []policy.MCPServer{{Name: "playwright", Command: "playwright-mcp"}},
	}
}

func start(t *testing.T, change func(*acp.Options)) *rig {
	t.Helper()
	client, c := socketPair(t)
	agent, a := socketPair(t)
	g := &rig{
		client: &peer{t, "client", client, bufio.NewReaderSize(client, 1<<16)},
		agent:  &peer{t, "agent", agent, bufio.NewReaderSize(agent, 1<<16)},
		end:    make(chan acp.End, 1),
	}
	o := acp.Options{Client: c, Agent: a, Rules: acp.NewRules(config(), 0), Drain: patience, LastWord: time.Millisecond, Observe: g.observe}
	if change != nil {
		change(&o)
	}
	g.relay = acp.NewRelay(o)
	ctx, cancel := context.WithCancelCause(context.Background())
	g.cancel = cancel
	done := make(chan struct{})
	go func() { defer close(done); g.end <- g.relay.Run(ctx) }()
	t.Cleanup(func() {
		client.Close()
		agent.Close()
		cancel(nil)
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the relay does not end")
		}
	})
	return g
}

func (g *rig) observe(e acp.Event) {
	text := ""
	switch e.Kind {
	case acp.TurnStarted:
		text = "turn started in " + e.Session
	case acp.TurnEnded:
		text = "turn ended in " + e.Session
	case acp.SessionOpened:
		text = e.Method + " opened " + e.Session
	case acp.SessionClosed:
		text = "closed " + e.Session
	case acp.ToolCalled:
		text = "tool call in " + e.Session
	case acp.Pictured:
		text = fmt.Sprintf("picture in %s by %q %q: %d bytes", e.Session, e.Tool, e.Name, len(e.Line))
	case acp.Judged:
		text = fmt.Sprintf("%s %s: %s", e.From, e.Method, e.Verdict)
	case acp.Answered:
		text = fmt.Sprintf("%s in %s: %s", e.Method, e.Session, e.Verdict.Reason)
	case acp.LineDropped:
		text = fmt.Sprintf("%s line dropped: %s", e.From, e.Text)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, text)
}

// seen gives the events so far and forgets them.
func (g *rig) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.events
	g.events = nil
	return e
}

func (g *rig) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, g.seen()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// ended waits for the end.
func (g *rig) ended(t *testing.T) acp.End {
	t.Helper()
	select {
	case e := <-g.end:
		return e
	case <-time.After(patience):
		t.Fatal("the relay does not end")
		return acp.End{}
	}
}

const (
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`
	prompt     = `{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`
	permission = `{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}}`
)

// TestWhole carries one whole conversation and looks at every byte of it.
func TestWhole(t *testing.T) {
	g := start(t, nil)
	g.client.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":2,"clientCapabilities":{"terminal":true},"_meta":{"n":1.50}}}`)
	g.agent.expect(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"terminal":false},"_meta":{"n":1.50}}}`)
	g.agent.send(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"http":true}},"authMethods":[{"type":"terminal","id":"t"},{"id":"k"}]}}`)
	g.client.expect(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"http":true}},"authMethods":[{"id":"k"}]}}`)

	g.client.send(`{"id":1,"method":"session/new","params":{"cwd":"/etc","mcpServers":[]}}`)
	g.client.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"refused by P1: cwd \"/etc\" is outside of the agent's scopes — add the folder as a scope: handler agent edit web","data":{"rule":"P1","reason":"cwd \"/etc\" is outside of the agent's scopes","hint":"add the folder as a scope: handler agent edit web"}}}`)
	g.client.send(`{"id":"n\/1", "method":"session/new","params":{"cwd":"/src","mcpServers":[]},"traceparent":"00"}`)
	g.agent.expect(`{"id":"n\/1", "method":"session/new","params":{"cwd":"/src","mcpServers":[{"name":"playwright","command":"playwright-mcp","args":[],"env":[]}]},"traceparent":"00"}`)
	g.agent.send(`{"jsonrpc":"2.0","method":"_auth/status_update","params":{}}`, `{"jsonrpc":"2.0","id":"n/1","result":{"sessionId":"s"}}`)
	g.client.expect(`{"jsonrpc":"2.0","method":"_auth/status_update","params":{}}`, `{"jsonrpc":"2.0","id":"n/1","result":{"sessionId":"s"}}`)

	tool := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x"}}}`
	g.client.send(prompt)
	g.agent.expect(prompt)
	g.agent.send(tool, permission)
	g.client.expect(tool, strings.Replace(permission, `{"toolCallId"`, `{"title":"x","toolCallId"`, 1))
	g.client.send(`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"y"}}}`)
	g.agent.expect(`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"y"}}}`)
	g.agent.send(`{"jsonrpc":"2.0","id":5,"method":"terminal/create","params":{"command":"sh"}}`)
	g.agent.expectPart(`"id":5,"error":{"code":-32601,"message":"refused by P4`)
	g.agent.send(`{"jsonrpc":"2.0","id":"p","result":{"stopReason":"end_turn"}}`, tool)
	g.client.expect(`{"jsonrpc":"2.0","id":"p","result":{"stopReason":"end_turn"}}`, tool)
	g.client.send(`{"id":9,"method":"session/close","params":{"sessionId":"s"}}`)
	g.agent.expect(`{"id":9,"method":"session/close","params":{"sessionId":"s"}}`)
	g.agent.send(`{"id":9,"result":{}}`)
	g.client.expect(`{"id":9,"result":{}}`)
	g.wantEvents(t,
		`client initialize: the client offered protocol version "2" and gets 1`,
		`client initialize: the client's capability terminal was taken out`,
		`agent : the agent's terminal logins were taken out, which the client would have started on the host: "t"`,
		`client session/new: refused by P1: cwd "/etc" is outside of the agent's scopes — add the folder as a scope: handler agent edit web`,
		`client session/new: MCP servers of the agent were added: "playwright"`,
		`session/new opened s`, `turn started in s`, `tool call in s`,
		`agent session/request_permission: the request was completed with what its tool call said before: title`,
		`session/request_permission in s: "x" was answered an option (the client)`,
		`agent terminal/create: refused by P4: "terminal/create" would act on the host — host_terminal = true allows it: handler agent edit web`,
		`turn ended in s`, `closed s`)
}

// TestPictured: the observer is told of what may hold a picture, in a turn, before the client has it, and the line goes on
// as it is.
func TestPictured(t *testing.T) {
	g := start(t, nil)
	update := func(fields string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{` + fields + `}}}`
	}
	picture := `"content":[{"type":"content","content":{"type":"image","data":"aGk="}}]`
	history := update(`"sessionUpdate":"tool_call_update","toolCallId":"old",` + picture)
	g.agent.send(history)
	g.client.expect(history)
	g.client.send(prompt)
	g.agent.expect(prompt)
	lines := []string{
		update(`"sessionUpdate":"tool_call","toolCallId":"a","title":"Shoot","name":"shot"`),
		update(`"sessionUpdate":"tool_call_update","toolCallId":"a",` + picture),
		update(`"sessionUpdate":"tool_call_update","toolCallId":"a","content":[{"type":"content","content":{"type":"text","text":"x"}}]`),
		update(`"sessionUpdate":"tool_call","toolCallId":"b","title":"Shoot","rawOutput":[{"blob":"aGk="}]`),
		update(`"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"aGk="}`),
		update(`"sessionUpdate":"user_message_chunk","content":{"type":"image","data":"aGk="}`),
	}
	g.agent.send(lines...)
	g.client.expect(lines...)
	n := func(i int) string { return fmt.Sprintf(": %d bytes", len(lines[i])) }
	g.wantEvents(t, "turn started in s", "tool call in s", `picture in s by "a" ""`+n(1), "tool call in s", `picture in s by "b" "Shoot"`+n(3), `picture in s by "" ""`+n(4))
}

// TestBadLines: what is no message is answered where it can be, and the connection lives.
func TestBadLines(t *testing.T) {
	g := start(t, nil)
	for _, c := range []struct{ send, want string }{
		{"garbage", `"id":null,"error":{"code":-32700,`},
		{`[{"id":1,"method":"initialize"}]`, `"id":null,"error":{"code":-32600,"message":"refused by P9: a batch`},
		{`{"id":1,"method":"a","method":"b"}`, `"id":1,"error":{"code":-32600,`},
		{`{"id":1.5,"method":"a"}`, `"id":null,"error":{"code":-32600,`},
		{`{"id":"x","method":"a","params":{"s":"` + "\xc3\x28" + `"}}`, `"id":"x","error":{"code":-32700,"message":"refused by P9: the line is not UTF-8`},
		{`{"id":1,"id":2,"method":"a"}`, `"id":null,"error":{"code":-32600,`},
		{"\r\n\n", ""},
	} {
		g.client.send(c.send)
		if c.want != "" {
			g.client.expectPart(c.want)
		}
	}
	g.client.send(initialize + "\r")
	g.agent.expect(initialize)
	g.agent.send("Debugger listening\x1b[0m", `{"jsonrpc":"2.0","id":77,"method":"fs/x","method":"y"}`, "[]")
	g.agent.expectPart(`"id":77,"error":{"code":-32600,`)
	g.agent.send(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}`)
	g.client.expect(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}`)
	dropped := 0
	for _, e := range g.seen() {
		if strings.HasPrefix(e, "agent line dropped: ") {
			dropped++
		}
	}
	if dropped != 2 {
		t.Errorf("%d lines of the agent were told of, want 2", dropped)
	}
}

// TestBadAnswers: an answer that cannot pass becomes an error for who waits for it.
func TestBadAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"both result and error": `{"id":0,"result":{"protocolVersion":1},"error":{"code":1,"message":"x"}}`,
		"result twice":          `{"id":0,"result":{"protocolVersion":1},"result":{"protocolVersion":1,"authMethods":[{"type":"terminal"}]}}`,
		"another case":          `{"id":0,"result":{"protocolVersion":1},"Result":{}}`,
		"not UTF-8":             `{"id":0,"result":{"protocolVersion":1,"x":"` + "\xff" + `"}}`,
		"not JSON":              `{"id":0,"result":{"protocolVersion":1,}}`,
		"version 2":             `{"id":0,"result":{"protocolVersion":2}}`,
		"too long":              `{"id":0,"result":{"protocolVersion":1,"x":"` + strings.Repeat("x", 5000) + `"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, func(o *acp.Options) { o.MaxLine = 4000 })
			g.client.send(initialize)
			g.agent.expect(initialize)
			g.agent.send(answer)
			g.client.expectPart(`{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"refused by P`)
			g.client.send(prompt) // the connection lives
			g.agent.expect(prompt)
		})
	}
}

// TestUnasked: answers that nobody waits for go nowhere, in whatever spelling of an id; so a terminal login cannot reach
// the client by an answer that the rules did not see.
func TestUnasked(t *testing.T) {
	g := start(t, nil)
	g.client.send(initialize)
	g.agent.expect(initialize)
	evil := `"result":{"protocolVersion":1,"authMethods":[{"type":"terminal","id":"t","command":"sh"}]}}`
	g.agent.send(`{"id":"0",`+evil, `{"id":1,`+evil, `{"id":null,`+evil, `{"id":0.0,`+evil, `{"id":[0],`+evil)
	g.agent.send(`{"id":null,"error":{"code":-32700,"message":"could not read a line"}}`) // this one may pass
	g.client.expect(`{"id":null,"error":{"code":-32700,"message":"could not read a line"}}`)
	g.agent.send(`{"id":-0,` + evil)
	g.client.expect(`{"id":-0,"result":{"protocolVersion":1,"authMethods":[]}}`)
	g.agent.send(`{"id":0,`+evil, `{"method":"session/update","params":{}}`) // a second time
	g.client.expect(`{"method":"session/update","params":{}}`)
	g.client.send(`{"id":3,"result":{}}`, prompt)
	g.agent.expect(prompt)
}

// TestIDs: both sides number alike, ids of every kind are kept byte for byte, and one that is in use is refused.
func TestIDs(t *testing.T) {
	g := start(t, nil)
	for _, id := range []string{`0`, `-3`, `null`, `""`, `"0"`, `"\u00e9"`, `9007199254740993`, `"null"`} {
		request := `{"method":"session/list","id":` + id + `,"params":{}}`
		g.client.send(request)
		g.agent.expect(request)
		ask := `{"id":` + id + `,"method":"elicitation/create","params":{"mode":"form","message":"x"}}`
		g.agent.send(ask)
		g.client.expect(ask)
		g.client.send(request)
		g.client.expectPart(`"id":`+id+`,"error":{"code":-32600,"message":"refused by P9: a request with this id is not answered yet`, `"rule":"P9"`)
		g.client.send(`{"id":` + id + `,"result":{"action":"decline"}}`)
		g.agent.expect(`{"id":` + id + `,"result":{"action":"decline"}}`)
		g.agent.send(`{"id":` + id + `,"result":{}}`)
		g.client.expect(`{"id":` + id + `,"result":{}}`)
		g.client.send(request) // it is free again
		g.agent.expect(request)
	}
}

// TestCancelRequest: a cancellation goes where its request went, and nowhere if it went nowhere.
func TestCancelRequest(t *testing.T) {
	g := start(t, nil)
	g.agent.send(`{"id":1,"method":"terminal/create","params":{}}`)
	g.agent.expectPart(`"code":-32601`)
	cancel := `{"method":"$/cancel_request","params":{"requestId":%d}}`
	g.agent.send(fmt.Sprintf(cancel, 1), permission, fmt.Sprintf(cancel, 0))
	g.client.expect(permission, fmt.Sprintf(cancel, 0))
}

// TestTooLong: a message over a bound is refused by name, and the connection lives.
func TestTooLong(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.MaxLine, o.MaxRequest = 4000, 2000 })
	fill := func(n int) string { return strings.Repeat("x", n) }
	g.client.send(`{"id":1,"method":"session/prompt","params":{"x":"` + fill(3000) + `"}}`)
	g.client.expectPart(`"id":1,"error":{"code":-32600,"message":"refused by P7: a message of`, `bytes is over the bound of 2000 bytes`, `"rule":"P7"`)
	g.client.send(`{"id":2,"method":"session/prompt","params":{"x":"` + fill(9000) + `"}}`)
	g.client.expectPart(`"id":2,`, `is over the bound of 4000 bytes`)
	g.client.send(`{"method":"session/prompt","params":{"x":"` + fill(9000) + `"},"id":3}`)
	g.client.expectPart(`"id":null,`, `is over the bound of 4000 bytes`)
	g.client.send(`{"method":"session/cancel","params":{"x":"` + fill(3000) + `"}}`) // a notification has no answer
	g.agent.send(`{"method":"session/update","params":{"x":"` + fill(9000) + `"}}`)
	g.agent.send(`{"id":7,"method":"session/request_permission","params":{"x":"` + fill(9000) + `"}}`)
	g.agent.expectPart(`"id":7,"error":{"code":-32600,`)
	ok := `{"method":"session/update","params":{"x":"` + fill(3000) + `"}}`
	g.agent.send(ok, permission)
	g.client.expect(ok, permission)
	g.client.send(`{"id":0,"result":{"x":"` + fill(3000) + `"}}`)
	g.agent.expectPart(`"id":0,"error":{"code":-32603,"message":"refused by P7: the client's answer could not be passed on`)
}

// TestFull: the number of unanswered requests is bounded.
func TestFull(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.MaxPending = 2 })
	for i := range 2 {
		g.client.send(fmt.Sprintf(`{"id":%d,"method":"session/list"}`, i))
		g.agent.expectPart(`session/list`)
	}
	g.client.send(`{"id":2,"method":"session/list"}`)
	g.client.expectPart(`"id":2,"error":{"code":-32600,"message":"refused by P7: 2 requests are not answered yet`)
	g.agent.send(`{"id":0,"result":{}}`)
	g.client.expectPart(`"id":0,"result"`)
	g.client.send(`{"id":2,"method":"session/list"}`)
	g.agent.expectPart(`"id":2`)
}

// TestAgentEnds: whatever the client waits for gets the reason, in order, and then its input ends.
func TestAgentEnds(t *testing.T) {
	g := start(t, func(o *acp.Options) {
		o.AgentEnded = func(context.Context) string { return "the agent ended with exit code 3: no \"model\"" }
	})
	g.client.send(initialize, prompt)
	g.agent.expect(initialize, prompt)
	g.agent.send(`{"method":"session/update","params":{}}`)
	g.agent.conn.Close()
	g.client.expect(`{"method":"session/update","params":{}}`,
		`{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the agent ended with exit code 3: no \"model\""}}`,
		`{"jsonrpc":"2.0","id":"p","error":{"code":-32603,"message":"the agent ended with exit code 3: no \"model\""}}`, "")
	if e := g.ended(t); e.By != acp.Agent {
		t.Errorf("ended by %v: %v", e.By, e.Err)
	}
	g.wantEvents(t, "turn started in s", "turn ended in s")
}

// TestAgentEndsFirst: an agent that has gone before the client says a word is told of all the same.
func TestAgentEndsFirst(t *testing.T) {
	g := start(t, func(o *acp.Options) {
		o.AgentEnded = func(context.Context) string { return "the agent ended with exit code 3" }
		o.LastWord = patience
	})
	g.agent.conn.Close()
	g.client.send(initialize)
	g.client.expect(`{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the agent ended with exit code 3"}}`, "")
	if e := g.ended(t); e.By != acp.Agent {
		t.Errorf("ended by %v: %v", e.By, e.Err)
	}
}

// TestAgentHalfLine: an agent that dies in the middle of a line is told of, and the half goes nowhere.
func TestAgentHalfLine(t *testing.T) {
	g := start(t, nil)
	g.client.send(initialize)
	g.agent.expect(initialize)
	if _, err := g.agent.conn.Write([]byte(`{"id":0,"resu`)); err != nil {
		t.Fatal(err)
	}
	g.agent.conn.Close()
	g.client.expect(`{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the agent ended"}}`, "")
	if e := g.ended(t); e.By != acp.Agent || !errors.Is(e.Err, acp.ErrHalfLine) {
		t.Errorf("%+v", e)
	}
	g.wantEvents(t, `agent line dropped: half a line of 13 bytes at the end of the input: "{\"id\":0,\"resu"`)
}

// TestClientEnds: the agent's questions are answered as ACP says, its turns cancelled, its input ended; what it still
// says goes to a client that only ended its output.
func TestClientEnds(t *testing.T) {
	g := start(t, nil)
	g.client.send(prompt)
	g.agent.expect(prompt)
	elicit := `{"id":1,"method":"elicitation/create","params":{"mode":"form","message":"x"}}`
	g.agent.send(permission, elicit)
	g.client.expect(permission, elicit)
	if err := g.client.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	g.agent.expect(`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"cancelled"}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`,
		`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`, "")
	answer := `{"id":"p","result":{"stopReason":"cancelled"}}`
	g.agent.send(answer)
	g.client.expect(answer)
	g.agent.conn.Close()
	g.client.expect("")
	if e := g.ended(t); e.By != acp.Client || e.Err != nil {
		t.Errorf("%+v", e)
	}
	g.wantEvents(t, "turn started in s",
		"session/request_permission in s: a tool call without a name was answered cancelled (the client is gone)",
		`elicitation/create in : the question "x" was answered cancelled (the client is gone)`, "turn ended in s")
}

// TestClientEndsAndAgentStays: an agent that does not care is cut off after its time.
func TestClientEndsAndAgentStays(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.Drain = 50 * time.Millisecond })
	g.client.send(prompt)
	g.agent.expect(prompt)
	g.client.conn.Close()
	g.agent.expectPart("session/cancel")
	if e := g.ended(t); e.By != acp.Client {
		t.Errorf("%+v", e)
	}
	g.agent.expect("", "")
	g.wantEvents(t, "turn started in s", "turn ended in s")
}

// TestClientGoneInWriting: an agent that goes on talking to a client that is gone ends too.
func TestClientGoneInWriting(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.Drain = 50 * time.Millisecond })
	g.client.conn.Close()
	long := `{"method":"session/update","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}` + "\n"
	for {
		if _, err := g.agent.conn.Write([]byte(long)); err != nil {
			break
		}
	}
	if e := g.ended(t); e.By != acp.Client {
		t.Errorf("%+v", e)
	}
}

// TestCancelled: the end of the context ends both sides, with the reason for who waits.
func TestCancelled(t *testing.T) {
	g := start(t, nil)
	g.client.send(prompt)
	g.agent.expect(prompt)
	stop := errors.New("handler kill")
	g.cancel(stop)
	g.client.expect(`{"jsonrpc":"2.0","id":"p","error":{"code":-32603,"message":"the run was ended: handler kill"}}`, "")
	g.agent.expect("")
	if e := g.ended(t); !errors.Is(e.Err, stop) {
		t.Errorf("%+v", e)
	}
}

// TestLastWords: an agent that answers while it is being killed does not take the place of the reason.
func TestLastWords(t *testing.T) {
	for range 100 { // which of them is first is the scheduler's
		g := start(t, nil)
		g.client.send(prompt)
		g.agent.expect(prompt)
		g.cancel(errors.New("memory limit"))
		_, _ = io.WriteString(g.agent.conn, `{"jsonrpc":"2.0","id":"p","result":{"stopReason":"cancelled"}}`+"\n") // it may be closed
		g.client.expect(`{"jsonrpc":"2.0","id":"p","error":{"code":-32603,"message":"the run was ended: memory limit"}}`, "")
		g.ended(t)
	}
}

// TestCancelledWhileBlocked: neither a client nor an agent that reads nothing keeps the relay from ending.
func TestCancelledWhileBlocked(t *testing.T) {
	g := start(t, nil)
	flood := func(p *peer, line string) {
		for {
			if _, err := p.conn.Write([]byte(line + "\n")); err != nil {
				return
			}
		}
	}
	var floods sync.WaitGroup
	floods.Go(func() { flood(g.agent, `{"method":"session/update","params":{"x":"`+strings.Repeat("x", 1<<20)+`"}}`) })
	floods.Go(func() { flood(g.client, `{"method":"session/cancel","params":{"x":"`+strings.Repeat("x", 1<<20)+`"}}`) })
	g.cancel(errors.New("enough"))
	g.ended(t)
	floods.Wait()
}

// TestBackpressure: a client that reads nothing stops the reading from the agent; nothing piles up.
func TestBackpressure(t *testing.T) {
	g := start(t, nil)
	line := []byte(`{"method":"session/update","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}` + "\n")
	if err := g.agent.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for {
		n, err := g.agent.conn.Write(line)
		sent += n
		if err != nil {
			break
		}
	}
	// Two lines in the relay, and what two sockets hold.
	if lines := sent / len(line); lines > 4 {
		t.Errorf("%d MiB were taken of an agent whose client reads nothing", lines)
	}
}

// TestOrder: a replay arrives before the answer that ends it, and answers of Handler's own stand in their place.
func TestOrder(t *testing.T) {
	g := start(t, nil)
	load := `{"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/src","mcpServers":[]}}`
	g.client.send(load)
	g.agent.expectPart(`"playwright"`)
	const n = 2000
	go func() {
		for i := range n {
			fmt.Fprintf(g.agent.conn, `{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","n":%d}}}`+"\n", i)
		}
		fmt.Fprintln(g.agent.conn, `{"id":1,"result":null}`)
	}()
	for i := range n {
		g.client.expectPart(fmt.Sprintf(`"n":%d}`, i))
	}
	g.client.expect(`{"id":1,"result":null}`)
	g.wantEvents(t, `client session/load: MCP servers of the agent were added: "playwright"`, "session/load opened s")
}

// TestOneSession: a run that takes one session at a time refuses a second, until the first is closed.
func TestOneSession(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.Rules = acp.NewRules(config(), 1) })
	request := func(id int, method, session string) {
		g.client.send(fmt.Sprintf(`{"id":%d,"method":%q,"params":{"sessionId":%q,"cwd":"/src","mcpServers":[]}}`, id, method, session))
	}
	answer := func(id int, body string) {
		t.Helper()
		g.agent.expectPart(fmt.Sprintf(`"id":%d,`, id))
		g.agent.send(fmt.Sprintf(`{"id":%d,%s}`, id, body))
		g.client.expectPart(fmt.Sprintf(`"id":%d,`, id))
	}
	request(1, "session/new", "")
	request(2, "session/new", "") // while the first is under way
	g.client.expectPart(`"id":2,"error":{"code":-32602,"message":"refused by B.8`)
	answer(1, `"error":{"code":-32000,"message":"log in first"}`)
	request(3, "session/new", "") // the first came to nothing
	answer(3, `"result":{"sessionId":"a"}`)
	request(4, "session/load", "b")
	g.client.expectPart(`"id":4,"error"`)
	request(5, "session/load", "a") // the same again
	answer(5, `"result":null`)
	request(6, "session/fork", "a")
	g.client.expectPart(`"id":6,"error"`)
	request(7, "session/close", "a")
	answer(7, `"result":{}`)
	request(8, "session/new", "")
	g.agent.expectPart(`"id":8,`)
	g.agent.send(`{"id":8,"result":{},"error":{}}`) // an answer that the relay has to replace counts as none
	g.client.expectPart(`"id":8,"error"`)
	request(9, "session/new", "")
	answer(9, `"result":{"sessionId":"c"}`)
}

func TestInject(t *testing.T) {
	g := start(t, nil)
	cancel := `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`
	if err := g.relay.Inject(t.Context(), acp.Agent, []byte(cancel)); err != nil {
		t.Fatal(err)
	}
	g.agent.expect(cancel)
	for _, bad := range []string{"", "x", initialize, `{"id":1,"result":{}}`} {
		if err := g.relay.Inject(t.Context(), acp.Agent, []byte(bad)); err == nil {
			t.Errorf("%q was injected", bad)
		}
	}
}

// TestNoise: a program that floods the agent's standard output does not flood the log.
func TestNoise(t *testing.T) {
	g := start(t, nil)
	for range 200 {
		g.agent.send("banner")
	}
	g.agent.send(`{"method":"session/update"}`)
	g.client.expect(`{"method":"session/update"}`)
	if n := len(g.seen()); n != 20 {
		t.Errorf("told of %d lines, want 20", n)
	}
}

// TestBig carries lines of 20 MB both ways.
func TestBig(t *testing.T) {
	g := start(t, nil)
	line := `{"method":"session/update","params":{"x":"` + strings.Repeat("iVBORw0KGgo", 20<<20/11) + `"}}`
	for _, way := range []struct{ from, to *peer }{{g.agent, g.client}, {g.client, g.agent}} {
		way.to.in = bufio.NewReaderSize(way.to.conn, 1<<20)
		for range 2 {
			var sending sync.WaitGroup
			sending.Go(func() { _, _ = io.WriteString(way.from.conn, line+"\n") })
			if got := way.to.line(); got != line {
				t.Fatalf("%s got %d bytes, not the %d that were sent", way.to.name, len(got), len(line))
			}
			sending.Wait()
		}
	}
}
