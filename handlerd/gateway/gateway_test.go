package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/sandbox/guestwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tools is a server for tests. Its tools: echo gives its arguments, wait blocks until its call ends, much gives too
// much of everything, fail is an error, panic panics, progress tells of it.
type tools struct {
	mu      sync.Mutex
	open    int
	waiting chan struct{} // gets one when a wait has begun
	ended   chan error    // gets why a wait ended
	err     error         // of Tools; protected by mu
	more    mcp.Tool      // that Tools gives too; protected by mu
}

// list has Tools give an error, or one tool more.
func (s *tools) list(err error, more mcp.Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.more = err, more
}

func newTools() *tools {
	return &tools{waiting: make(chan struct{}, 100), ended: make(chan error, 100)}
}

func (s *tools) Open(_ context.Context, c Caller) (Instance, error) {
	if c.Token == "REFUSED" {
		return nil, errors.New("not for this session")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &instance{s: s}, nil
}

type instance struct{ s *tools }

func (i *instance) Tools(context.Context) ([]mcp.Tool, error) {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	var all []mcp.Tool
	if i.s.more.Name != "" {
		all = append(all, i.s.more)
	}
	if i.s.err != nil {
		return nil, i.s.err
	}
	for _, name := range []string{"echo", "wait", "much", "resources", "fail", "panic", "progress", "never_listed", "many"} {
		all = append(all, mcp.NewTool(name))
	}
	return all, nil
}

func (i *instance) Call(ctx context.Context, c Call) (*mcp.CallToolResult, error) {
	switch c.Tool {
	case "echo":
		return mcp.NewToolResultText(c.Session + " " + string(c.Args)), nil
	case "wait":
		i.s.waiting <- struct{}{}
		<-ctx.Done()
		i.s.ended <- context.Cause(ctx)
		return nil, ctx.Err()
	case "much":
		r := mcp.NewToolResultText(strings.Repeat("ü", MaxText))
		r.Content = append(r.Content, mcp.NewImageContent(strings.Repeat("AAAA", MaxImage/3+10), "image/png"))
		for range 2 * MaxParts {
			r.Content = append(r.Content, mcp.NewTextContent("x"))
		}
		r.StructuredContent = strings.Repeat("x", 2*MaxText)
		return r, nil
	case "declared":
		var in struct{ N int }
		if err := json.Unmarshal(c.Args, &in); err != nil {
			return nil, err
		}
		r := mcp.NewToolResultText("see there")
		r.StructuredContent = map[string]any{"a": strings.Repeat("x", in.N)}
		return r, nil
	case "many":
		r := &mcp.CallToolResult{}
		for range MaxKept + 2 {
			r.Content = append(r.Content, mcp.NewTextContent(strings.Repeat("x", 200)))
		}
		return r, nil
	case "resources":
		r := mcp.NewToolResultText("three")
		r.Content = append(r.Content, mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: "a:b", Text: strings.Repeat("y", 2*MaxText)}),
			mcp.NewEmbeddedResource(mcp.BlobResourceContents{URI: "a:b", Blob: strings.Repeat("AAAA", MaxImage/3+10)}),
			mcp.NewResourceLink("a:b", "n", strings.Repeat("z", 2*MaxText), ""))
		return r, nil
	case "fail":
		return nil, errors.New("the page went away: take another")
	case "panic":
		panic("at the worst moment")
	case "progress":
		c.Progress(1, 2, "half")
		return mcp.NewToolResultText("done"), nil
	}
	return nil, fmt.Errorf("no tool %s", c.Tool)
}

func (i *instance) Close() error {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	i.s.open--
	return nil
}

// world is a gateway on a socket, and what it recorded.
type world struct {
	g      *Gateway
	socket string

	mu      sync.Mutex
	records []Record
	broken  error // of the audit
	kept    []Kept
	full    error // of what keeps
}

func start(t *testing.T, servers map[string]Hosted) *world {
	t.Helper()
	w := &world{}
	g, err := New(Options{Run: "k3f9", Agent: "web", Servers: servers, Version: "test",
		Session: func(token string) string { return map[string]string{"TOKEN": "session-1"}[token] },
		Record: func(Record) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.broken
		},
		Ended: func(r Record) {
			w.mu.Lock()
			defer w.mu.Unlock()
			r.Took = 0
			w.records = append(w.records, r)
		},
		Keep: func(_ context.Context, k Kept) (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.full != nil {
				return "", w.full
			}
			w.kept = append(w.kept, k)
			return fmt.Sprint("a", len(w.kept)), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	w.g, w.socket = g, filepath.Join(dir, "mcp.sock")
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return w
}

// peer is a client that speaks lines.
type peer struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (w *world) dial(t *testing.T, hello string) *peer {
	t.Helper()
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := &peer{t, conn, bufio.NewReader(conn)}
	p.send(hello)
	return p
}

func (w *world) join(t *testing.T, name, token string) *peer {
	t.Helper()
	line, err := guestwire.MCPHello{Server: name, Token: token}.Line()
	if err != nil {
		t.Fatal(err)
	}
	p := w.dial(t, strings.TrimSpace(string(line)))
	answer := p.ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if answer["result"].(map[string]any)["protocolVersion"] != "2025-06-18" {
		t.Fatalf("initialize: %v", answer)
	}
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

func (p *peer) send(line string) {
	if _, err := p.conn.Write([]byte(line + "\n")); err != nil {
		p.t.Error(err)
	}
}

func (p *peer) line() string {
	p.t.Helper()
	p.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	line, err := p.r.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%q: %v", line, err)
	}
	return line
}

func (p *peer) next() map[string]any {
	p.t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(p.line()), &m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p *peer) ask(line string) map[string]any {
	p.t.Helper()
	p.send(line)
	return p.next()
}

// use calls a tool and gives its first text, and whether it is an error.
func (p *peer) use(id int, tool, args string) (string, bool) {
	p.t.Helper()
	answer := p.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args))
	return text(p.t, answer)
}

func text(t *testing.T, answer map[string]any) (string, bool) {
	t.Helper()
	result, ok := answer["result"].(map[string]any)
	if !ok {
		t.Fatalf("no result: %v", answer)
	}
	isError, _ := result["isError"].(bool)
	return result["content"].([]any)[0].(map[string]any)["text"].(string), isError
}

func TestCalls(t *testing.T) {
	w := start(t, map[string]Hosted{"tools": {Server: newTools(), Filter: Filter{Deny: []string{"never_*"}}}})
	p := w.join(t, "tools", "TOKEN")
	listed := p.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if n := len(listed["result"].(map[string]any)["tools"].([]any)); n != 8 {
		t.Errorf("%d tools: %v", n, listed)
	}
	if got, isError := p.use(3, "echo", `{"b":1,"a":"x"}`); got != `session-1 {"a":"x","b":1}` || isError {
		t.Errorf("echo: %q %v", got, isError)
	}
	if got, isError := p.use(4, "fail", `{}`); got != "the page went away: take another" || !isError {
		t.Errorf("fail: %q %v", got, isError)
	}
	w.mu.Lock()
	want := []Record{{Server: "tools", Tool: "echo", Session: "session-1", Digest: w.records[0].Digest},
		{Server: "tools", Tool: "fail", Session: "session-1", Digest: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", Failed: true}}
	if diff := cmp.Diff(want, w.records); diff != "" {
		t.Error(diff)
	}
	w.mu.Unlock()
	// What is filtered out is not served to whoever knows its name, and what there is not is said in words a model reads.
	for tool, want := range map[string]string{
		"never_listed": "not let through: the binding denies never_*",
		"nothing":      "the server tools has: echo, fail, many, much, panic, progress, resources, wait",
		"a tool":       `no tool "a tool"`,
	} {
		if got, isError := p.use(5, tool, `{}`); !isError || !strings.Contains(got, want) {
			t.Errorf("%q: %q", tool, got)
		}
	}
	w.mu.Lock()
	for _, r := range w.records[2:] {
		if r.Refused == "" || !r.Failed || r.Session != "session-1" {
			t.Errorf("the record of a call of no tool: %+v", r)
		}
	}
	w.mu.Unlock()
	// A panic is that call's alone.
	p.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"panic","arguments":{}}}`)
	p.line()
	if got, _ := p.use(7, "echo", `{}`); got != "session-1 {}" {
		t.Errorf("after a panic: %q", got)
	}
	if answer := p.ask(`{"jsonrpc":"2.0","id":8,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`); answer["result"] == nil {
		t.Errorf("server/discover: %v", answer)
	}
}

func TestBounds(t *testing.T) {
	w := start(t, map[string]Hosted{"tools": {Server: newTools()}})
	p := w.join(t, "tools", "")
	answer := p.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"much","arguments":{}}}`)
	content := answer["result"].(map[string]any)["content"].([]any)
	if len(content) != MaxParts+2 || answer["result"].(map[string]any)["structuredContent"] != nil || answer["result"].(map[string]any)["isError"] != nil {
		t.Errorf("%d parts", len(content))
	}
	last := content[MaxParts+1].(map[string]any)["text"].(string)
	if want := fmt.Sprintf("[the structured content of %d bytes was left out: at most %d are passed on; ask for less at a time]\n[your person has the whole as artifact a2]", 2*MaxText+2, MaxText); last != want {
		t.Errorf("%q, want %q", last, want)
	}
	w.mu.Lock()
	if len(w.kept) != 2 || w.kept[0].Name != "text.txt" || string(w.kept[0].Content) != strings.Repeat("ü", MaxText) || w.kept[1].Name != "structured.json" ||
		w.kept[1].Server != "tools" || w.kept[1].Tool != "much" || len(w.kept[1].Content) != 2*MaxText+2 {
		t.Errorf("%d are kept", len(w.kept))
	}
	w.mu.Unlock()
	first := content[0].(map[string]any)["text"].(string)
	if len(first) > MaxText+100 || !strings.HasSuffix(first, fmt.Sprintf("[cut: %d of %d bytes]\n[your person has the whole as artifact a1]", MaxText, 2*MaxText)) {
		t.Errorf("%d bytes, ending %q", len(first), first[len(first)-40:])
	}
	if picture := content[1].(map[string]any)["text"]; picture == nil || !strings.Contains(picture.(string), "a picture of") {
		t.Errorf("the picture: %v", content[1])
	}
	got, isError := p.use(3, "echo", `{"a":"`+strings.Repeat("x", 10<<20)+`"}`)
	if !isError || !strings.Contains(got, "at most 1048576 are taken") {
		t.Errorf("10 MB of arguments: %.200q", got)
	}
	answer = p.ask(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","arguments":{"a":"` + strings.Repeat("x", MaxLine) + `"}}}`)
	if answer["error"] == nil {
		t.Errorf("a line over the bound: %.200v", answer)
	}
	if got, _ := p.use(5, "echo", `{}`); got != " {}" {
		t.Errorf("after it: %q", got)
	}
	if got, isError := p.use(6, "echo", `[1,2]`); !isError || !strings.Contains(got, "no JSON object") {
		t.Errorf("an array: %q", got)
	}
}

// TestLimits: a person's own bounds of results and of a call's time; structured content of a tool that declares it is an
// error where it is left out, since clients take nothing else; and what cannot be kept, or is too many, is said.
func TestLimits(t *testing.T) {
	s := newTools()
	s.more = mcp.Tool{Name: "declared", RawInputSchema: []byte(`{"type":"object"}`), RawOutputSchema: []byte(`{"type":"object"}`)}
	w := start(t, map[string]Hosted{"tools": {Server: s, Limits: Limits{Text: 100, Call: 50 * time.Millisecond}}})
	p := w.join(t, "tools", "")
	answer := p.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"declared","arguments":{"n":200}}}`)
	if r := answer["result"].(map[string]any); r["isError"] != true || r["structuredContent"] != nil || !strings.Contains(fmt.Sprint(r["content"]), "what the tool does was done") {
		t.Errorf("%v", r)
	}
	answer = p.ask(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"declared","arguments":{"n":50}}}`)
	if r := answer["result"].(map[string]any); r["isError"] != nil || r["structuredContent"] == nil {
		t.Errorf("%v", r)
	}
	w.mu.Lock()
	w.full = errors.New("the store is full")
	w.mu.Unlock()
	got, isError := p.use(4, "echo", `{"a":"`+strings.Repeat("x", 200)+`"}`)
	if isError || !strings.HasSuffix(got, "[cut: 100 of 209 bytes]\n[it is not kept whole: the store is full]") {
		t.Errorf("%q", got)
	}
	got = fmt.Sprint(p.ask(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"many","arguments":{}}}`)["result"])
	if strings.Contains(got, "isError") || strings.Count(got, "is not kept whole: the store is full") != MaxKept || strings.Count(got, "at most 4 parts of one result are") != 2 {
		t.Errorf("%q", got)
	}
	if got, isError = p.use(6, "wait", `{}`); !isError || !strings.Contains(got, "longer than 50ms") {
		t.Errorf("%q", got)
	}
}

// TestResources: what a result brings along is bounded as its texts and pictures are.
func TestResources(t *testing.T) {
	p := start(t, map[string]Hosted{"tools": {Server: newTools()}}).join(t, "tools", "")
	answer := p.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"resources","arguments":{}}}`)
	content := answer["result"].(map[string]any)["content"].([]any)
	resource, _ := content[1].(map[string]any)["resource"].(map[string]any)
	if text, _ := resource["text"].(string); len(text) > MaxText+100 || !strings.Contains(text, "[cut: ") {
		t.Errorf("the resource: %.200v", content[1])
	}
	for i, want := range []string{"a resource of", "a link to a resource"} {
		if text, _ := content[2+i].(map[string]any)["text"].(string); !strings.Contains(text, want) {
			t.Errorf("%.200v", content[2+i])
		}
	}
}

func TestProgress(t *testing.T) {
	w := start(t, map[string]Hosted{"tools": {Server: newTools()}})
	p := w.join(t, "tools", "")
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"progress","arguments":{},"_meta":{"progressToken":"p1"}}}`)
	notice, answer := p.next(), p.next() // a client takes no notice of a call that was answered
	if answer["id"] != 2.0 {
		t.Errorf("got %v", answer)
	}
	params, _ := notice["params"].(map[string]any)
	if params["progressToken"] != "p1" || params["progress"] != 1.0 || params["total"] != 2.0 || params["message"] != "half" {
		t.Errorf("got %v", notice)
	}
}

func TestCancelled(t *testing.T) {
	s := newTools()
	w := start(t, map[string]Hosted{"tools": {Server: s}})
	p := w.join(t, "tools", "")
	p.send(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
	<-s.waiting
	p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
	if cause := <-s.ended; !errors.Is(cause, context.Canceled) {
		t.Errorf("ended by %v", cause)
	}
	// A client that goes ends its calls.
	q := w.join(t, "tools", "")
	q.send(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
	<-s.waiting
	q.conn.Close()
	<-s.ended
}

// TestWaiting: what waits for its turn can be given up, is not answered then, and is bounded.
func TestWaiting(t *testing.T) {
	s := newTools()
	w := start(t, map[string]Hosted{"tools": {Server: s}})
	p := w.join(t, "tools", "")
	call := func(id int, tool string) {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, tool))
	}
	giveUp := func(id int) {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	}
	for i := range MaxCalls {
		call(100+i, "wait")
	}
	for range MaxCalls {
		<-s.waiting
	}
	call(200, "echo") // waits, and is given up before its turn
	call(201, "echo")
	giveUp(200)
	giveUp(100)
	<-s.ended
	if got := p.next(); got["id"] != 201.0 {
		t.Errorf("got %v", got)
	}
	call(300, "wait")
	<-s.waiting
	for i := range MaxWaiting + 1 {
		call(400+i, "echo")
	}
	got := p.next()
	if text := fmt.Sprint(got["result"]); got["id"] != float64(400+MaxWaiting) || !strings.Contains(text, "isError:true") || !strings.Contains(text, "wait already") {
		t.Errorf("got %v", got)
	}
	giveUp(300)
	for range MaxWaiting {
		if got := p.next(); got["result"] == nil || got["id"] == 300.0 {
			t.Fatalf("got %v", got)
		}
	}
}

// TestStop is the kill switch: it ends what is under way, and nothing goes after it.
func TestStop(t *testing.T) {
	s := newTools()
	w := start(t, map[string]Hosted{"tools": {Server: s}, "other": {Server: newTools()}})
	p := w.join(t, "tools", "")
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
	<-s.waiting
	if _, err := w.g.Stop("nothing"); err == nil || !strings.Contains(err.Error(), "other, tools") {
		t.Errorf("got %v", err)
	}
	for _, want := range []int{1, 0} {
		if done, err := w.g.Stop("tools"); err != nil || len(done) != want {
			t.Errorf("%v, %v", done, err)
		}
	}
	if cause := <-s.ended; !errors.Is(cause, ErrStopped) {
		t.Errorf("ended by %v", cause)
	}
	if got, isError := text(t, p.next()); !isError || !strings.Contains(got, "your person stopped this server") {
		t.Errorf("the call under way: %q", got)
	}
	if got, isError := p.use(3, "echo", `{}`); !isError || !strings.Contains(got, "handler gateway stop") {
		t.Errorf("the next call: %q", got)
	}
	late := w.dial(t, `{"type":"mcp","server":"tools","token":""}`)
	if got := late.line(); !strings.HasPrefix(got, "handler refuses: your person stopped") {
		t.Errorf("a new connection: %q", got)
	}
	if got, _ := w.join(t, "other", "").use(2, "echo", `{}`); got != " {}" {
		t.Errorf("another server: %q", got)
	}
	if diff := cmp.Diff([]ServerStatus{{"other", false}, {"tools", true}}, w.g.Servers()); diff != "" {
		t.Error(diff)
	}
}

// TestTools: a server is asked for its tools when the client asks, and again when that failed.
func TestTools(t *testing.T) {
	s := newTools()
	w := start(t, map[string]Hosted{"tools": {Server: s}})
	p := w.join(t, "tools", "")
	broken := errors.New("it does not start")
	s.list(broken, mcp.Tool{})
	answer := p.ask(`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`)
	if e, _ := answer["error"].(map[string]any); answer["id"] != "a" || e["message"] != broken.Error() {
		t.Errorf("%v", answer)
	}
	if got, isError := p.use(2, "echo", `{}`); !isError || got != broken.Error() {
		t.Errorf("%q", got)
	}
	// mcp-go panics at such a schema.
	s.list(nil, mcp.Tool{Name: "odd", RawInputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`)})
	if got, isError := p.use(3, "echo", `{}`); !isError || !strings.Contains(got, `"odd" cannot be offered`) {
		t.Errorf("%q", got)
	}
	s.list(nil, mcp.Tool{})
	if got, isError := p.use(4, "echo", `{}`); isError || got != " {}" {
		t.Errorf("%q", got)
	}
	s.list(broken, mcp.Tool{})
	if answer := p.ask(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`); answer["result"] == nil {
		t.Errorf("it was asked again: %v", answer)
	}
	if _, err := w.g.Stop(""); err != nil {
		t.Fatal(err)
	}
	if answer := p.ask(`{"jsonrpc":"2.0","id":6,"method":"tools/list"}`); answer["error"] == nil {
		t.Errorf("a stopped server lists: %v", answer)
	}
}

// TestNotRecorded: a call that the audit does not hold gives nothing away.
func TestNotRecorded(t *testing.T) {
	w := start(t, map[string]Hosted{"tools": {Server: newTools()}})
	w.broken = errors.New("no space left on device")
	got, isError := w.join(t, "tools", "").use(2, "echo", `{"a":"result"}`)
	if !isError || strings.Contains(got, "result\"") || !strings.Contains(got, "audit") {
		t.Errorf("got %q", got)
	}
}

func TestRefused(t *testing.T) {
	w := start(t, map[string]Hosted{"tools": {Server: newTools()}})
	for hello, want := range map[string]string{
		`{"type":"mcp","server":"nothing","token":""}`:                     `no server "nothing" is hosted for this run; there are: tools`,
		`{"type":"mcp","server":"tools","token":"REFUSED"}`:                "not for this session",
		`{"type":"mcp","server":"../tools","token":""}`:                    "no hello",
		`{"type":"mcp","server":"tools"}`:                                  "no hello",
		`{"type":"mcp","server":"tools","token":"","x":1}`:                 "no hello",
		`{"type":"mcp","server":"tools","server":"other","token":""}`:      "no hello",
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`:                   "no hello",
		strings.Repeat("x", 2000):                                          "no hello",
		`{"type":"mcp","server":"tools","token":"` + "tok\\u0000en" + `"}`: "no hello",
	} {
		if got := w.dial(t, hello).line(); !strings.HasPrefix(got, "handler refuses: ") || !strings.Contains(got, want) {
			t.Errorf("%.80s: %q", hello, got)
		}
	}
}

// TestFlood: a sandbox that opens too many connections is told so, and those it has go on.
func TestFlood(t *testing.T) {
	s := newTools()
	w := start(t, map[string]Hosted{"tools": {Server: s}})
	first := w.join(t, "tools", "")
	for range MaxConnections - 1 {
		w.join(t, "tools", "")
	}
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if !strings.Contains(line, "too many MCP connections") {
		t.Errorf("got %q", line)
	}
	// More calls than may be under way wait, and a stop ends them all.
	for i := range MaxCalls + 5 {
		first.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, 100+i))
	}
	for range MaxCalls {
		<-s.waiting
	}
	w.g.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != 0 {
		t.Errorf("%d instances are open after Close", s.open)
	}
}

func TestFilter(t *testing.T) {
	for _, test := range []struct {
		f    Filter
		tool string
		want bool
	}{
		{Filter{}, "a", true}, {Filter{Allow: []string{"browser_*"}}, "browser_click", true}, {Filter{Allow: []string{"browser_*"}}, "shell", false},
		{Filter{Deny: []string{"*_file"}}, "read_file", false}, {Filter{Allow: []string{"*"}, Deny: []string{"a"}}, "a", false},
		{Filter{Allow: []string{"browser_click"}}, "browser_clicks", false}, {Filter{Allow: []string{"b*k"}}, "browser_click", true},
	} {
		if got, _ := test.f.Allows(test.tool); got != test.want {
			t.Errorf("%+v, %s: %v", test.f, test.tool, got)
		}
	}
	for _, p := range []string{"", "[a-z]", "a?", `a\`, "a b", "a/b", "\x1b"} {
		if err := (Filter{Deny: []string{p}}).Check(); err == nil {
			t.Errorf("%q was accepted", p)
		}
	}
}

// TestNotAdmitted: a call that is one too many is answered, not made, and not written down.
func TestNotAdmitted(t *testing.T) {
	w := start(t, map[string]Hosted{"tools": {Server: newTools()}})
	w.g.o.Admit = func() error { return errors.New("too many tool calls") }
	p := w.join(t, "tools", "")
	if got, failed := p.use(2, "echo", "{}"); !failed || got != "too many tool calls" {
		t.Errorf("%q %v", got, failed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) != 0 {
		t.Errorf("%+v", w.records)
	}
}

// TestManyCalls: what calls hold while they wait is bounded for the run, however many connections they come by.
func TestManyCalls(t *testing.T) {
	s := newTools()
	w := start(t, map[string]Hosted{"tools": {Server: s}})
	for range MaxRunCalls / MaxCalls {
		p := w.join(t, "tools", "")
		for i := range MaxCalls {
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, 100+i))
		}
	}
	for range MaxRunCalls {
		<-s.waiting
	}
	if got, failed := w.join(t, "tools", "").use(2, "echo", "{}"); !failed || !strings.Contains(got, "under way already") {
		t.Errorf("%q %v", got, failed)
	}
}
