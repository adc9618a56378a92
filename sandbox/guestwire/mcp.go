package guestwire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// MaxMCPHello bounds the line by which a connection to mcp.sock says what it wants, its newline included.
const MaxMCPHello = 1 << 10

// An MCPHello is that line. After it the connection carries MCP, a message a line, both ways.
type MCPHello struct {
	Server string // the name of a server that handlerd hosts for the run
	Token  string // stands for the ACP session that the server was given to; "" for none
}

var mcpName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
var mcpToken = regexp.MustCompile(`^[A-Z2-7]{0,64}$`)

type mcpHelloLine struct {
	Type   string `json:"type"`
	Server string `json:"server"`
	Token  string `json:"token"`
}

// Check refuses a hello that ReadMCPHello would.
func (h MCPHello) Check() error {
	if !mcpName.MatchString(h.Server) {
		return errors.New("the server's name must be lower-case letters, digits and \"-\", at most 64")
	}
	if !mcpToken.MatchString(h.Token) {
		return errors.New("the session's token is none that handlerd gave")
	}
	return nil
}

// Line gives the hello as it is sent.
func (h MCPHello) Line() ([]byte, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(mcpHelloLine{"mcp", h.Server, h.Token})
	return append(b, '\n'), err
}

// ReadMCPHello reads it strictly: one flat object, exactly its keys, each once.
func ReadMCPHello(r *bufio.Reader) (MCPHello, error) {
	var line []byte
	for {
		c, err := r.ReadByte()
		if err != nil {
			return MCPHello{}, err
		}
		if c == '\n' {
			break
		}
		if line = append(line, c); len(line) >= MaxMCPHello {
			return MCPHello{}, errors.New("it is longer than 1 KiB")
		}
	}
	fields, err := flatObject(line)
	if err != nil {
		return MCPHello{}, err
	}
	server, ok1 := fields["server"].(string)
	token, ok2 := fields["token"].(string)
	if len(fields) != 3 || fields["type"] != "mcp" || !ok1 || !ok2 {
		return MCPHello{}, errors.New("it must have type, server and token")
	}
	h := MCPHello{server, token}
	return h, h.Check()
}

// mcpRefused begins the one line that answers a connection which is not served. It is no JSON, so that no MCP client
// takes it for a message; the guest turns it into an error.
const mcpRefused = "handler refuses: "

// MCPRefusal is the line that says why a connection is not served.
func MCPRefusal(why string) []byte {
	return fmt.Appendf(nil, "%s%s\n", mcpRefused, bytes.ReplaceAll([]byte(cutText(why)), []byte("\n"), []byte(" ")))
}

// ReadMCPRefusal tells whether what is read next is a refusal, and its reason; r loses nothing if it is none. It waits
// for the first byte.
func ReadMCPRefusal(r *bufio.Reader) (why string, refused bool, err error) {
	first, err := r.Peek(1)
	if err != nil || first[0] != mcpRefused[0] {
		return "", false, err
	}
	line, err := r.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	rest, ok := bytes.CutPrefix([]byte(line), []byte(mcpRefused))
	if !ok {
		return "", false, errors.New("handlerd's answer is neither MCP nor a refusal")
	}
	return string(bytes.TrimSpace(rest)), true, nil
}
