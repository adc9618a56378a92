package types

import (
	"encoding/json"
	"time"
)

// Paths of what a person and Handler have (contract K.3).
const (
	// PathAgents: GET gives []AgentInfo: the saved agents, and one for every harness under its own name. Below it /{name}:
	// GET gives AgentDetail with its Etag as a header too; PUT takes AgentEdit, with If-Match: ETAG to change a saved one or
	// If-None-Match: * to make one, and gives AgentDetail; DELETE removes the file, with If-Match where the header is there.
	// A tag that is not the file's any more is answered with 409 ("conflict").
	PathAgents = "/v1/agents"
	// PathAgentCheck: POST takes AgentEdit with Name and gives AgentCheck. Nothing is saved.
	PathAgentCheck = "/v1/agents/check"
	PathHarnesses  = "/v1/harnesses" // GET: Harnesses
	PathAddons     = "/v1/addons"    // GET: Addons
	PathPresets    = "/v1/presets"   // GET: []Preset
	// PathDisplay: GET gives DisplayState: the Wayland sockets and what their compositors leave to a sandbox.
	PathDisplay = "/v1/display"
	// PathFolders: GET ?under=FOLDER gives Folders, for choosing a scope; none is the home folder.
	PathFolders = "/v1/folders"
	// PathAudit: GET ?last=N&kind=&agent=&run=&session=&verdict=&follow=1 gives a stream of AuditRecord, a line each,
	// oldest first. kind may be there several times.
	PathAudit = "/v1/audit"
	// PathOpenAPI: GET gives the OpenAPI description of all this.
	PathOpenAPI = "/v1/openapi.json"
)

// AgentInfo is one agent of the list.
type AgentInfo struct {
	Name        string   `json:"name"`
	Harness     string   `json:"harness,omitempty"`
	Description string   `json:"description,omitempty"`
	Scopes      []string `json:"scopes"`            // "PATH (MODE)"; none: the folder that a run is started in
	Display     bool     `json:"display,omitempty"` // its runs show windows; DisplayMode says where
	DisplayMode string   `json:"displayMode"`       // "none", "wayland" (on the person's screen) or "vnc" (on one of the sandbox's own)
	File        string   `json:"file,omitempty"`    // "" for the agent that a harness is under its own name
	Problem     string   `json:"problem,omitempty"` // why the file is no agent
}

// AgentDetail is one agent with all there is to change.
type AgentDetail struct {
	AgentInfo
	// Etag changes with the file; "" where there is none.
	Etag string `json:"etag"`
	// Settings are the file's keys and values, as a JSON object; null where the file is no agent.
	Settings json.RawMessage `json:"settings"`
	TOML     string          `json:"toml"` // the file, or what it would be
	// Defaults has the same keys: what holds where Settings says nothing.
	Defaults json.RawMessage `json:"defaults"`
	// Errors say why the file is no agent, or why no run of it would start.
	Errors []AgentError `json:"errors"`
}

// AgentEdit is what an agent is to be; exactly one of Settings and TOML is set. TOML is kept as it is, comments too.
// Of Settings the comments of the file stay where only network rules change; else the file is written anew.
type AgentEdit struct {
	Name     string          `json:"name,omitempty"` // for PathAgentCheck
	Settings json.RawMessage `json:"settings,omitempty"`
	TOML     string          `json:"toml,omitempty"`
}

// AgentCheck says what an AgentEdit would be.
type AgentCheck struct {
	TOML     string          `json:"toml"`     // what would be saved
	Settings json.RawMessage `json:"settings"` // null where it is no agent
	Errors   []AgentError    `json:"errors"`   // none: it can be saved
	Notices  []string        `json:"notices"`  // what the person should know of it, such as what a display gives the sandbox
}

// AgentError is one thing that is wrong with an agent. Line and Column count from 1 in AgentCheck.TOML; 0 is the whole.
type AgentError struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
}

// Harnesses are the agent programs that Handler knows.
type Harnesses struct {
	Harnesses []Harness `json:"harnesses"`
	Problems  []string  `json:"problems"` // files that are none, and why
}

// A Harness is how one agent program is installed, configured and started.
type Harness struct {
	Name          string     `json:"name"`
	Title         string     `json:"title"`
	Version       string     `json:"version"`
	Command       []string   `json:"command"`
	MCPTransports []string   `json:"mcpTransports"`
	SessionMCP    string     `json:"sessionMCP"`
	Hosts         []string   `json:"hosts"`      // network rules that it brings
	LoginHosts    []string   `json:"loginHosts"` // and those for its own login, while no key is given
	Secrets       []string   `json:"secrets"`    // of its providers: any one of them
	Providers     []Provider `json:"providers"`
	From          string     `json:"from"` // "Handler", or the file
}

// A Provider is a model provider whose key stays outside the sandbox (D.9).
type Provider struct {
	Name    string   `json:"name"`
	URL     string   `json:"url"`
	Secrets []string `json:"secrets"` // any one of them
}

// Addons are what can be bound to agents.
type Addons struct {
	Addons   []Addon  `json:"addons"`
	Problems []string `json:"problems"`
}

// An Addon is something on top of the toolbox.
type Addon struct {
	Name        string         `json:"name"`
	Version     string         `json:"version"`
	Description string         `json:"description"`
	Default     bool           `json:"default"` // bound to agents that list no addons
	Commands    []string       `json:"commands"`
	Hosts       []string       `json:"hosts"`
	Settings    []AddonSetting `json:"settings"`
	Secrets     []AddonSecret  `json:"secrets"`
	MCP         bool           `json:"mcp"`                 // it brings an MCP server
	Placement   string         `json:"placement,omitempty"` // where that runs unless a binding says else: "sandbox" or "hosted"
	From        string         `json:"from"`                // "Handler", or the file
}

// AddonSetting is a value that a binding may set.
type AddonSetting struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Default     string   `json:"default"`
	Values      []string `json:"values"` // the only ones, if there are any
}

// AddonSecret is a secret that a binding may give, by its name.
type AddonSecret struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
}

// A Preset is a name for network rules (D.4).
type Preset struct {
	Name  string   `json:"name"`
	Title string   `json:"title"`
	Rules []string `json:"rules"`
	Note  string   `json:"note,omitempty"` // what does not work with it
}

// DisplayState says which screens there are for a sandbox's windows (A.6).
type DisplayState struct {
	Sockets []DisplaySocket `json:"sockets"` // that answer
	// Chosen is the one that a run gets whose asker says nothing; "" for none, and then Problem says why.
	Chosen  string `json:"chosen,omitempty"`
	Problem *Error `json:"problem,omitempty"`
}

// DisplaySocket is a Wayland socket with a compositor behind it.
type DisplaySocket struct {
	Path string `json:"path"`
	// Restricted: a sandbox gets a security context of its own, and less than the person's programs.
	Restricted bool `json:"restricted"`
	// Powers are what a sandbox could do there besides showing windows and pasting.
	Powers []string `json:"powers"`
	// Says is a sentence about both.
	Says string `json:"says"`
}

// Folders are those in one folder, for choosing a scope. Hidden ones and symlinks are left out.
type Folders struct {
	Path    string   `json:"path"`
	Parent  string   `json:"parent,omitempty"`  // "" at the home folder: the list goes no higher
	Refused string   `json:"refused,omitempty"` // why Path itself cannot be a scope
	Folders []Folder `json:"folders"`
	Cut     bool     `json:"cut,omitempty"` // there are more
}

// A Folder is one of Folders.
type Folder struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Refused string `json:"refused,omitempty"` // why it cannot be a scope
}

// AuditRecord is one line of the audit log, without what chains it.
type AuditRecord struct {
	N       int64     `json:"n,omitempty"`
	Time    time.Time `json:"time"`
	Run     string    `json:"run,omitempty"`
	Session string    `json:"session,omitempty"` // the agent's id
	Agent   string    `json:"agent,omitempty"`
	Kind    string    `json:"kind"`
	Rule    string    `json:"rule,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
	Subject string    `json:"subject,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Hint    string    `json:"hint,omitempty"`
}
