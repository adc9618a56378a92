package agents

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/harness"
)

// Bounds of an agent: more than any person saves, and little enough to be rendered at every start.
const (
	maxList   = 64
	maxRules  = 1000
	maxLine   = 200
	maxMCPURL = 2000
)

// ValidName checks an agent's name; the rule is harness.ValidName's, since a harness's name is an agent's too.
func ValidName(name string) error { return harness.ValidName(name) }

// Parse decodes and checks data, the content of file, as the agent called name. Errors are *configfile.Error and
// name the file, and line and column where TOML gives them. What Parse accepts, Validate accepts.
func Parse(name, file string, data []byte) (*Agent, error) {
	a := new(Agent)
	if err := configfile.Decode(file, data, a); err != nil {
		return nil, err
	}
	if a.Bindings == nil {
		a.Bindings = emptyBindings(file, data)
	}
	a.Name, a.File = name, file
	if err := a.Validate(); err != nil {
		return nil, configfile.Errorf(file, "%s", err)
	}
	return a, nil
}

// emptyBindings tells a file with an empty [bindings], which asks for no addon at all, from one without it: the
// decoder gives nil for both.
func emptyBindings(file string, data []byte) map[string]Binding {
	var keys map[string]any
	if configfile.Decode(file, data, &keys) != nil || keys["bindings"] == nil {
		return nil
	}
	return map[string]Binding{}
}

// Builtin is the agent that a harness's own name stands for: no settings, and as its scope the folder that the run
// is started in.
func Builtin(harnessName string) *Agent { return &Agent{Name: harnessName, Harness: harnessName} }

// Validate checks everything about an agent that needs no file, no harness and no addon to be known: the same
// function for a file that is read, an edit that is about to be saved and a run that is about to start.
func (a *Agent) Validate() error {
	if err := ValidName(a.Name); err != nil {
		return err
	}
	if a.Harness == "" {
		return errors.New("harness is missing: handler harness list shows what there is")
	}
	if err := harness.ValidName(a.Harness); err != nil {
		return fmt.Errorf("harness: %w", err)
	}
	if a.Toolbox != "" {
		if err := harness.ValidName(a.Toolbox); err != nil {
			return fmt.Errorf("toolbox: %w", err)
		}
	}
	if err := oneLine("description", a.Description, maxLine); err != nil {
		return err
	}
	for _, step := range []func() error{a.checkDisplay, a.checkScopes, a.checkBindings, a.checkMCP, a.checkNetwork, a.checkBrowser, a.checkLimits,
		a.checkPolicy, a.checkSecrets, a.checkEnv} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) checkScopes() error {
	if err := atMost("scopes", len(a.Scopes), maxList); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, s := range a.Scopes {
		if err := hostPath(s.Path); err != nil {
			return fmt.Errorf("scopes[%d].path: %w", i, err)
		}
		if s.Mode != "" && s.Mode != ModeReadOnly && s.Mode != ModeReadWrite {
			return fmt.Errorf("scopes[%d].mode = %q must be \"ro\" or \"rw\"", i, configfile.Clip(s.Mode))
		}
		if seen[s.Path] {
			return fmt.Errorf("scopes: %s is there twice", s.Path)
		}
		seen[s.Path] = true
	}
	return nil
}

// hostPath checks a path on the host: absolute or "~/…", clean, without "..".
func hostPath(p string) error {
	rest := p
	if strings.HasPrefix(p, "~/") {
		rest = p[1:]
	}
	switch {
	case p == "":
		return errors.New("is missing")
	case len(p) > 4000 || !utf8.ValidString(p) || strings.IndexFunc(p, isControl) >= 0:
		return errors.New("is too long, not UTF-8 or has control characters")
	case !strings.HasPrefix(rest, "/"):
		return fmt.Errorf("%q must be absolute or begin with \"~/\"", p)
	case path.Clean(rest) != rest:
		return fmt.Errorf("%q must be a plain path: no \"..\", no \"//\", no \"/\" at the end", p)
	}
	return nil
}

func (a *Agent) checkBindings() error {
	if err := atMost("bindings", len(a.Bindings), maxList); err != nil {
		return err
	}
	for _, name := range sortedKeys(a.Bindings) {
		if err := harness.ValidName(name); err != nil {
			return fmt.Errorf("bindings: %w", err)
		}
		if err := a.Bindings[name].check(); err != nil {
			return fmt.Errorf("bindings.%s: %w", name, err)
		}
	}
	return nil
}

func (b Binding) check() error {
	if err := atMost("settings", len(b.Settings), maxList); err != nil {
		return err
	}
	for _, key := range sortedKeys(b.Settings) {
		if err := harness.ValidKey(key); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		if value := b.Settings[key]; len(value) > 8<<10 || strings.ContainsRune(value, 0) {
			return fmt.Errorf("settings.%s must be at most 8 KiB without NUL", key)
		}
	}
	if b.ChromiumSandbox != "" && b.ChromiumSandbox != "on" && b.ChromiumSandbox != ChromiumSandboxOff {
		return fmt.Errorf("chromium_sandbox = %q must be \"on\" or \"off\"", configfile.Clip(b.ChromiumSandbox))
	}
	if b.Placement != "" && b.Placement != PlacementSandbox && b.Placement != PlacementHosted {
		return fmt.Errorf("placement = %q must be %q or %q", configfile.Clip(b.Placement), PlacementSandbox, PlacementHosted)
	}
	for name, list := range map[string][]string{"tools": b.Tools, "deny_tools": b.DenyTools} {
		if err := atMost(name, len(list), maxList); err != nil {
			return err
		}
		for _, p := range list {
			if !toolPattern.MatchString(p) {
				return fmt.Errorf("%s: %q is no tool's name: letters, digits, \"_\", \"-\", \".\", and \"*\" for any characters", name, configfile.Clip(p))
			}
		}
	}
	if _, err := b.Limits.Parse(); err != nil {
		return err
	}
	if b.Network.Unknown != "" {
		return errors.New("network.unknown says nothing to a hosted server: what no rule of its names is refused")
	}
	if err := b.Network.check(); err != nil {
		return err
	}
	return checkSecrets(b.Secrets)
}

// toolPattern is a name of MCP tools, "*" standing for any characters.
var toolPattern = regexp.MustCompile(`^[a-zA-Z0-9_.*-]{1,128}$`)

func checkSecrets(secrets map[string]Secret) error {
	if err := atMost("secrets", len(secrets), maxList); err != nil {
		return err
	}
	for _, key := range sortedKeys(secrets) {
		if err := harness.ValidKey(key); err != nil {
			return fmt.Errorf("secrets: %w", err)
		}
		if err := secrets[key].check(); err != nil {
			return fmt.Errorf("secrets.%s: %w", key, err)
		}
	}
	return nil
}

func (a *Agent) checkMCP() error {
	if err := atMost("mcp", len(a.MCP), maxList); err != nil {
		return err
	}
	for i, s := range a.MCP {
		if err := s.check(); err != nil {
			return fmt.Errorf("mcp[%d]: %w", i, err)
		}
	}
	return nil
}

func (s MCPServer) check() error {
	if s.Name == "" {
		return errors.New("name is missing")
	}
	if err := oneLine("name", s.Name, 64); err != nil {
		return err
	}
	if s.Type != "http" && s.Type != "sse" {
		return fmt.Errorf("type = %q must be \"http\" or \"sse\"; a server with a command is an addon", configfile.Clip(s.Type))
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Hostname() == "" || len(s.URL) > maxMCPURL: // the cause would repeat the URL, and a token in it
		return errors.New("url must be an absolute one, such as \"https://mcp.example.com/mcp\"")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("url must be http or https")
	case u.User != nil || u.Fragment != "":
		return errors.New("url must have no user and no fragment: a token goes into headers")
	case u.Hostname() == "localhost" || address(u.Hostname()).IsLoopback():
		return errors.New("url names the sandbox itself, where a loopback address leads: give the server's address on the network")
	case u.Scheme == "http" && !address(u.Hostname()).IsPrivate():
		return errors.New("url must be https: http would show the traffic, headers included, to everyone on the way")
	}
	if err := atMost("headers", len(s.Headers), maxList); err != nil {
		return err
	}
	for _, name := range sortedKeys(s.Headers) {
		if err := harness.ValidHeader(name, s.Headers[name]); err != nil {
			return err
		}
	}
	return nil
}

// address reads an address; the zero one, which is neither private nor loopback, stands for a name. Plain http to a
// private address is the person's to choose: it is their own network.
func address(host string) netip.Addr {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
}

func (a *Agent) checkNetwork() error { return a.Network.check() }

// Given says whether the network has a rule or a preset.
func (n Network) Given() bool {
	return len(n.Allow)+len(n.Deny)+len(n.Private)+len(n.Presets) > 0
}

func (n Network) check() error {
	lists := []struct {
		name  string
		rules []string
	}{{"allow", n.Allow}, {"deny", n.Deny}, {"private", n.Private}}
	for _, l := range lists {
		if err := atMost("network."+l.name, len(l.rules), maxRules); err != nil {
			return err
		}
		for i, rule := range l.rules {
			if err := harness.ValidRule(rule); err != nil {
				return fmt.Errorf("network.%s[%d]: %w", l.name, i, err)
			}
			if slices.Contains(l.rules[:i], rule) {
				return fmt.Errorf("network.%s: %s is there twice", l.name, rule)
			}
		}
	}
	for i, p := range n.Presets {
		if err := harness.ValidName(p); err != nil {
			return fmt.Errorf("network.presets[%d]: %w", i, err)
		}
		if slices.Contains(n.Presets[:i], p) {
			return fmt.Errorf("network.presets: %s is there twice", p)
		}
	}
	if u := n.Unknown; u != "" && u != UnknownRefuse && u != UnknownAsk {
		return fmt.Errorf("network.unknown = %q must be \"refuse\" or \"ask\"", configfile.Clip(u))
	}
	return nil
}

func (a *Agent) checkLimits() error {
	if _, err := a.Limits.Parse(); err != nil {
		return err
	}
	_, err := a.Limits.Run()
	return err
}

func (a *Agent) checkPolicy() error {
	if c := a.Policy.ClientMCP; c != "" && c != "allow" && c != ClientMCPDeny {
		return fmt.Errorf("policy.client_mcp = %q must be \"allow\" or \"deny\"", configfile.Clip(c))
	}
	for i, where := range a.Policy.Approvals {
		if where != ApprovalsACP {
			return fmt.Errorf("policy.approvals[%d] = %q must be \"acp\"", i, configfile.Clip(where))
		}
		if i > 0 {
			return fmt.Errorf("policy.approvals: %s is there twice", where)
		}
	}
	return a.Policy.checkAnswers()
}

func (a *Agent) checkSecrets() error {
	if err := checkSecrets(a.Secrets); err != nil {
		return err
	}
	if err := atMost("upstreams", len(a.Upstreams), maxList); err != nil {
		return err
	}
	for _, name := range sortedKeys(a.Upstreams) {
		if err := harness.ValidName(name); err != nil {
			return fmt.Errorf("upstreams: %w", err)
		}
		if err := a.Upstreams[name].check(); err != nil {
			return fmt.Errorf("upstreams.%s: %w", name, err)
		}
	}
	return nil
}

func (u Upstream) check() error {
	if u.URL == "" && len(u.Methods) == 0 && len(u.Paths) == 0 {
		return errors.New("it changes nothing: give url, methods or paths")
	}
	if u.URL != "" {
		if err := harness.ValidUpstreamURL(u.URL); err != nil {
			return err
		}
	}
	return harness.ValidServed(u.Methods, u.Paths)
}

func (a *Agent) checkEnv() error {
	if err := atMost("env", len(a.Env), 2*maxList); err != nil {
		return err
	}
	for _, name := range sortedKeys(a.Env) {
		if err := harness.ValidEnv(name, a.Env[name]); err != nil {
			return fmt.Errorf("env: %w", err)
		}
	}
	return nil
}

func oneLine(what, text string, most int) error {
	if len(text) > most || !utf8.ValidString(text) || strings.IndexFunc(text, isControl) >= 0 {
		return fmt.Errorf("%s must be one line of at most %d bytes", what, most)
	}
	return nil
}

func atMost(what string, n, most int) error {
	if n > most {
		return fmt.Errorf("%s has %d entries; at most %d are possible", what, n, most)
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
