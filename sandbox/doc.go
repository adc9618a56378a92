// Package sandbox is contract A: what a sandbox is (Spec), what runs one (Driver), what holds its images
// (Images) and what the two sides of it agree on (the paths of this file). It holds no behaviour of an engine:
// sandbox/podman and sandbox/fake implement it, sandbox/sandboxtest is the suite that both pass.
//
// There is one level of isolation, strict (A.3), so nothing here asks for less.
package sandbox

// Where things are inside a sandbox. Scopes are not here: they are mounted at their own absolute path.
const (
	// RunDirTarget is where the run directory is mounted, whole and read-only. Every socket in it is the daemon's.
	RunDirTarget = "/run/handler"
	// GuestTarget is the directory that holds the guest binary, mounted read-only.
	GuestTarget = "/opt/handler/guest"
	// HarnessTarget is where the harness's image is mounted, read-only (A.8).
	HarnessTarget = "/opt/handler/harness"
	// AddonsTarget holds one read-only image mount an addon (A.8).
	AddonsTarget = "/opt/handler/addons"
	// SecretsTarget is a tmpfs, 0700, for secret files.
	SecretsTarget = "/run/handler-secrets"
	// DisplayTarget is where the one Wayland socket appears (A.6), an absolute path that WAYLAND_DISPLAY names.
	DisplayTarget = "/run/handler-display/wayland-0"
	// ScreenTarget is the Wayland socket of a display that the sandbox has to itself (A.6).
	ScreenTarget = RuntimeTarget + "/wayland-1"
	// RuntimeTarget is the private XDG_RUNTIME_DIR, 0700 (A.6).
	RuntimeTarget = "/run/handler-user"
	// HomeTarget is the home folder, a tmpfs.
	HomeTarget = "/home/agent"
	// ProxyAddr is where the guest listens inside for the egress proxy.
	ProxyAddr = "127.0.0.1:3128"
)

// Names of the sockets in the run directory. A socket path may have 107 bytes (sun_path), so the names are short.
const (
	// SocketACP is joined to the agent's standard input and output; it takes one connection.
	SocketACP = "acp.sock"
	// SocketEgress is the run's egress proxy (contract D.1).
	SocketEgress = "egress.sock"
	// SocketMCP reaches the MCP servers that handlerd hosts.
	SocketMCP = "mcp.sock"
	// SocketGuest is the control channel that the guest keeps open (package sandbox/guestwire).
	SocketGuest = "guest.sock"
	// SocketFiles hands the Spec's files to the guest once, before the command starts; the driver serves it.
	SocketFiles = "files.sock"
	// SocketShell takes the connections that the guest makes when the daemon asks: the person's shells, and ports of the
	// sandbox's loopback. It is there once one was asked for.
	SocketShell = "shell.sock"
)

// Labels that Handler sets on what it makes, so that it is found again (A.5).
const (
	// LabelRun holds the run's id, on its container.
	LabelRun = "io.handlerd.run"
	// LabelOwner tells the daemon's installation (a digest of its state folder), so that two daemons of one
	// user never sweep each other.
	LabelOwner = "io.handlerd.owner"
	// LabelPart says what of its run a container is, where it is not the agent's own sandbox: PartBrowser, PartServer.
	LabelPart = "io.handlerd.part"
	// LabelAgent holds the agent's name.
	LabelAgent = "io.handlerd.agent"
	// LabelRecipe holds the digest of what an image was built from, so that a stale image is noticed.
	LabelRecipe = "io.handlerd.recipe"
	// LabelKind is "toolbox", "harness" or "addon", on an image.
	LabelKind = "io.handlerd.kind"
)

// PartBrowser is the LabelPart of a guarded browser's worker (contract F).
const PartBrowser = "browser"

// PartServer is the LabelPart of any other MCP server that handlerd hosts in a sandbox of its own.
const PartServer = "server"
