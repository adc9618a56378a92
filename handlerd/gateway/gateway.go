// Package gateway hosts MCP servers for the agents in sandboxes (contract F.9, issue of the guarded browser): each
// connection that `handler-guest mcp NAME` makes to a run's mcp.sock gets an instance of its own of the server NAME.
// The protocol is mcp-go's; the gateway adds what a server must not have to think of: which tools the binding lets
// through, the person's kill switch, bounds on arguments, results, time and number, and a record of every call.
//
// What comes over the socket is an agent's: it may imitate the guest, and is believed in nothing but in which of the
// run's own servers it asks for.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// Bounds of a run's gateway.
const (
	MaxConnections  = 32               // at one time
	MaxLine         = 16 << 20         // bytes of one message; a longer one is answered with an error
	MaxTaken        = 2 << 20          // bytes of one that is more than answered: what it becomes in memory is many times that
	MaxArguments    = 1 << 20          // bytes of a call's arguments, as JSON
	MaxText         = 256 << 10        // bytes of one text of a result; the rest is cut, and that is said: see Limits
	MaxKept         = 4                // parts of one result that are kept whole for the person
	MaxImage        = 8 << 20          // bytes of one picture of a result, before base64
	MaxParts        = 64               // parts of one result
	MaxCalls        = 8                // calls under way of one connection
	MaxWaiting      = 64               // calls of one connection that wait for one of those to end
	MaxWaitingBytes = 4 << 20          // bytes of their messages
	MaxRunCalls     = 16               // calls under way of one run: what each holds is the daemon's memory
	HelloTime       = 10 * time.Second // for a connection to say which server it wants
	CallTime        = 5 * time.Minute  // for one call, questions to the person included
)

// A Caller is who uses an instance. Run and Agent are the daemon's own knowledge.
type Caller struct {
	Run, Agent string
	// Token stands for the ACP session that the server was given to, where the guest said one: see [Options.Session].
	Token string
}

// A Call is one use of a tool.
type Call struct {
	Caller  Caller
	Session string // the ACP session; "" where it is not known
	Tool    string
	Args    json.RawMessage // an object, at most MaxArguments bytes, keys in order: equal calls have equal bytes
	// Progress tells the client how far it is, where the client asked to be told; never nil.
	Progress func(done, total float64, text string)
}

// A Server is what is hosted under one name.
type Server interface {
	// Open makes the instance of one connection. What is expensive waits for the first call.
	Open(ctx context.Context, c Caller) (Instance, error)
}

// An Instance serves one connection. Its methods may be called concurrently.
type Instance interface {
	// Tools gives the tools and their schemas.
	Tools(ctx context.Context) ([]mcp.Tool, error)
	// Call uses a tool that Tools named. What went wrong and a model can act on is a result with IsError; an error
	// becomes such a result with the error's text.
	Call(ctx context.Context, c Call) (*mcp.CallToolResult, error)
	// Close ends it; calls under way have ended or been cancelled.
	Close() error
}

// A Hosted is a server of a run, with the binding's filter and bounds.
type Hosted struct {
	Server Server
	Filter Filter
	Limits Limits
}

// Limits are the bounds of one server that its person may change; 0 is the default.
type Limits struct {
	Text int           // bytes of one text of a result, and of its structured content: MaxText
	Call time.Duration // for one call: CallTime
}

func (l Limits) whole() Limits {
	if l.Text <= 0 {
		l.Text = MaxText
	}
	if l.Call <= 0 {
		l.Call = CallTime
	}
	return l
}

// A Kept is what of a result was too much to be passed on whole, for the person.
type Kept struct {
	Server, Tool, Session string
	Name                  string // of the file
	Content               []byte
}

// A Record is one call, for the session's log and the audit.
type Record struct {
	Server, Tool, Session string
	Digest                string // SHA-256 of the arguments, hex: what was asked can be recognised and not read
	Refused               string // why the gateway itself refused; "" if it did not
	Failed                bool   // the result is an error
	Took                  time.Duration
}

// Options of a Gateway.
type Options struct {
	Run, Agent string
	Servers    map[string]Hosted
	// Session gives the ACP session that a token stands for; "" where there is none yet. May be nil.
	Session func(token string) string
	// Admit is asked before each call: its error is what the call is answered with, and such a call is not recorded. May be nil.
	Admit func() error
	// Record writes down every call that is made or refused, with what is known of it at its beginning. It runs beside the
	// call: what cannot be written down is not answered with its result.
	Record func(Record) error
	// Ended is told how each of them ended, before its result goes out. May be nil.
	Ended func(Record)
	// Keep keeps for the person what was cut or left out of a result, and gives the id by which it is got. May be nil.
	Keep    func(context.Context, Kept) (id string, err error)
	Version string // of Handler, for initialize
	Logger  *slog.Logger
}

// A Gateway is the MCP servers of one run.
type Gateway struct {
	o   Options
	log *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	calls  chan struct{} // one for each call under way

	mu      sync.Mutex
	closed  bool                     // protected by mu
	conns   map[net.Conn]struct{}    // protected by mu
	stopped map[string]chan struct{} // closed when the person stopped the server; set by New, never changed
	names   []string
}

// ErrStopped is why a call ends when its person stops the server.
var ErrStopped = errors.New("your person stopped this server (handler gateway stop); do not try it again in this run")

// New makes the gateway of one run; it serves nothing yet.
func New(o Options) (*Gateway, error) {
	if o.Record == nil || len(o.Servers) == 0 {
		return nil, errors.New("gateway: Options.Servers and Record are required")
	}
	g := &Gateway{o: o, log: o.Logger, calls: make(chan struct{}, MaxRunCalls), conns: map[net.Conn]struct{}{}, stopped: map[string]chan struct{}{}}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.o.Session == nil {
		g.o.Session = func(string) string { return "" }
	}
	for name := range o.Servers {
		g.stopped[name] = make(chan struct{})
		g.names = append(g.names, name)
	}
	slices.Sort(g.names)
	// Nobody's request: it ends by Close.
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Serve takes connections from l until Close, which makes it return nil, or until l fails. It closes l.
func (g *Gateway) Serve(l net.Listener) error {
	stop := context.AfterFunc(g.ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	for {
		conn, err := l.Accept()
		if err != nil {
			if g.ctx.Err() != nil {
				return nil
			}
			return err
		}
		if why := g.admit(conn); why != "" {
			refuse(conn, why)
			continue
		}
		go func() {
			defer g.release(conn)
			g.serve(conn)
		}()
	}
}

func (g *Gateway) admit(conn net.Conn) (why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return "the run is ending"
	case len(g.conns) >= MaxConnections:
		return "this run has too many MCP connections open"
	}
	g.conns[conn] = struct{}{}
	g.wg.Add(1)
	return ""
}

func (g *Gateway) release(conn net.Conn) {
	conn.Close()
	g.mu.Lock()
	delete(g.conns, conn)
	g.mu.Unlock()
	g.wg.Done()
}

// Close ends every connection and call, and returns when nothing is left. It is idempotent.
func (g *Gateway) Close() error {
	g.cancel()
	g.mu.Lock()
	g.closed = true
	for conn := range g.conns {
		conn.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
	return nil
}

// A ServerStatus is one hosted server of a run.
type ServerStatus struct {
	Name    string
	Stopped bool
}

// Servers lists the hosted servers.
func (g *Gateway) Servers() []ServerStatus {
	var all []ServerStatus
	for _, name := range g.names {
		all = append(all, ServerStatus{name, g.isStopped(name)})
	}
	return all
}

func (g *Gateway) isStopped(name string) bool {
	select {
	case <-g.stopped[name]:
		return true
	default:
		return false
	}
}

// An UnknownError says that a run hosts no such server.
type UnknownError struct {
	Name  string
	There []string
}

func (e *UnknownError) Error() string {
	return "no server " + quote(e.Name) + " is hosted for this run; there are: " + strings.Join(e.There, ", ")
}

// Stop is the person's kill switch (F.9): the calls of a server end at once and the next ones are refused, for the
// rest of the run. name "" stops all. It gives the names of those it stopped. Error: *UnknownError.
func (g *Gateway) Stop(name string) ([]string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if name != "" && g.stopped[name] == nil {
		return nil, &UnknownError{name, g.names}
	}
	var done []string
	for _, n := range g.names {
		if (name == "" || n == name) && !g.isStopped(n) {
			close(g.stopped[n])
			done = append(done, n)
		}
	}
	return done, nil
}
