package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/handlerd/handler/cmd/internal/dirs"
	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/display"
	"github.com/handlerd/handler/handlerd/doctor"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/history"
	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/handlerd/secrets"
	"github.com/handlerd/handler/handlerd/sessions"
	"github.com/handlerd/handler/handlerd/settings"
	"github.com/handlerd/handler/handlerd/web"
	"github.com/handlerd/handler/sandbox/podman"
	"github.com/handlerd/handler/sandbox/rundir"
	"github.com/handlerd/handler/toolbox"
)

// wired is the daemon's parts, joined.
type wired struct {
	dirs     dirs.Dirs
	log      *slog.Logger
	settings settings.Settings
	catalog  catalog.Catalog
	driver   *podman.Driver
	builder  *toolbox.Builder
	audit    *audit.Log
	secrets  *secrets.Reader
	runs     *sessions.Manager
	browser  *browser.Browser
	servers  *mcpbox.Launcher // of MCP servers in sandboxes of their own
	room     *mcpbox.Room

	approvals *approvals.Queue
	artifacts *artifacts.Store
	door      *web.Door
	keeper    *catalog.Keeper
	feed      *history.Feed
	history   *history.Store // nil where its file cannot be used
	closers   []func() error
}

// wire makes every part, in the order of wired's fields; close ends them.
func wire(d dirs.Dirs, log *slog.Logger) (w *wired, err error) {
	w = &wired{dirs: d, log: log, catalog: catalog.Catalog{Config: d.Config, State: d.State, Home: d.Home}}
	made := w // a failed return makes w nil
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	if w.settings, err = settings.Load(w.dirs.Settings()); err != nil {
		return nil, fault.Wrap(fault.Usage, err, settings.Mend, "Handler's settings")
	}
	for _, dir := range []string{d.State, d.Data} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fault.Wrap(fault.Failed, err, "handler doctor", "Handler's folders")
		}
	}
	w.wireKeeper()
	for _, step := range []func() error{w.wireDriver, w.wireBuilder, w.wireRuns} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// beside gives a program that is installed beside this one.
func beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fault.New(fault.Failed, "install all of Handler: make install", "%s is not beside handlerd, in %s", name, filepath.Dir(self))
	}
	return path, nil
}

// owner tells this installation's sandboxes from another's, where both use one podman: a digest of the folder of which
// a daemon holds the lock. So whatever carries it and is none of this daemon's is what a predecessor left, in whatever
// runtime folder that lived.
func owner(d dirs.Dirs) string {
	sum := sha256.Sum256([]byte(d.Data))
	return hex.EncodeToString(sum[:8])
}

// buildEnv is what of our environment says how to reach the world, for builds; no sandbox sees it.
func buildEnv() []string {
	var env []string
	for _, name := range []string{
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "REGISTRY_AUTH_FILE", "CONTAINERS_REGISTRIES_CONF",
	} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (w *wired) wireDriver() error {
	driver, err := podman.New(podman.Options{
		StateDir: filepath.Join(w.dirs.Data, "podman"), RunDir: filepath.Join(w.dirs.Run, "podman"), Owner: owner(w.dirs),
		Socket: w.settings.Engine.Socket, Podman: w.settings.Engine.Podman, Runtime: w.settings.Engine.Runtime,
		Path: os.Getenv("PATH") + ":" + podman.DefaultPath, Env: buildEnv(),
		SessionBus: sessionBus(w.dirs.XDGRun), Logger: w.log.With("part", "podman"),
	})
	if err != nil {
		return err
	}
	w.driver = driver
	w.closing(driver.Close)
	return nil
}

// sessionBus is the address of the person's D-Bus, where there is a session.
func sessionBus(runtimeDir string) string {
	if bus := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); bus != "" {
		return bus
	}
	if path := filepath.Join(runtimeDir, "bus"); exists(path) {
		return "unix:path=" + path
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// tryFolder holds the run directories of sandboxes that try an image after a build.
const tryFolder = "try"

func (w *wired) wireBuilder() error {
	guest, err := beside("handler-guest")
	if err != nil {
		return err
	}
	demo, err := beside("handler-demo-agent")
	if err != nil {
		return err
	}
	env := map[string]string{}
	for _, kv := range buildEnv() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasSuffix(strings.ToLower(name), "_proxy") {
			env[name] = value
		}
	}
	// What a killed predecessor left of the sandboxes that tried its images; those themselves go with the sweep.
	if err := rundir.Remove(w.dirs.Run, tryFolder); err != nil {
		return fault.Wrap(fault.Failed, err, "rm -r "+filepath.Join(w.dirs.Run, tryFolder), "a folder that an earlier handlerd left")
	}
	w.builder, err = toolbox.New(toolbox.Options{
		Images: w.driver.Images(), Driver: w.driver, Guest: guest,
		RunRoot: filepath.Join(w.dirs.Run, tryFolder), StateDir: w.dirs.State,
		Addons:       w.catalog.Addons,
		Harnesses:    w.catalog.Harnesses,
		HarnessFiles: map[string]map[string]string{"demo": {"handler-demo-agent": demo}},
		CABundles:    caBundles(), Env: env, Logger: w.log.With("part", "toolbox"),
	})
	return err
}

// caBundles are the files of authorities that this machine trusts.
func caBundles() []string {
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		return []string{file}
	}
	return nil
}

func (w *wired) wireRuns() error {
	log, err := audit.Open(w.dirs.Audit())
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the audit log")
	}
	w.audit = log
	w.closing(func() error {
		w.auditLife("handlerd ended")
		return log.Close()
	})
	w.auditLife("handlerd began")
	w.secrets = w.secretReader()
	guest, err := beside("handler-guest")
	if err != nil {
		return err
	}
	w.wireHistory()
	w.wireArtifacts()
	w.approvals = approvals.New(approvals.Options{
		Audit: log.Append, Logger: w.log.With("part", "approvals"),
		Changed: func(e types.ApprovalEvent) {
			w.feed.Announce(types.Change{Approval: &e})
			w.runs.ApprovalChanged(e)
		},
	})
	var resolver egress.Resolver // the system's
	if server, err := w.settings.Network.NameServer(); err == nil && server.IsValid() {
		resolver = egress.DNSServer(server)
	}
	if err := w.wireBrowser(guest, resolver); err != nil {
		return err
	}
	w.wireServers(guest, resolver)
	w.runs = sessions.New(sessions.Options{
		Hosted: w.hosted, Browser: w.browser, Version: version,
		Resolver: resolver, Driver: w.driver,
		Plan: w.catalog.Plan, Network: w.catalog.Network, Display: findDisplay(w.dirs.XDGRun),
		Scopes: w.dirs.Scopes, Approvals: w.approvals, SaveRule: w.catalog.SaveRule,
		Audit: log, Secrets: w.secrets, Owner: owner(w.dirs), RunRoot: filepath.Join(w.dirs.Run, "runs"), StateDir: w.dirs.State, Guest: guest,
		Listeners: func() []netip.AddrPort { return w.door.Listeners() },
		Artifacts: w.artifacts, Principal: artifacts.Principal(os.Getuid()), History: w.history, Feed: w.feed,
		Logger: w.log,
	})
	return nil
}

// wireHistory opens the store of sessions. One that cannot be used keeps nobody from working: nothing is recorded, and
// whoever asks for sessions is told.
func (w *wired) wireHistory() {
	w.feed = history.NewFeed()
	h, err := history.Open(context.Background(), w.dirs.Sessions(), history.Options{Feed: w.feed, Logger: w.log.With("part", "history")})
	if err != nil {
		w.log.Error("no sessions are kept until the file is mended or put aside", "file", w.dirs.Sessions(), "error", err)
		return
	}
	w.history = h
	w.closing(h.Close)
}

// wireArtifacts makes the store of artifacts, which serve opens. A store that cannot be used is no reason for the daemon
// not to start: whoever uses it is told why, until it is mended.
func (w *wired) wireArtifacts() {
	w.artifacts = artifacts.New(w.dirs.Artifacts(), artifacts.Options{
		Logger: w.log.With("part", "artifacts"),
		Changed: func(a artifacts.Artifact, removed bool) {
			w.runs.ArtifactChanged(w.artifacts.Describe(a), removed)
		},
	})
	w.closing(w.artifacts.Close)
}

// auditLife writes down that the daemon began or ended. A daemon that cannot write it goes on, so that it can say what
// is wrong; runs do not (sessions).
func (w *wired) auditLife(text string) {
	r := audit.Record{Kind: audit.KindDaemon, Subject: version, Reason: fmt.Sprintf("%s, process %d", text, os.Getpid())}
	if err := w.audit.Append(r); err != nil {
		w.log.Error("audit line not written", "kind", r.Kind, "error", err)
	}
}

// findDisplay looks for the Wayland socket that whoever asked for the run means; what they do not say, the daemon's
// own environment may.
func findDisplay(runtimeDir string) func(context.Context, types.Wayland) (string, error) {
	return func(ctx context.Context, asked types.Wayland) (string, error) {
		env := display.Env{HandlerSocket: asked.HandlerSocket, WaylandDisplay: asked.Display, RuntimeDir: asked.RuntimeDir}
		if env.HandlerSocket == "" && env.WaylandDisplay == "" {
			env.HandlerSocket, env.WaylandDisplay = os.Getenv("HANDLER_WAYLAND_SOCKET"), os.Getenv("WAYLAND_DISPLAY")
		}
		if env.RuntimeDir == "" {
			env.RuntimeDir = runtimeDir
		}
		return display.Find(ctx, env)
	}
}

func (w *wired) apiOptions(stop func(), busy func() func()) api.Options {
	return api.Options{
		Runs: runs{w.runs}, Rules: w.runs, Views: w.runs, Approvals: w.approvals, AuditFile: w.dirs.Audit(),
		Artifacts: w.artifacts, Scopes: w.runs, Principal: artifacts.Principal(os.Getuid()), History: w.history, Feed: w.feed,
		Images: images{w.builder}, Doctor: w.doctor, Secrets: w.checkSecrets, Stop: stop, Busy: busy,
		Version: version, Agents: w.keeper, Logger: w.log.With("part", "api"), Web: w.door,
		Shell: func(ctx context.Context, id string, req types.ShellRequest) (api.Attached, error) {
			return attached(w.runs.Shell(ctx, id, req))
		},
		Forward: func(ctx context.Context, id string, req types.ForwardRequest) (api.Attached, error) {
			return attached(w.runs.Forward(ctx, id, req.Port, req.Listener))
		},
		Dial: func(ctx context.Context, id string, req types.PortRequest) (api.Attached, error) {
			return attached(w.runs.Dial(ctx, id, req.Port))
		},
	}
}

// attached makes the interface, and no typed nil with an error.
func attached[T api.Attached](a T, err error) (api.Attached, error) {
	if err != nil {
		return nil, err
	}
	return a, nil
}

// runs gives sessions.Manager the API's words: its Start returns the interface.
type runs struct{ *sessions.Manager }

func (r runs) Start(ctx context.Context, req types.RunRequest) (api.Run, error) {
	run, err := r.Manager.Start(ctx, req)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// doctor looks at everything, the engine and the images included.
func (w *wired) doctor(ctx context.Context) []types.Finding {
	s := doctor.System(os.Getenv("PATH") + ":" + podman.DefaultPath)
	s.User.Name = os.Getenv("USER")
	s.RuntimeDir, s.StateDir, s.DataDir, s.Runtime = w.dirs.XDGRun, w.dirs.State, w.dirs.Data, w.settings.Engine.Runtime
	s.Engine = w.driver.Info
	s.Images = images{w.builder}.List
	s.Secrets = w.probeSecrets
	s.Display, s.Live = w.tryDisplay, w.runs.Census
	return doctor.Checks(ctx, s)
}

// tryDisplay says what a sandbox would be given of the display that the daemon's environment names.
func (w *wired) tryDisplay(ctx context.Context) (string, bool, display.Compositor, error) {
	socket, err := findDisplay(w.dirs.XDGRun)(ctx, types.Wayland{})
	if err != nil {
		return "", false, display.Compositor{}, err
	}
	c, err := display.Open(ctx, socket, filepath.Join(w.dirs.Run, fmt.Sprintf("doctor-%s.sock", rand.Text()[:8])), "handler.doctor", "doctor")
	if err != nil {
		return "", false, display.Compositor{}, fault.Wrap(fault.Failed, err, "", "the Wayland display %s", socket)
	}
	return socket, c.Restricted, c.Compositor, c.Close()
}
