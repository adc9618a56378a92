package mcpbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// protocol is the revision of MCP that boxes are greeted with: every server of the last year speaks it, and asking for it
// spares a question. A server that knows only an older one says so in its answer, and is taken.
const protocol = "2025-06-18"

// Launch starts a box and returns when its server answers (initialize is done). When ctx ends before that, nothing of it
// is left.
func (l *Launcher) Launch(ctx context.Context, s Spec) (*Box, error) {
	if s.Run == "" || s.Part == "" || s.Network == nil || s.Audit == nil || s.Closed == nil {
		return nil, errors.New("mcpbox: Spec.Run, Part, Network, Audit and Closed are required")
	}
	// Nobody's request: it ends by its own end alone.
	life, cancel := context.WithCancelCause(context.Background())
	b := &Box{l: l, spec: s, ctx: life, cancel: cancel, done: make(chan struct{}),
		name: s.Run + "-" + s.Part + "-" + strings.ToLower(rand.Text()[:6]), log: l.o.Logger.With("run", s.Run, "session", s.Session)}
	if err := b.start(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		b.end(err)
		return nil, err
	}
	b.watch()
	return b, nil
}

// start makes everything of a box; what it made when it fails is taken apart by end.
func (b *Box) start(ctx context.Context) error {
	began := time.Now()
	var boxed time.Duration
	for _, step := range []func(context.Context) error{b.openNetwork, b.openDir, b.startSandbox, b.connect} {
		boxed = time.Since(began) // until the last step
		if err := step(ctx); err != nil {
			return err
		}
	}
	b.log.Info("a hosted server started", "what", b.spec.What, "sandbox", b.name, "box", boxed.Round(time.Millisecond), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func (b *Box) openNetwork(context.Context) (err error) {
	o := &b.l.o
	b.egress, err = egress.New(egress.Options{
		Rules: b.spec.Network, Local: b.spec.Local, Audit: b.spec.Audit, Failed: b.spec.Failed,
		Resolver: o.Resolver, Dialer: o.Dialer, Pool: b.l.pool, Logger: b.log, OwnListeners: o.OwnListeners,
	})
	return err
}

// dirName is short, since a socket's path is.
func (b *Box) dirName() string {
	return b.spec.Run + b.spec.Part[:1] + b.name[len(b.name)-6:]
}

func (b *Box) openDir(context.Context) error {
	dir, err := rundir.New(b.l.o.RunRoot, b.dirName(), rundir.Options{Logger: b.log, StderrLine: b.spec.StderrLine})
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the %s's folder", b.spec.What)
	}
	b.dir = dir
	l, err := dir.Listen(sandbox.SocketEgress)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the %s's proxy", b.spec.What)
	}
	go func() {
		// Serve ends with the Server, which end closes before it is done.
		if err := b.egress.Serve(l); err != nil {
			b.cancel(fmt.Errorf("its proxy ended: %w", err))
		}
	}()
	return nil
}

// sandboxSpec is the box's sandbox: strict like every one.
func (b *Box) sandboxSpec(enforced sandbox.Enforced) sandbox.Spec {
	owner, s := b.l.o.Owner, b.spec.Sandbox
	s.Name = "handler-" + owner[:min(8, len(owner))] + "-" + b.name
	s.Labels = maps.Clone(s.Labels)
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[sandbox.LabelRun], s.Labels[sandbox.LabelAgent], s.Labels[sandbox.LabelPart] = b.spec.Run, b.spec.Agent, b.spec.Part
	s.RunDir, s.Guest = b.dir.Path(), b.l.o.Guest
	s.Limits.Memory.Asked, s.Limits.Memory.Watched = true, !enforced.Memory
	s.Limits.Processes.Asked, s.Limits.Processes.Watched = true, !enforced.Processes
	return s
}

func (b *Box) startSandbox(ctx context.Context) error {
	enforced, err := b.l.o.Enforced(ctx)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the %s's sandbox", b.spec.What)
	}
	spec := b.sandboxSpec(enforced)
	id, err := b.l.o.Driver.Start(ctx, spec)
	if err != nil {
		return b.startError(err)
	}
	b.id, b.limits = id, spec.Limits
	b.lives(time.Now())
	// It may take memory from its first moment on.
	b.work.Go(func() { b.l.o.Watch(b.ctx, id, spec.Limits, b.atLimit) })
	return nil
}

// startError says what a failed start means to the person.
func (b *Box) startError(err error) error {
	var missing *sandbox.ImageNotFoundError
	if !errors.As(err, &missing) {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the %s's sandbox", b.spec.What)
	}
	if missing.Ref == b.spec.Sandbox.Image {
		return fault.Wrap(fault.Failed, err, "build it: handler toolbox build", "the %s needs the default toolbox, which is not built", b.spec.What)
	}
	return fault.Wrap(fault.Failed, err, "build it: handler addon build "+b.spec.Addon, "the %s needs the addon %s, which is not built", b.spec.What, b.spec.Addon)
}

// connect waits for the server and greets it.
func (b *Box) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.spec.LaunchTime, fmt.Errorf("the %s's sandbox started, but %s did not answer within %v", b.spec.What, b.spec.Program, b.spec.LaunchTime))
	defer cancel()
	stop := context.AfterFunc(b.ctx, cancel)
	defer stop()
	// A guest that ends before it connects would be waited for in vain.
	waiting := make(chan struct{})
	defer close(waiting)
	go func() {
		select {
		case <-b.dir.Done():
			cancel()
		case <-waiting:
		}
	}()
	conn, err := b.dir.ACP(ctx)
	if err == nil {
		b.wire = newWire(conn, b.spec.Program, b.spec.ToolsChanged)
		b.client = client.NewClient(b.wire, client.WithProtocolVersion(protocol))
		err = b.greet(ctx)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(b.ctx); cause != nil {
		return cause // a limit
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return b.howItEnded()
}

func (b *Box) greet(ctx context.Context) error {
	if err := b.client.Start(ctx); err != nil {
		return err
	}
	req := mcp.InitializeRequest{}
	req.Params.ProtocolVersion = protocol
	req.Params.ClientInfo = mcp.Implementation{Name: "handlerd", Version: "1"}
	_, err := b.client.Initialize(ctx, req)
	return err
}
