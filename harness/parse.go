package harness

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/handlerd/handler/configfile"
)

// Bounds of a manifest: more than any agent needs, and little enough to be rendered at every start.
const (
	maxList  = 64        // entries of any list
	maxFile  = 256 << 10 // bytes of one generated file
	maxTitle = 100
)

// Parse decodes and checks data, a harness.toml named file. Unknown keys, wrong types and values that no sandbox
// could be made from are errors (*configfile.Error) that name the file, and line and column where TOML gives them.
// Defaults are filled in: Title is the name, MCPTransports is ["stdio"], SessionMCP is "acp", a file's Mode "0600".
func Parse(file string, data []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := configfile.Decode(file, data, m); err != nil {
		return nil, err
	}
	m.fill()
	if err := m.check(); err != nil {
		return nil, configfile.Errorf(file, "%s", err)
	}
	return m, nil
}

func (m *Manifest) fill() {
	if m.Title == "" {
		m.Title = m.Name
	}
	if m.MCPTransports == nil {
		m.MCPTransports = []string{"stdio"}
	}
	if m.SessionMCP == "" {
		m.SessionMCP = SessionMCPACP
	}
	for i := range m.Files {
		if m.Files[i].Mode == "" {
			m.Files[i].Mode = "0600"
		}
	}
}

// check is everything about a manifest that its text alone can get wrong.
func (m *Manifest) check() error {
	if m.Name == "" {
		return errors.New("name is missing")
	}
	if err := ValidName(m.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	for what, text := range map[string]string{"title": m.Title, "version": m.Version} {
		if len(text) > maxTitle || !utf8.ValidString(text) || strings.IndexFunc(text, isControl) >= 0 {
			return fmt.Errorf("%s must be one line of at most %d bytes", what, maxTitle)
		}
	}
	for what, n := range map[string]int{"command": len(m.Command), "hosts": len(m.Hosts), "loginHosts": len(m.LoginHosts), "env": len(m.Env),
		"files": len(m.Files), "state": len(m.State), "upstreams": len(m.Upstreams)} {
		if n > maxList {
			return fmt.Errorf("%s has %d entries; at most %d are possible", what, n, maxList)
		}
	}
	for _, step := range []func() error{m.checkCommand, m.checkMCP, m.checkEnv, m.checkPaths, m.checkUpstreams, m.checkBuild} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manifest) checkCommand() error {
	if len(m.Command) == 0 || m.Command[0] == "" {
		return errors.New("command is missing: the argv of the ACP agent, such as [\"my-agent\", \"acp\"]")
	}
	for i, word := range m.Command {
		if err := validValue(fmt.Sprintf("command[%d]", i), word); err != nil {
			return err
		}
	}
	first := m.Command[0]
	if strings.Contains(first, "/") && (!path.IsAbs(first) || path.Clean(first) != first) {
		return fmt.Errorf("command %q must be a name on PATH or a clean absolute path inside the sandbox", first)
	}
	for what, list := range map[string][]string{"hosts": m.Hosts, "loginHosts": m.LoginHosts} {
		for i, host := range list {
			if err := ValidRule(host); err != nil {
				return fmt.Errorf("%s[%d]: %w", what, i, err)
			}
		}
	}
	return nil
}

// ValidRule checks the outside of a network rule: not empty, at most 300 bytes, no control characters, and no blank
// but the one behind methods in capitals. What it means is for package policy to read.
func ValidRule(text string) error {
	methods, rest, _ := strings.Cut(text, " ")
	blank := strings.Contains(rest, " ") || rest != "" && strings.Trim(methods, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-,") != ""
	if text == "" || len(text) > 300 || strings.IndexFunc(text, isControl) >= 0 || blank || strings.TrimSpace(text) != text {
		return fmt.Errorf("%q is not a network rule: a host, *.suffix or host:port without blanks, or METHODS http://HOST/PATH", configfile.Clip(text))
	}
	return nil
}

func (m *Manifest) checkMCP() error {
	if err := subset("mcpTransports", m.MCPTransports, "stdio", "http", "sse", "acp"); err != nil {
		return err
	}
	if m.SessionsPerRun < 0 || m.SessionsPerRun > 1000 {
		return fmt.Errorf("sessionsPerRun = %d must be 0 (no bound) to 1000", m.SessionsPerRun)
	}
	switch m.SessionMCP {
	case SessionMCPFile:
		if m.MCPConfigFile == nil {
			return errors.New("sessionMCP = \"file\" needs [mcpConfigFile] with path and format")
		}
		if m.MCPConfigFile.Format != "pi" {
			return fmt.Errorf("mcpConfigFile.format %q is not known: the only one is \"pi\"", configfile.Clip(m.MCPConfigFile.Format))
		}
	case SessionMCPACP, SessionMCPNone:
		if m.MCPConfigFile != nil {
			return fmt.Errorf("[mcpConfigFile] is read only with sessionMCP = \"file\", and here it is %q", m.SessionMCP)
		}
	default:
		return fmt.Errorf("sessionMCP = %q must be \"acp\", \"file\" or \"none\"", configfile.Clip(m.SessionMCP))
	}
	return nil
}

// subset checks that every word is one of known and none is there twice.
func subset(what string, words []string, known ...string) error {
	seen := map[string]bool{}
	for _, w := range words {
		if !slices.Contains(known, w) {
			return fmt.Errorf("%s: %q is not one of %s", what, configfile.Clip(w), strings.Join(known, ", "))
		}
		if seen[w] {
			return fmt.Errorf("%s: %q is there twice", what, w)
		}
		seen[w] = true
	}
	return nil
}

func (m *Manifest) checkEnv() error {
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		if err := ValidEnv(name, m.Env[name]); err != nil {
			return fmt.Errorf("env: %w", err)
		}
	}
	return nil
}

// closed are the folders inside a sandbox where a harness puts neither files nor state: the kernel's, the
// system's and Handler's own. A file elsewhere gets a tmpfs over its folder, which would hide what is there.
var closed = []string{"/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/libx32", "/opt/handler", "/proc", "/run",
	"/sbin", "/sys", "/usr", "/root", "/home/agent", "/etc/ssl", "/etc/fonts", "/etc/alternatives", "/etc/chromium"}

func placeable(what, p string) error {
	if err := validPath(what, p); err != nil {
		return err
	}
	if strings.HasPrefix(p, "~/") {
		return nil
	}
	for _, dir := range closed {
		if within(p, dir) {
			hint := ""
			if dir == "/home/agent" {
				hint = ": write \"~/…\" for the home"
			}
			return fmt.Errorf("%s %q cannot lie in %s%s", what, p, dir, hint)
		}
	}
	if strings.Count(p, "/") < 2 {
		return fmt.Errorf("%s %q must lie in a folder of its own", what, p)
	}
	return nil
}

func (m *Manifest) checkPaths() error {
	states, names := map[string]bool{}, map[string]bool{}
	for i, s := range m.State {
		what := fmt.Sprintf("state[%d]", i)
		if err := ValidName(s.Name); err != nil {
			return fmt.Errorf("%s.name: %w", what, err)
		}
		if s.Name == "scopes" {
			return fmt.Errorf("%s.name: \"scopes\" is Handler's own", what)
		}
		if err := placeable(what+".path", s.Path); err != nil {
			return err
		}
		if s.Per != "agent" && s.Per != "scope" {
			return fmt.Errorf("%s.per = %q must be \"agent\" or \"scope\"", what, configfile.Clip(s.Per))
		}
		if names[s.Name] || states[s.Path] {
			return fmt.Errorf("%s: its name or its path is there twice", what)
		}
		names[s.Name], states[s.Path] = true, true
	}
	if m.Skills != "" {
		if err := placeable("skills", m.Skills); err != nil {
			return err
		}
	}
	return m.checkFiles(states)
}

// checkFiles also keeps generated files off the state: a file's content lies on a tmpfs only (A.1), so its folder
// can be neither a state's folder nor one that is shared with other things outside the home.
func (m *Manifest) checkFiles(states map[string]bool) error {
	type target struct{ what, path string }
	var targets []target
	for i, f := range m.Files {
		what := fmt.Sprintf("files[%d]", i)
		targets = append(targets, target{what, f.Path})
		if mode, err := strconv.ParseUint(f.Mode, 8, 16); err != nil || mode > 0o777 || mode&0o400 == 0 {
			return fmt.Errorf("%s.mode %q must be octal, such as \"0600\", and readable by the owner", what, configfile.Clip(f.Mode))
		}
		if len(f.Content) > maxFile {
			return fmt.Errorf("%s.content is %d bytes; at most %d are possible", what, len(f.Content), maxFile)
		}
	}
	if m.MCPConfigFile != nil {
		targets = append(targets, target{"mcpConfigFile", m.MCPConfigFile.Path})
	}
	for i, t := range targets {
		if err := placeable(t.what+".path", t.path); err != nil {
			return err
		}
		if dir := path.Dir(t.path); dir == "/etc" || dir == "/opt" || dir == "/var" || dir == "/home" {
			return fmt.Errorf("%s.path %q needs a folder of its own below %s: a tmpfs lies over the file's folder", t.what, t.path, dir)
		}
		for _, other := range targets[:i] {
			if within(t.path, other.path) || within(other.path, t.path) {
				return fmt.Errorf("%s and %s have the same path, or one lies in the other: %q", other.what, t.what, t.path)
			}
		}
		for state := range states {
			if path.Dir(t.path) == state || within(state, t.path) {
				return fmt.Errorf("%s.path %q lies in the state folder %q, which is on a disk: generated files live on a tmpfs — choose another folder for one of them", t.what, t.path, state)
			}
		}
	}
	return nil
}

func (m *Manifest) checkBuild() error {
	if m.Build == nil {
		return nil
	}
	return localPath("build.containerfile", m.Build.Containerfile)
}

func localPath(what, p string) error {
	if p == "" || path.IsAbs(p) || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.IndexFunc(p, isControl) >= 0 {
		return fmt.Errorf("%s %q must be a plain path below the harness's folder", what, configfile.Clip(p))
	}
	return nil
}
