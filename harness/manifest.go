// Package harness is contract B's input: how one agent program is installed, configured and started. A harness
// is one TOML file (Manifest); the shipped ones and a person's own are one Registry (B.11).
package harness

import "io/fs"

// A Manifest is one harness, decoded and checked by Parse.
type Manifest struct {
	Name    string   `toml:"name"`
	Title   string   `toml:"title"`   // as people know the agent: "Claude Code"
	Version string   `toml:"version"` // of the agent program that the build pins
	Command []string `toml:"command"` // argv of the ACP agent, run in the sandbox

	MCPTransports  []string       `toml:"mcpTransports"`  // of "stdio", "http", "sse", "acp" (B.5)
	SessionMCP     string         `toml:"sessionMCP"`     // how servers reach the agent (B.7): see the constants
	MCPConfigFile  *MCPConfigFile `toml:"mcpConfigFile"`  // with SessionMCPFile
	SessionsPerRun int            `toml:"sessionsPerRun"` // 0 for no bound (B.8)

	Hosts []string `toml:"hosts"` // network rules the agent needs (B.4)
	// LoginHosts are the rules that the agent's own login needs. They hold only where no upstream is served: with one,
	// a provider that can be reached directly is a way out for data under somebody else's key.
	LoginHosts []string `toml:"loginHosts"`

	Env       map[string]string `toml:"env"`
	Files     []File            `toml:"files"`
	State     []State           `toml:"state"`
	Skills    string            `toml:"skills"` // where the agent reads skills, such as "~/.claude/skills" (B.6)
	Upstreams []Upstream        `toml:"upstreams"`
	Build     *Build            `toml:"build"` // nil: the command is in the toolbox already

	// Dir is the folder of the manifest: below the shipped file system, or on the host. Set by the Registry.
	Dir string `toml:"-"`
	// File is where the manifest was read from, for messages; "shipped:…" for one that comes with Handler.
	File string `toml:"-"`
	// Source is the harness's folder as a file system, what a build sends as its context; nil for a harness of
	// the person's that is one TOML file, and so has nothing to build.
	Source fs.FS `toml:"-"`
	// Shipped tells a harness that comes with Handler from one of the person's.
	Shipped bool `toml:"-"`
}

// Values of Manifest.SessionMCP.
const (
	SessionMCPACP  = "acp"  // in session/new, load, resume and fork (P8); the default
	SessionMCPFile = "file" // in MCPConfigFile
	SessionMCPNone = "none" // the agent takes no servers: a binding with one fails the render
)

// MCPConfigFile is where a harness that ignores ACP's list reads its servers.
type MCPConfigFile struct {
	Path   string `toml:"path"`   // "~" is the sandbox's home
	Format string `toml:"format"` // "pi"
}

// A File is generated configuration; it lies on a tmpfs. "~" in Path is the sandbox's home.
type File struct {
	Path    string `toml:"path"`
	Mode    string `toml:"mode"` // octal; "0600" if empty
	Content string `toml:"content"`
}

// A State is a folder that outlives the run (B.10), one per "agent" (logins) or per "scope" (one an agent and
// scope: transcripts, caches).
type State struct {
	Name string `toml:"name"`
	Path string `toml:"path"` // "~" is the sandbox's home
	Per  string `toml:"per"`
}

// An Upstream is a model provider whose key stays outside (D.9). It is served at
// http://127.0.0.1:3128/upstream/<Name>/ when the agent gives a secret for one of Auth; otherwise the agent
// logs in by itself.
type Upstream struct {
	Name    string   `toml:"name"`
	URL     string   `toml:"url"`     // such as "https://api.anthropic.com"
	Methods []string `toml:"methods"` // served methods
	Paths   []string `toml:"paths"`   // served paths; a trailing "*" stands for any rest
	Auth    []Auth   `toml:"auth"`
	// Env is set only when the upstream is served; "{url}" and "{key}" stand for its address inside and the
	// run's placeholder key.
	Env map[string]string `toml:"env"`
}

// Auth is one way to authenticate: the secret's value, behind Prefix, becomes Header.
type Auth struct {
	Secret string            `toml:"secret"` // name under [secrets] of the agent
	Header string            `toml:"header"`
	Prefix string            `toml:"prefix"`
	Extra  map[string]string `toml:"extra"` // further headers this way needs
}

// Build says how the harness's folder is made: the Containerfile's stage "build" runs over the toolbox and leaves
// the agent in /opt/handler/harness; that folder alone becomes the image.
type Build struct {
	Containerfile string `toml:"containerfile"`
}
