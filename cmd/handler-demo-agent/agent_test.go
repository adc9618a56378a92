package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// TestMain lets the test binary be an MCP server, too: real processes are what the agent must start and end.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "fake-mcp" {
		os.Exit(fakeMCP(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

const snapshotText = "### Page\n- Page URL: http://shop.test/\n- Page Title: Shop – cart\n### Snapshot\n```yaml\n" +
	"- generic [ref=e1]:\n  - textbox \"Your name\" [ref=e5]:\n    - /placeholder: Ana\n  - button \"Order\" [ref=e6] [cursor=pointer]\n```"

// onePixel is a PNG of one pixel.
var onePixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89")

func fakeServer() *mcpserver.MCPServer {
	s := mcpserver.NewMCPServer("fake", "1")
	add := func(name string, result func(args map[string]any) *mcp.CallToolResult) {
		s.AddTool(mcp.NewTool(name), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return result(r.GetArguments()), nil
		})
	}
	add("browser_navigate", func(a map[string]any) *mcp.CallToolResult {
		if strings.Contains(fmt.Sprint(a["url"]), "refused") {
			return mcp.NewToolResultError("### Error\nError: page.goto: net::ERR_TUNNEL_CONNECTION_FAILED at " + fmt.Sprint(a["url"]) + "\nCall log:\n  - x")
		}
		return mcp.NewToolResultText(snapshotText)
	})
	add("browser_snapshot", func(map[string]any) *mcp.CallToolResult { return mcp.NewToolResultText(snapshotText) })
	echo := func(a map[string]any) *mcp.CallToolResult {
		b, _ := json.Marshal(a)
		return mcp.NewToolResultText(string(b))
	}
	add("browser_click", echo)
	add("browser_press_key", echo)
	add("browser_type", echo)
	add("env", func(a map[string]any) *mcp.CallToolResult {
		return mcp.NewToolResultText(os.Getenv(fmt.Sprint(a["name"])))
	})
	add("pid", func(map[string]any) *mcp.CallToolResult { return mcp.NewToolResultText(fmt.Sprint(os.Getpid())) })
	add("die", func(map[string]any) *mcp.CallToolResult { os.Exit(3); return nil })
	s.AddTool(mcp.NewTool("hang"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	add("browser_take_screenshot", func(a map[string]any) *mcp.CallToolResult {
		if len(a) > 0 {
			return mcp.NewToolResultText("with arguments there is no picture")
		}
		return mcp.NewToolResultImage("### Result", base64.StdEncoding.EncodeToString(onePixel), "image/png")
	})
	return s
}

func fakeMCP(args []string) int {
	fmt.Fprintln(os.Stderr, "fake server here")
	if slices.Contains(args, "broken") {
		fmt.Fprintln(os.Stderr, "no usable sandbox")
		return 1
	}
	if err := mcpserver.ServeStdio(fakeServer()); err != nil {
		return 1
	}
	return 0
}

// A testClient drives the agent and notes what it says.
type testClient struct {
	t    *testing.T
	peer *jsonrpc.Peer
	err  bytes.Buffer // the agent's stderr

	mu      sync.Mutex
	updates []jsonrpc.Update
	asked   []jsonrpc.PermissionParams
	answer  func(jsonrpc.PermissionParams) jsonrpc.PermissionResult
	seen    chan jsonrpc.Update // each update, when somebody waits for one
}

func start(t *testing.T, dir string) *testClient {
	t.Helper()
	c := &testClient{t: t, seen: make(chan jsonrpc.Update, 1000)}
	c.answer = func(jsonrpc.PermissionParams) jsonrpc.PermissionResult { return jsonrpc.Selected("yes") }
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- serve(context.Background(), there, dir, &c.err) }()
	c.peer = jsonrpc.New(t.Context(), here, jsonrpc.Options{Handler: c.handle})
	t.Cleanup(func() {
		c.peer.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	var init jsonrpc.InitializeResult
	c.call(jsonrpc.MethodInitialize, jsonrpc.InitializeParams{ProtocolVersion: 1}, &init)
	if init.ProtocolVersion != 1 || !init.AgentCapabilities.LoadSession || !init.AgentCapabilities.MCPCapabilities.SSE || init.AgentCapabilities.SessionCapabilities.Resume == nil {
		t.Errorf("initialize gave %+v", init)
	}
	return c
}

func (c *testClient) handle(_ context.Context, r *jsonrpc.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.Method {
	case jsonrpc.MethodSessionUpdate:
		var p jsonrpc.UpdateParams
		if err := r.Decode(&p); err != nil {
			c.t.Error(err)
		}
		c.updates = append(c.updates, p.Update)
		c.seen <- p.Update
	case jsonrpc.MethodRequestPermission:
		var p jsonrpc.PermissionParams
		if err := r.Decode(&p); err != nil {
			c.t.Error(err)
		}
		c.asked = append(c.asked, p)
		r.Reply(c.answer(p))
	}
}

func (c *testClient) call(method string, params, result any) {
	c.t.Helper()
	if err := c.peer.Call(c.t.Context(), method, params, result); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
}

func fake(name string, args ...string) jsonrpc.MCPServer {
	return jsonrpc.MCPServer{Name: name, Command: os.Args[0], Args: append([]string{"fake-mcp"}, args...), Env: []jsonrpc.Pair{{Name: "TOKEN", Value: "t-" + name}, {Name: "GORACE", Value: "atexit_sleep_ms=0"}}}
}

func (c *testClient) newSession(servers ...jsonrpc.MCPServer) string {
	c.t.Helper()
	var res jsonrpc.NewSessionResult
	c.call(jsonrpc.MethodSessionNew, jsonrpc.NewSessionParams{Cwd: c.t.TempDir(), MCPServers: append([]jsonrpc.MCPServer{}, servers...)}, &res)
	return res.SessionID
}

// prompt makes a turn and gives its stop reason and all that the agent said.
func (c *testClient) prompt(session, text string) (stop, said string) {
	c.t.Helper()
	c.mu.Lock()
	from := len(c.updates)
	c.mu.Unlock()
	var res jsonrpc.PromptResult
	c.call(jsonrpc.MethodSessionPrompt, jsonrpc.PromptParams{SessionID: session, Prompt: []jsonrpc.ContentBlock{jsonrpc.Text(text)}}, &res)
	return res.StopReason, c.said(from)
}

func (c *testClient) said(from int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, u := range c.updates[from:] {
		if u.SessionUpdate == jsonrpc.UpdateAgentMessage {
			block, err := u.Block()
			if err != nil {
				c.t.Error(err)
			}
			b.WriteString(block.Text)
		}
	}
	return b.String()
}

// trace gives the updates as short lines.
func (c *testClient) trace() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for _, u := range c.updates {
		line := strings.Join(strings.Fields(strings.Join([]string{u.SessionUpdate, u.Title, u.Name, u.Kind, u.Status, string(u.RawInput)}, " ")), " ")
		if u.SessionUpdate == jsonrpc.UpdatePlan {
			for _, e := range u.Entries {
				line += " " + e.Status
			}
		}
		if tc, err := u.ToolContents(); err == nil {
			for _, p := range tc {
				line += " +" + p.Content.Type
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func TestBrowserTurn(t *testing.T) {
	c := start(t, t.TempDir())
	id := c.newSession(fake("other"), fake("playwright"))
	stop, said := c.prompt(id, "open http://shop.test/ then type Ana into name; click Order and screenshot")
	if stop != jsonrpc.StopEndTurn {
		t.Errorf("the turn ended with %s", stop)
	}
	if want := "I opened \"Shop – cart\" at http://shop.test/.\nI typed \"Ana\" into name.\nI clicked \"Order\".\nHere is the page.\n"; said != want {
		t.Errorf("it said %q", said)
	}
	want := []string{
		"session_info_update open http://shop.test/ then type Ana into name; click Order…",
		"plan in_progress pending pending pending",
		`tool_call playwright: browser_navigate mcp__playwright__browser_navigate fetch pending {"url":"http://shop.test/"}`,
		"tool_call_update in_progress",
		"tool_call_update completed +text",
		"agent_message_chunk",
		"plan completed in_progress pending pending",
		"tool_call playwright: browser_snapshot mcp__playwright__browser_snapshot read pending {}",
		"tool_call_update in_progress",
		"tool_call_update completed +text",
		`tool_call playwright: browser_type mcp__playwright__browser_type execute pending {"element":"name","target":"e5","text":"Ana"}`,
		"tool_call_update in_progress",
		"tool_call_update completed +text",
		"agent_message_chunk",
		"plan completed completed in_progress pending",
		`tool_call playwright: browser_click mcp__playwright__browser_click execute pending {"element":"Order","target":"text=Order"}`,
		"tool_call_update in_progress",
		"tool_call_update completed +text",
		"agent_message_chunk",
		"plan completed completed completed in_progress",
		"tool_call playwright: browser_take_screenshot mcp__playwright__browser_take_screenshot read pending {}",
		"tool_call_update in_progress",
		"tool_call_update completed +text +image",
		"agent_message_chunk",
		"plan completed completed completed completed",
	}
	if diff := cmp.Diff(want, c.trace()); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
	if len(c.asked) != 2 || c.asked[0].ToolCall.Title != "playwright: browser_type" || len(c.asked[0].Options) != 4 {
		t.Errorf("it asked %+v", c.asked)
	}
}

func TestPermissions(t *testing.T) {
	for _, tc := range []struct {
		answer, stop, says string
		asked              int // after two prompts
	}{
		{"yes", jsonrpc.StopEndTurn, "I clicked", 2},
		{"yes-always", jsonrpc.StopEndTurn, "I clicked", 1},
		{"no", jsonrpc.StopEndTurn, `I did not click "Go", since it was refused. The step after it was not done.`, 2},
		{"no-always", jsonrpc.StopEndTurn, "it was refused", 1},
		{"", jsonrpc.StopCancelled, "", 2},
		{"bogus", jsonrpc.StopEndTurn, "was no option of it", 2},
	} {
		t.Run(tc.answer, func(t *testing.T) {
			c := start(t, "")
			c.answer = func(jsonrpc.PermissionParams) jsonrpc.PermissionResult {
				if tc.answer == "" {
					return jsonrpc.Cancelled()
				}
				return jsonrpc.Selected(tc.answer)
			}
			id := c.newSession(fake("playwright"))
			for range 2 {
				stop, said := c.prompt(id, "click Go then wait 1 ms")
				if stop != tc.stop || !strings.Contains(said, tc.says) {
					t.Errorf("stopped with %s and said %q", stop, said)
				}
			}
			if len(c.asked) != tc.asked {
				t.Errorf("it asked %d times, want %d", len(c.asked), tc.asked)
			}
		})
	}
}

func TestServersAreStartedAndEnded(t *testing.T) {
	c := start(t, "")
	a, b := c.newSession(fake("one")), c.newSession(fake("two"))
	_, said := c.prompt(a, `call env {"name":"TOKEN"}`)
	if said != "t-one\n" {
		t.Errorf("session a got %q", said)
	}
	_, pid := c.prompt(b, "call two.pid")
	if _, said := c.prompt(b, "tools"); !strings.HasPrefix(said, "two (stdio): browser_click, ") {
		t.Errorf("tools said %q", said)
	}
	c.call(jsonrpc.MethodSessionClose, jsonrpc.SessionParams{SessionID: b}, nil)
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil || syscall.Kill(n, 0) == nil {
		t.Errorf("server %q is alive after its session was closed (%v)", pid, err)
	}
	if _, said := c.prompt(a, "call die then call pid"); !strings.Contains(said, "could not call die") {
		t.Errorf("after a dead call: %q", said)
	}
	if _, said := c.prompt(a, "call pid"); said == "" || strings.Contains(said, "not") {
		t.Errorf("a dead server was not started again: %q", said)
	}
	if err := c.peer.Call(t.Context(), jsonrpc.MethodSessionPrompt, jsonrpc.PromptParams{SessionID: b}, nil); err == nil {
		t.Error("a closed session took a prompt")
	}
}

func TestServersThatDoNotStart(t *testing.T) {
	c := start(t, "")
	id := c.newSession(fake("playwright", "broken"), jsonrpc.MCPServer{Name: "none", Command: "/does/not/exist", Args: []string{}, Env: []jsonrpc.Pair{}})
	stop, said := c.prompt(id, "open http://a.test")
	for _, want := range []string{"The MCP server playwright did not start", "no usable sandbox", "The MCP server none did not start", "no such file", "I could not open http://a.test"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %q", want, said)
		}
	}
	trace := c.trace()
	if stop != jsonrpc.StopEndTurn || !slices.ContainsFunc(trace, func(l string) bool { return strings.HasPrefix(l, "tool_call_update failed +text") }) {
		t.Errorf("%s, %q", stop, trace)
	}
	c.peer.Close()
	if !strings.Contains(c.err.String(), "[playwright] no usable sandbox\n") {
		t.Errorf("stderr has %q", c.err.String())
	}
}

func TestHTTPAndSSEServers(t *testing.T) {
	streamable := httptest.NewServer(mcpserver.NewStreamableHTTPServer(fakeServer()))
	defer streamable.Close()
	sse := httptest.NewServer(mcpserver.NewSSEServer(fakeServer()))
	defer sse.Close()
	c := start(t, "")
	id := c.newSession(
		jsonrpc.MCPServer{Type: "http", Name: "h", URL: streamable.URL, Headers: []jsonrpc.Pair{{Name: "X-Tok", Value: "1"}}},
		jsonrpc.MCPServer{Type: "sse", Name: "s", URL: sse.URL + "/sse", Headers: []jsonrpc.Pair{}})
	_, said := c.prompt(id, "call h.pid then call s.pid")
	if want := fmt.Sprintf("%d\n%d\n", os.Getpid(), os.Getpid()); said != want {
		t.Errorf("got %q, want %q; stderr %s", said, want, c.err.String())
	}
	c.peer.Close()
	sse.CloseClientConnections()
	streamable.CloseClientConnections()
}

func TestBadSessions(t *testing.T) {
	c := start(t, t.TempDir())
	for _, p := range []string{
		`{"cwd":"/tmp"}`,
		`{"cwd":"tmp","mcpServers":[]}`,
		`{"cwd":"/tmp","mcpServers":[{"name":"a","command":"b","env":[]}]}`,
		`{"cwd":"/tmp","mcpServers":[{"name":"a","command":"b","args":[],"env":{}}]}`,
		`{"cwd":"/tmp","mcpServers":[{"name":"a","command":"b","args":[],"env":[]},{"name":"a","command":"b","args":[],"env":[]}]}`,
		`{"cwd":"/tmp","mcpServers":[{"type":"acp","name":"a","serverId":"b"}]}`,
		`{"cwd":"/tmp","mcpServers":[{"type":"http","name":"a","url":"http://b"}]}`,
		`[]`,
	} {
		err := c.peer.Call(t.Context(), jsonrpc.MethodSessionNew, json.RawMessage(p), nil)
		if e, ok := err.(*jsonrpc.Error); !ok || e.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s gave %v", p, err)
		}
	}
	for _, id := range []string{"", "../x", "demo-000000000000000000000000", "x/../../demo"} {
		err := c.peer.Call(t.Context(), jsonrpc.MethodSessionLoad, jsonrpc.LoadSessionParams{SessionID: id, Cwd: "/tmp", MCPServers: []jsonrpc.MCPServer{}}, nil)
		if e, ok := err.(*jsonrpc.Error); !ok || e.Code != jsonrpc.CodeResourceNotFound {
			t.Errorf("load %q gave %v", id, err)
		}
	}
	if err := c.peer.Call(t.Context(), "no/such", nil, nil); err == nil || !strings.Contains(err.Error(), "no method") {
		t.Errorf("got %v", err)
	}
}

func TestSessionsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	c := start(t, dir)
	id := c.newSession()
	c.prompt(id, "say one")
	c.prompt(id, "say two")
	c.peer.Close()

	c = start(t, dir)
	var list jsonrpc.ListSessionsResult
	c.call(jsonrpc.MethodSessionList, struct{}{}, &list)
	if len(list.Sessions) != 1 || list.Sessions[0].SessionID != id || list.Sessions[0].Title != "say one" || list.Sessions[0].UpdatedAt == "" {
		t.Errorf("list gave %+v", list)
	}
	load := jsonrpc.LoadSessionParams{SessionID: id, Cwd: t.TempDir(), MCPServers: []jsonrpc.MCPServer{fake("playwright")}}
	c.call(jsonrpc.MethodSessionLoad, load, nil)
	want := []string{"user_message_chunk", "session_info_update say one", "agent_message_chunk", "user_message_chunk", "agent_message_chunk"}
	if diff := cmp.Diff(want, c.trace()); diff != "" {
		t.Errorf("replay before the answer (-want +got):\n%s", diff)
	}
	if _, said := c.prompt(id, `call env {"name":"TOKEN"}`); said != "t-playwright\n" {
		t.Errorf("after load: %q", said)
	}
	c.peer.Close()

	c = start(t, dir)
	c.call(jsonrpc.MethodSessionResume, load, nil)
	if len(c.trace()) != 0 {
		t.Errorf("resume replayed %q", c.trace())
	}
	if _, said := c.prompt(id, `call env {"name":"TOKEN"}`); said != "t-playwright\n" {
		t.Errorf("after resume: %q", said)
	}
	var fork jsonrpc.NewSessionResult
	c.call(jsonrpc.MethodSessionFork, load, &fork)
	if fork.SessionID == id || fork.SessionID == "" {
		t.Errorf("fork gave %q", fork.SessionID)
	}
	c.call(jsonrpc.MethodSessionDelete, jsonrpc.SessionParams(fork), nil)
	info, err := os.Stat(filepath.Join(dir, id+".json"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left in the folder: %v, %v", files, err)
	}
	if err := os.WriteFile(filepath.Join(dir, id+".json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.peer.Call(t.Context(), jsonrpc.MethodSessionLoad, load, nil); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged file gave %v", err)
	}
}

func (c *testClient) waitFor(fits func(jsonrpc.Update) bool) {
	c.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case u := <-c.seen:
			if fits(u) {
				return
			}
		case <-deadline:
			c.t.Fatalf("it did not come; there were %q", c.trace())
		}
	}
}

func TestCancel(t *testing.T) {
	for _, prompt := range []string{"call hang", "run sleep 600", "wait 600 seconds", "click Go"} {
		t.Run(prompt, func(t *testing.T) {
			c := start(t, "")
			asked := make(chan struct{}, 1)
			c.answer = func(jsonrpc.PermissionParams) jsonrpc.PermissionResult {
				asked <- struct{}{}
				return jsonrpc.Selected("yes")
			}
			if prompt == "click Go" { // cancelled while the question is open
				c.answer = func(jsonrpc.PermissionParams) jsonrpc.PermissionResult {
					c.peer.Notify(t.Context(), jsonrpc.MethodSessionCancel, jsonrpc.SessionParams{SessionID: c.asked[0].SessionID})
					return jsonrpc.Cancelled()
				}
			}
			id := c.newSession(fake("playwright"))
			stop := make(chan string)
			go func() {
				s, _ := c.prompt(id, prompt+"\nsay never")
				stop <- s
			}()
			switch {
			case strings.HasPrefix(prompt, "click"):
			case strings.HasPrefix(prompt, "wait"):
				c.waitFor(func(u jsonrpc.Update) bool { return u.SessionUpdate == jsonrpc.UpdatePlan })
			default:
				c.waitFor(func(u jsonrpc.Update) bool { return u.Status == jsonrpc.StatusInProgress && u.ToolCallID != "" })
			}
			if !strings.HasPrefix(prompt, "click") {
				if err := c.peer.Call(t.Context(), jsonrpc.MethodSessionPrompt, jsonrpc.PromptParams{SessionID: id}, nil); err == nil {
					t.Error("a second prompt was taken during a turn")
				}
				c.peer.Notify(t.Context(), jsonrpc.MethodSessionCancel, jsonrpc.SessionParams{SessionID: id})
			}
			if s := <-stop; s != jsonrpc.StopCancelled {
				t.Errorf("it stopped with %s", s)
			}
			if said := c.said(0); strings.Contains(said, "never") {
				t.Errorf("it went on: %q", said)
			}
			if _, said := c.prompt(id, "say after"); said != "after\n" {
				t.Errorf("after a cancelled turn: %q", said)
			}
		})
	}
}

func TestRunAndFetch(t *testing.T) {
	web := httptest.NewServer(nil)
	defer web.Close()
	c := start(t, "")
	id := c.newSession()
	for _, tc := range []struct{ prompt, want string }{
		{`run echo "out"; echo err >&2; exit 3`, "out\nerr\nI could not run echo \"out\"; echo err >&2; exit 3: exit status 3.\n"},
		{"run printf '\\377'", "�\n"},
		{"run head -c 70000 /dev/zero | tr '\\0' x", clip(strings.Repeat("x", maxOutput)+"\n… (4464 bytes more)", maxShown) + "\n"},
		{"fetch " + web.URL + "/x", "404 Not Found · text/plain; charset=utf-8\n404 page not found\n"},
		{"fetch ftp://a.test", "I could not fetch ftp://a.test: the address must begin with http:// or https://.\n"},
		{"frobnicate", "I do not understand \"frobnicate\". " + helpText},
		{"", helpText},
	} {
		if _, said := c.prompt(id, tc.prompt); said != tc.want {
			t.Errorf("%q said %.200q, want %.200q", tc.prompt, said, tc.want)
		}
	}
	if len(c.asked) != 3 {
		t.Errorf("it asked %d times", len(c.asked))
	}
	_, pid := c.prompt(id, "run sleep 600 >/dev/null 2>&1 & echo $!")
	c.call(jsonrpc.MethodSessionClose, jsonrpc.SessionParams{SessionID: id}, nil)
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	for range 200 { // KILL is delivered at once, the reaping is init's
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n)); err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		runtimeYield()
	}
	t.Errorf("background process %d outlives its session", n)
}

func runtimeYield() { syscall.Nanosleep(&syscall.Timespec{Nsec: 1e7}, nil) }

func TestGarbageIsAnswered(t *testing.T) {
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- serve(context.Background(), there, "", &bytes.Buffer{}) }()
	dec := json.NewDecoder(here)
	for _, line := range []string{"hello", `{"jsonrpc":"2.0","id":"a","method":"x"}`, "[]", `{"jsonrpc":"2.0","id":5,"method":"session/prompt"}`} {
		fmt.Fprintln(here, line)
		var m struct{ Error *jsonrpc.Error }
		if err := dec.Decode(&m); err != nil || m.Error == nil {
			t.Errorf("%s was answered with %+v, %v", line, m, err)
		}
	}
	here.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestImagesOfAPrompt(t *testing.T) {
	c := start(t, "")
	id := c.newSession()
	var res jsonrpc.PromptResult
	c.call(jsonrpc.MethodSessionPrompt, jsonrpc.PromptParams{SessionID: id, Prompt: []jsonrpc.ContentBlock{
		{Type: jsonrpc.BlockImage, Data: base64.StdEncoding.EncodeToString(onePixel), MimeType: "image/png"}, jsonrpc.Text("say hi"),
	}}, &res)
	if said := c.said(0); said != "I got with your prompt: image of type image/png, 33 bytes.\nhi\n" {
		t.Errorf("it said %q", said)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	r := &record{}
	big := json.RawMessage(`"` + strings.Repeat("x", maxHistory/3) + `"`)
	for range 10 {
		r.add(big)
	}
	if len(r.History) != 2 {
		t.Errorf("%d updates are kept", len(r.History))
	}
}

func TestErrorText(t *testing.T) {
	for text, want := range map[string]string{
		"### Error\nError: browserBackend.callTool: net::ERR_X at http://a\nCall log:\n":                                                                  "net::ERR_X at http://a",
		"### Error\nError: async initializeServer: closed\nBrowser logs:\n  - [pid=36][err] [36:36:1/1:FATAL:content/x.cc:254] Failed to receive hello\n": "closed: content/x.cc:254] Failed to receive hello",
		"plain": "plain",
		"":      "the tool failed and said nothing",
	} {
		if got := errorText(text); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

func TestFindField(t *testing.T) {
	const page = "- textbox \"First name\" [ref=e1]\n- textbox \"Name\" [ref=e2]\n- textbox [ref=f2e3]:\n  - /placeholder: Search shops\n- button \"Go\" [ref=e4]\n"
	for field, want := range map[string]string{"name": "e2", "first": "e1", "Search": "f2e3", "irst n": "e1"} {
		if got, err := findField(page, field); got != want || err != nil {
			t.Errorf("%s is %s, %v, want %s", field, got, err, want)
		}
	}
	if _, err := findField(page, "Go"); err == nil || !strings.Contains(err.Error(), "it has: First name, Name, , Search shops") {
		t.Errorf("got %v", err)
	}
}

func TestFindNamed(t *testing.T) {
	const page = "URL: http://a/\n- heading \"Go on\" [ref=e1]\n- button \"Go\" [ref=e2]\n- link \"The \\\"best\\\" terms\" [ref=f1e3] [cursor=pointer]:\n  - /url: x\n"
	for name, want := range map[string]string{"go": "e2", "go o": "e1", `"best"`: "f1e3"} {
		if got, err := findNamed(page, name); got != want || err != nil {
			t.Errorf("%s is %s, %v, want %s", name, got, err, want)
		}
	}
	if _, err := findNamed(page, "Stop"); err == nil {
		t.Error("what is not there is found")
	}
}
