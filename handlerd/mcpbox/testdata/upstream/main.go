// Command upstream stands in for a hosted server, and for playwright-mcp in the tests of workers: it speaks MCP on its standard input and output,
// and its tools are what can go wrong.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   any             `json:"error,omitempty"`
}

var (
	mu        sync.Mutex
	cancelled = make(chan struct{}, 16)
	answers   = make(chan string, 16)
)

func send(m message) {
	m.JSONRPC = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	mu.Lock()
	defer mu.Unlock()
	os.Stdout.Write(append(b, '\n'))
}

func text(id json.RawMessage, text string, isError bool) {
	send(message{ID: id, Result: map[string]any{"isError": isError, "content": []any{map[string]string{"type": "text", "text": text}}}})
}

func main() {
	switch os.Getenv("UPSTREAM") {
	case "dies":
		fmt.Fprintln(os.Stderr, "upstream: no such page")
		os.Exit(7)
	case "unisolated":
		fmt.Fprintln(os.Stderr, "FATAL: No usable sandbox! Update your kernel")
		os.Exit(1)
	case "silent":
		time.Sleep(time.Hour) // waits for nothing: the test ends it
	}
	files := os.Getenv("HANDLER_BROWSER_FILES")
	if files == "" {
		files = os.TempDir()
	}
	if err := os.MkdirAll(filepath.Join(files, "out"), 0o700); err != nil {
		panic(err)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			panic("no JSON: " + string(line))
		}
		switch m.Method {
		case "":
			answers <- string(line)
		case "initialize":
			send(message{ID: m.ID, Result: map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]string{"name": "upstream", "version": "1"}}})
		case "notifications/cancelled":
			cancelled <- struct{}{}
		case "tools/list":
			list(m)
		case "tools/call":
			go call(m, files)
		}
	}
}

// list gives the tools in two pages, or what UPSTREAM says is wrong with them.
func list(m message) {
	var p struct{ Cursor string }
	_ = json.Unmarshal(m.Params, &p) // there may be none
	tool := func(name string) map[string]any {
		return map[string]any{"name": name, "description": "does " + name, "inputSchema": map[string]any{
			"type": "object", "oneOf": []any{map[string]any{"required": []string{"n"}}}, "x-mine": true}}
	}
	result := map[string]any{}
	switch how := os.Getenv("UPSTREAM"); {
	case how == "no-tools":
		send(message{ID: m.ID, Error: map[string]any{"code": -32000, "message": "none today"}})
		return
	case how == "odd-name":
		result["tools"] = []any{tool("a b")}
	case how == "no-schema":
		result["tools"] = []any{map[string]any{"name": "bare"}}
	case how == "endless":
		result["tools"], result["nextCursor"] = []any{tool("again")}, "more"
	case p.Cursor == "":
		result["tools"], result["nextCursor"] = []any{tool("echo"), tool("env")}, "2"
	default:
		result["tools"] = []any{tool("kill"), tool("progress"), tool("hang"), tool("read"), tool("changed")}
	}
	send(message{ID: m.ID, Result: result})
}

func call(m message, files string) {
	var p struct {
		Name      string
		Arguments map[string]any
		Meta      struct{ ProgressToken any } `json:"_meta"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		panic("no parameters: " + string(m.Params))
	}
	n, _ := p.Arguments["n"].(float64)
	switch p.Name {
	case "echo":
		b, _ := json.Marshal(p.Arguments)
		text(m.ID, string(b), false)
	case "env":
		text(m.ID, strings.Join(os.Environ(), "\n"), false)
	case "read":
		b, err := os.ReadFile(p.Arguments["path"].(string))
		text(m.ID, fmt.Sprint(string(b), err), false)
	case "changed":
		send(message{Method: "notifications/tools/list_changed"})
		text(m.ID, "said", false)
	case "progress":
		b, _ := json.Marshal(map[string]any{"progressToken": p.Meta.ProgressToken, "progress": 1, "total": 4, "message": "a quarter\x1b"})
		send(message{Method: "notifications/progress", Params: b})
		text(m.ID, "done", false)
	case "big":
		text(m.ID, strings.Repeat("x", int(n)), false)
	case "hang":
		<-cancelled
		if err := os.WriteFile(filepath.Join(files, "out", "cancelled"), nil, 0o600); err != nil {
			panic(err)
		}
	case "exit":
		fmt.Fprintln(os.Stderr, "upstream: told to end")
		os.Exit(int(n))
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "noise":
		mu.Lock()
		for range int(n) {
			fmt.Println("this is no JSON")
		}
		mu.Unlock()
		text(m.ID, "after the noise", false)
	case "error":
		send(message{ID: m.ID, Error: map[string]any{"code": -32000, "message": "it went wrong"}})
	case "said":
		text(m.ID, p.Arguments["text"].(string), p.Arguments["isError"] == true)
	case "questions":
		for i := range int(n) {
			send(message{ID: json.RawMessage(fmt.Sprintf(`"q%d"`, i)), Method: p.Arguments["method"].(string), Params: json.RawMessage("{}")})
		}
		text(m.ID, <-answers, false)
	case "file":
		name := filepath.Join(files, "out", "made")
		if err := os.WriteFile(name, []byte(strings.Repeat("y", int(n))), 0o600); err != nil {
			panic(err)
		}
		if err := os.Symlink("/etc/hostname", filepath.Join(files, "out", "link")); err != nil {
			panic(err)
		}
		text(m.ID, "/run/handler-files/out/made", false)
	}
}
