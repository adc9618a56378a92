// Package agents holds what a person saved under a name: harness, scopes, bindings, network rules, limits,
// display. One TOML file each, in ~/.config/handler/agents (K.3).
package agents

// Values of Binding.Placement.
const (
	PlacementSandbox = "sandbox"
	PlacementHosted  = "hosted"
)

// Values of Scope.Mode, Binding.ChromiumSandbox and Policy.ClientMCP that change something.
const (
	ModeReadOnly       = "ro"
	ModeReadWrite      = "rw"
	ChromiumSandboxOff = "off"
	ClientMCPDeny      = "deny"
)

// An Agent is one file, decoded and checked by Parse. A harness's own name is an agent too: Builtin makes it.
type Agent struct {
	Name        string `toml:"-"` // the file's name without .toml
	Harness     string `toml:"harness"`
	Description string `toml:"description"`
	Toolbox     string `toml:"toolbox"` // "" for the default one (A.8)
	// Display is "Show windows on my screen and paste images": none, the person's own, or one that the sandbox has to
	// itself and the person watches.
	Display Display `toml:"display"`
	// DisplaySize is that of a display of the sandbox's own, WIDTHxHEIGHT in pixels; DefaultDisplaySize if empty.
	DisplaySize string `toml:"display_size"`

	// DisplayStrict refuses a display whose compositor lets the sandbox do more than show windows (A.6).
	DisplayStrict bool `toml:"display_strict"`

	Scopes   []Scope            `toml:"scopes"`   // none: the folder the run is started in, rw
	Bindings map[string]Binding `toml:"bindings"` // nil: every addon whose manifest says default
	MCP      []MCPServer        `toml:"mcp"`      // http and sse servers of the person's own (B.3)

	Network   Network             `toml:"network"`
	Browser   Browser             `toml:"browser"`
	Limits    Limits              `toml:"limits"`
	Policy    Policy              `toml:"policy"`
	Secrets   map[string]Secret   `toml:"secrets"`   // what the harness's upstreams name
	Upstreams map[string]Upstream `toml:"upstreams"` // changes to the harness's upstreams
	Env       map[string]string   `toml:"env"`

	File string `toml:"-"` // where it was read from; "" for a built-in one
}

// A Scope is a host folder the agent may see, at the same absolute path inside.
type Scope struct {
	Path string `toml:"path"` // absolute or beginning with "~/"
	Mode string `toml:"mode"` // "ro" or "rw"; "rw" if empty
}

// A Binding is an addon attached to an agent.
type Binding struct {
	Settings        map[string]string `toml:"settings"`
	Secrets         map[string]Secret `toml:"secrets"`
	ChromiumSandbox string            `toml:"chromium_sandbox"` // "on" (also if empty) or "off" (A.7)

	// Placement says where the addon's MCP server runs: "sandbox" beside the agent, or "hosted" by handlerd, behind its
	// checks (F); "" is as the addon's manifest says.
	Placement string   `toml:"placement"`
	Tools     []string `toml:"tools"`      // of a hosted server, the only ones let through; "*" stands for any characters
	DenyTools []string `toml:"deny_tools"` // of a hosted server, never let through
	// Network is the rules of a hosted server that has a sandbox of its own, besides its addon's hosts. The agent's rules
	// are not the server's, and the server's are not the agent's; Unknown has no meaning here.
	Network Network `toml:"network"`
	// Limits bound such a server; those of the guarded browser are Browser.Limits.
	Limits ServerLimits `toml:"limits"`
}

// An MCPServer is an http or sse server of the person's own.
type MCPServer struct {
	Name    string            `toml:"name"`
	Type    string            `toml:"type"` // "http" or "sse"
	URL     string            `toml:"url"`
	Headers map[string]string `toml:"headers"`
}

// Network holds the agent's rules (D.4): deny wins, and what nothing allows is refused or asked about.
type Network struct {
	Allow   []string `toml:"allow"`   // host, *.suffix, host:port, or "METHODS http://host/path*"
	Deny    []string `toml:"deny"`    // the same forms, and "METHODS upstream/NAME/path*"
	Private []string `toml:"private"` // address:port or prefix:port of private addresses
	Presets []string `toml:"presets"` // "npm", "pypi", "github", …
	Unknown string   `toml:"unknown"` // a host that no rule names: "refuse" (also if empty) or "ask"
}

// Values of Network.Unknown.
const (
	UnknownRefuse = "refuse"
	UnknownAsk    = "ask"
)

// Browser holds the switches of the guarded browser (contract F).
type Browser struct {
	// Network says where its pages may come from: "public" (also if empty), every public host on ports 80 and 443, or
	// "rules", the agent's own network rules.
	Network  string `toml:"network"`
	ReadOnly bool   `toml:"read_only"` // pages are read and never acted on (F.4)
	// Lifetime is that of a browser in unattended runs: "5m" if empty, at most "15m" (F.8).
	Lifetime string `toml:"lifetime"`
	// Search is the address of the result page that browser_search opens, with %s in place of the words;
	// DefaultBrowserSearch if empty.
	Search string `toml:"search"`
	// View false keeps it without a window, so that it cannot be watched or taken over; Watched reads it.
	View   *bool         `toml:"view"`
	Limits BrowserLimits `toml:"limits"`
}

// Values of Browser.Network.
const (
	BrowserPublic = "public"
	BrowserRules  = "rules"
)

// Limits are contract A.4, as a person writes them. An empty field is the default.
type Limits struct {
	Memory    string  `toml:"memory"` // "2GB", "512MiB"
	CPUs      float64 `toml:"cpus"`
	Processes int64   `toml:"processes"`
	Tmp       string  `toml:"tmp"`
	Home      string  `toml:"home"`
	Shm       string  `toml:"shm"`
	State     string  `toml:"state"`    // of the run's state folders; "10GiB" or "none"
	Lifetime  string  `toml:"lifetime"` // of a run: "2h" or "none"
	Idle      string  `toml:"idle"`     // without a message or a turn: "30m" or "none"
}

// Policy holds the switches of C.4.
type Policy struct {
	HostFS       bool   `toml:"host_fs"`       // P2, P4
	HostTerminal bool   `toml:"host_terminal"` // P4
	ClientMCP    string `toml:"client_mcp"`    // P6: "allow" (also if empty) or "deny"
	// Approvals says where Handler's own questions are asked besides its own commands and page (H): "acp", the ACP
	// client, which may answer without asking anybody.
	Approvals []string `toml:"approvals"`
	// Unattended answers the agent's questions where nobody is there (P5): "refuse" (also if empty), "reads" or
	// "allow". Answers are for single ones; a deny wins.
	Unattended string   `toml:"unattended"`
	Answers    []Answer `toml:"answers"`
}

// ApprovalsACP is the one value of Policy.Approvals.
const ApprovalsACP = "acp"

// An Upstream changes one of the harness's: where it leads, and less of what it serves. An empty field changes
// nothing.
type Upstream struct {
	URL     string   `toml:"url"`
	Methods []string `toml:"methods"` // of those that the harness lists
	Paths   []string `toml:"paths"`   // within those that the harness lists; a trailing "*" stands for any rest
}
