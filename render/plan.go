// Package render turns agent, harness and bindings into a Plan (contract B). It is pure and deterministic: the same
// input gives the same Plan, byte for byte (B.1). Render reads no file, no environment and no clock, and it never
// learns proxy details (B.2).
package render

import (
	"io/fs"
	"slices"
	"time"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// A Plan is everything that starting a run of an agent needs, before the engine adds what only a life of it has:
// the run directory, the sockets, the display's socket, the secrets' values and the proxy's address.
type Plan struct {
	Agent   string
	Harness string

	// Sandbox lacks Name, RunDir, Guest, Display, secret files, and the protected paths of A.9. Its Mounts are the
	// scopes, each over those that hold it, and its Dir is in one of them; both are unresolved: the engine checks
	// and resolves them.
	Sandbox sandbox.Spec
	Display agents.Display // what the agent was saved with
	// ScreenWidth and ScreenHeight are those of a display of the sandbox's own, in pixels.
	ScreenWidth, ScreenHeight int
	// DisplayStrict refuses a display that gives more than windows (A.6).
	DisplayStrict bool
	Limits        agents.RunLimits

	SessionDefaults SessionDefaults
	SessionMCP      string     // as in harness.Manifest
	MCPConfig       *MCPConfig // with harness.SessionMCPFile
	SessionsPerRun  int        // 0 for no bound
	MCPTransports   []string

	Hosted    []Hosted // MCP servers that handlerd hosts (F)
	Network   Network
	Browser   Browser
	Upstreams []Upstream
	Secrets   []SecretFile
	Policy    Policy
	Notices   []string // said when the run starts, such as a browser whose own sandbox is off (A.7)
}

// SessionDefaults are added to session/new, load, resume and fork (P8).
type SessionDefaults struct {
	MCPServers []MCPServer
}

// An MCPServer is one server as ACP writes it. Marshalled, its arrays are never null (B.2).
type MCPServer = policy.MCPServer

// A Pair is ACP's {name, value}.
type Pair = policy.Pair

// An MCPConfig is the file in which a harness reads its servers (B.7). Sandbox.Files has it already; an engine that
// adds to the servers' environment makes it again with File.
type MCPConfig struct {
	Path   string
	Format string
}

// Network is the run's rules, each with who asked for it (B.4).
type Network struct {
	Rules   []Rule
	Unknown string // what becomes of a host that no rule names, as in policy.Network
}

// Browser is what the guarded browser needs to know of the agent (contract F).
type Browser struct {
	Rules    bool          `json:"rules"`    // its pages come from where the run's network rules allow, else from every public host
	ReadOnly bool          `json:"readOnly"` // pages are not acted on (F.4)
	Life     time.Duration `json:"-"`        // of one browser in an unattended run
	Search   string        `json:"search"`   // address of a result page with %s for the words
	View     bool          `json:"view"`     // it has a window that the person can watch
	Limits   HostedLimits  `json:"-"`
}

// HostedLimits bound a hosted server or a guarded browser; 0 is the engine's default.
type HostedLimits = agents.HostedLimits

// Kinds of a Rule.
const (
	RuleAllow   = policy.KindAllow
	RuleDeny    = policy.KindDeny
	RulePrivate = policy.KindPrivate
)

// A Rule is one line of the network rules; policy.ParseRule reads Text.
type Rule struct {
	Kind string
	Text string
	By   string // "agent web", "harness claude-code", "addon playwright", "preset npm"
}

// A Hosted is an MCP server that handlerd hosts for the run, reached as `handler-guest mcp NAME`.
type Hosted struct {
	Name        string
	Allow, Deny []string          // patterns of tools' names; see agents.Binding
	Settings    map[string]string // of the binding, defaults included
	// Box is the sandbox of its own that the server runs in; nil for one that handlerd itself serves, the browser.
	Box    *Box
	Limits HostedLimits // of a Box, and of what its results may have
}

// A Box is what a hosted server's own sandbox has. There is nothing of the agent in it.
type Box struct {
	Images  []sandbox.ImageMount
	Command []string
	Env     map[string]string // settings, and the paths of secrets
	Secrets []SecretFile      // in this sandbox, and in no other
	Network Network           // its own rules
}

// An Upstream is served by the run's proxy (D.9). The engine reads Secret, makes the placeholder key and puts
// Env, with "{url}" and "{key}" replaced, into the sandbox.
type Upstream struct {
	Name    string
	URL     string
	Methods []string
	Paths   []string
	Header  string
	Prefix  string
	Extra   map[string]string
	Secret  Source
	Env     map[string]string
}

// A Source is where the value of a secret comes from, its host paths absolute. The value itself is never in a Plan.
type Source = agents.Secret

// A SecretFile is read on the host at start and appears inside as a file (A.1).
type SecretFile struct {
	Name   string // for messages: "playwright.storage_state"
	Source Source
	Path   string // inside
	Mode   fs.FileMode
}

// AllSecrets gives every file of a secret, of the agent's sandbox and of hosted servers' own.
func (p *Plan) AllSecrets() []SecretFile {
	all := slices.Clone(p.Secrets)
	for _, h := range p.Hosted {
		if h.Box != nil {
			all = append(all, h.Box.Secrets...)
		}
	}
	return all
}

// Policy is what P1–P9 need to know of the agent.
type Policy struct {
	HostFS        bool `json:"hostFS"`
	HostTerminal  bool `json:"hostTerminal"`
	DenyClientMCP bool `json:"denyClientMCP"`
	ApprovalsACP  bool `json:"approvalsACP,omitempty"` // Handler's own questions go to the ACP client too (H)
	// Unattended and Answers answer the agent's questions where nobody is there (P5).
	Unattended string              `json:"unattended,omitempty"`
	Answers    []policy.AnswerRule `json:"answers,omitempty"`
}
