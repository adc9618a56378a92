package agents

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every agent goes through JSON and comes back the same.
func TestJSON(t *testing.T) {
	for _, text := range []string{
		"harness = \"demo\"\n",
		"harness = \"demo\"\n[bindings]\n",
		`harness = "claude-code"
description = "a \"quoted\" # thing"
display = true
[[scopes]]
path = "~/src"
mode = "ro"
[bindings.playwright]
placement = "hosted"
tools = ["browser_*"]
[bindings.playwright.settings]
headless = "1"
[bindings.playwright.secrets.state]
secret_service = {"odd name" = "y, z"}
[[mcp]]
name = "x"
type = "http"
url = "https://example.org/mcp"
headers = {A = "b"}
[network]
allow = ["example.org", "GET http://a.example/x*"]
presets = ["npm"]
unknown = "ask"
[browser]
lifetime = "10m"
[limits]
memory = "2GB"
cpus = 1.5
processes = 100
[policy]
host_fs = true
answers = [{kind = "read", answer = "allow"}]
[secrets.anthropic_api_key]
file = "~/key"
[env]
A = "b"
`,
	} {
		a, err := Parse("a", "a", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		data, err := ToJSON(a)
		if err != nil {
			t.Fatal(err)
		}
		again, err := FromJSON("a", data)
		if diff := cmp.Diff(a, again); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", data, err, diff)
		}
	}
	for data, says := range map[string]string{
		`[]`: "no JSON object", `{"harness":"demo"} {}`: "something behind", `{"harness":"demo","x":1}`: `unknown key "x"`,
		`{"harness":"demo","limits":{"memory":2}}`: "", `{"harness":7}`: "", `{"harness":"demo","scopes":[null]}`: "empty places",
		`{"harness":"demo","limits":{"cpus":1e999}}`: "", `{"harness":"demo","limits":{"processes":99999999999999999999}}`: "",
		`{"harness":null}`: "harness is missing",
	} {
		if _, err := FromJSON("a", []byte(data)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", data, err)
		}
	}
	if _, err := FromJSON("a", []byte(`{"harness":"demo","limits":{"cpus":2}}`)); err != nil {
		t.Errorf("a whole number of processors: %v", err)
	}
}

func TestSaveText(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agents")
	text := "# mine\nharness = \"demo\" # the small one\n"
	if _, err := SaveText(dir, "web", []byte(text), false); err != nil {
		t.Fatal(err)
	}
	path, got, err := Text(dir, "web")
	if err != nil || string(got) != text || path != filepath.Join(dir, "web.toml") {
		t.Errorf("%s: %q, %v", path, got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	var exists *ExistsError
	if _, err := SaveText(dir, "web", []byte(text), false); !errors.As(err, &exists) {
		t.Errorf("got %v", err)
	}
	if _, err := SaveText(dir, "web", []byte("harness = \"demo\"\nx = 1\n"), true); err == nil || !strings.Contains(err.Error(), "web.toml:2:1") {
		t.Errorf("got %v", err)
	}
	if _, err := SaveText(dir, "../web", []byte(text), true); err == nil {
		t.Error("a name that is a path was taken")
	}
}

func TestEdited(t *testing.T) {
	before := []byte("# mine\nharness = \"demo\"\n[network]\nallow = [\"a.example\"] # why\n")
	a, err := Parse("web", "web", before)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Allow("b.example"); err != nil {
		t.Fatal(err)
	}
	if text, lost := Edited("web", before, a); lost || string(text) != "# mine\nharness = \"demo\"\n[network]\nallow = [\"a.example\", \"b.example\"] # why\n" {
		t.Errorf("lost %v:\n%s", lost, text)
	}
	a.Display = DisplayWayland
	if text, lost := Edited("web", before, a); !lost || !strings.Contains(string(text), "display = true") {
		t.Errorf("lost %v:\n%s", lost, text)
	}
	if text, lost := Edited("web", []byte("no agent"), a); lost || !strings.Contains(string(text), "display = true") {
		t.Errorf("lost %v:\n%s", lost, text)
	}
}
