package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// state makes a volume of each of the harness's state folders (B.10): one an agent, or one an agent and set of scopes.
func (b *builder) state() error {
	spec := &b.plan.Sandbox
	root := path.Join(b.in.StateDir, "agents", b.in.Agent.Name)
	for _, s := range b.in.Harness.State {
		source := path.Join(root, s.Name)
		if s.Per == "scope" {
			source = path.Join(root, "scopes", scopeKey(spec.Mounts), s.Name)
		}
		target := inside(s.Path)
		if scope := b.scopeOver(target); scope != "" {
			return fmt.Errorf("the harness %s keeps its state in %s, which the scope %s is over", b.in.Harness.Name, target, scope)
		}
		spec.Volumes = append(spec.Volumes, sandbox.Volume{Source: source, Target: target})
	}
	slices.SortFunc(spec.Volumes, func(x, y sandbox.Volume) int { return strings.Compare(x.Target, y.Target) })
	return nil
}

// scopeOver gives the scope that a path lies in, or that lies in it; "" for none.
func (b *builder) scopeOver(p string) string {
	for _, m := range b.plan.Sandbox.Mounts {
		if within(p, m.Target) || within(m.Target, p) {
			return m.Target
		}
	}
	return ""
}

// scopeKey names a set of scopes, whatever their order and mode: 16 hexadecimal digits.
func scopeKey(mounts []sandbox.Mount) string {
	sum := sha256.New()
	for _, m := range mounts { // sorted by scopes
		sum.Write([]byte(m.Target + "\x00"))
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// files adds the harness's generated files and the skills, and a small tmpfs below each that would not lie on one.
func (b *builder) files() error {
	spec := &b.plan.Sandbox
	folders := map[string]int64{} // where a tmpfs may be needed, and the bytes that go there
	for _, f := range b.in.Harness.Files {
		mode, err := strconv.ParseUint(f.Mode, 8, 16)
		if err != nil || mode > 0o777 {
			return fmt.Errorf("the harness %s: the mode %q of %s is not octal", b.in.Harness.Name, f.Mode, f.Path)
		}
		spec.Files = append(spec.Files, sandbox.File{Path: inside(f.Path), Mode: fs.FileMode(mode), Content: []byte(f.Content)})
	}
	for _, f := range spec.Files { // the MCP configuration too
		folders[path.Dir(f.Path)] += int64(len(f.Content))
	}
	if err := b.skills(folders); err != nil {
		return err
	}
	slices.SortFunc(spec.Files, func(x, y sandbox.File) int { return strings.Compare(x.Path, y.Path) })
	for i, f := range spec.Files {
		if i > 0 && spec.Files[i-1].Path == f.Path {
			return fmt.Errorf("two files would be %s", f.Path)
		}
		if scope := b.scopeOver(f.Path); scope != "" {
			return fmt.Errorf("the harness %s has a file %s, which would lie in the scope %s, on the host", b.in.Harness.Name, f.Path, scope)
		}
	}
	for _, folder := range sortedKeys(folders) { // a folder comes before those in it
		if err := b.onTmpfs(folder, folders[folder]); err != nil {
			return err
		}
	}
	return nil
}

// onTmpfs sees to it that a folder lies on a tmpfs (A.1), adding one where the innermost mount around it is none.
func (b *builder) onTmpfs(folder string, bytes int64) error {
	spec := &b.plan.Sandbox
	inner, memory := "/", false
	look := func(target string, isMemory bool) {
		if within(folder, target) && len(target) >= len(inner) {
			inner, memory = target, isMemory
		}
	}
	for _, target := range []string{sandbox.HomeTarget, "/tmp"} {
		look(target, true)
	}
	for _, t := range spec.Tmpfs {
		look(t.Target, true)
	}
	for _, v := range spec.Volumes {
		look(v.Target, false)
	}
	if memory {
		return nil
	}
	if inner == folder {
		return fmt.Errorf("files of the harness %s would lie in its state folder %s, which is on a disk", b.in.Harness.Name, folder)
	}
	const least = 1 << 20
	spec.Tmpfs = append(spec.Tmpfs, sandbox.Tmpfs{Target: folder, Bytes: least + (bytes+least-1)/least*least})
	return nil
}

// skills puts the bound addons' skills where the harness reads them (B.6).
func (b *builder) skills(folders map[string]int64) error {
	dir := inside(b.in.Harness.Skills)
	seen := map[string]string{}
	for _, m := range b.bound {
		if len(m.Skills) == 0 {
			continue
		}
		if dir == "" {
			b.notice("the harness %s reads no skills: those of addon %s are not given to it", b.in.Harness.Name, m.Name)
			continue
		}
		files := b.in.Skills[m.Name]
		if len(files) == 0 {
			return fmt.Errorf("the skills of addon %s were not read", m.Name)
		}
		for _, f := range files {
			if !fs.ValidPath(f.Path) || f.Path == "." || !strings.Contains(f.Path, "/") {
				return fmt.Errorf("the addon %s: %q is not a file of a skill", m.Name, f.Path)
			}
			skill, _, _ := strings.Cut(f.Path, "/")
			if other := seen[skill]; other != "" && other != m.Name {
				return fmt.Errorf("the addons %s and %s both have a skill %s", other, m.Name, skill)
			}
			seen[skill] = m.Name
			mode := fs.FileMode(0o400)
			if f.Executable {
				mode = 0o500
			}
			b.plan.Sandbox.Files = append(b.plan.Sandbox.Files, sandbox.File{Path: dir + "/" + f.Path, Mode: mode, Content: slices.Clone(f.Content)})
			folders[dir] += int64(len(f.Content))
		}
	}
	return nil
}

// serverFile writes the servers where a harness reads them that takes none from ACP (B.7).
func (b *builder) serverFile() error {
	h, list := b.in.Harness, b.plan.SessionDefaults.MCPServers
	switch {
	case h.SessionMCP == harness.SessionMCPNone && len(list) > 0:
		return fmt.Errorf("the harness %s takes no MCP servers, and %s is one — an empty [bindings] in the agent binds no addon", h.Name, list[0].Name)
	case h.SessionMCP != harness.SessionMCPFile:
		return nil
	}
	if h.MCPConfigFile == nil {
		return fmt.Errorf("the harness %s has no mcpConfigFile", h.Name)
	}
	b.plan.MCPConfig = &MCPConfig{Path: inside(h.MCPConfigFile.Path), Format: h.MCPConfigFile.Format}
	file, err := b.plan.MCPConfig.File(list)
	if err != nil {
		return err
	}
	b.plan.Sandbox.Files = append(b.plan.Sandbox.Files, file)
	return nil
}

// File writes servers in the configuration's format: "pi" is the only one. A value that the agent would expand or run
// ("${NAME}", a leading "!") is an error: it has no way to write it.
func (c *MCPConfig) File(servers []MCPServer) (sandbox.File, error) {
	// What is read from a file is read for every session: no token tells them apart.
	servers = (&policy.Config{Servers: servers}).WithToken("").Servers
	if c.Format != "pi" {
		return sandbox.File{}, fmt.Errorf("there is no format %q for MCP servers", c.Format)
	}
	type entry struct {
		Exposure string            `json:"exposure"`
		Command  string            `json:"command,omitempty"`
		Args     []string          `json:"args,omitempty"`
		Env      map[string]string `json:"env,omitempty"`
		URL      string            `json:"url,omitempty"`
		Headers  map[string]string `json:"headers,omitempty"`
	}
	all := map[string]entry{}
	for _, s := range servers {
		e := entry{Exposure: "direct", Command: s.Command, Args: s.Args, URL: s.URL}
		var err error
		if e.Env, err = plain(s.Env); err == nil {
			e.Headers, err = plain(s.Headers)
		}
		if err != nil {
			return sandbox.File{}, fmt.Errorf("the MCP server %s: %w", s.Name, err)
		}
		if strings.ContainsFunc(s.Name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
		}) {
			return sandbox.File{}, fmt.Errorf("the MCP server %q: this agent takes names of letters, digits, \"_\" and \"-\" only", s.Name)
		}
		all[s.Name] = e
	}
	data, err := json.MarshalIndent(map[string]any{"mcpServers": all}, "", "  ")
	if err != nil {
		return sandbox.File{}, err
	}
	return sandbox.File{Path: c.Path, Mode: 0o600, Content: append(data, '\n')}, nil
}

// plain gives pairs as a map; values that the format would expand are errors, which name the variable only.
func plain(pairs []Pair) (map[string]string, error) {
	m := map[string]string{}
	for _, p := range pairs {
		if strings.Contains(p.Value, "${") || strings.HasPrefix(p.Value, "!") {
			return nil, fmt.Errorf("the value of %s has \"${\" or begins with \"!\", which this agent would expand or run", p.Name)
		}
		if _, twice := m[p.Name]; twice {
			return nil, errors.New("it has " + p.Name + " twice")
		}
		m[p.Name] = p.Value
	}
	return m, nil
}
