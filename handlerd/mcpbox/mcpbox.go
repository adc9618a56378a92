// Package mcpbox runs an MCP server that speaks on its standard streams in a strict sandbox of its own, and is its client:
// one [Box] is one sandbox with one server in it, its own way out and its own limits, and nothing of an agent. The guarded
// browser's workers are boxes, and so is every other server that handlerd hosts.
//
// What a server says is believed in nothing: every message is bounded, what is no message is skipped, a call that is given
// up is cancelled inside too, and the end of the box is told with its reason.
package mcpbox

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// Bounds of every box.
const (
	MaxResult  = 64 << 20 // bytes of one result
	MaxRequest = 16 << 20 // bytes of one message to the server

	StopGrace = time.Second // between TERM and KILL
)

// Times of a box's end.
const (
	settleTime   = 2 * time.Second // for the guest to tell how its command ended
	teardownTime = time.Minute     // for the engine to remove what is left
)

// Options are what a [Launcher] is made of. All are needed but those that say otherwise.
type Options struct {
	Driver sandbox.Driver
	// Enforced says which limits the kernel keeps; it must be quick.
	Enforced func(ctx context.Context) (sandbox.Enforced, error)
	// Watch keeps the limits of the sandbox called id that the kernel does not, until ctx ends; it calls stop, at most
	// once, with what it met.
	Watch func(ctx context.Context, id string, l sandbox.Limits, stop func(error))
	// Live is told of each sandbox that stands, before its server is greeted; gone is called when it is removed. It may be nil.
	Live func(About) (gone func())
	// Owed is told of a sandbox that the engine could not remove, to try again later. It may be nil.
	Owed func(id string, err error)

	Owner   string // of the sandboxes' names
	RunRoot string // parent of the run directories; short, private
	Guest   string // host path of handler-guest
	// Connections bounds those of all boxes' proxies together.
	Connections int
	// OwnListeners are never reached, whatever the rules say (D.4): egress.Options. May be nil.
	OwnListeners func() []netip.AddrPort
	Resolver     egress.Resolver // may be nil
	Dialer       egress.Dialer   // may be nil
	Logger       *slog.Logger    // may be nil
}

// A Launcher starts boxes.
type Launcher struct {
	o    Options
	pool *egress.Pool
}

// New makes a launcher; it starts nothing.
func New(o Options) *Launcher {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Owed == nil {
		o.Owed = func(string, error) {}
	}
	return &Launcher{o: o, pool: egress.NewPool(o.Connections)}
}

// A Spec says what a box is, for whom, and what it reaches.
type Spec struct {
	Run, Agent, Session string // whose it is; Session may be ""

	Part    string // of the run: sandbox.PartBrowser, sandbox.PartServer
	What    string // in messages: "browser", "server notes"
	Program string // in messages: what speaks MCP, such as "playwright-mcp"
	Addon   string // what is mounted into it

	// Sandbox gives Image, Images, Command, Dir, Env, Tmpfs, Files and the values of Limits; the rest is the launcher's.
	Sandbox sandbox.Spec

	// Network judges every destination, as of now: rules may change while the box lives.
	Network func() policy.Network
	// Local gives what handlerd itself answers, by exact host; nil, or a nil result, is a host like any other.
	Local func(host string) http.Handler
	// Audit is told of every destination that the box's proxy refused.
	Audit func(egress.Record)
	// Failed is told of what the rules let out and what came to nothing all the same. It may be nil.
	Failed func(egress.Failure)

	LaunchTime time.Duration // from the start of the sandbox to the server's first answer
	CallTime   time.Duration // of one call: a server that does not answer for so long is ended

	// Closed is [Box.Err] after Close.
	Closed error
	// StderrLine gets each line that the server writes to its standard error. It may be nil.
	StderrLine func(line []byte)
	// Discreet keeps what the server wrote to its standard error out of the reason of its end: it may hold a secret.
	Discreet bool
	// Ended may say more of an end that nobody asked for than that the server ended, by the last it said. nil, or a nil
	// result, says nothing.
	Ended func(said string) error
	// ToolsChanged is called when the server says that it has other tools now. It must not block, and may be nil.
	ToolsChanged func()
}
