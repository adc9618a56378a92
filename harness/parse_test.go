package harness

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const minimal = "name = \"mine\"\ncommand = [\"my-agent\", \"acp\"]\n"

func TestParseFillsDefaults(t *testing.T) {
	m, err := Parse("mine.toml", []byte(minimal+"[[files]]\npath = \"~/.mine/config.json\"\ncontent = \"{}\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Manifest{Name: "mine", Title: "mine", Command: []string{"my-agent", "acp"}, MCPTransports: []string{"stdio"},
		SessionMCP: "acp", Files: []File{{Path: "~/.mine/config.json", Mode: "0600", Content: "{}"}}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
}

const upstream = `
[[upstreams]]
name = "model"
url = "https://api.example.com"
methods = ["POST"]
paths = ["/v1/*"]
[[upstreams.auth]]
secret = "key"
header = "x-api-key"
[upstreams.env]
BASE = "{url}"
CONFIG = '{"a": {"b": "{key}"}}'
`

// Each text is added to (or put instead of a part of) a good manifest; want is part of the error, "" for none.
func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, add, want string }{
		{"nothing added", "", ""},
		{"unknown key", "comand = []\n", `h.toml:3:1: unknown key "comand"`},
		{"wrong type", "sessionsPerRun = \"1\"\n", "h.toml:3:18: "},
		{"transport", "mcpTransports = [\"stdio\", \"tcp\"]\n", `mcpTransports: "tcp" is not one of stdio, http, sse, acp`},
		{"transport twice", "mcpTransports = [\"http\", \"http\"]\n", "twice"},
		{"no transport at all", "mcpTransports = []\n", ""},
		{"sessionMCP", "sessionMCP = \"ACP\"\n", "sessionMCP"},
		{"file without file", "sessionMCP = \"file\"\n", "needs [mcpConfigFile]"},
		{"file for acp", "[mcpConfigFile]\npath = \"~/x/y\"\nformat = \"pi\"\n", "only with sessionMCP"},
		{"file format", "sessionMCP = \"file\"\n[mcpConfigFile]\npath = \"~/x/y\"\nformat = \"toml\"\n", "format"},
		{"file good", "sessionMCP = \"file\"\n[mcpConfigFile]\npath = \"~/x/y\"\nformat = \"pi\"\n", ""},
		{"sessions", "sessionsPerRun = -1\n", "sessionsPerRun"},
		{"host", "hosts = [\"a b\"]\n", "hosts[0]"},
		{"env reserved", "[env]\nhttps_proxy = \"x\"\n", "proxy"},
		{"env loader", "[env]\nLD_PRELOAD = \"x\"\n", "LD_PRELOAD"},
		{"env handler", "[env]\nHANDLER_X = \"x\"\n", "HANDLER_X"},
		{"env name", "[env]\n\"A=B\" = \"x\"\n", "not the name"},
		{"env NUL", "[env]\nA = \"x\\u0000\"\n", "NUL"},
		{"env path", "[env]\nPath = \"x\"\n", "cannot be set"},
		{"file dots", "[[files]]\npath = \"~/a/../b\"\n", "plain path"},
		{"file relative", "[[files]]\npath = \"a/b\"\n", "absolute"},
		{"file home itself", "[[files]]\npath = \"~/\"\n", "plain path"},
		{"file other home", "[[files]]\npath = \"~root/x\"\n", "absolute"},
		{"file system", "[[files]]\npath = \"/usr/lib/x\"\n", "cannot lie in /usr"},
		{"file run", "[[files]]\npath = \"/run/handler/x\"\n", "cannot lie in /run"},
		{"file home by path", "[[files]]\npath = \"/home/agent/x\"\n", `write "~/…"`},
		{"file in etc", "[[files]]\npath = \"/etc/passwd\"\n", "folder of its own"},
		{"file in etc folder", "[[files]]\npath = \"/etc/mine/x\"\n", ""},
		{"file mode", "[[files]]\npath = \"~/x\"\nmode = \"4755\"\n", "mode"},
		{"file mode decimal", "[[files]]\npath = \"~/x\"\nmode = \"0x1ff\"\n", "mode"},
		{"file mode none", "[[files]]\npath = \"~/x\"\nmode = \"0000\"\n", "mode"},
		{"file twice", "[[files]]\npath = \"~/x\"\n[[files]]\npath = \"~/x\"\n", "same path"},
		{"file in file", "[[files]]\npath = \"~/x\"\n[[files]]\npath = \"~/x/y\"\n", "same path"},
		{"state name", "[[state]]\nname = \"..\"\npath = \"~/x\"\nper = \"agent\"\n", "not a name"},
		{"state name ours", "[[state]]\nname = \"scopes\"\npath = \"~/x\"\nper = \"agent\"\n", "Handler's own"},
		{"state per", "[[state]]\nname = \"a\"\npath = \"~/x\"\nper = \"run\"\n", "per"},
		{"state twice", "[[state]]\nname = \"a\"\npath = \"~/x\"\nper = \"agent\"\n[[state]]\nname = \"a\"\npath = \"~/y\"\nper = \"agent\"\n", "twice"},
		{"state home", "[[state]]\nname = \"a\"\npath = \"/home/agent\"\nper = \"agent\"\n", "cannot lie"},
		{"file on state", "[[files]]\npath = \"~/x/y\"\n[[state]]\nname = \"a\"\npath = \"~/x\"\nper = \"agent\"\n", "state folder"},
		{"file below state", "[[files]]\npath = \"~/x/y/z\"\n[[state]]\nname = \"a\"\npath = \"~/x\"\nper = \"agent\"\n", ""},
		{"state below file", "[[files]]\npath = \"~/x\"\n[[state]]\nname = \"a\"\npath = \"~/x/y\"\nper = \"agent\"\n", "state folder"},
		{"skills", "skills = \"skills\"\n", "absolute"},
		{"build up", "[build]\ncontainerfile = \"../Containerfile\"\n", "plain path"},
		{"build none", "[build]\n", "plain path"},
		{"upstream", upstream, ""},
		{"upstream http", strings.Replace(upstream, "https:", "http:", 1), "must be https"},
		{"upstream loopback", strings.Replace(upstream, "https://api.example.com", "http://127.0.0.1:8080/v1", 1), ""},
		{"upstream loopback 6", strings.Replace(upstream, "https://api.example.com", "http://[::1]:8080", 1), ""},
		{"upstream near loopback", strings.Replace(upstream, "https://api.example.com", "http://localhost.example.com", 1), "must be https"},
		{"upstream file", strings.Replace(upstream, "https://api.example.com", "file:///etc/passwd", 1), "absolute"},
		{"upstream user", strings.Replace(upstream, "https://api", "https://u:hunter2@api", 1), "no user"},
		{"upstream query", strings.Replace(upstream, "example.com", "example.com/?a=b", 1), "no user, query"},
		{"upstream method", strings.Replace(upstream, "POST", "post", 1), "methods"},
		{"upstream no method", strings.Replace(upstream, "[\"POST\"]", "[]", 1), "methods and paths"},
		{"upstream path", strings.Replace(upstream, "/v1/*", "v1", 1), "path \"v1\""},
		{"upstream star", strings.Replace(upstream, "/v1/*", "/*/v1", 1), "only at its end"},
		{"upstream up", strings.Replace(upstream, "/v1/*", "/v1/../*", 1), "plain"},
		{"upstream encoded", strings.Replace(upstream, "/v1/*", "/v1/%2e%2e/", 1), "plain"},
		{"upstream header", strings.Replace(upstream, "x-api-key", "Host", 1), "Host"},
		{"upstream header split", strings.Replace(upstream, "\"x-api-key\"", "\"x\"\nprefix = \"a\\r\\nb: c\"", 1), "one line"},
		{"upstream template", strings.Replace(upstream, "{url}", "{secret}", 1), "only {url} and {key}"},
		{"upstream env", strings.Replace(upstream, "BASE", "HTTP_PROXY", 1), "proxy"},
		{"upstream secret", strings.Replace(upstream, "\"key\"", "\"../key\"", 1), "not a name"},
		{"upstream no auth", upstream[:strings.Index(upstream, "[[upstreams.auth]]")], "auth is missing"},
		{"upstream twice", upstream + upstream, "twice"},
		{"title", "title = \"a\\nb\"\n", "one line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("h.toml", []byte(minimal+tt.add))
			checkError(t, err, tt.want)
		})
	}
}

func TestParseNames(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "0-9": true, strings.Repeat("a", 64): true, "..": false, "a/b": false,
		`A\\b`: false, "a\\u0000": false, "-a": false, "A": false, "a_b": false, "é": false, "a ": false, strings.Repeat("a", 65): false} {
		_, err := Parse("h.toml", []byte("name = \""+name+"\"\ncommand = [\"x\"]\n"))
		if (err == nil) != ok {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, in := range []string{"command = [\"x\"]\n", "name = \"x\"\n", "name = \"x\"\ncommand = [\"\"]\n",
		"name = \"x\"\ncommand = [\"./x\"]\n", "name = \"x\"\ncommand = [\"/opt/../x\"]\n"} {
		if _, err := Parse("h.toml", []byte(in)); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}

// No error repeats a value that may be a secret: a URL's password is the one that comes up.
func TestErrorsKeepPasswordsOut(t *testing.T) {
	for _, url := range []string{"https://u:hunter2@x/", "https://u:hunter2@x:bad/", "https://x/?token=hunter2", "hunter2://%zz"} {
		if err := ValidUpstreamURL(url); err == nil || strings.Contains(err.Error(), "hunter2") && !strings.HasPrefix(url, "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatal(err)
	case want != "" && err == nil:
		t.Fatalf("no error; want one with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Fatalf("got %q, want it to say %q", err, want)
	}
}

// FuzzHarnessManifest: nothing panics, and what is accepted keeps what the sandbox relies on.
func FuzzHarnessManifest(f *testing.F) {
	for _, name := range []string{"claude-code", "demo"} {
		data, err := shipped.ReadFile(name + "/" + manifestName)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(minimal + upstream))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse("h.toml", data)
		if err != nil {
			return
		}
		if ValidName(m.Name) != nil || len(m.Command) == 0 {
			t.Fatalf("accepted %q %q", m.Name, m.Command)
		}
		for _, file := range m.Files {
			if strings.Contains("/"+file.Path+"/", "/../") || strings.HasPrefix(file.Path, "/run") {
				t.Fatalf("accepted the file %q", file.Path)
			}
		}
	})
}
