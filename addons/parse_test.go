package addons

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const good = `
name = "web"
version = "1.0"
description = "A thing"
default = true
commands = ["web-mcp", "web-check"]
skills = ["skills/web"]
hosts = ["example.com", "*.example.org", "example.net:8443"]

[settings.size]
description = "how large"
default = "big"
values = ["big", "small"]

[secrets.token]
description = "a token"
required = true

[build]
containerfile = "build/Containerfile"

[mcp]
command = ["web-mcp", "--stdio"]

[check]
command = ["web-check"]
[[check.advice]]
match = "ENOSPC"
text = "make room"
`

func TestParse(t *testing.T) {
	got, err := Parse("addon.toml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := &Manifest{
		Name: "web", Version: "1.0", Description: "A thing", Default: true,
		Commands: []string{"web-mcp", "web-check"}, Skills: []string{"skills/web"},
		Hosts:    []string{"example.com", "*.example.org", "example.net:8443"},
		Settings: map[string]Setting{"size": {Description: "how large", Default: "big", Values: []string{"big", "small"}}},
		Secrets:  map[string]Secret{"token": {Description: "a token", Required: true}},
		Build:    &Build{Containerfile: "build/Containerfile"},
		MCP:      &MCP{Command: []string{"web-mcp", "--stdio"}, Placement: PlacementSandbox},
		Check:    &Check{Command: []string{"web-check"}, Advice: []Advice{{Match: "ENOSPC", Text: "make room"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"unknown key", "default = true", "defualt = true", `addon.toml:5:1: unknown key "defualt"`},
		{"unknown nested key", "required = true", "need = true", `unknown key "secrets.token.need"`},
		{"wrong type", "default = true", `default = "yes"`, "addon.toml:5:"},
		{"no name", `name = "web"`, "", "name is missing"},
		{"dots", `name = "web"`, `name = ".."`, `".." is not a name`},
		{"slash", `name = "web"`, `name = "a/b"`, `"a/b" is not a name`},
		{"backslash", `name = "web"`, `name = "a\\b"`, "is not a name"},
		{"NUL", `name = "web"`, `name = "a\u0000"`, "is not a name"},
		{"upper case", `name = "web"`, `name = "Web"`, "is not a name"},
		{"long name", `name = "web"`, `name = "` + strings.Repeat("a", 65) + `"`, "is not a name"},
		{"command with a slash", `"web-check"]`, `"../sh"]`, `commands[1] "../sh" is not a plain name`},
		{"command twice", `commands = ["web-mcp", "web-check"]`, `commands = ["web-mcp", "web-check", "web-mcp"]`, `"web-mcp" is there twice`},
		{"skill above", `"skills/web"`, `"../skills"`, `skills[0] "../skills" must be a plain path below`},
		{"host with a scheme", `"example.com"`, `"https://example.com"`, "hosts[0]"},
		{"host with a path", `"example.com"`, `"example.com/x"`, "is not a host"},
		{"all hosts", `"example.com"`, `"*"`, `hosts[0] "*" is not a host`},
		{"port", `"example.com"`, `"example.com:0"`, "has no port"},
		{"setting name", "[settings.size]", "[settings.Size]", `settings: "Size" is not a name`},
		{"setting default", `default = "big"`, `default = "huge"`, `settings.size.default "huge" is not one of its values: big, small`},
		{"secret name", "[secrets.token]", `[secrets."to-ken"]`, `secrets: "to-ken" is not a name`},
		{"containerfile above", `"build/Containerfile"`, `"../Containerfile"`, "must be a plain path below"},
		{"containerfile absolute", `"build/Containerfile"`, `"/Containerfile"`, "must be a plain path below"},
		{"containerfile unclean", `"build/Containerfile"`, `"build/../../x"`, "must be a plain path below"},
		{"no build", "[build]\ncontainerfile = \"build/Containerfile\"", "", "commands need a [build]"},
		{"foreign mcp command", `command = ["web-mcp", "--stdio"]`, `command = ["sh", "-c", "x"]`, `mcp.command begins with "sh"`},
		{"no mcp command", `command = ["web-mcp", "--stdio"]`, ``, "mcp.command is missing"},
		{"placement", `command = ["web-mcp", "--stdio"]`, "command = [\"web-mcp\"]\nplacement = \"host\"", `mcp.placement = "host" must be`},
		{"foreign check", `command = ["web-check"]`, `command = ["/bin/true"]`, `check.command begins with "/bin/true"`},
		{"advice without text", `text = "make room"`, "", "check.advice[0] needs both"},
		{"two lines", `"A thing"`, `"A\nthing"`, "description must be one line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := strings.Replace(good, tt.old, tt.new, 1)
			if in == good {
				t.Fatal("the test changes nothing")
			}
			_, err := Parse("addon.toml", []byte(in))
			if err == nil || !strings.HasPrefix(err.Error(), "addon.toml:") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzParseNeverPanicsAndKeepsNames(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("name = \"..\""))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse("f", data)
		if err == nil && ValidName(m.Name) != nil {
			t.Errorf("accepted the name %q", m.Name)
		}
	})
}
