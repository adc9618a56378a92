// Package types is what travels over handlerd's API (contract K): the JSON of every request and answer, for the
// server (handlerd/api), its Go client (handlerd/api/client) and whoever writes another one.
package types

import "time"

// Paths and headers of the API. Every path answers JSON; an Error has a status of 400 or more.
const (
	PathVersion = "/v1/version" // GET: Version
	PathRuns    = "/v1/runs"    // GET: []Run; POST with Upgrade: RunRequest, then raw ACP lines
	PathImages  = "/v1/images"  // GET: []Image
	PathBuild   = "/v1/build"   // POST: BuildRequest; answers a stream of Progress, a line each
	PathRemove  = "/v1/remove"  // POST: BuildRequest (Kind and Name): removes an image
	PathDoctor  = "/v1/doctor"  // GET: []Finding
	PathStop    = "/v1/stop"    // POST: ends the daemon

	// UpgradeACP is the protocol that POST /v1/runs upgrades to: newline-delimited JSON-RPC both ways.
	UpgradeACP = "acp"
	// UpgradeShell is the protocol that POST /v1/runs/{id}/shell (ShellRequest) upgrades to: the frames of a shell in
	// package sandbox/guestwire, of which the client is the host's end.
	UpgradeShell = "handler-shell"
	// UpgradeForward is the protocol that POST /v1/runs/{id}/forward (ForwardRequest) upgrades to: nothing is said; while the
	// connection is there, the port is open to UpgradeDial. It ends with the run.
	UpgradeForward = "handler-forward"
	// UpgradeDial is the protocol that POST /v1/runs/{id}/dial (PortRequest) upgrades to: the port's own bytes.
	UpgradeDial = "handler-dial"
	// HeaderRun carries the run's id in the answer to POST /v1/runs.
	HeaderRun = "Handler-Run"
)

// Version says which daemon answers.
type Version struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Runs    int       `json:"runs"`
	Busy    int       `json:"busy"` // requests under way besides this one: runs, builds
	// Goroutines and Descriptors are what the daemon holds now: with no run and nothing under way they are always the
	// same few.
	Goroutines  int `json:"goroutines"`
	Descriptors int `json:"descriptors"`
	// StartedBy is BySystemd, or "" for a command that needed it.
	StartedBy string `json:"startedBy,omitempty"`
}

// BySystemd is who started a daemon whose socket systemd handed over.
const BySystemd = "systemd"

// A RunRequest asks for a run whose life is the connection's.
type RunRequest struct {
	Agent   string `json:"agent"`
	Cwd     string `json:"cwd"`     // absolute; the scope of an agent that names none
	Display bool   `json:"display"` // as the agent's own display = true
	// VNC: as the agent's own display = "vnc". With neither, the agent's own counts.
	VNC bool `json:"vnc,omitempty"`
	// Unattended: nobody is there to be asked. The agent's questions are answered by its rules, and none waits (P5).
	Unattended bool `json:"unattended,omitempty"`
	// NeverAsk: what Handler itself would ask about, such as a destination that no rule names, is refused, even where
	// somebody watches the approvals (H).
	NeverAsk bool `json:"neverAsk,omitempty"`
	// AsksItself: the client asks its person what Handler asks by watching the approvals. It is then not asked over ACP
	// besides, whatever its agent says: flags that answer an agent's questions must not answer these.
	AsksItself bool `json:"asksItself,omitempty"`
	// Client says what the client is: ClientEditor (also if empty) or ClientCommand. ClientPage is handlerd's own to say,
	// and refused over the API.
	Client string `json:"client,omitempty"`
	// Answers is what whoever starts the run says to those questions: AnswersAllow or AnswersReads; "" leaves it to
	// the agent's settings. It counts only where nobody is there.
	Answers string  `json:"answers,omitempty"`
	Wayland Wayland `json:"wayland"` // what the asking program's environment says of the display
	Limits  Limits  `json:"limits"`  // of this run, before its agent's own
}

// Limits are those of an agent's file, written the same way; an empty field leaves the agent's.
type Limits struct {
	Memory    string  `json:"memory,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	Processes int64   `json:"processes,omitempty"`
	Tmp       string  `json:"tmp,omitempty"`
	Home      string  `json:"home,omitempty"`
	Shm       string  `json:"shm,omitempty"`
	State     string  `json:"state,omitempty"`
	Lifetime  string  `json:"lifetime,omitempty"`
	Idle      string  `json:"idle,omitempty"`
}

// A ShellRequest asks for a command of the person's in a live run.
type ShellRequest struct {
	Command  []string `json:"command"`  // none: the sandbox's own shell
	Terminal bool     `json:"terminal"` // on a terminal, else on three pipes
	Term     string   `json:"term"`     // the terminal's name, as in TERM
	Rows     uint16   `json:"rows"`     // the terminal's size; 0 for a usual one
	Cols     uint16   `json:"cols"`
}

// A ForwardRequest opens a port of the sandbox's loopback to the person, who listens for it on Listener, a loopback
// address and port of this machine: no sandbox ever reaches that (D.4).
type ForwardRequest struct {
	Port     int    `json:"port"`
	Listener string `json:"listener"`
}

// A PortRequest asks for a port of the sandbox's loopback, 1 to 65535.
type PortRequest struct {
	Port int `json:"port"`
}

// Values of RunRequest.Answers.
const (
	AnswersAllow = "allow" // once each
	AnswersReads = "reads" // what calls itself a read; the rest is refused
)

// Wayland are the variables that name a Wayland socket (A.6); the daemon's own environment fills what is empty.
type Wayland struct {
	HandlerSocket string `json:"handlerSocket,omitempty"` // HANDLER_WAYLAND_SOCKET
	Display       string `json:"display,omitempty"`       // WAYLAND_DISPLAY
	RuntimeDir    string `json:"runtimeDir,omitempty"`    // XDG_RUNTIME_DIR
}

// States of a Run.
const (
	StateStarting = "starting"
	StateRunning  = "running"
	StateStopping = "stopping"
)

// BrowserGuarded is the Browser of a run whose browser handlerd hosts (contract F).
const BrowserGuarded = "guarded"

// BrowserVNC is the Browser of a run whose browser is in its own sandbox, on a display of its own.
const BrowserVNC = "vnc"

// Values of Run.Display.
const (
	DisplayWayland = "wayland" // the person's own screen
	DisplayVNC     = "vnc"     // one of the sandbox's own, which can be watched (ViewDisplay)
)

// A Run is one life of one sandbox.
type Run struct {
	ID      string    `json:"id"`
	Agent   string    `json:"agent"`
	Harness string    `json:"harness"`
	State   string    `json:"state"`
	Turn    string    `json:"turn"` // "idle" or "working"
	Since   time.Time `json:"since"`
	Scopes  []Scope   `json:"scopes"`
	Browser string    `json:"browser"`           // "wayland", BrowserVNC, "headless", BrowserGuarded or ""
	Display string    `json:"display,omitempty"` // what its windows are on; "" for none, and while it starts
	Hosts   int       `json:"hosts"`             // how many allow rules there are
	Asks    bool      `json:"asks,omitempty"`    // a person is asked about hosts that no rule names
	// Providers are the addresses that the run reaches through the proxy with a key of the person's (D.9).
	Providers []string `json:"providers"`
	Notices   []string `json:"notices"` // what the person should know of this run

	ToolCalls int   `json:"toolCalls"`
	Allowed   int64 `json:"allowed"` // connections the proxy let out
	Refused   int64 `json:"refused"` // by the proxy and by the rules on messages
	Failed    int64 `json:"failed"`  // connections that were let out and came to nothing
	// Traffic is where the bytes went, the hosts with the most first; a provider is "upstream NAME".
	Traffic []HostTraffic `json:"traffic"`

	// Parts are the run's browsers and hosted servers that live, the oldest first; what they use is not in the numbers
	// of the run itself.
	Parts []Part `json:"parts"`

	MemoryBytes int64 `json:"memoryBytes"`
	MemoryLimit Limit `json:"memoryLimit"`
	Processes   int   `json:"processes"`
	ProcLimit   Limit `json:"processLimit"`
	CPUMillis   int64 `json:"cpuMillis"` // processor time of the processes that live
	CPULimit    Limit `json:"cpuLimit"`  // thousandths of a processor
	StateBytes  int64 `json:"stateBytes"`
	StateLimit  Limit `json:"stateLimit"`

	Lifetime     int64  `json:"lifetimeMillis"`               // 0 for none
	LifetimeLeft *int64 `json:"lifetimeLeftMillis,omitempty"` // nil for no bound
	Idle         int64  `json:"idleMillis"`                   // since the last message; 0 in a turn
	IdleLimit    int64  `json:"idleLimitMillis"`              // 0 for none
}

// HostTraffic is what went to and came from one host since the run's start.
type HostTraffic struct {
	Host     string `json:"host"`
	Requests int64  `json:"requests"` // tunnels, or requests in clear
	Sent     int64  `json:"sent"`     // bytes from the sandbox
	Received int64  `json:"received"` // bytes to the sandbox
}

// What a Part is.
const (
	PartBrowser = "browser"
	PartServer  = "server"
)

// A Part is a sandbox of a run besides the agent's: a guarded browser's, or a hosted MCP server's.
type Part struct {
	Kind    string    `json:"kind"` // PartBrowser or PartServer
	Name    string    `json:"name"` // of the MCP server
	Session string    `json:"session,omitempty"`
	Since   time.Time `json:"since"`
	Sandbox string    `json:"sandbox"` // the engine's id

	MemoryBytes int64 `json:"memoryBytes"`
	MemoryLimit Limit `json:"memoryLimit"`
	Processes   int   `json:"processes"`
	ProcLimit   Limit `json:"processLimit"`
	CPUMillis   int64 `json:"cpuMillis"`

	Allowed int64         `json:"allowed"` // connections that its proxy let out
	Refused int64         `json:"refused"`
	Failed  int64         `json:"failed"` // let out, and came to nothing
	Traffic []HostTraffic `json:"traffic"`
}

// A Scope is a host folder the run sees.
type Scope struct {
	Path string `json:"path"`
	Mode string `json:"mode"`
}

// A Server is an MCP server that handlerd hosts for a run.
type Server struct {
	Name    string `json:"name"`
	Stopped bool   `json:"stopped"` // by the person: it answers no call more
}

// A StopServer asks for the end of one hosted server of a run, or of all where Name is "".
type StopServer struct {
	Name string `json:"name"`
}

// A Limit is a bound and who keeps it.
type Limit struct {
	Value    int64  `json:"value"`        // 0 for none
	Enforced bool   `json:"enforced"`     // by the kernel as its cgroup
	By       string `json:"by,omitempty"` // "kernel", "kernel (affinity)" or "handlerd"
}

// A LogLine is one line of a run's log.
type LogLine struct {
	Time time.Time `json:"time"`
	From string    `json:"from"` // "agent" (its standard error), "handlerd", "policy", FromNotice or FromArtifact
	Text string    `json:"text"`
	// Artifact is set with FromArtifact: it was kept, or with Removed removed, when the line was written.
	Artifact *Artifact `json:"artifact,omitempty"`
	Removed  bool      `json:"removed,omitempty"`
	// End is in a run's last line where it ended otherwise than its client or its agent meant it to, and says why.
	End *Error `json:"end,omitempty"`
}

// FromNotice marks a line that the person should see when the run has ended.
const FromNotice = "notice"

// Kinds of an Image.
const (
	KindToolbox = "toolbox"
	KindAddon   = "addon"
	KindHarness = "harness"
)

// An Image is a toolbox, an addon or a harness, built or not.
type Image struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	State   string    `json:"state"` // "fresh", "stale" or "missing"
	Reason  string    `json:"reason,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Remedy  string    `json:"remedy,omitempty"` // the command that makes it fresh
}

// A BuildRequest builds, checks or removes an image.
type BuildRequest struct {
	Kind          string   `json:"kind"`
	Name          string   `json:"name"`
	CheckOnly     bool     `json:"checkOnly,omitempty"`
	NoCache       bool     `json:"noCache,omitempty"`
	IfStale       bool     `json:"ifStale,omitempty"`       // do nothing where it is fresh
	Packages      []string `json:"packages,omitempty"`      // toolbox: on top of the default one
	Containerfile string   `json:"containerfile,omitempty"` // toolbox: absolute path on the host
	Mirror        string   `json:"mirror,omitempty"`
	CACerts       []string `json:"caCerts,omitempty"`
	NPMRegistry   string   `json:"npmRegistry,omitempty"`
	Base          string   `json:"base,omitempty"`
}

// A Progress is one line of the answer to a build. The last one has Done or Error.
type Progress struct {
	Step  string `json:"step,omitempty"`  // a step begins
	Line  string `json:"line,omitempty"`  // output of the step
	Bytes int64  `json:"bytes,omitempty"` // how much of Total is done
	Total int64  `json:"total,omitempty"`
	Took  int64  `json:"tookMillis,omitempty"` // the step ended
	Done  string `json:"done,omitempty"`       // what now exists
	Error *Error `json:"error,omitempty"`
}

// A Finding is one line of handler doctor.
type Finding struct {
	ID     string   `json:"id"`
	Level  string   `json:"level"` // "ok", "remark" or "problem"
	Title  string   `json:"title"`
	Detail string   `json:"detail,omitempty"`
	Remedy []string `json:"remedy,omitempty"`
}

// An Error is what every failed request answers, safe to show.
type Error struct {
	Kind    string `json:"kind"` // "failed", "usage", "refused", "not-found" or "conflict"
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}
