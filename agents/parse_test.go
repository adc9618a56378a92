package agents

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/handlerd/handler/sandbox"
)

const whole = `harness = "claude-code"
description = "the shop, \"quoted\" and ünïcode"
toolbox = "web"
display = true

[[scopes]]
path = "~/src/shop"

[[scopes]]
path = "/srv/docs"
mode = "ro"

[bindings.notes]
placement = "hosted"
tools = ["read_*", "list"]
deny_tools = ["drop_*"]

[bindings.notes.network]
allow = ["api.example.org"]
private = ["10.0.0.6:5432"]
presets = ["github"]

[bindings.notes.limits]
memory = "512MiB"
processes = 64
tmp = "1GiB"
home = "2MiB"
shm = "1MiB"
call_time = "30s"
idle = "10m"
lifetime = "2h"
results = "1MiB"

[bindings.playwright]
chromium_sandbox = "off"

[bindings.playwright.settings]
headless = "1"

[bindings.playwright.secrets.storage_state]
file = "~/.config/handler/secrets/shop.json"

[[mcp]]
name = "Issue tracker"
type = "http"
url = "https://mcp.example.com/mcp"

[mcp.headers]
Authorization = "Bearer x"

[network]
allow = ["example.org", "*.example.com", "GET,HEAD http://repo.example.org/debian/*"]
deny = ["ads.example.com"]
private = ["10.0.0.5:8080"]
presets = ["npm"]
unknown = "ask"

[browser]
network = "rules"

[browser.limits]
memory = "3GiB"
processes = 2048
tmp = "1GiB"
files = "2GiB"
idle = "5m"

[limits]
memory = "2GB"
cpus = 1.5
processes = 512
tmp = "256MiB"

[policy]
host_fs = true
client_mcp = "deny"
approvals = ["acp"]
unattended = "reads"

[[policy.answers]]
title = "*deploy*"
answer = "deny"

[[policy.answers]]
tool = "mcp__playwright__*"
kind = "read"
answer = "allow"

[secrets.anthropic_api_key]
file = "/home/ana/key"

[upstreams.anthropic]
url = "http://127.0.0.1:8080"
methods = ["POST"]
paths = ["/v1/messages*"]

[env]
LANG = "de_DE.UTF-8"
`

func TestFormatIsStable(t *testing.T) {
	a, err := Parse("web", "web.toml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, string(Format(a))); diff != "" {
		t.Error(diff)
	}
}

func TestNoBindingsAreNotTheUsualOnes(t *testing.T) {
	a, err := Parse("a", "f", []byte("harness = \"demo\"\n"))
	if err != nil || a.Bindings != nil {
		t.Fatal(a, err)
	}
	a, err = Parse("a", "f", []byte("harness = \"demo\"\n[bindings]\n"))
	if err != nil || a.Bindings == nil {
		t.Fatalf("%+v %v", a, err)
	}
	if got := string(Format(a)); !strings.Contains(got, "[bindings]") {
		t.Error(got)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, add, want string }{
		{"nothing added", "", ""},
		{"unknown key", "harnes = \"x\"\n", `a.toml:2:1: unknown key "harnes"`},
		{"unknown nested", "[network]\nalow = []\n", `a.toml:3:1: unknown key "network.alow"`},
		{"wrong type", "display_strict = \"yes\"\n", "a.toml:2:18: "},
		{"no display", "display = \"yes\"\n", "a.toml:2:11: "},
		{"a number for a display", "description = \"x\"\ndisplay = 7\n", "a.toml:3:11: "},
		{"binding's unknown", "[bindings.x.network]\nunknown = \"ask\"\n", "says nothing to a hosted server"},
		{"binding's rule", "[bindings.x.network]\nallow = [\"a b\"]\n", "bindings.x: network.allow[0]"},
		{"placement", "[bindings.x]\nplacement = \"host\"\n", "\"sandbox\" or \"hosted\""},
		{"toolbox", "toolbox = \"../x\"\n", "toolbox"},
		{"description", "description = \"a\\nb\"\n", "one line"},
		{"scope relative", "[[scopes]]\npath = \"src\"\n", "absolute"},
		{"scope other home", "[[scopes]]\npath = \"~ana/src\"\n", "absolute"},
		{"scope up", "[[scopes]]\npath = \"~/src/../.ssh\"\n", "plain path"},
		{"scope none", "[[scopes]]\nmode = \"ro\"\n", "missing"},
		{"scope mode", "[[scopes]]\npath = \"/x\"\nmode = \"wr\"\n", "\"ro\" or \"rw\""},
		{"scope twice", "[[scopes]]\npath = \"/x\"\n[[scopes]]\npath = \"/x\"\n", "twice"},
		{"scope newline", "[[scopes]]\npath = \"/x\\n\"\n", "control"},
		{"binding name", "[bindings.\"..\"]\n", "not a name"},
		{"binding slash", "[bindings.\"a/b\"]\n", "not a name"},
		{"binding setting", "[bindings.x.settings]\n\"A B\" = \"1\"\n", "not a name"},
		{"binding secret", "[bindings.x.secrets.s]\nfile = \"s.json\"\n", "absolute"},
		{"binding secret inline", "[bindings.x.secrets]\ns = \"hunter2\"\n", "a.toml:3:"},
		{"chromium", "[bindings.x]\nchromium_sandbox = \"no\"\n", "chromium_sandbox"},
		{"mcp type", "[[mcp]]\nname = \"x\"\ntype = \"stdio\"\nurl = \"https://x\"\n", "is an addon"},
		{"mcp http", "[[mcp]]\nname = \"x\"\ntype = \"http\"\nurl = \"http://example.com\"\n", "https"},
		{"mcp http private", "[[mcp]]\nname = \"x\"\ntype = \"http\"\nurl = \"http://10.0.0.5:80/\"\n", ""},
		{"mcp loopback", "[[mcp]]\nname = \"x\"\ntype = \"http\"\nurl = \"http://127.0.0.1:80/\"\n", "the sandbox itself"},
		{"mcp loopback mapped", "[[mcp]]\nname = \"x\"\ntype = \"http\"\nurl = \"https://[::ffff:127.0.0.1]/\"\n", "the sandbox itself"},
		{"mcp localhost", "[[mcp]]\nname = \"x\"\ntype = \"sse\"\nurl = \"https://localhost:80/\"\n", "the sandbox itself"},
		{"mcp user", "[[mcp]]\nname = \"x\"\ntype = \"http\"\nurl = \"https://u:hunter2@x\"\n", "no user"},
		{"mcp url", "[[mcp]]\nname = \"x\"\ntype = \"http\"\nurl = \"https://hunter2@x:y\"\n", "absolute"},
		{"mcp header", "[[mcp]]\nname = \"x\"\ntype = \"http\"\nurl = \"https://x\"\n[mcp.headers]\nHost = \"y\"\n", "Host"},
		{"mcp no name", "[[mcp]]\ntype = \"http\"\nurl = \"https://x\"\n", "name"},
		{"rule", "[network]\nallow = [\"a b\"]\n", "network.allow[0]"},
		{"rule twice", "[network]\ndeny = [\"a\", \"a\"]\n", "twice"},
		{"preset", "[network]\npresets = [\"NPM\"]\n", "presets[0]"},
		{"memory", "[limits]\nmemory = \"2\"\n", "limits.memory"},
		{"memory little", "[limits]\nmemory = \"2MB\"\n", "too little"},
		{"cpus", "[limits]\ncpus = -1.0\n", "limits.cpus"},
		{"cpus nan", "[limits]\ncpus = nan\n", "limits.cpus"},
		{"cpus inf", "[limits]\ncpus = inf\n", "limits.cpus"},
		{"processes", "[limits]\nprocesses = 1\n", "limits.processes"},
		{"approvals", "[policy]\napprovals = [\"page\"]\n", "policy.approvals[0]"},
		{"approvals twice", "[policy]\napprovals = [\"acp\", \"acp\"]\n", "twice"},
		{"unknown", "[network]\nunknown = \"allow\"\n", "network.unknown"},
		{"unattended", "[policy]\nunattended = \"yes\"\n", "policy.unattended"},
		{"answer", "[[policy.answers]]\nkind = \"read\"\nanswer = \"ask\"\n", "policy.answers[0]: answer"},
		{"answer to all", "[[policy.answers]]\nanswer = \"allow\"\n", "tool, kind or title"},
		{"answers", "[policy]\n" + strings.Repeat("[[policy.answers]]\nkind = \"read\"\nanswer = \"allow\"\n", 65), "policy.answers has 65"},
		{"client_mcp", "[policy]\nclient_mcp = \"no\"\n", "client_mcp"},
		{"secret name", "[secrets.\"a b\"]\nfile = \"/x\"\n", "not a name"},
		{"upstream", "[upstreams.x]\nurl = \"http://example.com\"\n", "https"},
		{"upstream that changes nothing", "[upstreams.x]\n", "upstreams.x: it changes nothing"},
		{"upstream's method", "[upstreams.x]\nmethods = [\"get\"]\n", "upstreams.x: methods"},
		{"upstream's path", "[upstreams.x]\npaths = [\"/a/../b\"]\n", "upstreams.x: path"},
		{"upstream's paths", "[upstreams.x]\npaths = [\"/a\", \"/a\"]\n", "there twice"},
		{"env", "[env]\nHTTPS_PROXY = \"x\"\n", "proxy"},
		{"env loader", "[env]\nLD_PRELOAD = \"x\"\n", "LD_PRELOAD"},
		{"env display", "[env]\nWAYLAND_DISPLAY = \"x\"\n", "WAYLAND_DISPLAY"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("a", "a.toml", []byte("harness = \"demo\"\n"+tt.add))
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Fatalf("got %v, want it to say %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Fatalf("the error repeats a secret: %v", err)
			}
		})
	}
	if _, err := Parse("a", "a.toml", nil); err == nil || !strings.Contains(err.Error(), "harness is missing") {
		t.Errorf("an empty file: %v", err)
	}
	if err := Builtin("demo").Validate(); err != nil {
		t.Errorf("a built-in agent: %v", err)
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"1B": 1, "2GB": 2e9, "512MiB": 512 << 20, "1.5GiB": 3 << 29, "1 TiB": 1 << 40, "10kB": 1e4, "10KB": 1e4, "0.5KiB": 512,
		"": 0, "2": 0, "GB": 0, "-1GB": 0, "+1GB": 0, "2gb": 0, "2G": 2 << 30, "300M": 300 << 20, "64K": 64 << 10, "1.5T": 3 << 39, "2g": 0, "2k": 0, "2Mi": 0, "2 M": 2 << 20, "0B": 0, "0.1B": 0, "1e3MB": 0, "0x10MB": 0, " 1GB": 0, "1GB ": 0,
		"1,5GB": 0, "1  GB": 0, "999999999999999TB": 0, "٣GB": 0, "iB": 0, "1iB": 0, "1kiB": 0, "1.GB": 0, "1\nGB": 0,
	} {
		got, err := ParseBytes(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, n := range []int64{1, 1000, 1024, 1 << 30, 2e9, 1<<30 + 1, 1 << 60} {
		if got, err := ParseBytes(FormatBytes(n)); got != n || err != nil {
			t.Errorf("%d is written as %s and read as %d, %v", n, FormatBytes(n), got, err)
		}
	}
}

func TestLimitsTellAskedFromDefault(t *testing.T) {
	got, err := Limits{}.Parse()
	if err != nil || got.Memory != (sandbox.Limit{Value: sandbox.DefaultMemory}) || got.ShmBytes != sandbox.DefaultShmBytes {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = Limits{Memory: "2GB", CPUs: 1.5, Processes: 100, Shm: "1GiB"}.Parse()
	want := sandbox.Limits{Memory: sandbox.Limit{Value: 2e9, Asked: true}, CPU: sandbox.Limit{Value: 1500, Asked: true},
		Processes: sandbox.Limit{Value: 100, Asked: true}, TmpBytes: sandbox.DefaultTmpBytes, HomeBytes: sandbox.DefaultHomeBytes,
		ShmBytes: 1 << 30, OpenFiles: sandbox.DefaultOpenFiles}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := (Limits{CPUs: math.Inf(1)}).Parse(); err == nil {
		t.Error("infinite processors")
	}
}

// FuzzAgent: whatever is accepted is written so that it is read as the same agent, and written the same again.
func FuzzAgent(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("harness = \"demo\"\n[bindings]\n"))
	f.Add([]byte("harness = \"demo\"\n[env]\nA = \"\\u0001\\u007f\\u0085\\r\\n\\t\\\\\"\n"))
	f.Add([]byte("harness = \"demo\"\nlimits = { cpus = 1e-2, memory = \"64MiB\" }\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := Parse("a", "f", data)
		if err != nil {
			return
		}
		text := Format(a)
		b, err := Parse("a", "f", text)
		if err != nil {
			t.Fatalf("%v in what was written:\n%s", err, text)
		}
		if diff := cmp.Diff(a, b, cmpopts.EquateEmpty()); diff != "" || (a.Bindings == nil) != (b.Bindings == nil) {
			t.Fatalf("%s\n%s", diff, text)
		}
		if again := Format(b); string(again) != string(text) {
			t.Fatalf("written differently:\n%s\n%s", text, again)
		}
	})
}

func TestAddAnswer(t *testing.T) {
	a := &Agent{Name: "a", Harness: "demo"}
	for _, good := range []string{"deny:title=*deploy*", "allow:kind=read,tool=fs_*", "deny:title=*deploy*"} {
		if err := a.AddAnswer(good); err != nil {
			t.Fatal(err)
		}
	}
	want := []Answer{{Title: "*deploy*", Answer: "deny"}, {Kind: "read", Tool: "fs_*", Answer: "allow"}}
	if diff := cmp.Diff(want, a.Policy.Answers); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "deny", "deny:", "deny:title", "deny:title=", "ask:kind=read", "allow:kind=read,kind=edit", "allow:id=7", "kind=read", "allow:title=\x1b"} {
		if err := a.AddAnswer(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
