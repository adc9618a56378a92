package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
)

// bind applies flags to an agent that has the addon playwright by default.
func bind(t *testing.T, a *agents.Agent, args ...string) error {
	t.Helper()
	var f bindingFlags
	cmd := &cobra.Command{}
	f.register(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if len(args) > 0 && !f.given() {
		t.Errorf("%v: nothing is given", args)
	}
	return f.apply(a, []string{"playwright"})
}

func TestBindingFlags(t *testing.T) {
	a := agents.Builtin("demo")
	if err := bind(t, a, "--placement", "notes=hosted", "--tools", "notes=read_*,list", "--deny-tools", "notes=drop_*",
		"--addon-allow", "notes=api.example.org", "--addon-deny", "notes=bad.example.org", "--addon-private", "notes=10.0.0.6:5432",
		"--addon-preset", "notes=npm", "--addon-limit", "notes=memory=512MiB", "--addon-limit", "notes=processes=64", "--placement", "playwright=hosted"); err != nil {
		t.Fatal(err)
	}
	const want = `harness = "demo"

[bindings.notes]
placement = "hosted"
tools = ["read_*", "list"]
deny_tools = ["drop_*"]

[bindings.notes.network]
allow = ["api.example.org"]
deny = ["bad.example.org"]
private = ["10.0.0.6:5432"]
presets = ["npm"]

[bindings.notes.limits]
memory = "512MiB"
processes = 64

[bindings.playwright]
placement = "hosted"
`
	if diff := cmp.Diff(want, string(agents.Format(a))); diff != "" {
		t.Error(diff)
	}
	if err := bind(t, a, "--tools", "notes=", "--deny-tools", "notes=", "--placement", "notes=", "--addon-limit", "notes=memory=", "--addon-limit", "notes=processes="); err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"notes=api.example.org", "notes=bad.example.org", "notes=10.0.0.6:5432", "notes=npm"} {
		if err := forget(a, rule); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff("harness = \"demo\"\n\n[bindings.notes]\n\n[bindings.playwright]\nplacement = \"hosted\"\n", string(agents.Format(a))); diff != "" {
		t.Error(diff)
	}
	if err := forget(a, "notes=npm"); err == nil || !strings.Contains(err.Error(), "the server notes of agent demo has no network rule npm") {
		t.Errorf("%v", err)
	}
	if err := forget(a, "other=npm"); err == nil || !strings.Contains(err.Error(), "agent demo has no network rule other=npm") {
		t.Errorf("%v", err)
	}
}

func TestBindingFlagsRefused(t *testing.T) {
	for _, tt := range []struct{ flag, value, want string }{
		{"--placement", "notes", "write ADDON=hosted or ADDON=sandbox"},
		{"--placement", "=hosted", "write ADDON=hosted"},
		{"--placement", "notes=elsewhere", "\"sandbox\" or \"hosted\""},
		{"--addon-limit", "notes", "write ADDON=NAME=VALUE"},
		{"--addon-limit", "notes=memory", "such as notes=memory=512MiB"},
		{"--addon-limit", "notes=size=1", "there is no limit \"size\""},
		{"--tools", "notes=a b", "no tool's name"},
		{"--tools", "notes=a,,b", "no tool's name"},
		{"--addon-allow", "notes=a b", "network.allow"},
		{"--addon-allow", "../x=example.org", "--addon-allow ../x=example.org"},
	} {
		if err := bind(t, agents.Builtin("demo"), tt.flag, tt.value); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.flag, tt.value, err, tt.want)
		}
	}
}
