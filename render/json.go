package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/sandbox"
)

// JSON writes a Plan for people (`handler agent show --plan`) and for golden files: indented, in a fixed order, empty
// parts left out, files as text. Values of headers and the query of a server's URL are not in it, since they are tokens
// more often than not; secrets are not in a Plan at all, only the names of the files that hold them.
func (p *Plan) JSON() ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(viewOf(p)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// planView is the form of JSON. Its keys are read by people and by nobody's program: Plan is what programs use.
type planView struct {
	Agent     string         `json:"agent"`
	Harness   string         `json:"harness"`
	Sandbox   sandboxView    `json:"sandbox"`
	Display   string         `json:"display,omitempty"`
	Strict    bool           `json:"displayStrict,omitempty"`
	Session   sessionView    `json:"session"`
	Network   []string       `json:"network"`
	Unknown   string         `json:"unknown,omitempty"` // a host that no rule names
	Hosted    []hostedView   `json:"hosted,omitempty"`
	Upstreams []upstreamView `json:"upstreams,omitempty"`
	Secrets   []secretView   `json:"secrets,omitempty"`
	Policy    Policy         `json:"policy"`
	Notices   []string       `json:"notices,omitempty"`
}

type sandboxView struct {
	Image   string            `json:"image"`
	Command []string          `json:"command"`
	Dir     string            `json:"dir"`
	Env     map[string]string `json:"env"`
	Scopes  []string          `json:"scopes"`
	Images  map[string]string `json:"images,omitempty"`
	State   map[string]string `json:"state,omitempty"`
	Tmpfs   map[string]int64  `json:"tmpfs,omitempty"`
	Files   []fileView        `json:"files,omitempty"`
	Limits  map[string]string `json:"limits"`
}

type fileView struct {
	Path    string `json:"path"`
	Mode    string `json:"mode"`
	Content string `json:"content"`
}

type sessionView struct {
	MCPServers     []MCPServer `json:"mcpServers"`
	SessionMCP     string      `json:"sessionMCP"`
	SessionsPerRun int         `json:"sessionsPerRun,omitempty"`
	MCPTransports  []string    `json:"mcpTransports"`
}

type upstreamView struct {
	Name    string            `json:"name"`
	URL     string            `json:"url"`
	Methods []string          `json:"methods"`
	Paths   []string          `json:"paths"`
	Header  string            `json:"header"`
	Prefix  string            `json:"prefix,omitempty"`
	Extra   map[string]string `json:"extra,omitempty"`
	Secret  string            `json:"secret"`
	Env     map[string]string `json:"env,omitempty"`
}

type hostedView struct {
	Name    string            `json:"name"`
	Allow   []string          `json:"tools,omitempty"`
	Deny    []string          `json:"denyTools,omitempty"`
	Images  map[string]string `json:"images,omitempty"` // what follows is of a sandbox of its own
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Secrets []secretView      `json:"secrets,omitempty"`
	Network []string          `json:"network,omitempty"`
}

func viewOfHosted(h Hosted) hostedView {
	v := hostedView{Name: h.Name, Allow: h.Allow, Deny: h.Deny}
	if h.Box == nil {
		return v
	}
	v.Images, v.Command, v.Env = map[string]string{}, h.Box.Command, h.Box.Env
	for _, i := range h.Box.Images {
		v.Images[i.Target] = i.Image
	}
	v.Secrets, v.Network = viewOfSecrets(h.Box.Secrets), viewOfRules(h.Box.Network)
	return v
}

func viewOfRules(n Network) []string {
	all := []string{}
	for _, r := range n.Rules {
		all = append(all, fmt.Sprintf("%s %s (%s)", r.Kind, r.Text, r.By))
	}
	return all
}

func viewOfSecrets(list []SecretFile) (all []secretView) {
	for _, s := range list {
		all = append(all, secretView{s.Name, s.Source.String(), s.Path, fmt.Sprintf("%04o", s.Mode)})
	}
	return all
}

type secretView struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Path   string `json:"path"`
	Mode   string `json:"mode"`
}

func viewOf(p *Plan) planView {
	v := planView{
		Agent: p.Agent, Harness: p.Harness, Display: string(p.Display), Strict: p.DisplayStrict, Policy: p.Policy, Notices: p.Notices, Sandbox: viewOfSpec(p.Sandbox),
		Session: sessionView{MCPServers: []MCPServer{}, SessionMCP: p.SessionMCP, SessionsPerRun: p.SessionsPerRun, MCPTransports: p.MCPTransports},
		Unknown: p.Network.Unknown,
	}
	for _, s := range p.SessionDefaults.MCPServers {
		headers := make([]Pair, 0, len(s.Headers))
		for _, h := range s.Headers {
			headers = append(headers, Pair{Name: h.Name, Value: fmt.Sprintf("(%d bytes)", len(h.Value))})
		}
		s.Headers = headers
		if before, _, ok := strings.Cut(s.URL, "?"); ok {
			s.URL = before + "?…" // some servers take their token there
		}
		v.Session.MCPServers = append(v.Session.MCPServers, s)
	}
	for name, text := range viewOfRunLimits(p.Limits) {
		v.Sandbox.Limits[name] = text
	}
	for i := range v.Sandbox.Files {
		if f := &v.Sandbox.Files[i]; p.MCPConfig != nil && f.Path == p.MCPConfig.Path {
			f.Content = "(the session's MCP servers)"
		}
	}
	v.Network = viewOfRules(p.Network)
	for _, h := range p.Hosted {
		v.Hosted = append(v.Hosted, viewOfHosted(h))
	}
	for _, u := range p.Upstreams {
		v.Upstreams = append(v.Upstreams, upstreamView{
			Name: u.Name, URL: u.URL, Methods: u.Methods, Paths: u.Paths, Header: u.Header, Prefix: u.Prefix, Extra: u.Extra,
			Secret: u.Secret.String(), Env: u.Env,
		})
	}
	v.Secrets = viewOfSecrets(p.Secrets)
	return v
}

func viewOfSpec(s sandbox.Spec) sandboxView {
	v := sandboxView{Image: s.Image, Command: s.Command, Dir: s.Dir, Env: s.Env, Images: map[string]string{},
		State: map[string]string{}, Tmpfs: map[string]int64{}, Limits: viewOfLimits(s.Limits)}
	for _, m := range s.Mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		v.Scopes = append(v.Scopes, m.Target+" ("+mode+")")
	}
	for _, i := range s.Images {
		v.Images[i.Target] = i.Image
	}
	for _, vol := range s.Volumes {
		v.State[vol.Target] = vol.Source
	}
	for _, t := range s.Tmpfs {
		v.Tmpfs[t.Target] = t.Bytes
	}
	for _, f := range s.Files {
		content := string(f.Content)
		if !utf8.ValidString(content) || strings.ContainsRune(content, 0) {
			content = fmt.Sprintf("(%d bytes)", len(f.Content))
		}
		v.Files = append(v.Files, fileView{f.Path, fmt.Sprintf("%04o", f.Mode), content})
	}
	return v
}

// viewOfLimits writes numbers with their units, and which of them were asked for (A.4).
func viewOfLimits(l sandbox.Limits) map[string]string {
	limit := func(x sandbox.Limit, text string) string {
		switch {
		case x.Value == 0:
			return "none"
		case x.Asked:
			return text + " (asked for)"
		}
		return text
	}
	bytes := func(n int64) string { return fmt.Sprintf("%d bytes", n) }
	return map[string]string{
		"memory":    limit(l.Memory, bytes(l.Memory.Value)),
		"cpus":      limit(l.CPU, fmt.Sprintf("%d.%03d", l.CPU.Value/1000, l.CPU.Value%1000)),
		"processes": limit(l.Processes, fmt.Sprint(l.Processes.Value)),
		"tmp":       bytes(l.TmpBytes), "home": bytes(l.HomeBytes), "shm": bytes(l.ShmBytes),
		"openFiles": fmt.Sprint(l.OpenFiles),
	}
}

// viewOfRunLimits writes those that the engine keeps.
func viewOfRunLimits(l agents.RunLimits) map[string]string {
	or := func(none bool, text string) string {
		if none {
			return "none"
		}
		return text
	}
	return map[string]string{
		"state":    or(l.State == 0, fmt.Sprintf("%d bytes", l.State)),
		"lifetime": or(l.Lifetime == 0, l.Lifetime.String()),
		"idle":     or(l.Idle == 0, l.Idle.String()),
	}
}
