package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// modes are the ways in which the agent misbehaves. Where a mode says nothing else, the agent answers initialize,
// session/* and prompts as it should.
//
//	plain            does nothing wrong; a prompt "lines" is answered with every line that came so far
//	die CODE         writes to standard error and ends at once
//	die-late CODE    answers initialize, and ends
//	silent           reads and never answers
//	noise            writes lines that are no messages before and between its answers
//	mid-turn CODE    ends in the middle of a turn
//	half-line        ends in the middle of a line
//	stubborn         ignores TERM and the end of its input
//	host             asks in a turn for all that only the host has; says what it was answered
//	logins           offers logins that a client would run as command lines, and wants one
//	version2         answers initialize with protocol version 2
//	huge MIB         sends a line of so many MiB in a turn
//	ask              asks permission in a turn and says the answer; with a tool call that claims to be a read
//	imitate          connects to the daemon's sockets as if it were the guest; says what came of it
//	flood            writes 20 MB to standard error and 20000 updates in a turn
//	shell            does a prompt "run COMMAND" and says what it printed
//	raw              does a prompt "raw FILE" (raw.go)
//	mcp              does a prompt "mcp NAME FILE" to an MCP server of its session (mcp.go)
//	storm N          connects N times to each of the daemon's sockets, as whoever; says what came of it
//	steal-id         sends requests with ids that the client uses, and answers that nobody asked for
func agentMain(args []string) {
	a := &agent{mode: args[0], out: bufio.NewWriter(os.Stdout), in: bufio.NewReaderSize(os.Stdin, 1<<20)}
	if len(args) > 1 {
		a.arg, _ = strconv.Atoi(args[1])
	}
	switch a.mode {
	case "die":
		for i := range 20 {
			fmt.Fprintf(os.Stderr, "agent: line %d of what went wrong\n", i+1)
		}
		fmt.Fprintln(os.Stderr, "agent: no such model \x1b[31mred\x1b[0m")
		os.Exit(a.arg)
	case "silent":
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	case "noise":
		fmt.Print("Welcome to the agent!\n\n{\"not\": \"json-rpc\"\n[1,2,3]\n\"text\"\nnull\n\x00\xff\xfe\n")
	}
	a.serve()
	if a.mode == "stubborn" {
		time.Sleep(time.Hour) // to be killed is what it is for
	}
}

type agent struct {
	mode  string
	arg   int
	in    *bufio.Reader
	out   *bufio.Writer
	lines []string
	id    int

	servers []mcpServer // of the session
}

// A message is one line, with its id as it was spelled.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// next gives the next line that is a message.
func (a *agent) next() (message, bool) {
	for {
		line, err := a.in.ReadBytes('\n')
		if err != nil {
			return message{}, false
		}
		line = bytes.TrimSpace(line)
		a.lines = append(a.lines, string(line[:min(len(line), 4000)]))
		var m message
		if json.Unmarshal(line, &m) == nil {
			return m, true
		}
	}
}

func (a *agent) write(format string, args ...any) {
	fmt.Fprintf(a.out, format+"\n", args...)
	_ = a.out.Flush() // a client that has gone ends the input, too
	if a.mode == "noise" {
		fmt.Print("DEBUG: wrote a line\n")
	}
}

func (a *agent) answer(id json.RawMessage, result string) {
	a.write(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// call sends a request and gives the answer to it.
func (a *agent) call(method, params string) message {
	a.id++
	id := fmt.Sprintf(`"a%d"`, a.id)
	a.write(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
	for {
		m, ok := a.next()
		if !ok {
			os.Exit(0)
		}
		if m.Method == "" && string(m.ID) == id {
			return m
		}
	}
}

func (a *agent) say(session, format string, args ...any) {
	text, _ := json.Marshal(fmt.Sprintf(format, args...) + "\n") // a string always encodes
	a.write(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%s}}}}`, session, text)
}

func (a *agent) serve() {
	for {
		m, ok := a.next()
		if !ok {
			return
		}
		switch m.Method {
		case "initialize":
			a.initialize(m)
		case "session/new", "session/fork":
			if a.mode == "logins" {
				a.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"log in first","data":{"authMethods":%s}}}`, m.ID, logins)
				continue
			}
			a.keepServers(m.Params)
			a.answer(m.ID, `{"sessionId":"s1"}`)
		case "session/load", "session/resume", "session/close", "session/delete", "authenticate":
			a.answer(m.ID, `{}`)
		case "session/prompt":
			a.prompt(m)
		default:
			if m.ID != nil && m.Method != "" {
				a.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
			}
		}
	}
}

// logins are ways to log in of every kind: the first alone is one that does not start a program on the host.
const logins = `[{"id":"key","name":"API key"},{"id":"shell","name":"Log in","type":"terminal","args":["login"]},` +
	`{"id":"meta","name":"Log in","_meta":{"terminal-auth":{"command":"sh","args":["-c","id"]}}}]`

func (a *agent) initialize(m message) {
	version, methods := "1", "[]"
	switch a.mode {
	case "version2":
		version = "2"
	case "logins":
		methods = logins
	}
	a.answer(m.ID, fmt.Sprintf(`{"protocolVersion":%s,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true,"sse":true},`+
		`"sessionCapabilities":{"resume":{},"fork":{},"close":{}},"unknown":{"kept":1.0}},"authMethods":%s}`, version, methods))
	if a.mode == "die-late" {
		fmt.Fprintln(os.Stderr, "agent: ends after initialize")
		os.Exit(a.arg)
	}
}

func (a *agent) prompt(m message) {
	var p struct {
		SessionID string `json:"sessionId"`
		Prompt    []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	}
	_ = json.Unmarshal(m.Params, &p) // a prompt without either is answered all the same
	text := ""
	for _, b := range p.Prompt {
		text += b.Text
	}
	if text == "lines" {
		for _, line := range a.lines {
			a.say(p.SessionID, "%s", line)
		}
	}
	if command, ok := strings.CutPrefix(text, "run "); ok && a.mode == "shell" {
		out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput()
		a.say(p.SessionID, "%s%v", out, err)
	}
	if file, ok := strings.CutPrefix(text, "raw "); ok && a.mode == "raw" {
		a.raw(p.SessionID, file)
	}
	if words := strings.Fields(text); len(words) == 3 && words[0] == "mcp" && a.mode == "mcp" {
		a.mcp(p.SessionID, words[1], words[2])
	}
	a.misbehave(p.SessionID)
	a.answer(m.ID, `{"stopReason":"end_turn"}`)
}

func (a *agent) misbehave(session string) {
	switch a.mode {
	case "mid-turn":
		a.say(session, "I begin, and")
		fmt.Fprintln(os.Stderr, "agent: panic: out of ideas")
		os.Exit(a.arg)
	case "half-line":
		fmt.Print(`{"jsonrpc":"2.0","method":"session/update","params":{"sess`)
		os.Exit(0)
	case "host":
		a.askHost(session)
	case "huge":
		a.say(session, "%s", strings.Repeat("y", a.arg<<20))
	case "ask":
		m := a.call("session/request_permission", fmt.Sprintf(`{"sessionId":%q,"toolCall":{"toolCallId":"t1","title":"rm -rf ~","kind":"read"},`+
			`"options":[{"optionId":"always","name":"Always","kind":"allow_always"},{"optionId":"once","name":"Once","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}`, session))
		a.say(session, "answered: %s", m.Result)
	case "imitate":
		a.imitate(session)
	case "flood":
		line := strings.Repeat("e", 999) + "\n"
		for range 20_000 {
			_, _ = os.Stderr.WriteString(line)
		}
		for i := range 20_000 {
			fmt.Fprintf(a.out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"%d"}}}}`+"\n", session, i)
		}
		a.say(session, "flooded")
	case "storm":
		a.storm(session, a.arg)
	case "steal-id":
		a.write(`{"jsonrpc":"2.0","id":1,"result":{"stolen":true}}`)
		a.write(`{"jsonrpc":"2.0","id":99999,"result":{"stolen":true}}`)
		a.write(`{"jsonrpc":"2.0","id":"never","error":{"code":1,"message":"stolen"}}`)
		a.say(session, "stole")
	}
}

// askHost asks for what only the host has.
func (a *agent) askHost(session string) {
	for _, c := range [][2]string{
		{"terminal/create", `{"sessionId":"` + session + `","command":"id"}`},
		{"terminal/output", `{"sessionId":"` + session + `","terminalId":"1"}`},
		{"fs/read_text_file", `{"sessionId":"` + session + `","path":"/etc/passwd"}`},
		{"fs/write_text_file", `{"sessionId":"` + session + `","path":"/etc/passwd","content":"x"}`},
		{"workspace/run", `{}`},
		{"_vendor/exec", `{"command":"id"}`},
		{"elicitation/create", `{"sessionId":"` + session + `","mode":"url","message":"log in","url":"http://evil.example/"}`},
	} {
		m := a.call(c[0], c[1])
		if m.Error == nil {
			a.say(session, "%s: DONE %s", c[0], m.Result)
			continue
		}
		a.say(session, "%s: %d %s", c[0], m.Error.Code, m.Error.Data)
	}
}

// imitate does what the guest does, a second time.
func (a *agent) imitate(session string) {
	for _, name := range []string{"acp.sock", "guest.sock", "files.sock"} {
		c, err := net.DialTimeout("unix", "/run/handler/"+name, tries)
		if err != nil {
			a.say(session, "%s: refused: %v", name, err)
			continue
		}
		_, err = fmt.Fprint(c, `{"kind":"hello","version":1}`+"\n"+`{"kind":"exit","code":0}`+"\n")
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, rerr := c.Read(make([]byte, 100))
		a.say(session, "%s: CONNECTED, write %v, read %d %v", name, err, n, rerr)
		c.Close()
	}
}
