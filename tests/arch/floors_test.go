package arch

import (
	"fmt"
	"strings"
	"testing"
)

// A floor of the house; imports go only to the same floor or downwards.
type floor int

const (
	vocabulary floor = iota // contract types and what they need; no engine, no podman
	pure                    // no file, no socket, no clock
	adapters                // the outside world behind a contract
	engine                  // the daemon
	mains                   // flags, environment, exit, names of drivers
	tests                   // black box; nothing imports them
	nowhere                 // a package that has no floor
)

func (f floor) String() string {
	return [...]string{"vocabulary", "pure", "adapters", "engine", "mains", "tests", "no floor"}[f]
}

// floorOf puts a package on its floor by its path below the module.
func floorOf(path string) floor {
	for _, p := range []struct { // the first that fits

		prefix string
		floor  floor
	}{
		// What the two ends of the API agree on, so that its client, an adapter, may use it too.
		{"handlerd/api/types", vocabulary}, {"handlerd/fault", vocabulary},
		{"sandbox/podman", adapters}, {"toolbox", adapters}, {"handlerd/api/client", adapters},
		{"cmd", mains}, {"handlerd", engine},
		{"render", pure}, {"policy", pure},
		{"sandbox", vocabulary}, {"addons", vocabulary}, {"harness", vocabulary}, {"agents", vocabulary},
		{"configfile", vocabulary}, {"registry", vocabulary}, {"packaging", vocabulary},
		{"tests", tests},
	} {
		if path == p.prefix || strings.HasPrefix(path, p.prefix+"/") {
			return p.floor
		}
	}
	return nowhere
}

// own gives the path below the module of an import of the module's own.
func own(target string) (string, bool) {
	return strings.CutPrefix(target, modulePath+"/")
}

// findFloors gives every import that goes up, or from the engine to an adapter. Test files follow the rules of their
// package: what needs both sides of a contract is a test of tests/e2e.
func findFloors(pkgs []*pkg, l *ledger) []finding {
	var found []finding
	for _, p := range pkgs {
		from := floorOf(p.path)
		if from == nowhere {
			found = append(found, finding{p.path, "has no floor; put the package where design §2 has a room for it, or give it one in floorOf"})
			continue
		}
		for _, f := range p.files {
			found = append(found, checkImports(p, f, from, l)...)
		}
	}
	return found
}

func checkImports(p *pkg, f *file, from floor, l *ledger) []finding {
	var found []finding
	for _, spec := range f.ast.Imports {
		target, ok := own(strings.Trim(spec.Path.Value, `"`))
		if !ok || target == p.path {
			continue
		}
		to := floorOf(target)
		why := ""
		switch {
		case to == nowhere:
			why = "which has no floor"
		case from == engine && to == adapters:
			why = "engine and adapters meet only in cmd/, through a contract: take an interface and let cmd/ pass the adapter"
		case to > from:
			why = fmt.Sprintf("imports go only downwards, and %s lie under %s", from, to)
		case to == mains && from != mains:
			why = "what a main is made of is its own; tests start its program"

		}
		if why == "" || l.excused("floor", p.path, target) {
			continue
		}
		found = append(found, finding{f.where(spec.Pos()), fmt.Sprintf("%s (%s) imports %s (%s): %s", p.path, from, target, to, why)})
	}
	return found
}

func TestFloors(t *testing.T) {
	l := newLedger(exceptions(), "floor")
	found := findFloors(packages(t), l)
	report(t, append(found, l.unneeded()...))
}

func TestFindFloors(t *testing.T) {
	imports := func(path string, targets ...string) *pkg {
		src := "package p\n"
		for _, target := range targets {
			src += "import _ \"" + target + "\"\n"
		}
		return fromSource(t, path, map[string]string{"p.go": src})
	}
	module := func(path string) string { return modulePath + "/" + path }
	none := newLedger(nil)
	expect(t, findFloors([]*pkg{
		imports("handlerd/sessions", module("policy"), module("render"), module("sandbox"), module("handlerd/acp"), "fmt"),
		imports("cmd/handlerd", module("handlerd"), module("sandbox/podman"), module("toolbox")),
		imports("sandbox/podman", module("sandbox"), module("sandbox/rundir")),
		imports("tests/e2e", module("cmd/handler/internal"), module("handlerd/api")),
	}, none), "tests/e2e/p.go:2: tests/e2e (tests) imports cmd/handler/internal")
	expect(t, findFloors([]*pkg{imports("handlerd/sessions", module("sandbox/podman"))}, none), "meet only in cmd/")
	expect(t, findFloors([]*pkg{imports("toolbox", module("handlerd/doctor"))}, none), "imports go only downwards")
	expect(t, findFloors([]*pkg{imports("policy", module("handlerd/egress"))}, none), "imports go only downwards")
	expect(t, findFloors([]*pkg{imports("sandbox", module("policy"))}, none), "imports go only downwards")
	expect(t, findFloors([]*pkg{imports("util")}, none), "has no floor")
	excuse := newLedger([]exception{{"floor", "toolbox", "handlerd/doctor", "for this test"}}, "floor")
	expect(t, findFloors([]*pkg{imports("toolbox", module("handlerd/doctor"))}, excuse))
	expect(t, excuse.unneeded())
}

// TestGuestIsSmall: the guest is mounted into every sandbox, static, and trusted by nobody: it needs the vocabulary
// and the system, nothing else (contract E).
func TestGuestIsSmall(t *testing.T) {
	for _, p := range packages(t) {
		if p.path != "cmd/handler-guest" && !strings.HasPrefix(p.path, "cmd/handler-guest/") {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, target := range f.imports() {
				mine, ours := own(target)
				outside := strings.Contains(strings.SplitN(target, "/", 2)[0], ".")
				if ours && floorOf(mine) != vocabulary && !strings.HasPrefix(mine, "cmd/handler-guest/") || !ours && outside && target != "golang.org/x/sys/unix" {
					t.Errorf("%s imports %s; the guest is built from the vocabulary, the standard library and x/sys/unix only", f.path, target)
				}
			}
		}
	}
}
