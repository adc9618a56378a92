package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox/rundir"
)

// hopRole is what handlerd is on the way of a message: it takes one client at DIR/client.sock and joins it to an agent
// behind the real guest, which runs here without a sandbox. MODE is "relay", with the real rules, or "copy".
//
//	hop MODE DIR GUEST
func hopRole(args []string) error {
	if len(args) != 3 {
		return errors.New("it takes MODE DIR GUEST")
	}
	mode, dir, guest := args[0], args[1], args[2]
	endWithInput()
	run, err := rundir.New(dir, "r", rundir.Options{})
	if err != nil {
		return err
	}
	defer run.Close()
	l, err := net.Listen("unix", filepath.Join(dir, "client.sock"))
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(guest, "init", "--run-dir", run.Path(), "--runtime-dir", "", "--proxy-addr", "", "--", self, rolePrefix+"agent")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperTime)
	defer cancel()
	agent, err := run.ACP(ctx)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	client, err := l.Accept()
	if err != nil {
		return err
	}
	if mode == "copy" {
		bareCopy(client.(*net.UnixConn), agent.(*net.UnixConn))
	} else {
		relay(client, agent, dir)
	}
	return cmd.Wait()
}

// relay joins the two as handlerd/sessions does.
func relay(client, agent net.Conn, scope string) {
	var seen atomic.Int64
	network := policy.Network{Agent: "bench"}
	rules := acp.NewRules(&policy.Config{
		Agent: "bench", Scopes: []policy.Scope{{Path: scope, RW: true}}, Resolve: scopes.Resolve, Reach: network.Decide,
		Servers: []policy.MCPServer{{Name: "playwright", Command: "playwright-mcp"}},
	}, 0)
	acp.NewRelay(acp.Options{
		Client: client, Agent: agent, Rules: rules, Observe: func(acp.Event) { seen.Add(1) },
		Rate: math.MaxInt32, // a bench sends as fast as it can
	}).Run(context.Background())
}

// bareCopy joins the two with nothing in between.
func bareCopy(a, b *net.UnixConn) {
	var wg sync.WaitGroup
	for _, way := range [][2]*net.UnixConn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].CloseWrite()
		})
	}
	wg.Wait()
	a.Close()
	b.Close()
}

// agentRole is an agent that does as it is told and costs as little as it can: a request is answered at once, and one
// whose params begin with a count sends as many updates before that.
func agentRole([]string) error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	updates := map[string][]byte{}
	for {
		head, err := in.ReadSlice('\n')
		whole := err == nil
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil // the end of input is how it ends
		}
		id, kind, count := readRequest(head)
		for !whole {
			_, err := in.ReadSlice('\n')
			if whole = err == nil; err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return nil
			}
		}
		for range count {
			if updates[kind] == nil {
				updates[kind] = updateLine(kind)
			}
			if _, err := os.Stdout.Write(updates[kind]); err != nil {
				return nil
			}
		}
		if _, err := os.Stdout.Write(answerLine(id)); err != nil {
			return nil
		}
	}
}

// lineBytes is the size of a long line.
const lineBytes = 20 << 20

// requestLine makes the request with this id: a count and a kind of updates that it wants, and so much text.
func requestLine(method, id, kind string, count int, text []byte) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"sessionId":"s","count":%d,"kind":%q,"prompt":[{"type":"text","text":"%s"}]}}`+"\n",
		id, method, count, kind, text)
}

// readRequest reads what requestLine made, from the beginning of the line.
func readRequest(line []byte) (id, kind string, count int) {
	id = between(line, `"id":`, `,`)
	kind = between(line, `"kind":"`, `"`)
	count, _ = strconv.Atoi(between(line, `"count":`, `,`))
	return id, kind, count
}

func between(line []byte, from, to string) string {
	_, rest, ok := bytes.Cut(line[:min(len(line), 4096)], []byte(from))
	value, _, ok2 := bytes.Cut(rest, []byte(to))
	if !ok || !ok2 {
		return ""
	}
	return string(value)
}

func answerLine(id string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}`+"\n", id)
}

// updateLine makes a session/update of about lineBytes: a picture, or source text with its many escapes.
func updateLine(kind string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"content","content":{"type":"text","text":"%s"}}]}}}`+"\n",
		longText(kind))
}

// longText makes about lineBytes that stand in a JSON string: base64, or source text with the escapes that Go has.
func longText(kind string) []byte {
	piece := "iVBORw0KGgoAAAANSUhEUgAA"
	if kind == "source" {
		quoted, _ := json.Marshal(sourceText) // of a string it does not fail
		piece = string(quoted[1 : len(quoted)-1])
	}
	return bytes.Repeat([]byte(piece), lineBytes/len(piece))
}

// sourceText is source as it is on average: every twelfth byte of it needs an escape in JSON.
const sourceText = `// versionOf gives the first line of what a program says of its version; "" where there is no such program.
func versionOf(name string) string {
	out, err := exec.Command(name, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.Replace(strings.TrimSpace(line), " version ", " ", 1)
}

`

// A hopClient is the client's end of a hop.
type hopClient struct {
	*helper
	conn net.Conn
	in   *bufio.Reader
	buf  []byte
	next int
	up   []byte // a long request, but for its head
}

func startHop(b *bench, mode string) (*hopClient, error) {
	dir, err := os.MkdirTemp(b.dir, mode[:1])
	if err != nil {
		return nil, err
	}
	h, err := startRole("hop", mode, dir, filepath.Join(b.bin, "handler-guest"))
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", filepath.Join(dir, "client.sock"))
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return &hopClient{helper: h, conn: conn, in: bufio.NewReaderSize(conn, 4<<10), buf: make([]byte, 256<<10)}, nil
}

func (c *hopClient) close() error {
	_ = c.conn.Close()
	return c.helper.close()
}

func (c *hopClient) id() string {
	c.next++
	return strconv.Itoa(1000000 + c.next) // of one length, so that answers are too
}

// small gives the time of a small request and its answer.
func (c *hopClient) small() (time.Duration, error) {
	line := requestLine("session/set_mode", c.id(), "", 0, nil)
	began := time.Now()
	if _, err := c.conn.Write(line); err != nil {
		return 0, err
	}
	_, err := c.in.ReadSlice('\n')
	return time.Since(began), err
}

// down gives the rate, in MB a second, of n long lines from the agent to the client.
func (c *hopClient) down(kind string, n int) (float64, error) {
	id := c.id()
	line := requestLine("session/prompt", id, kind, n, nil)
	want := int64(n)*int64(len(updateLine(kind))) + int64(len(answerLine(id)))
	began := time.Now()
	if _, err := c.conn.Write(line); err != nil {
		return 0, err
	}
	if err := c.skip(want); err != nil {
		return 0, err
	}
	return rate(want, time.Since(began)), nil
}

// upward gives the rate of n long lines from the client to the agent.
func (c *hopClient) upward(n int) (float64, error) {
	if c.up == nil {
		c.up = longText("picture")
	}
	var lines [][]byte
	var want, sent int64
	for range n {
		id := c.id()
		lines = append(lines, requestLine("session/prompt", id, "", 0, c.up))
		want += int64(len(answerLine(id)))
	}
	began := time.Now()
	for _, line := range lines {
		if _, err := c.conn.Write(line); err != nil {
			return 0, err
		}
		sent += int64(len(line))
	}
	if err := c.skip(want); err != nil {
		return 0, err
	}
	return rate(sent, time.Since(began)), nil
}

// skip reads so many bytes.
func (c *hopClient) skip(n int64) error {
	for n > 0 {
		got, err := c.in.Read(c.buf[:min(n, int64(len(c.buf)))])
		n -= int64(got)
		if err != nil {
			return err
		}
	}
	return nil
}
