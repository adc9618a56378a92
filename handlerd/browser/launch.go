package browser

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// SandboxOptions are what a [SandboxLauncher] is made of.
type SandboxOptions struct {
	// Options are how workers are run; Connections are the launcher's to say.
	mcpbox.Options
	// Audit is told of every destination that a worker's proxy refused, but for what comes between turns.
	Audit func(run string, r egress.Record)
	// Failed is told of every destination that it let out and did not reach. May be nil.
	Failed func(run string, f egress.Failure)
	// Denied are rules that count whatever a WorkerSpec's Network says: see [ParseDenied]. May be empty.
	Denied []policy.Rule
}

// A SandboxLauncher starts workers in strict sandboxes. It is the [Launcher] of a daemon.
type SandboxLauncher struct {
	o     SandboxOptions
	boxes *mcpbox.Launcher
}

// NewLauncher makes a launcher; it starts nothing.
func NewLauncher(o SandboxOptions) *SandboxLauncher {
	o.Connections = WorkerConnections
	return &SandboxLauncher{o: o, boxes: mcpbox.New(o.Options)}
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
	denied := l.o.Denied
	box, err := l.boxes.Launch(ctx, mcpbox.Spec{
		Run: s.Run, Agent: s.Agent, Session: s.Session,
		Part: sandbox.PartBrowser, What: "browser", Program: "playwright-mcp", Addon: addons.GuardedBrowser,
		Sandbox: sandboxSpec(s),
		Network: func() policy.Network {
			n := s.Network()
			n.Rules = append(n.Rules[:len(n.Rules):len(n.Rules)], denied...)
			return n
		},
		Local: s.Local,
		Audit: func(r egress.Record) {
			if r.Verdict.Rule != cutOff().Rule {
				l.o.Audit(s.Run, r)
			}
		},
		Failed: func(f egress.Failure) {
			if l.o.Failed != nil {
				l.o.Failed(s.Run, f)
			}
		},
		LaunchTime: WorkerLaunchTime, CallTime: WorkerCallTime, Closed: ErrWorkerClosed,
		Ended: func(said string) error {
			if isolationFailed(said) {
				return &IsolationError{said}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return &worker{Box: box, driver: l.o.Driver}, nil
}

// Places in a worker's sandbox.
const (
	workerOut = WorkerFiles + "/out" // where playwright-mcp writes
	workerIn  = WorkerFiles + "/in"  // where uploads lie

	addonDir = sandbox.AddonsTarget + "/" + addons.GuardedBrowser
)

// sandboxSpec is what a worker's sandbox has, and nothing of the agent in it.
func sandboxSpec(s WorkerSpec) sandbox.Spec {
	lim := s.Limits
	or := func(n, normal int64) int64 {
		if n > 0 {
			return n
		}
		return normal
	}
	const proxy = "http://" + sandbox.ProxyAddr
	spec := sandbox.Spec{
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
		Tmpfs: []sandbox.Tmpfs{{Target: WorkerFiles, Bytes: or(lim.Storage, WorkerStorage)}},
		Limits: sandbox.Limits{
			Memory:    sandbox.Limit{Value: or(lim.Memory, WorkerMemory)},
			Processes: sandbox.Limit{Value: or(lim.Processes, WorkerProcesses)},
			TmpBytes:  or(lim.Tmp, WorkerTmp), HomeBytes: WorkerHome, ShmBytes: WorkerShm,
		},
	}
	if s.Window {
		spec.Display = &sandbox.Display{Mode: sandbox.DisplayVNC, Width: PageWidth, Height: PageHeight + frameHeight}
		spec.Env["HANDLER_SETTING_HEADLESS"] = "0"
	}
	return spec
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
