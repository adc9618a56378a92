package policy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/policy/rawjson"
)

// update writes the golden files of testdata/acp anew: go test ./policy -run TestGolden -update.
var update = flag.Bool("update", false, "write testdata/acp anew")

// links is the file system of the tests: what each path leads to. Other paths are themselves.
func links() map[string]string {
	return map[string]string{
		"/home/ana/link-in":      "/src/shop",
		"/src/shop/link-out":     "/etc",
		"/src/shop/secret.txt":   "/home/ana/.ssh/id_ed25519",
		"/src/shop/../../etc":    "/etc",
		"/src/shop/sub/../a.txt": "/src/shop/a.txt",
		"/src/shop/":             "/src/shop",
	}
}

// fixture is the run of the tests: two scopes and one server of the plan.
func fixture() *policy.Config {
	return &policy.Config{
		Agent:  "web",
		Scopes: []policy.Scope{{Path: "/src/shop", RW: true}, {Path: "/src/docs"}, {Path: "/src/shop/vendor"}},
		Resolve: func(path string) (string, error) {
			if strings.Contains(path, "missing") {
				return "", fs.ErrNotExist
			}
			if to, ok := links()[path]; ok {
				return to, nil
			}
			return path, nil
		},
		ReadOnly: func(path string) bool { return strings.Contains(path, "/.git/hooks/") },
		Servers:  []policy.MCPServer{{Name: "playwright", Command: "playwright-mcp", Env: []policy.Pair{{Name: "TOKEN", Value: "t<1>"}}}},
		Reach: func(host string, port uint16) policy.Verdict {
			if host == "mcp.example.org" && port == 443 {
				return policy.Verdict{}
			}
			return policy.Verdict{Action: policy.Refuse, Rule: "D.4", Reason: host + " is not allowed for agent \"web\"", Hint: "allow it: handler policy allow web " + host}
		},
	}
}

// judge puts one case to the rules. Its first line says who sends what, and how the run differs from the fixture; the
// rest is the params, the result or the error.
func judge(t *testing.T, in string) (policy.Ruling, []byte) {
	t.Helper()
	head, body, _ := strings.Cut(in, "\n")
	words := strings.Fields(head)
	c, caps, calls := fixture(), policy.Caps{}, new(policy.ToolCalls)
	for _, option := range words[2:] {
		switch option {
		case "host_fs":
			c.HostFS = true
		case "host_terminal":
			c.HostTerminal = true
		case "deny":
			c.DenyClientMCP = true
		case "bare":
			c.Servers = nil
		case "takes-http":
			caps.HTTP = true
		case "takes-sse":
			c.Transports = []string{"sse"}
		case "takes-acp":
			caps.ACP = true
		case "plan-http":
			c.Servers = []policy.MCPServer{{Type: "http", Name: "own", URL: "https://evil.example.net/mcp"}}
		default:
			t.Fatalf("unknown option %q", option)
		}
	}
	for strings.HasPrefix(body, "update ") { // what the agent said of its tool calls before
		update, rest, _ := strings.Cut(body, "\n")
		calls.Update([]byte(strings.TrimPrefix(update, "update ")))
		body = rest
	}
	b := []byte(strings.TrimSuffix(body, "\n"))
	switch who, method := words[0], words[1]; {
	case who == "client" && method == "initialize":
		return c.Initialize(b), b
	case who == "client" && policy.SetsUpSession(method):
		return c.SetUpSession(method, b, caps), b
	case who == "client":
		return c.ClientCall(method), b
	case who == "agent":
		return c.AgentCall(method, b, caps, calls), b
	case who == "agent-notice" && method == "session/update":
		return calls.Update(b), b
	case who == "agent-notice":
		return c.AgentNotice(method, caps), b
	case who == "answer" && method == "initialize":
		r, caps := c.InitializeAnswer(b)
		if r.Action != policy.Refuse && caps != (policy.Caps{}) {
			r.Notes = append(r.Notes, policy.Verdict{Reason: fmt.Sprintf("(takes http %v, sse %v, acp %v)", caps.HTTP, caps.SSE, caps.ACP)})
		}
		return r, b
	case who == "answer" && method == "error":
		return c.AgentError(b), b
	}
	t.Fatalf("unknown case %q", head)
	return policy.Ruling{}, nil
}

// outcome writes a ruling as the golden files hold it.
func outcome(t *testing.T, r policy.Ruling, b []byte) string {
	var out strings.Builder
	switch r.Action {
	case policy.Refuse:
		fmt.Fprintf(&out, "error %d: %s\n", r.Code, r.Verdict)
	case policy.Edit:
		edited, err := rawjson.Splice(b, r.Edits)
		if err != nil {
			t.Errorf("edits do not fit: %v", err)
		}
		if !json.Valid(edited) {
			t.Errorf("not JSON: %s", edited)
		}
		fmt.Fprintf(&out, "%s\n", edited)
	default:
		fmt.Fprintln(&out, "passes")
	}
	for _, n := range r.Notes {
		if n.Action != policy.Refuse {
			fmt.Fprintf(&out, "%s %s\n", n.Rule, n)
		}
	}
	return out.String()
}

// TestGolden holds every rule against its file in testdata/acp: pairs of a case and what becomes of it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/acp/*.txtar")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d golden files, %v; one a rule is wanted", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(bytes.TrimSpace(a.Comment)) == 0 {
				t.Error("the file says nothing of its rule")
			}
			var got txtar.Archive
			got.Comment = a.Comment
			for _, f := range a.Files {
				name, isOut := strings.CutSuffix(f.Name, ": outcome")
				if isOut {
					continue
				}
				r, b := judge(t, string(f.Data))
				got.Files = append(got.Files, f, txtar.File{Name: name + ": outcome", Data: []byte(outcome(t, r, b))})
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(&got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(a)), string(txtar.Format(&got))); diff != "" {
				t.Errorf("%s (-want +got; -update writes it):\n%s", file, diff)
			}
		})
	}
}
