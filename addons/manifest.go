// Package addons is contract G: what an addon is (Manifest) and where addons are found (Registry). An addon is a
// folder with an addon.toml; it is built over the toolbox and mounted read-only into sandboxes.
package addons

import "io/fs"

// A Manifest is an addon.toml (G.1), decoded and checked by Parse.
type Manifest struct {
	Name        string   `toml:"name"` // also the folder's name and the MCP server's: see ValidName
	Version     string   `toml:"version"`
	Description string   `toml:"description"`
	Default     bool     `toml:"default"`  // bound to agents that list no bindings
	Commands    []string `toml:"commands"` // names below bin/, put on PATH
	Skills      []string `toml:"skills"`   // folders below the addon's, each with a SKILL.md
	Hosts       []string `toml:"hosts"`    // network rules the addon needs (B.4)

	Settings map[string]Setting `toml:"settings"`
	Secrets  map[string]Secret  `toml:"secrets"`

	Build *Build `toml:"build"`
	Check *Check `toml:"check"`
	MCP   *MCP   `toml:"mcp"`

	// Dir is the addon's folder: below the shipped file system, or on the host. Set by the Registry.
	Dir string `toml:"-"`
	// Shipped tells an addon that comes with Handler from one of the person's.
	Shipped bool `toml:"-"`
	// File is where the manifest was read from, for messages; "shipped:…" for one that comes with Handler.
	File string `toml:"-"`
	// Source is the addon's folder as a file system that cannot be left by a symbolic link: what a build sends as
	// its context, where skills lie. Set by the Registry.
	Source fs.FS `toml:"-"`
}

// A Setting is a value that a binding may set; the addon's processes see it as HANDLER_SETTING_<NAME>.
type Setting struct {
	Description string   `toml:"description"`
	Default     string   `toml:"default"`
	Values      []string `toml:"values"` // if not empty, the only ones accepted
}

// A Secret is a value that a binding may give; the addon's processes see the path of a 0600 file that holds it
// as HANDLER_SECRET_<NAME>, and no variable where the binding gives none.
type Secret struct {
	Description string `toml:"description"`
	Required    bool   `toml:"required"`
}

// Build says how the addon's folder is made: the Containerfile's stage "build" runs over the toolbox and leaves
// the addon in /opt/handler/addons/<name>; that folder alone becomes the image.
type Build struct {
	Containerfile string `toml:"containerfile"`
}

// Check is run offline in a strict sandbox after every build, and after every rebuild of the toolbox.
type Check struct {
	Command []string `toml:"command"`
	Advice  []Advice `toml:"advice"`
}

// Advice maps an error of the check to what the person can do: the first one whose Match is part of its output.
type Advice struct {
	Match string `toml:"match"`
	Text  string `toml:"text"`
}

// Placements of an MCP server.
const (
	PlacementSandbox = "sandbox"
	PlacementHosted  = "hosted"
)

// MCP is the stdio server that the addon brings.
type MCP struct {
	Command   []string `toml:"command"` // the first word is one of Commands
	Placement string   `toml:"placement"`
}

// GuardedBrowser is the addon whose MCP server handlerd hosts where a binding says so: the browser (contract F).
const GuardedBrowser = "playwright"
