package arch

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// A power is something that only some packages may do. Tests may do all of them.
type power struct {
	rule  string
	calls []string // "import/path.Name"; "import/path." stands for the whole package
	why   string
	who   []holder
}

// A holder is a package, or with a trailing "/" all below a folder, and why it holds the power.
type holder struct{ pkg, reason string }

func (p power) held(pkg string) bool {
	for _, h := range p.who {
		if h.pkg == pkg || strings.HasSuffix(h.pkg, "/") && strings.HasPrefix(pkg+"/", h.pkg) {
			return true
		}
	}
	return false
}

// powers is the list of who may do what.
func powers() []power {
	inMains := holder{"cmd/", "mains are where the outside world comes in"}
	probe := holder{"sandbox/sandboxtest/probe", "a program that the suite runs inside sandboxes, where it tries everything"}
	return []power{
		{
			rule: "dial",
			calls: []string{
				"net.Dial", "net.DialTimeout", "net.DialTCP", "net.DialUDP", "net.DialUnix", "net.DialIP", "net.Dialer",
				"crypto/tls.Dial", "crypto/tls.DialWithDialer", "crypto/tls.Dialer",
				"net/http.Get", "net/http.Head", "net/http.Post", "net/http.PostForm",
				"net/http.DefaultClient", "net/http.DefaultTransport", "net/http.Client", "net/http.Transport",
				"syscall.Connect", "golang.org/x/sys/unix.Connect",
				"net.LookupHost", "net.LookupIP", "net.LookupAddr", "net.DefaultResolver", "net.Resolver",
				"github.com/godbus/dbus/v5.Connect", "github.com/godbus/dbus/v5.Dial", "github.com/godbus/dbus/v5.SessionBus",
				"github.com/godbus/dbus/v5.ConnectSessionBus", "github.com/godbus/dbus/v5.SystemBus",
				"net.ResolveTCPAddr", "net.ResolveUDPAddr", "net.ResolveIPAddr",
			},
			why: "every way out is in one place that checks it (contract D): take a dial function instead",
			who: []holder{
				inMains, probe,
				{"handlerd/egress", "the proxy: resolves, classifies and dials the checked address (D.2)"},
				{"handlerd/display", "connects to Wayland sockets to see whether they live (A.6)"},
				{"handlerd/preview", "a reverse proxy whose transport dials by the run's own function alone: ports of the sandbox"},
				{"handlerd/api/client", "connects to the daemon's own socket (K.1)"},
				{"handlerd/secrets", "connects to the unix socket of the person's D-Bus, for the keyring"},
				{"sandbox/podman", "connects to its own podman service's socket (A.10)"},
				{"sandbox/fake", "stands in for podman and the guest"},
				{"sandbox/sandboxtest", "plays the two ends of a run directory's sockets"},
				{"sandbox/guestwire", "the guest's side opens the control channel"},
			},
		},
		{
			rule: "exec",
			calls: []string{
				"os/exec.", "os.StartProcess", "syscall.ForkExec", "syscall.StartProcess", "syscall.Exec",
				"golang.org/x/sys/unix.Exec",
			},
			why: "what runs on the person's machine outside a sandbox is a short list: take a function instead",
			who: []holder{
				inMains, probe,
				{"sandbox/podman", "starts its own podman service (A.10)"},
				{"sandbox/fake", "runs commands as plain processes"},
				{"sandbox/sandboxtest", "test support: builds its probe"},
				{"toolbox", "runs mmdebstrap"},
				{"handlerd/doctor", "asks installed programs for their version"},
				{"handlerd/secrets", "asks pass, and programs that the person named, for secrets"},
			},
		},
		{
			rule: "env",
			calls: []string{
				"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "os.Setenv", "os.Unsetenv", "os.Clearenv",
				"os.UserHomeDir", "os.UserConfigDir", "os.UserCacheDir", "os.TempDir", "os.Args",
				"syscall.Getenv", "syscall.Environ", "os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln",
				"flag.", "github.com/spf13/cobra.", "github.com/spf13/pflag.",
				"net/http.ProxyFromEnvironment", "net/http.DefaultTransport", "net/http.DefaultClient",
			},
			why: "flags, environment and exit belong to cmd/: take the value as a parameter, return the error",
			who: []holder{inMains, probe, {"sandbox/sandboxtest", "test support: builds its probe with the test's environment"}},
		},
		{
			rule:  "dependency",
			calls: []string{"github.com/containers/*"},
			why:   "only sandbox/podman, toolbox and cmd/ know podman (design §2)",
			who: []holder{
				inMains,
				{"sandbox/podman", "the driver"},
				{"toolbox", "the images"},
			},
		},
	}
}

// findPowers gives every use of a power by a package that does not hold it.
func findPowers(pkgs []*pkg, all []power, l *ledger) []finding {
	var found []finding
	for _, p := range pkgs {
		for _, pw := range all {
			if pw.held(p.path) {
				continue
			}
			for _, f := range p.files {
				if f.test || floorOf(p.path) == tests {
					continue
				}
				for _, use := range uses(f, pw.calls) {
					if l.excused(pw.rule, p.path, use.text) {
						continue
					}
					found = append(found, finding{use.at, fmt.Sprintf("%s uses %s: %s", p.path, use.text, pw.why)})
				}
			}
		}
	}
	return found
}

// uses gives where a file uses one of calls, as findings whose text is what was used.
func uses(f *file, calls []string) []finding {
	named := make(map[string]bool)
	var found []finding
	for _, call := range calls {
		named[call] = true
	}
	for _, spec := range f.ast.Imports {
		target := strings.Trim(spec.Path.Value, `"`)
		if named[target+"."] {
			found = append(found, finding{f.where(spec.Pos()), target})
		}
		for call := range named {
			if tree, ok := strings.CutSuffix(call, "*"); ok && strings.HasPrefix(target, tree) {
				found = append(found, finding{f.where(spec.Pos()), target})
			}
		}
	}
	imports := f.imports()
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok || id.Obj != nil { // a variable that shadows the import
			return true
		}
		if name := imports[id.Name] + "." + sel.Sel.Name; named[name] {
			found = append(found, finding{f.where(sel.Pos()), name})
		}
		return true
	})
	return found
}

func TestPowers(t *testing.T) {
	l := newLedger(exceptions(), "dial", "exec", "env", "dependency")
	found := findPowers(packages(t), powers(), l)
	report(t, append(found, l.unneeded()...))
}

func TestFindPowers(t *testing.T) {
	source := func(path, body string) []*pkg {
		return []*pkg{fromSource(t, path, map[string]string{
			"a.go":      "package p\n" + body,
			"a_test.go": "package p\nimport \"net\"\nvar c, _ = net.Dial(\"unix\", \"x\")\n",
		})}
	}
	none := newLedger(nil)
	expect(t, findPowers(source("policy", "import \"net\"\nfunc f() { net.Dial(\"tcp\", \"x\") }"), powers(), none), "policy/a.go:3: policy uses net.Dial")
	expect(t, findPowers(source("policy", "import n \"net\"\nvar d n.Dialer"), powers(), none), "policy uses net.Dialer")
	expect(t, findPowers(source("policy", "import \"net\"\nfunc f(net T) { net.Dial() }\nvar _ net.Conn"), powers(), none))
	expect(t, findPowers(source("handlerd/egress", "import \"net\"\nvar d net.Dialer"), powers(), none))
	expect(t, findPowers(source("handlerd/egress", "import \"os/exec\"\nvar d exec.Cmd"), powers(), none), "uses os/exec")
	expect(t, findPowers(source("sandbox/podman", "import \"os\"\nvar d = os.Getenv(\"X\")"), powers(), none), "uses os.Getenv")
	expect(t, findPowers(source("handlerd", "import _ \"github.com/containers/common/pkg/seccomp\""), powers(), none), "only sandbox/podman")
	expect(t, findPowers(source("cmd/handler", "import (\n\"os\"\n_ \"github.com/containers/podman/v5/pkg/bindings\")\nvar d = os.Getenv(\"X\")"), powers(), none))
	excuse := newLedger([]exception{{"exec", "policy", "os/exec", "for this test"}}, "exec")
	expect(t, findPowers(source("policy", "import \"os/exec\"\nvar d exec.Cmd"), powers(), excuse))
	expect(t, excuse.unneeded())
}

func TestPowersHaveReasons(t *testing.T) {
	for _, p := range powers() {
		for _, h := range p.who {
			if h.reason == "" {
				t.Errorf("%s may %s, but nothing says why", h.pkg, p.rule)
			}
		}
	}
}
