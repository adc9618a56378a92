package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
)

func catalog(t *testing.T, files map[string]string) Catalog {
	t.Helper()
	dir := t.TempDir()
	c := Catalog{Config: filepath.Join(dir, "config"), State: filepath.Join(dir, "state"), Home: filepath.Join(dir, "home")}
	for name, content := range files {
		path := filepath.Join(c.Config, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// A harness's own name is an agent: its scope is the folder it is started in, and it has the default addons.
func TestBuiltinAgent(t *testing.T) {
	c := catalog(t, nil)
	plan, err := c.Plan("demo", "/src/shop")
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Sandbox.Mounts) != 1 || plan.Sandbox.Mounts[0].Source != "/src/shop" || plan.Sandbox.Mounts[0].ReadOnly {
		t.Errorf("mounts %+v", plan.Sandbox.Mounts)
	}
	if s := plan.SessionDefaults.MCPServers; len(s) != 1 || s[0].Name != "playwright" {
		t.Errorf("servers %+v", s)
	}
}

func TestSavedAgent(t *testing.T) {
	c := catalog(t, map[string]string{
		"agents/web.toml": "harness = \"demo\"\n[[scopes]]\npath = \"~/src\"\nmode = \"ro\"\n[network]\nallow = [\"example.org\"]\n",
	})
	plan, err := c.Plan("web", "/anywhere")
	if err != nil {
		t.Fatal(err)
	}
	if m := plan.Sandbox.Mounts; len(m) != 1 || m[0].Source != filepath.Join(c.Home, "src") || !m[0].ReadOnly {
		t.Errorf("mounts %+v", m)
	}
	n, err := c.Network(plan)
	if err != nil {
		t.Fatal(err)
	}
	if v := n.Decide("example.org", 443); v.Action != policy.Allow {
		t.Errorf("example.org: %v", v)
	}
	if v := n.Decide("example.com", 443); v.Action != policy.Refuse || !strings.Contains(v.Hint, "handler policy allow web example.com") {
		t.Errorf("example.com: %v", v)
	}
}

func TestFaults(t *testing.T) {
	c := catalog(t, map[string]string{
		"agents/typo.toml":  "harness = \"demo\"\nscope = \"x\"\n",
		"agents/ghost.toml": "harness = \"ghost\"\n",
		"agents/rule.toml":  "harness = \"demo\"\n[network]\nallow = [\"*\"]\n",
	})
	for name, want := range map[string]struct {
		kind fault.Kind
		says string
	}{
		"nobody": {fault.NotFound, "nobody"},
		"typo":   {fault.Usage, "typo.toml:2:1"},
		"ghost":  {fault.Usage, "ghost"},
		"rule":   {fault.Usage, "rule"},
		"../x":   {fault.Usage, "../x"},
	} {
		_, err := c.Plan(name, "/")
		var f *fault.Fault
		if !errors.As(err, &f) || f.Kind != want.kind || !strings.Contains(f.Error(), want.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Plan("demo", "relative"); fault.Of(err).Kind != fault.Usage {
		t.Errorf("a relative folder: %v", err)
	}
	list, err := c.ListAgents()
	if err != nil {
		t.Fatal(err)
	}
	problems := map[string]bool{}
	for _, l := range list {
		problems[l.Name] = l.Problem != ""
	}
	if !problems["typo"] || problems["demo"] || problems["claude-code"] {
		t.Errorf("%+v", list)
	}
}

// Check judges an agent that is not saved by the code of a start.
func TestCheck(t *testing.T) {
	c := catalog(t, nil)
	if err := c.Check(&agents.Agent{Name: "a", Harness: "demo"}); err != nil {
		t.Error(err)
	}
	if err := c.Check(&agents.Agent{Name: "a", Harness: "demo", Bindings: map[string]agents.Binding{"none": {}}}); err == nil {
		t.Error("an addon that is not there was accepted")
	}
}

// With a key outside, the provider is reached through the proxy alone: directly it would be a way out for data under
// somebody else's key.
func TestLoginHosts(t *testing.T) {
	c := catalog(t, map[string]string{
		"agents/keyed.toml": "harness = \"claude-code\"\n[secrets.anthropic_api_key]\nfile = \"~/key\"\n",
	})
	for agent, want := range map[string]policy.Action{"claude-code": policy.Allow, "keyed": policy.Refuse} {
		plan, err := c.Plan(agent, "/src")
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.Network(plan)
		if err != nil {
			t.Fatal(err)
		}
		if v := n.Decide("api.anthropic.com", 443); v.Action != want {
			t.Errorf("%s: %v", agent, v)
		}
	}
}
