package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/handlerd/handler/sandbox"
)

// A gatewayServer is an addon of bench's own, which handlerd hosts as it hosts any server: with none of the guarded browser's
// checks, so that what is added is the gateway's and the second sandbox's alone.
type gatewayServer struct {
	addon         string
	command       []string // below the addon's bin
	containerfile string   // but for its first line
	calls         []gatewayCall
}

// A gatewayCall is a tool that is called, and what a row calls it.
type gatewayCall struct{ tool, args, what string }

func gatewayServers() []gatewayServer {
	const playwright, answer = "bench-playwright", "bench-answer"
	return []gatewayServer{
		{playwright, []string{"playwright-mcp"}, "FROM " + sandbox.AddonImage("playwright") + " AS upstream\nFROM ${TOOLBOX} AS build\n" +
			"COPY --from=upstream / " + sandbox.AddonsTarget + "/" + playwright + "\n",
			[]gatewayCall{{"browser_tabs", `{"action":"list"}`, "playwright-mcp, short answer"}, {"browser_snapshot", `{}`, "playwright-mcp, page read"}}},
		{answer, []string{"bench", rolePrefix + "answer"}, "FROM ${TOOLBOX} AS build\nCOPY bin " + sandbox.AddonsTarget + "/" + answer + "/bin\n",
			[]gatewayCall{{"answer", `{"bytes":200}`, "a server that answers at once"}, {"answer", `{"bytes":200000}`, "the same, 200 KB"}}},
	}
}

// gatewayCalls is how often each side is called in one run: a run may make 200 at once (docs/handlers/limits.md).
const gatewayCalls = 150

// measureGateway holds a tool call through the gateway against the same server spoken to directly. The client is in the
// agent's sandbox, as an agent is. One of its servers runs beside it, the other one is hosted, and they are called in turns;
// of playwright-mcp each has a Chromium of its own with the same page.
func measureGateway(ctx context.Context, b *bench) error {
	d, err := b.startDaemon(ctx)
	if err != nil {
		return err
	}
	for _, s := range gatewayServers() {
		if err := d.measureServer(ctx, b, s); err != nil {
			return err
		}
	}
	return nil
}

func (d *daemon) measureServer(ctx context.Context, b *bench, s gatewayServer) (err error) {
	if err := d.buildServer(ctx, b, s); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.removeImage(sandbox.AddonImage(s.addon))) }()
	for _, call := range s.calls {
		var hosted, direct []float64
		for range b.times(3, 1) {
			took, err := d.callBoth(ctx, b, s, call)
			if err != nil {
				return err
			}
			hosted, direct = append(hosted, took[0]...), append(direct, took[1]...)
		}
		b.report.add(row{
			Group: "gateway", What: "gateway: added to a tool call, " + call.what + ", median", Figure: minus(hosted, direct), Unit: "ms", Target: atMost(2),
			Numbers: []number{{"hosted", median(hosted), "ms"}, {"beside the agent", median(direct), "ms"}, {"ratio", ratio(hosted, direct), "×"}},
		})
	}
	return nil
}

// buildServer writes and builds the addon, and writes the agent that is bound to it.
func (d *daemon) buildServer(ctx context.Context, b *bench, s gatewayServer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	argv, err := json.Marshal(s.command)
	if err != nil {
		return err
	}
	dir := filepath.Join(d.catalog.Config, "addons", s.addon)
	for name, text := range map[string]string{
		filepath.Join(dir, "addon.toml"):                      fmt.Sprintf("name = %q\nversion = \"1\"\ncommands = [%q]\n[build]\ncontainerfile = \"Containerfile\"\n[mcp]\ncommand = %s\n", s.addon, s.command[0], argv),
		filepath.Join(dir, "Containerfile"):                   "ARG TOOLBOX\n" + s.containerfile,
		filepath.Join(dir, "bin/bench"):                       string(program),
		filepath.Join(d.catalog.AgentsDir(), s.addon+".toml"): fmt.Sprintf("harness = \"demo\"\n[bindings.%s]\nplacement = \"hosted\"\n", s.addon),
		filepath.Join(d.scope, "bench"):                       string(program),
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "handler"), "addon", "build", s.addon)
	cmd.Env = d.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("handler addon build %s: %w\n%s", s.addon, err, out)
	}
	return nil
}

// callBoth has a client in a run's sandbox call the tool of both servers in turns, and gives the milliseconds of each:
// first hosted, then beside the agent.
func (d *daemon) callBoth(ctx context.Context, b *bench, s gatewayServer, call gatewayCall) (took [2][]float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	l, err := d.run(ctx, s.addon)
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, l.end(context.WithoutCancel(ctx), d)) }()
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "handler"), "shell", l.stream.RunID, "--",
		filepath.Join(d.scope, "bench"), rolePrefix+"mcp", strconv.Itoa(b.times(gatewayCalls, 30)), call.tool, call.args,
		sandbox.GuestTarget+"/handler-guest mcp "+s.addon, strings.Join(s.command, " "))
	var out, said bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = d.env, &out, &said
	if err := cmd.Run(); err != nil {
		return took, fmt.Errorf("the client in the sandbox: %w\n%s", err, said.Bytes())
	}
	if err := json.Unmarshal(out.Bytes(), &took); err != nil {
		return took, fmt.Errorf("the client in the sandbox said %.300q: %w", out.Bytes(), err)
	}
	return took, nil
}

// removeImage has podman's service forget an image that bench made.
func (d *daemon) removeImage(ref string) error {
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", d.podman)
	}}}
	defer c.CloseIdleConnections()
	req, err := http.NewRequest(http.MethodDelete, "http://d/v4.0.0/libpod/images/"+url.PathEscape(ref), nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("the image %s is left: %w", ref, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("the image %s is left: %s: %s", ref, resp.Status, text)
	}
	return nil
}

// mcpRole is an MCP client that calls one tool of two servers in turns and prints the milliseconds of each. Where the tool
// is a browser's, both open a page first.
//
//	mcp TIMES TOOL ARGS COMMAND COMMAND
func mcpRole(args []string) error {
	if len(args) != 5 {
		return errors.New("it takes TIMES TOOL ARGS COMMAND COMMAND")
	}
	times, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var servers [2]*mcpServer
	for i := range servers {
		if servers[i], err = startMCP(strings.Fields(args[3+i])); err != nil {
			return err
		}
		defer servers[i].close() //nolint:errcheck // the sandbox ends
		if !strings.HasPrefix(args[1], "browser_") {
			continue
		}
		page := "data:text/html,<title>Page</title><h1>Hello</h1>" + strings.Repeat("<p>a line of text, <a href=x>a link</a></p>", 20)
		if _, err := servers[i].call("browser_navigate", fmt.Sprintf(`{"url":%q}`, page)); err != nil {
			return fmt.Errorf("%s: %w", args[3+i], err)
		}
	}
	all := make([]contender, len(servers))
	for i, s := range servers {
		all[i] = contender{func(context.Context) (float64, error) {
			took, err := s.call(args[1], args[2])
			return milliseconds(took), err
		}}
	}
	took, err := turns(context.Background(), times, all...)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(took)
}

// answerRole is an MCP server with one tool, which answers at once with a text of so many bytes.
func answerRole([]string) error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	texts := map[int]string{}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // the end of input is how it ends
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Arguments struct {
					Bytes int `json:"bytes"`
				} `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		result := "{}"
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"answer","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"answer","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			n := m.Params.Arguments.Bytes
			if texts[n] == "" {
				texts[n] = strings.Repeat("answer, ", n/8)
			}
			result = `{"content":[{"type":"text","text":"` + texts[n] + `"}]}`
		}
		if m.ID == nil {
			continue
		}
		if _, err := fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result); err != nil {
			return nil
		}
	}
}

// An mcpServer is a stdio server that was greeted.
type mcpServer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

func startMCP(argv []string) (*mcpServer, error) {
	s := &mcpServer{cmd: exec.Command(argv[0], argv[1:]...)}
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.in, s.out = in, bufio.NewReaderSize(out, 1<<20)
	if _, err := s.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); err != nil {
		return nil, errors.Join(err, s.close())
	}
	_, err = io.WriteString(s.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return s, err
}

// call gives the time of one call of a tool; a result that is an error is one.
func (s *mcpServer) call(tool, args string) (time.Duration, error) {
	return s.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
}

func (s *mcpServer) ask(method, params string) (time.Duration, error) {
	s.id++
	began := time.Now()
	if _, err := fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", s.id, method, params); err != nil {
		return 0, err
	}
	for {
		line, err := s.out.ReadBytes('\n')
		if err != nil {
			return 0, fmt.Errorf("%s was not answered: %w", method, err)
		}
		took := time.Since(began)
		var m struct {
			ID     *int            `json:"id"`
			Error  json.RawMessage `json:"error"`
			Result struct {
				IsError bool `json:"isError"`
			} `json:"result"`
		}
		switch err := json.Unmarshal(line, &m); {
		case err != nil:
			return 0, fmt.Errorf("%s was answered %.300q: %w", method, line, err)
		case m.ID == nil || *m.ID != s.id:
			continue // a notice
		case m.Error != nil || m.Result.IsError:
			return 0, fmt.Errorf("%s was answered %.1000s", method, line)
		}
		return took, nil
	}
}

// close ends a server, with force if it does not end with its input.
func (s *mcpServer) close() error {
	_ = s.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	_ = s.cmd.Wait() // how it ended says nothing
	return nil
}
