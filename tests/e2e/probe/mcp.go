package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// mcpPatience is what one answer of a server may take, the start of its sandbox included.
const mcpPatience = 60 * time.Second

// An mcpServer is one of session/new's, as far as a stdio server goes.
type mcpServer struct {
	Name    string   `json:"name"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
}

// keepServers remembers what a session was given.
func (a *agent) keepServers(params json.RawMessage) {
	var p struct {
		Servers []mcpServer `json:"mcpServers"`
	}
	_ = json.Unmarshal(params, &p) // a request without any gives none
	a.servers = p.Servers
}

// mcp starts the command of the MCP server NAME, greets it, and does a file of the current folder, of which a line is one of
//
//	> TEXT         TEXT and a newline
//	fill N TEXT    TEXT and a newline, with N times x in place of @@
//	times N TEXT   TEXT and a newline N times, with the number in place of @@
//	< TEXT         waits for a line that has TEXT and was not taken yet, takes it and says it
//	count N TEXT   waits for N such lines, and says how many there were then
//	never TEXT     says whether any line up to now has TEXT
//	touch FILE     makes an empty file
//	await FILE     waits until there is FILE
//
// What is waited for too long is said, and ends the file.
func (a *agent) mcp(session, name, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		a.say(session, "mcp: %v", err)
		return
	}
	for _, s := range a.servers {
		if s.Name != name {
			continue
		}
		c, err := dialMCP(s)
		if err != nil {
			a.say(session, "mcp: %v", err)
			return
		}
		defer c.end()
		for line := range strings.Lines(string(data)) {
			word, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
			said, ok := c.do(word, rest)
			if said != "" {
				a.say(session, "%s", said)
			}
			if !ok {
				return
			}
		}
		a.say(session, "mcp: done")
		return
	}
	a.say(session, "mcp: no server %s", name)
}

// An mcpClient is the client's end of a server's pipes.
type mcpClient struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu    sync.Mutex
	lines []string      // protected by mu; "" where taken
	over  bool          // protected by mu
	more  chan struct{} // protected by mu; closed and made anew with every line
}

const mcpHello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}` + "\n" +
	`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

func dialMCP(s mcpServer) (*mcpClient, error) {
	c := &mcpClient{cmd: exec.Command(s.Command, s.Args...), more: make(chan struct{})}
	c.cmd.Env, c.cmd.Stderr = os.Environ(), os.Stderr
	for _, e := range s.Env {
		c.cmd.Env = append(c.cmd.Env, e.Name+"="+e.Value)
	}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(bufio.NewReaderSize(out, 1<<20))
	if _, err := io.WriteString(c.in, mcpHello); err != nil {
		return nil, err
	}
	if said, ok := c.take(1, `"id":0`); !ok {
		return nil, fmt.Errorf("initialize: %s", said)
	}
	return c, nil
}

func (c *mcpClient) read(r *bufio.Reader) {
	for {
		line, err := r.ReadString('\n')
		c.mu.Lock()
		if line != "" {
			c.lines = append(c.lines, strings.TrimRight(line, "\n"))
		}
		c.over = err != nil
		close(c.more)
		c.more = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *mcpClient) end() {
	_ = c.in.Close()
	_ = c.cmd.Wait() // how it ended is not what is looked at
}

// do does one line of a file, and gives what there is to say of it; false where the rest makes no sense any more.
func (c *mcpClient) do(word, rest string) (said string, ok bool) {
	n := 0
	if word == "fill" || word == "times" || word == "count" {
		_, _ = fmt.Sscan(rest, &n) // 0 does nothing
		_, rest, _ = strings.Cut(rest, " ")
	}
	switch word {
	case ">":
		return c.write(rest)
	case "fill":
		return c.write(strings.ReplaceAll(rest, "@@", strings.Repeat("x", n)))
	case "times":
		for i := range n {
			if said, ok := c.write(strings.ReplaceAll(rest, "@@", fmt.Sprint(i))); !ok {
				return said, false
			}
		}
		return "", true
	case "<":
		return c.take(1, rest)
	case "count":
		return c.take(n, rest)
	case "never":
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, line := range c.lines {
			if strings.Contains(line, rest) {
				return "SEEN: " + shorten(line), true
			}
		}
		return "never: " + rest, true
	case "touch":
		if err := os.WriteFile(rest, nil, 0o600); err != nil {
			return err.Error(), false
		}
		return "", true
	case "await":
		for began := time.Now(); time.Since(began) < mcpPatience; time.Sleep(20 * time.Millisecond) { // a folder tells of no file
			if _, err := os.Stat(rest); err == nil {
				return "", true
			}
		}
		return "no file " + rest, false
	}
	return "mcp: no directive " + word, false
}

func (c *mcpClient) write(line string) (said string, ok bool) {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return "write: " + err.Error(), false
	}
	return "", true
}

// take waits for n lines that have text and were not taken yet, and takes them. Of one it says the line, of more how
// many they were.
func (c *mcpClient) take(n int, text string) (said string, ok bool) {
	timer := time.NewTimer(mcpPatience)
	defer timer.Stop()
	taken := 0
	for {
		c.mu.Lock()
		for i, line := range c.lines {
			if taken < n && line != "" && strings.Contains(line, text) {
				c.lines[i] = ""
				said = "got: " + shorten(line)
				taken++
			}
		}
		over, more := c.over, c.more
		c.mu.Unlock()
		switch {
		case taken == n && n > 1:
			return fmt.Sprintf("got %d lines with %s", n, text), true
		case taken == n:
			return said, true
		case over:
			return fmt.Sprintf("ENDED after %d lines with %s", taken, text), false
		}
		select {
		case <-more:
		case <-timer.C:
			return fmt.Sprintf("LATE: %d lines with %s", taken, text), false
		}
	}
}

// shorten keeps the beginning of a long line.
func shorten(line string) string {
	if len(line) <= 600 {
		return line
	}
	return fmt.Sprintf("%s… (%d bytes)", line[:600], len(line))
}
