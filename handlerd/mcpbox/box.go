package mcpbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// A Box is one sandbox with one MCP server in it. Its methods may be called concurrently.
type Box struct {
	l    *Launcher
	spec Spec
	name string
	log  *slog.Logger

	ctx    context.Context // done when it must end; its cause says why
	cancel context.CancelCauseFunc

	// Set by start, in this order, and not changed after; end takes apart what is there.
	egress *egress.Server
	dir    *rundir.Dir
	id     string // the engine's
	limits sandbox.Limits
	gone   func() // tells that it is removed; nil where nobody was told of it
	wire   *wire
	client *client.Client

	tokens atomic.Uint64  // the last progress token
	work   sync.WaitGroup // what runs beside, until ctx is done
	once   sync.Once      // of end
	done   chan struct{}
	err    error // read after done
	left   error // what could not be taken apart; read after done
}

// Done is closed when nothing of the box is left.
func (b *Box) Done() <-chan struct{} { return b.done }

// Err says why it is gone: Spec.Closed after Close, else what a person would call it; nil while it lives.
func (b *Box) Err() error {
	select {
	case <-b.done:
		return b.err
	default:
		return nil
	}
}

// Gone is why it is ending or has ended; nil while it lives.
func (b *Box) Gone() error { return context.Cause(b.ctx) }

// Close ends the box. Everything of it (sandbox, files, connections) is gone when it returns. It is idempotent.
func (b *Box) Close() error {
	b.end(b.spec.Closed)
	return b.left
}

// Fail ends the box for a reason, which it gives; what is left of it goes beside.
func (b *Box) Fail(why error) error {
	b.cancel(why)
	return context.Cause(b.ctx)
}

// ID is the engine's name of the sandbox.
func (b *Box) ID() string { return b.id }

// RunDir is the host path of the box's run directory.
func (b *Box) RunDir() string { return b.dir.Path() }

// OpenShell opens a connection on which the guest runs a program in the box (guestwire.ShellRequest).
func (b *Box) OpenShell(ctx context.Context) (net.Conn, error) { return b.dir.OpenShell(ctx) }

// DialScreen connects to the VNC server of the display that the box has to itself (Spec.Sandbox.Display).
func (b *Box) DialScreen(ctx context.Context) (net.Conn, error) { return b.dir.DialScreen(ctx) }

// DialHands is DialScreen with pointer and keys.
func (b *Box) DialHands(ctx context.Context) (net.Conn, error) { return b.dir.DialHands(ctx) }

// CutNetwork closes what is open to the network and answers every further request with v, until AllowNetwork.
func (b *Box) CutNetwork(v policy.Verdict) { b.egress.Pause(v) }

// AllowNetwork takes CutNetwork back.
func (b *Box) AllowNetwork() { b.egress.Resume() }

// RecheckNetwork closes what is open to destinations that Spec.Network now refuses.
func (b *Box) RecheckNetwork() { b.egress.Recheck() }

// A Call is one use of a tool.
type Call struct {
	Tool string
	Args any // becomes a JSON object; nil is an empty one
	// Progress is told how far the server is, if it says so. It must not block, and may be nil.
	Progress func(done, total float64, text string)
}

// Call uses a tool of the server's. The result is the server's, at most MaxResult bytes. When ctx ends the call is
// cancelled and Call returns ctx's cause, at the latest a second later. When the box is gone the error is Err's.
func (b *Box) Call(ctx context.Context, c Call) (*mcp.CallToolResult, error) {
	if err := b.Gone(); err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, b.spec.CallTime)
	defer cancel()
	encoded, err := json.Marshal(c.Args)
	if err != nil {
		return nil, fmt.Errorf("the arguments of %s: %w", c.Tool, err)
	}
	if string(encoded) == "null" { // which some servers do not take
		encoded = []byte("{}")
	}
	params := mcp.CallToolParams{Name: c.Tool, Arguments: json.RawMessage(encoded)}
	if c.Progress != nil {
		token := "p" + strconv.FormatUint(b.tokens.Add(1), 10)
		params.Meta = &mcp.Meta{ProgressToken: token}
		defer b.wire.onProgress(token, c.Progress)()
	}
	result, err := b.callTool(call, params)
	switch {
	case err == nil:
		return result, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case call.Err() != nil:
		return nil, b.Fail(fmt.Errorf("%s did not answer %s within %v", b.spec.Program, c.Tool, b.spec.CallTime))
	}
	if gone := b.goneBy(ctx, err); gone != nil {
		return nil, gone
	}
	return nil, fmt.Errorf("%s of %s: %w", c.Tool, b.spec.Program, err)
}

// goneBy waits, where a call failed because its connection ended, until it is known why that was.
func (b *Box) goneBy(ctx context.Context, failed error) error {
	select {
	case <-b.wire.done:
	default:
		return b.Gone()
	}
	select {
	case <-b.ctx.Done():
		return b.Gone()
	case <-ctx.Done():
		return errors.Join(failed, context.Cause(ctx))
	}
}

// watch ends the box when anything of it does.
func (b *Box) watch() {
	go func() {
		var why error
		select {
		case <-b.ctx.Done():
			why = context.Cause(b.ctx)
		case <-b.dir.Done():
			why = b.howItEnded()
		case <-b.wire.done:
			why = b.howItEnded()
		}
		b.end(why)
	}()
}

// atLimit ends it at a limit: whatever eats the machine is killed at once.
func (b *Box) atLimit(met error) {
	b.cancel(fmt.Errorf("it was ended at a limit: %w", met))
	ctx, cancel := context.WithTimeout(context.Background(), teardownTime)
	defer cancel()
	if err := b.l.o.Driver.Stop(ctx, b.id, 0); err != nil {
		b.log.Error("a hosted server at its limit was not stopped", "sandbox", b.name, "error", err)
	}
}

// end takes the box apart, in the reverse order of its making, and returns when nothing of it is left. The first
// cause counts, and one that the box's own context has before all.
func (b *Box) end(cause error) {
	b.once.Do(func() {
		defer close(b.done)
		if first := context.Cause(b.ctx); first != nil {
			cause = first
		}
		b.cancel(cause)
		ctx, cancel := context.WithTimeout(context.Background(), teardownTime)
		defer cancel()
		if b.wire != nil {
			b.wire.Close()
		}
		var left []error
		if b.id != "" {
			left = append(left, b.l.o.Driver.Stop(ctx, b.id, StopGrace))
			if err := b.l.o.Driver.Remove(ctx, b.id); err != nil {
				left = append(left, err)
				b.l.o.Owed(b.id, err)
			}
		}
		if b.egress != nil {
			left = append(left, b.egress.Close())
		}
		if b.dir != nil {
			left = append(left, b.dir.Close())
		}
		if b.gone != nil {
			b.gone()
		}
		b.work.Wait()
		b.err, b.left = cause, errors.Join(left...)
		b.log.Info("a hosted server ended", "what", b.spec.What, "sandbox", b.name, "reason", cause)
	})
	<-b.done
}

// howItEnded says how the server or its sandbox ended, in a person's words.
func (b *Box) howItEnded() error {
	var ours *wireError
	if b.wire != nil && errors.As(b.wire.why(), &ours) {
		return ours
	}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-b.dir.Done():
	case <-b.ctx.Done():
	case <-timer.C:
	}
	if cause := context.Cause(b.ctx); cause != nil {
		return cause
	}
	if b.outOfMemory() {
		return fmt.Errorf("out of memory: it had %s", SizeText(b.limits.Memory.Value))
	}
	res := b.dir.Result()
	said := b.lastWords()
	if b.spec.Discreet {
		said = ""
	}
	if b.spec.Ended != nil && res.Failed == "" {
		if err := b.spec.Ended(said); err != nil {
			return err
		}
	}
	switch {
	case res.Failed != "":
		return fmt.Errorf("%s could not be started: %s", b.spec.Program, Shorten(res.Failed, 300))
	case res.Exited && res.Signal != "":
		return fmt.Errorf("%s was ended by signal %s%s", b.spec.Program, Shorten(res.Signal, 20), Behind(said))
	case res.Exited:
		return fmt.Errorf("%s ended with exit code %d%s", b.spec.Program, res.Code, Behind(said))
	}
	return fmt.Errorf("its sandbox was killed%s", Behind(said))
}

// outOfMemory tells whether the kernel ended the sandbox for memory.
func (b *Box) outOfMemory() bool {
	if b.id == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	exit, err := b.l.o.Driver.Wait(ctx, b.id)
	return err == nil && exit.OutOfMemory
}

// lastWords is the end of what the server wrote to its standard error: a line.
func (b *Box) lastWords() string {
	text, _ := b.dir.Stderr()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(text), "·")), "\n")
	return Shorten(strings.Join(lines[max(0, len(lines)-3):], " / "), 500)
}

// Behind puts what a program said last behind what happened to it.
func Behind(said string) string {
	if said == "" {
		return ""
	}
	return "; it said last: " + strconv.Quote(said) // a page may be its author
}
