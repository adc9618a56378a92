package agents

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/handlerd/handler/configfile"
)

// Format writes an agent as TOML, in the order of the fields of Agent, tables sorted by name, nothing that is at
// its default. Parse gives the same agent again. Comments that a person wrote are not kept: an Agent has none.
func Format(a *Agent) []byte {
	w := new(writer)
	w.text("harness", a.Harness)
	w.text("description", a.Description)
	w.text("toolbox", a.Toolbox)
	switch a.Display {
	case DisplayWayland:
		w.flag("display", true)
	default:
		w.text("display", string(a.Display))
	}
	w.text("display_size", a.DisplaySize)
	w.flag("display_strict", a.DisplayStrict)
	for _, s := range a.Scopes {
		w.table("[[scopes]]")
		w.text("path", s.Path)
		w.text("mode", s.Mode)
	}
	w.bindings(a.Bindings)
	for _, s := range a.MCP {
		w.table("[[mcp]]")
		w.text("name", s.Name)
		w.text("type", s.Type)
		w.text("url", s.URL)
		w.subtable("[mcp.headers]", s.Headers)
	}
	w.network("[network]", a.Network)
	if b := a.Browser; b != (Browser{View: b.View}) || !b.Watched() {
		w.table("[browser]")
		w.text("network", b.Network)
		w.flag("read_only", b.ReadOnly)
		w.text("lifetime", b.Lifetime)
		w.text("search", b.Search)
		if !b.Watched() {
			w.WriteString("view = false\n")
		}
		if l := b.Limits; l != (BrowserLimits{}) {
			w.table("[browser.limits]")
			w.text("memory", l.Memory)
			w.number("processes", l.Processes)
			w.text("tmp", l.Tmp)
			w.text("files", l.Files)
			w.text("idle", l.Idle)
		}
	}
	w.limits(a.Limits)
	w.policy(a.Policy)
	w.secrets("secrets", a.Secrets)
	for _, name := range sortedKeys(a.Upstreams) {
		w.table("[upstreams." + key(name) + "]")
		w.text("url", a.Upstreams[name].URL)
		w.list("methods", a.Upstreams[name].Methods)
		w.list("paths", a.Upstreams[name].Paths)
	}
	w.subtable("[env]", a.Env)
	return w.Bytes()
}

// A writer appends TOML; values at their default are left out.
type writer struct{ bytes.Buffer }

func (w *writer) table(header string) {
	if w.Len() > 0 {
		w.WriteByte('\n')
	}
	w.WriteString(header + "\n")
}

func (w *writer) text(name, value string) {
	if value != "" {
		fmt.Fprintf(w, "%s = %s\n", name, quote(value))
	}
}

func (w *writer) number(name string, value int64) {
	if value != 0 {
		fmt.Fprintf(w, "%s = %d\n", name, value)
	}
}

func (w *writer) flag(name string, value bool) {
	if value {
		fmt.Fprintf(w, "%s = true\n", name)
	}
}

func (w *writer) list(name string, values []string) {
	if len(values) == 0 {
		return
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = quote(v)
	}
	if one := fmt.Sprintf("%s = [%s]\n", name, strings.Join(quoted, ", ")); len(one) <= 100 {
		w.WriteString(one)
		return
	}
	fmt.Fprintf(w, "%s = [\n  %s,\n]\n", name, strings.Join(quoted, ",\n  "))
}

func (w *writer) subtable(header string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	w.table(header)
	for _, name := range sortedKeys(values) {
		fmt.Fprintf(w, "%s = %s\n", key(name), quote(values[name]))
	}
}

// bindings writes an empty table where there are none but not the default ones: "no addon" is not "the usual ones".
func (w *writer) bindings(all map[string]Binding) {
	if all != nil && len(all) == 0 {
		w.table("[bindings]")
	}
	for _, name := range sortedKeys(all) {
		b, header := all[name], "bindings."+key(name)
		w.table("[" + header + "]")
		w.text("chromium_sandbox", b.ChromiumSandbox)
		w.text("placement", b.Placement)
		w.list("tools", b.Tools)
		w.list("deny_tools", b.DenyTools)
		w.network("["+header+".network]", b.Network)
		w.serverLimits("["+header+".limits]", b.Limits)
		w.subtable("["+header+".settings]", b.Settings)
		w.secrets(header+".secrets", b.Secrets)
	}
}

func (w *writer) network(header string, n Network) {
	if !n.Given() && n.Unknown == "" {
		return
	}
	w.table(header)
	w.list("allow", n.Allow)
	w.list("deny", n.Deny)
	w.list("private", n.Private)
	w.list("presets", n.Presets)
	w.text("unknown", n.Unknown)
}

func (w *writer) serverLimits(header string, l ServerLimits) {
	if l == (ServerLimits{}) {
		return
	}
	w.table(header)
	w.text("memory", l.Memory)
	w.number("processes", l.Processes)
	w.text("tmp", l.Tmp)
	w.text("home", l.Home)
	w.text("shm", l.Shm)
	w.text("call_time", l.CallTime)
	w.text("idle", l.Idle)
	w.text("lifetime", l.Lifetime)
	w.text("results", l.Results)
}

func (w *writer) secrets(header string, all map[string]Secret) {
	for _, name := range sortedKeys(all) {
		w.table("[" + header + "." + key(name) + "]")
		w.secret(all[name])
	}
}

func (w *writer) secret(s Secret) {
	w.text("file", s.File)
	w.text("pass", s.Pass)
	if len(s.SecretService) > 0 {
		var pairs []string
		for _, name := range sortedKeys(s.SecretService) {
			pairs = append(pairs, key(name)+" = "+quote(s.SecretService[name]))
		}
		fmt.Fprintf(w, "secret_service = {%s}\n", strings.Join(pairs, ", "))
	}
	w.text("secret_service_label", s.SecretServiceLabel)
	w.text("credential", s.Credential)
	w.list("command", s.Command)
}

func (w *writer) limits(l Limits) {
	if l == (Limits{}) {
		return
	}
	w.table("[limits]")
	w.text("memory", l.Memory)
	if l.CPUs != 0 {
		cpus := strconv.FormatFloat(l.CPUs, 'f', -1, 64)
		if !strings.Contains(cpus, ".") {
			cpus += ".0"
		}
		fmt.Fprintf(w, "cpus = %s\n", cpus)
	}
	w.number("processes", l.Processes)
	w.text("tmp", l.Tmp)
	w.text("home", l.Home)
	w.text("shm", l.Shm)
	w.text("state", l.State)
	w.text("lifetime", l.Lifetime)
	w.text("idle", l.Idle)
}

// key writes a key, bare where TOML allows it.
func key(name string) string {
	bare := name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) < 0
	if bare {
		return name
	}
	return quote(name)
}

// quote writes a basic string of TOML.
func quote(s string) string { return configfile.Quote(s) }
