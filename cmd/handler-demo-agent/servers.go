package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

const (
	startTimeout = 60 * time.Second // of one MCP server, tools/list included
	callTimeout  = 2 * time.Minute  // of one tool call
	killDelay    = 2 * time.Second  // for a pipe that a descendant of a dead server still holds
)

// mcpVersion is what we ask for: every server of the last year answers to it.
const mcpVersion = "2025-06-18"

// A server is one MCP server of a session. It is started in the background and once more if it dies.
type server struct {
	cfg    jsonrpc.MCPServer
	cwd    string
	stderr *prefixer

	ready chan struct{} // closed when the start has ended
	// Valid after ready, and replaced by restart under mu.
	mu     sync.Mutex
	client *client.Client
	cmd    *exec.Cmd
	tools  []string
	err    error
}

// checkServers refuses what real agents refuse: missing arrays, unknown transports, names that are not unique.
func checkServers(servers []jsonrpc.MCPServer) error {
	seen := map[string]bool{}
	for i, s := range servers {
		bad := func(why string) error {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "mcpServers[%d]: %s", i, why)
		}
		switch {
		case s.Name == "":
			return bad("name is missing")
		case seen[s.Name]:
			return bad("MCP server names must be unique")
		case (s.Type == "" || s.Type == "stdio") && (s.Command == "" || s.Args == nil || s.Env == nil):
			return bad("a stdio server needs command, args and env; args and env are arrays, [] if empty")
		case (s.Type == "http" || s.Type == "sse") && (s.URL == "" || s.Headers == nil):
			return bad("an http or sse server needs url and headers; headers is an array, [] if empty")
		case !slices.Contains([]string{"", "stdio", "http", "sse"}, s.Type):
			return bad(fmt.Sprintf("transport %q is not one I take", s.Type))
		}
		seen[s.Name] = true
	}
	return nil
}

// startServer begins to start a server; wait for ready before anything else.
func startServer(ctx context.Context, cfg jsonrpc.MCPServer, cwd string, stderr io.Writer) *server {
	s := &server{cfg: cfg, cwd: cwd, stderr: &prefixer{prefix: "[" + cfg.Name + "] ", w: stderr}, ready: make(chan struct{})}
	go func() {
		defer close(s.ready)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.start(ctx)
	}()
	return s
}

// start runs with mu held.
func (s *server) start(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.client, s.cmd, s.tools = nil, nil, nil
	if s.err = s.connect(ctx); s.err != nil {
		s.stop()
		if tail := s.stderr.tail(); tail != "" {
			s.err = fmt.Errorf("%w; the last it wrote: %s", s.err, tail)
		}
	}
}

func (s *server) connect(ctx context.Context) error {
	t, err := s.transport()
	if err != nil {
		return err
	}
	//lint:ignore SA1019 servers of the handshake are what there is: asking for the newer protocol first costs each a failed call
	c := client.NewClient(t, client.WithLegacyProtocolOnly())
	// The transport outlives the start; Close ends it.
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.client = c
	var init mcp.InitializeRequest
	init.Params.ProtocolVersion = mcpVersion
	init.Params.ClientInfo = mcp.Implementation{Name: "handler-demo-agent", Version: version}
	if _, err := c.Initialize(ctx, init); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	list, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	for _, t := range list.Tools {
		s.tools = append(s.tools, t.Name)
	}
	return nil
}

func (s *server) transport() (transport.Interface, error) {
	quiet := slog.New(slog.DiscardHandler)
	headers := map[string]string{}
	for _, h := range s.cfg.Headers {
		headers[h.Name] = h.Value
	}
	switch s.cfg.Type {
	case "http":
		return transport.NewStreamableHTTP(s.cfg.URL, transport.WithHTTPHeaders(headers), transport.WithHTTPLogger(quiet))
	case "sse":
		return transport.NewSSE(s.cfg.URL, transport.WithHeaders(headers), transport.WithSSELogger(quiet))
	}
	return transport.NewStdioWithOptions(s.cfg.Command, nil, s.cfg.Args, transport.WithCommandLogger(quiet),
		transport.WithCommandFunc(func(context.Context, string, []string, []string) (*exec.Cmd, error) {
			cmd := exec.Command(s.cfg.Command, s.cfg.Args...)
			cmd.Dir = s.cwd
			cmd.Env = os.Environ()
			for _, e := range s.cfg.Env {
				cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
			}
			cmd.Stderr = s.stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts ends with it
			cmd.WaitDelay = killDelay
			s.cmd = cmd
			return cmd, nil
		})), nil
}

// stop ends the server's processes: end of input, two seconds, TERM, three seconds, KILL for the whole group. It runs
// with mu held.
func (s *server) stop() {
	if s.client != nil {
		_ = s.client.Close() // it says how the process ended, which matters to nobody any more
	}
	if s.cmd != nil && s.cmd.Process != nil {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	}
	s.client, s.cmd = nil, nil
}

// close waits for the start to end and stops the server.
func (s *server) close() {
	<-s.ready
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	s.err = errors.New("the session was closed")
}

// failure gives why the server is not there; nil if it is. Ready must be closed.
func (s *server) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *server) has(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && slices.Contains(s.tools, tool)
}

// call calls a tool. A server that turns out to be dead is started again, and the call made once more.
func (s *server) call(ctx context.Context, tool string, args any) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var req mcp.CallToolRequest
	req.Params.Name, req.Params.Arguments = tool, args
	s.mu.Lock()
	c, err := s.client, s.err
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	res, err := c.CallTool(ctx, req)
	if !errors.Is(err, transport.ErrTransportClosed) || ctx.Err() != nil {
		return res, err
	}
	s.mu.Lock()
	if s.client == c {
		s.stop()
		s.start(ctx)
	}
	c, err = s.client, s.err
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("the server died and does not start again: %w", err)
	}
	return c.CallTool(ctx, req)
}

// A prefixer writes whole lines with a prefix and remembers the last of them. It may be used from any goroutine.
type prefixer struct {
	prefix string
	w      io.Writer

	mu   sync.Mutex
	part []byte
	last []string
}

const (
	maxStderrLine = 4096
	keepLines     = 3
)

// Write never fails: a server must not die of a full log.
func (p *prefixer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		p.part = append(p.part, line[:min(len(line), max(0, maxStderrLine-len(p.part)))]...)
		if whole {
			p.flush()
		}
		b = rest
	}
	return n, nil
}

func (p *prefixer) flush() {
	line := strings.TrimRight(string(p.part), "\r")
	p.part = p.part[:0]
	fmt.Fprintf(p.w, "%s%s\n", p.prefix, line)
	if strings.TrimSpace(line) != "" {
		p.last = append(p.last, line)
		p.last = p.last[max(0, len(p.last)-keepLines):]
	}
}

// tail gives the last lines as one.
func (p *prefixer) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.part) > 0 {
		p.flush()
	}
	return strings.Join(p.last, " / ")
}
