package browser

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// SandboxOptions are what a [SandboxLauncher] is made of. All are needed but those that say otherwise.
type SandboxOptions struct {
	Driver sandbox.Driver
	// Enforced says which limits the kernel keeps; it must be quick.
	Enforced func(ctx context.Context) (sandbox.Enforced, error)
	// Watch keeps the limits of the sandbox called id that the kernel does not, until ctx ends; it calls stop, at most
	// once, with what it met.
	Watch func(ctx context.Context, id string, l sandbox.Limits, stop func(error))
	// Owed is told of a sandbox that the engine could not remove, to try again later. It may be nil.
	Owed func(id string, err error)
	// Audit is told of every destination that a worker's proxy refused, but for what comes between turns.
	Audit func(run string, r egress.Record)

	Owner   string // of the sandboxes' names
	RunRoot string // parent of the run directories; short, private
	Guest   string // host path of handler-guest
	// Denied are rules that count whatever a WorkerSpec's Network says: see [ParseDenied]. May be empty.
	Denied []policy.Rule
	// OwnListeners are never reached, whatever the rules say (D.4): egress.Options. May be nil.
	OwnListeners func() []netip.AddrPort
	Resolver     egress.Resolver // may be nil
	Dialer       egress.Dialer   // may be nil
	Logger       *slog.Logger
}

// A SandboxLauncher starts workers in strict sandboxes. It is the [Launcher] of a daemon.
type SandboxLauncher struct {
	o    SandboxOptions
	pool *egress.Pool
}

// NewLauncher makes a launcher; it starts nothing.
func NewLauncher(o SandboxOptions) *SandboxLauncher {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Owed == nil {
		o.Owed = func(string, error) {}
	}
	return &SandboxLauncher{o: o, pool: egress.NewPool(WorkerConnections)}
}

// PublicNetwork is what a worker reaches without rules of its agent's: every public host, on ports 80 and 443.
func PublicNetwork(agent string) policy.Network {
	return policy.Network{Agent: agent, Unknown: policy.UnknownPublic}
}

// ParseDenied reads HANDLER_BROWSER_DENIED_HOSTS: domain names separated by commas, each of which stands for itself
// and everything below it. An error names the entry.
func ParseDenied(text string) ([]policy.Rule, error) {
	const by = "HANDLER_BROWSER_DENIED_HOSTS"
	var rules []policy.Rule
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			if strings.TrimSpace(text) == "" {
				return nil, nil
			}
			return nil, errors.New("an entry is empty: write names separated by single commas, such as bank.example,intranet.example.org")
		}
		name := strings.TrimPrefix(entry, "*.")
		if strings.ContainsAny(name, ":/* ") {
			return nil, fmt.Errorf("%q is no domain name: write names alone, such as bank.example; each stands for what is below it too", shorten(entry, 80))
		}
		for _, form := range []string{name, "*." + name} {
			rule, err := policy.ParseRule(policy.KindDeny, form, by)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", shorten(entry, 80), err)
			}
			if rule.Prefix.IsValid() {
				return nil, fmt.Errorf("%q is an address: write domain names", shorten(entry, 80))
			}
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

// cutOff is what a worker's proxy answers between turns.
func cutOff() policy.Verdict {
	return policy.Verdict{Action: policy.Refuse, Rule: "F.2", Reason: "no turn of the session is under way", Hint: "the browser has a network between a prompt and its answer"}
}

// Launch starts a worker (Launcher).
func (l *SandboxLauncher) Launch(ctx context.Context, s WorkerSpec) (Worker, error) {
	if s.Run == "" || s.Network == nil {
		return nil, errors.New("browser: a worker needs a run and a network")
	}
	// Nobody's request: it ends by its own end alone.
	life, cancel := context.WithCancelCause(context.Background())
	w := &worker{l: l, spec: s, ctx: life, cancel: cancel, done: make(chan struct{}),
		name: s.Run + "-browser-" + strings.ToLower(rand.Text()[:6]), log: l.o.Logger.With("run", s.Run, "session", s.Session)}
	if err := w.start(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		w.end(err)
		return nil, err
	}
	w.watch()
	return w, nil
}

// start makes everything of a worker; what it made when it fails is taken apart by end.
func (w *worker) start(ctx context.Context) error {
	began := time.Now()
	var boxed time.Duration
	for _, step := range []func(context.Context) error{w.openNetwork, w.openDir, w.startSandbox, w.connect} {
		boxed = time.Since(began) // until the last step
		if err := step(ctx); err != nil {
			return err
		}
	}
	w.log.Info("a browser started", "sandbox", w.name, "box", boxed.Round(time.Millisecond), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func (w *worker) openNetwork(context.Context) (err error) {
	o, denied := &w.l.o, w.l.o.Denied
	w.egress, err = egress.New(egress.Options{
		Rules: func() policy.Network {
			n := w.spec.Network()
			n.Rules = append(n.Rules[:len(n.Rules):len(n.Rules)], denied...)
			return n
		},
		Local: w.spec.Local, Resolver: o.Resolver, Dialer: o.Dialer, Pool: w.l.pool, Logger: w.log, OwnListeners: o.OwnListeners,
		Audit: func(r egress.Record) {
			if r.Verdict.Rule != cutOff().Rule {
				o.Audit(w.spec.Run, r)
			}
		},
	})
	return err
}

// dirName is short, since a socket's path is.
func (w *worker) dirName() string {
	return w.spec.Run + "b" + w.name[len(w.name)-6:]
}

func (w *worker) openDir(context.Context) error {
	dir, err := rundir.New(w.l.o.RunRoot, w.dirName(), rundir.Options{Logger: w.log})
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the browser's folder")
	}
	w.dir = dir
	l, err := dir.Listen(sandbox.SocketEgress)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the browser's proxy")
	}
	go func() {
		// Serve ends with the Server, which end closes before it is done.
		if err := w.egress.Serve(l); err != nil {
			w.cancel(fmt.Errorf("its proxy ended: %w", err))
		}
	}()
	return nil
}

// Places in a worker's sandbox.
const (
	workerOut = WorkerFiles + "/out" // where playwright-mcp writes
	workerIn  = WorkerFiles + "/in"  // where uploads lie

	addonDir = sandbox.AddonsTarget + "/" + addons.GuardedBrowser
)

// sandboxSpec is a worker's sandbox: strict like every one, and with nothing of the agent in it.
func (w *worker) sandboxSpec(enforced sandbox.Enforced) sandbox.Spec {
	or := func(n, normal int64) int64 {
		if n > 0 {
			return n
		}
		return normal
	}
	const proxy = "http://" + sandbox.ProxyAddr
	lim := w.spec.Limits
	owner := w.l.o.Owner
	return sandbox.Spec{
		Name:    "handler-" + owner[:min(8, len(owner))] + "-" + w.name,
		Labels:  map[string]string{sandbox.LabelRun: w.spec.Run, sandbox.LabelAgent: w.spec.Agent, sandbox.LabelPart: sandbox.PartBrowser},
		Image:   sandbox.ToolboxImage(""),
		Images:  []sandbox.ImageMount{{Image: sandbox.AddonImage(addons.GuardedBrowser), Target: addonDir}},
		Command: []string{addonDir + "/bin/playwright-mcp"},
		Dir:     WorkerFiles,
		Env: map[string]string{
			// Loopback too: what is asked of it is the proxy's to refuse, and nothing goes past it.
			"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": "",
			// No snapshot but those that are asked for: one after an action would renew the references that were checked.
			"HANDLER_SETTING_HEADLESS": "1", "HANDLER_SETTING_SNAPSHOT": "none", "HANDLER_BROWSER_FILES": WorkerFiles,
		},
		Tmpfs:  []sandbox.Tmpfs{{Target: WorkerFiles, Bytes: or(lim.Storage, WorkerStorage)}},
		RunDir: w.dir.Path(), Guest: w.l.o.Guest,
		Limits: sandbox.Limits{
			Memory:    sandbox.Limit{Value: or(lim.Memory, WorkerMemory), Asked: true, Watched: !enforced.Memory},
			Processes: sandbox.Limit{Value: WorkerProcesses, Asked: true, Watched: !enforced.Processes},
			TmpBytes:  WorkerTmp, HomeBytes: WorkerHome, ShmBytes: WorkerShm,
		},
	}
}

func (w *worker) startSandbox(ctx context.Context) error {
	enforced, err := w.l.o.Enforced(ctx)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the browser's sandbox")
	}
	spec := w.sandboxSpec(enforced)
	id, err := w.l.o.Driver.Start(ctx, spec)
	if err != nil {
		return startError(err)
	}
	w.id, w.limits = id, spec.Limits
	// It may take memory from its first moment on.
	w.work.Go(func() { w.l.o.Watch(w.ctx, id, spec.Limits, w.atLimit) })
	return nil
}

// startError says what a failed start means to the person.
func startError(err error) error {
	var missing *sandbox.ImageNotFoundError
	if !errors.As(err, &missing) {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the browser's sandbox")
	}
	if missing.Ref == sandbox.ToolboxImage("") {
		return fault.Wrap(fault.Failed, err, "build it: handler toolbox build", "the browser needs the default toolbox, which is not built")
	}
	return fault.Wrap(fault.Failed, err, "build it: handler addon build playwright", "the browser needs the addon playwright, which is not built")
}

// connect waits for playwright-mcp and greets it. Chromium starts with the first call.
func (w *worker) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, WorkerLaunchTime, fmt.Errorf("the browser's sandbox started, but playwright-mcp did not answer within %v", WorkerLaunchTime))
	defer cancel()
	stop := context.AfterFunc(w.ctx, cancel)
	defer stop()
	// A guest that ends before it connects would be waited for in vain.
	waiting := make(chan struct{})
	defer close(waiting)
	go func() {
		select {
		case <-w.dir.Done():
			cancel()
		case <-waiting:
		}
	}()
	var conn net.Conn
	conn, err := w.dir.ACP(ctx)
	if err == nil {
		w.wire = newWire(conn)
		w.client = client.NewClient(w.wire, client.WithProtocolVersion(workerProtocol))
		err = w.greet(ctx)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(w.ctx); cause != nil {
		return cause // a limit
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return w.howItEnded()
}

// workerProtocol is the revision of MCP that playwright-mcp speaks; asking for it spares a question.
const workerProtocol = "2025-06-18"

func (w *worker) greet(ctx context.Context) error {
	if err := w.client.Start(ctx); err != nil {
		return err
	}
	req := mcp.InitializeRequest{}
	req.Params.ProtocolVersion = workerProtocol
	req.Params.ClientInfo = mcp.Implementation{Name: "handlerd", Version: "1"}
	_, err := w.client.Initialize(ctx, req)
	return err
}

// inFiles gives the clean path of what playwright-mcp names, if it lies in WorkerFiles.
func inFiles(name string) (string, error) {
	if !path.IsAbs(name) {
		name = path.Join(WorkerFiles, name) // its working directory
	}
	name = path.Clean(name)
	if !strings.HasPrefix(name, WorkerFiles+"/") || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%s is not among the browser's files", shorten(name, 200))
	}
	return name, nil
}
