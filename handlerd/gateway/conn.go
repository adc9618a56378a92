package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// writeTime is what a client gets to take one message.
const writeTime = 30 * time.Second

// refuse answers a connection that is not served, as the guest shows it to the agent.
func refuse(conn net.Conn, why string) {
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(guestwire.MCPRefusal(why)) // whoever does not listen needs no reason
	conn.Close()
}

// serve is one connection: which server, then MCP until the client is done.
func (g *Gateway) serve(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(HelloTime))
	r := bufio.NewReaderSize(conn, 64<<10)
	hello, err := guestwire.ReadMCPHello(r)
	if err != nil {
		refuse(conn, "the first line is no hello of handler-guest: "+err.Error())
		return
	}
	conn.SetReadDeadline(time.Time{})
	hosted, ok := g.o.Servers[hello.Server]
	if !ok {
		refuse(conn, (&UnknownError{hello.Server, g.names}).Error())
		return
	}
	if g.isStopped(hello.Server) {
		refuse(conn, ErrStopped.Error())
		return
	}
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	caller := Caller{Run: g.o.Run, Agent: g.o.Agent, Token: hello.Token}
	instance, err := hosted.Server.Open(ctx, caller)
	if err != nil {
		refuse(conn, err.Error())
		return
	}
	c := &client{g: g, conn: conn, name: hello.Server, hosted: hosted, instance: instance, caller: caller,
		id: rand.Text(), notices: make(chan mcp.JSONRPCNotification, 64), progressed: make(chan progressed, 64), queue: newQueue(), loading: make(chan struct{}, 1)}
	if err := c.run(ctx, cancel, r); err != nil && ctx.Err() == nil {
		g.log.Debug("an MCP connection ended", "run", g.o.Run, "server", hello.Server, "error", err)
	}
	if err := instance.Close(); err != nil {
		g.log.Warn("an instance of a hosted server was not closed", "run", g.o.Run, "server", hello.Server, "error", err)
	}
}

// A client is one connection. It is mcp-go's session, so that notifications reach this client alone.
type client struct {
	g        *Gateway
	conn     net.Conn
	name     string
	hosted   Hosted
	instance Instance
	caller   Caller
	id       string

	ready      atomic.Bool
	notices    chan mcp.JSONRPCNotification
	progressed chan progressed
	write      sync.Mutex
	queue      *queue

	mcp     *server.MCPServer
	loading chan struct{}     // holds one token while somebody loads the tools
	loaded  bool              // protected by loading
	denied  map[string]string // why a tool of the server's is not let through; not changed once loaded
}

var _ server.ClientSession = (*client)(nil)

// Initialize, Initialized, SessionID and NotificationChannel are what mcp-go asks of a session.
func (c *client) Initialize()                                         { c.ready.Store(true) }
func (c *client) Initialized() bool                                   { return c.ready.Load() }
func (c *client) SessionID() string                                   { return c.id }
func (c *client) NotificationChannel() chan<- mcp.JSONRPCNotification { return c.notices }

// run speaks MCP until the client is done, and returns when every call has ended.
func (c *client) run(ctx context.Context, cancel context.CancelFunc, r *bufio.Reader) error {
	c.mcp = c.newServer()
	if err := c.mcp.RegisterSession(ctx, c); err != nil {
		return err
	}
	defer c.mcp.UnregisterSession(ctx, c.id)
	ctx = c.mcp.WithContext(ctx, c)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { c.sendNotices(ctx) })
	lines := jsonrpc.NewLineReader(r, MaxLine)
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case errors.Is(err, jsonrpc.ErrLineTooLong):
			c.send(mcp.NewJSONRPCError(mcp.NewRequestId(nil), mcp.INVALID_REQUEST, tooLong, nil))
			continue
		case err != nil:
			return err
		case len(line) == 0:
			continue
		}
		if len(line) > MaxTaken {
			c.send(tooMuch(line))
			continue
		}
		line = bytes.Clone(line) // it outlives the reading of the next one
		ask, slow := readAsk(line)
		if !slow {
			c.queue.giveUp(cancelled(ask, line))
			c.answer(c.mcp.HandleMessage(ctx, line))
			continue
		}
		p := c.queue.enter(ctx, ask.ID.String(), len(line))
		if p == nil {
			c.answer(c.turnAway(ctx, ask, line))
			continue
		}
		work.Go(func() {
			defer p.leave()
			c.inTurn(p, ask, line)
		})
	}
}

// inTurn does a call or a list when its turn has come. One that the client gave up has no answer.
func (c *client) inTurn(p *place, a ask, line []byte) {
	if !p.turn() {
		return
	}
	defer p.over()
	m := c.serve(p.ctx, a, line)
	if p.ctx.Err() == nil {
		c.toldAll(p.ctx)
		c.answer(m)
	}
}

func (c *client) newServer() *server.MCPServer {
	return server.NewMCPServer("handler: "+c.name, c.g.o.Version, server.WithToolCapabilities(false), server.WithRecovery())
}

// An ask is what of a message says whether it is about tools.
type ask struct {
	ID     mcp.RequestId `json:"id"`
	Method string        `json:"method"`
	Params struct {
		Name string `json:"name"`
	} `json:"params"`
}

// readAsk tells what takes long, so that a cancellation overtakes it: a call, and a list, for which a server may start.
func readAsk(line []byte) (a ask, slow bool) {
	if json.Unmarshal(line, &a) != nil {
		return a, false
	}
	return a, a.Method == string(mcp.MethodToolsCall) || a.Method == string(mcp.MethodToolsList)
}

// tooMuch answers a message that is longer than what is taken: as a tool does, where it is a call.
func tooMuch(line []byte) any {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	var id any
	if json.Unmarshal(line, &m) == nil && len(m.ID) < 100 && json.Unmarshal(m.ID, &id) != nil {
		id = nil
	}
	text := fmt.Sprintf("the arguments have %d bytes, and at most %d are taken: send less at a time, a file by its path", len(line), MaxArguments)
	if a, _ := readAsk(line); id == nil || a.Method != string(mcp.MethodToolsCall) {
		return mcp.NewJSONRPCError(mcp.NewRequestId(id), mcp.INVALID_REQUEST, text, nil)
	}
	return mcp.NewJSONRPCResultResponse(mcp.NewRequestId(id), mcp.NewToolResultError(text))
}

const tooLong = "the message is longer than 16 MiB"

// answer sends what mcp-go says, if anything.
func (c *client) answer(m mcp.JSONRPCMessage) {
	if m != nil {
		c.send(m)
	}
}

// send writes one message. A client that takes nothing for too long is cut off.
func (c *client) send(m any) {
	b, err := encode(m)
	if err != nil {
		c.g.log.Error("an MCP answer cannot be written", "server", c.name, "error", err)
		return
	}
	c.write.Lock()
	defer c.write.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := c.conn.Write(b); err != nil {
		c.conn.Close()
	}
}

// encode makes the line of a message. A result is put into its answer as it is: encoding/json would go over all of it
// once more, which is most of the work for a long one.
func encode(m any) ([]byte, error) {
	if r, ok := m.(mcp.JSONRPCResponse); ok {
		if result, ok := r.Result.(json.Marshaler); ok {
			id, err := json.Marshal(r.ID)
			if err != nil {
				return nil, err
			}
			body, err := result.MarshalJSON()
			if err != nil {
				return nil, err
			}
			return fmt.Appendf(make([]byte, 0, len(body)+len(id)+40), `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, body), nil
		}
	}
	b, err := json.Marshal(m)
	return append(b, '\n'), err
}

// A progressed is a notice of a call's progress; one without a notice closes sent when what came before it was sent.
type progressed struct {
	notice any
	sent   chan struct{}
}

// toldAll waits until the progress that was told is sent: a call has none after its answer.
func (c *client) toldAll(ctx context.Context) {
	sent := make(chan struct{})
	select {
	case c.progressed <- progressed{sent: sent}:
	case <-ctx.Done():
		return
	}
	select {
	case <-sent:
	case <-ctx.Done():
	}
}

func (c *client) sendNotices(ctx context.Context) {
	for {
		select {
		case n := <-c.notices:
			c.send(n)
		case p := <-c.progressed:
			if p.sent != nil {
				close(p.sent)
				continue
			}
			c.send(p.notice)
		case <-ctx.Done():
			return
		}
	}
}
