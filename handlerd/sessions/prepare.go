package sessions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/display"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// openNetwork makes the run's rules, its proxy, and the placeholder key of its upstreams.
func (r *Run) openNetwork(ctx context.Context, req types.RunRequest, spec *sandbox.Spec) error {
	base, err := r.m.opts.Network(r.plan)
	if err != nil {
		return err
	}
	r.neverAsk = req.NeverAsk
	if r.plan.Policy.ApprovalsACP && !req.NeverAsk && !req.AsksItself {
		r.desk = newDesk(r)
	}
	env := maps.Clone(spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	key := "handler-" + rand.Text()
	ups := make([]egress.Upstream, 0, len(r.plan.Upstreams))
	for _, u := range r.plan.Upstreams {
		// It is read anew at each request; a source that gives none is told of now and not in the middle of a turn.
		if err := r.tryKey(ctx, u); err != nil {
			return err
		}
		ups = append(ups, r.upstream(u))
		address := "http://" + sandbox.ProxyAddr + "/upstream/" + u.Name
		for name, value := range u.Env {
			env[name] = strings.NewReplacer("{url}", address, "{key}", key).Replace(value)
		}
	}
	maps.Copy(env, egress.Env())
	spec.Env = env
	r.egress, err = egress.New(egress.Options{
		Rules: r.network.get, Ask: r.askNetwork, Upstreams: ups, Key: key,
		Resolver: r.m.opts.Resolver, Audit: r.auditEgress, Logger: r.m.log.With("run", r.id),
		Failed: r.egressFailed, Pool: r.m.pool, OwnListeners: r.m.Listeners,
	})
	if err != nil {
		return fault.Wrap(fault.Usage, err, "", "the network of agent %s", r.plan.Agent)
	}
	r.network.begin(base, r.rulesChanged)
	return nil
}

func (r *Run) upstream(u render.Upstream) egress.Upstream {
	return egress.Upstream{
		Name: u.Name, URL: u.URL, Methods: u.Methods, Paths: u.Paths, Header: u.Header, Prefix: u.Prefix, Extra: u.Extra,
		Secret: newKey(r, u.Secret).read,
	}
}

// serverEnv is what the plan's MCP servers are told of the sandbox by the engine: the way out, and the display.
// Agents may start a server with an environment of its own, so the sandbox's is not enough.
func serverEnv(display *sandbox.Display) []policy.Pair {
	env := egress.Env()
	if display != nil {
		env["WAYLAND_DISPLAY"], env["XDG_RUNTIME_DIR"] = display.Target(), sandbox.RuntimeTarget
	}
	var pairs []policy.Pair
	for _, name := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, policy.Pair{Name: name, Value: env[name]})
	}
	return pairs
}

func (r *Run) auditEgress(rec egress.Record) {
	if rec.Verdict.Action != policy.Refuse {
		return
	}
	line := audit.Of(rec.Verdict)
	line.Kind, line.Subject = audit.KindNetwork, rec.Host
	if rec.Port != 0 {
		line.Subject = fmt.Sprintf("%s:%d", rec.Host, rec.Port)
	}
	r.verdict(line, rec.Verdict.String())
}

// openDir makes the run directory and serves the proxy in it.
func (r *Run) openDir(_ context.Context, _ types.RunRequest, spec *sandbox.Spec) error {
	dir, err := rundir.New(r.m.opts.RunRoot, r.id, rundir.Options{
		Logger:     r.m.log.With("run", r.id),
		StderrLine: func(line []byte) { r.log.add("agent", strings.ToValidUTF8(string(line), "·")) },
	})
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the run's folder")
	}
	r.dir = dir
	spec.RunDir, spec.Guest = dir.Path(), r.m.opts.Guest
	l, err := dir.Listen(sandbox.SocketEgress)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the run's proxy")
	}
	go func() {
		// Serve ends with the Server, which end closes before it is done.
		if err := r.egress.Serve(l); err != nil {
			r.m.log.Error("proxy ended", "run", r.id, "error", err)
			r.cancel(fault.Wrap(fault.Failed, err, "", "the run's proxy ended"))
		}
	}()
	return nil
}

// openDisplay finds the Wayland socket where a display was asked for (A.6): never a launch without it.
func (r *Run) openDisplay(ctx context.Context, req types.RunRequest, spec *sandbox.Spec) error {
	if slices.ContainsFunc(r.plan.SessionDefaults.MCPServers, func(s render.MCPServer) bool { return s.Name == "playwright" }) {
		r.browser = "headless"
	}
	if slices.ContainsFunc(r.plan.Hosted, func(h render.Hosted) bool { return h.Name == addons.GuardedBrowser }) {
		r.browser = types.BrowserGuarded
	}
	switch wanted := wantedDisplay(r.plan, req); wanted {
	case agents.DisplayNone:
		return nil
	case agents.DisplayVNC:
		spec.Display = &sandbox.Display{Mode: sandbox.DisplayVNC, Width: r.plan.ScreenWidth, Height: r.plan.ScreenHeight}
		r.screen = true
		if r.browser != "" && r.browser != types.BrowserGuarded {
			r.browser = types.BrowserVNC
		}
		return nil
	}
	socket, err := r.m.opts.Display(ctx, req.Wayland)
	if err != nil {
		return err
	}
	r.display, err = display.Open(ctx, socket, filepath.Join(r.dir.Path(), displaySocket), "handler."+r.plan.Agent, r.id)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the Wayland display %s", socket)
	}
	if notice := r.display.Compositor.Notice(); notice != "" {
		if r.plan.DisplayStrict {
			return fault.New(fault.Refused, "take display_strict out of the agent, or use a compositor that offers security-context-v1 (docs/handlers/display.md)",
				"refused by A.6: display_strict, and %s", notice)
		}
		r.notice("%s", notice)
	}
	spec.Display = &sandbox.Display{Mode: sandbox.DisplayWayland, Socket: r.display.Socket}
	if r.browser != "" && r.browser != types.BrowserGuarded {
		r.browser = "wayland"
	}
	return nil
}

// wantedDisplay is what the request says, else the agent.
func wantedDisplay(plan *render.Plan, req types.RunRequest) agents.Display {
	switch {
	case req.VNC:
		return agents.DisplayVNC
	case req.Display:
		return agents.DisplayWayland
	}
	return plan.Display
}

// displaySocket is where the compositor listens for one run, in its run directory.
const displaySocket = "wayland.sock"

// finishSpec names the sandbox and says what the kernel does not keep of its limits.
func (r *Run) finishSpec(ctx context.Context, _ types.RunRequest, spec *sandbox.Spec) error {
	spec.Name = "handler-" + r.m.opts.Owner[:min(8, len(r.m.opts.Owner))] + "-" + r.id
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[sandbox.LabelRun], labels[sandbox.LabelAgent] = r.id, r.plan.Agent // LabelOwner is the driver's own
	spec.Labels = labels
	for _, n := range r.plan.Notices {
		r.notice("%s", n)
	}
	r.env = serverEnv(spec.Display)
	if err := r.writeServers(spec); err != nil {
		return err
	}
	info, err := r.m.info(ctx)
	if err != nil {
		return startFault(err, r.plan)
	}
	r.settleLimits(&spec.Limits, info.Enforced)
	return nil
}

// writeServers makes the file anew in which a harness that ignores ACP's list reads its servers (B.7).
func (r *Run) writeServers(spec *sandbox.Spec) error {
	if r.plan.MCPConfig == nil {
		return nil
	}
	file, err := r.plan.MCPConfig.File(r.servers())
	if err != nil {
		return fault.Wrap(fault.Usage, err, "", "the MCP servers of agent %s", r.plan.Agent)
	}
	for i := range spec.Files {
		if spec.Files[i].Path == file.Path {
			spec.Files[i] = file
		}
	}
	return nil
}

// info asks the engine what it is, once: it takes a while, and it does not change while the daemon lives.
func (m *Manager) info(ctx context.Context) (sandbox.Info, error) {
	m.infoMu.Lock()
	defer m.infoMu.Unlock()
	if m.known == nil {
		info, err := m.opts.Driver.Info(ctx)
		if err != nil {
			return sandbox.Info{}, err
		}
		m.known = &info
	}
	return *m.known, nil
}

// startFault says what a failed start means to the person.
func startFault(err error, plan *render.Plan) error {
	var missing *sandbox.ImageNotFoundError
	var limit *sandbox.UnenforcedError
	var spec *sandbox.SpecError
	var engine *sandbox.EngineError
	switch {
	case errors.As(err, &missing):
		what, command := describeImage(missing.Ref)
		return &fault.Fault{Kind: fault.Failed, Text: what + " is not built", Hint: "build it: " + command, Err: err}
	case errors.As(err, &limit):
		hint := "take the limit out of the agent (handler agent edit " + plan.Agent + ")"
		if limit.Remedy != "" {
			hint = "ask for " + limit.Remedy + " (--cpus, or handler agent edit " + plan.Agent + ")"
		}
		return &fault.Fault{Kind: fault.Failed, Text: err.Error(), Err: err,
			Hint: hint + "; handler doctor says how to have the kernel enforce it"}
	case errors.As(err, &spec):
		return &fault.Fault{Kind: fault.Usage, Text: err.Error(), Err: err}
	case errors.As(err, &engine):
		hint := engine.Hint
		if hint == "" {
			hint = "handler doctor"
		}
		return &fault.Fault{Kind: fault.Failed, Text: err.Error(), Hint: hint, Err: err}
	}
	return err
}

// describeImage names an image as people know it, and the command that builds it.
func describeImage(ref string) (what, command string) {
	rest := strings.TrimPrefix(ref, "localhost/handler/")
	if name, ok := strings.CutPrefix(rest, "toolbox:"); ok {
		if name == "default" {
			return "the toolbox", "handler toolbox build"
		}
		return "the toolbox " + name, "handler toolbox build " + name + " --packages …"
	}
	name, _, _ := strings.Cut(rest, ":")
	if addon, ok := strings.CutPrefix(name, "addon-"); ok {
		return "the addon " + addon, "handler addon build " + addon
	}
	if h, ok := strings.CutPrefix(name, "harness-"); ok {
		return "the harness " + h, "handler harness build " + h
	}
	return "the image " + ref, "handler toolbox build"
}

// settle bounds how long the end of an agent may take to become known.
const settle = 3 * time.Second
