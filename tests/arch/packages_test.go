package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// findDocs wants exactly one package comment a package, beginning as godoc wants it, and a comment on everything
// that a package exports.
func findDocs(pkgs []*pkg) []finding {
	var found []finding
	for _, p := range pkgs {
		docs, sources := []string(nil), 0
		for _, f := range p.files {
			if f.test {
				continue
			}
			sources++
			if f.ast.Doc != nil {
				docs = append(docs, f.path)
				found = append(found, docBeginning(p, f)...)
			}
			if p.name != "main" {
				found = append(found, undocumented(f)...)
			}
		}
		if sources > 0 && len(docs) != 1 {
			found = append(found, finding{p.path, fmt.Sprintf("has %d package comments %v; it wants exactly one", len(docs), docs)})
		}
	}
	return found
}

func docBeginning(p *pkg, f *file) []finding {
	want := "Package " + p.name + " "
	if p.name == "main" { // begins with the program's name, as godoc shows it
		return nil
	}
	if text := f.ast.Doc.Text(); !strings.HasPrefix(text, want) {
		return []finding{{f.where(f.ast.Doc.Pos()), fmt.Sprintf("the package comment begins %.30q; it begins %q", text, want)}}
	}
	return nil
}

// undocumented gives the exported functions, methods, types, constants and variables without a comment. Methods of
// the standard library's interfaces need none; a group's comment stands for its members, and a type's for its
// constants.
func undocumented(f *file) []finding {
	var found []finding
	miss := func(at token.Pos, what string) {
		found = append(found, finding{f.where(at), "exported " + what + " has no comment"})
	}
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !wellKnown(d) {
				miss(d.Pos(), "function "+d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
						miss(s.Pos(), "type "+s.Name.Name)
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil && !ofNamedType(d) {
							miss(s.Pos(), d.Tok.String()+" "+name.Name)
						}
					}
				}
			}
		}
	}
	return found
}

// ofNamedType tells a group of constants of one named type, whose own comment says what they are.
func ofNamedType(d *ast.GenDecl) bool {
	first := d.Specs[0].(*ast.ValueSpec)
	_, named := first.Type.(*ast.Ident)
	return d.Tok == token.CONST && named && len(d.Specs) > 1
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return true
		}
	}
}

func wellKnown(d *ast.FuncDecl) bool {
	switch d.Name.Name {
	case "Error", "Unwrap", "Is", "As", "String", "GoString", "Format", "LogValue",
		"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText":
		return d.Recv != nil
	}
	return false
}

func TestDocs(t *testing.T) { report(t, findDocs(packages(t))) }

func TestFindDocs(t *testing.T) {
	one := func(sources map[string]string) []finding { return findDocs([]*pkg{fromSource(t, "policy", sources)}) }
	expect(t, one(map[string]string{"a.go": "// Package policy judges.\npackage policy"}))
	expect(t, one(map[string]string{"a.go": "package policy"}), "has 0 package comments")
	expect(t, one(map[string]string{
		"a.go": "// Package policy judges.\npackage policy", "b.go": "// Package policy does.\npackage policy",
	}), "has 2 package comments")
	expect(t, one(map[string]string{"a.go": "// Judges.\npackage policy"}), "it begins")
	expect(t, one(map[string]string{"a_test.go": "package policy"}))
	expect(t, one(map[string]string{"a.go": "// Package policy judges.\npackage policy\n" +
		"func F() {}\ntype T int\nfunc (T) M() {}\nfunc (T) Error() string {return \"\"}\nfunc (t) M() {}\nconst C = 1\nvar v = 1\n" +
		"const (\nE T = iota\nF\n)\n" +
		"// G are.\nconst (\nA = 1\nB = 2\n)\n"}), "function F", "type T", "function M", "const C")
}

// findInits: an init function is a main that nobody called.
func findInits(pkgs []*pkg) []finding {
	var found []finding
	for _, p := range pkgs {
		for _, f := range p.files {
			for _, decl := range f.ast.Decls {
				if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
					found = append(found, finding{f.where(d.Pos()), "init function; make a value in the main instead and pass it"})
				}
			}
		}
	}
	return found
}

func TestNoInit(t *testing.T) { report(t, findInits(packages(t))) }

func TestFindInits(t *testing.T) {
	p := fromSource(t, "policy", map[string]string{"a.go": "package p\nfunc init() {}\nfunc (T) init() {}\n"})
	expect(t, findInits([]*pkg{p}), "policy/a.go:2: init function")
}

// Bounds of the house (style §3).
const (
	maxFile     = 500 // lines, outside tests
	warnTest    = 1000
	maxFunction = 100 // lines, outside tests
	warnLong    = 60
)

// findLong gives the files and functions over the bounds, and apart those that only deserve a look.
func findLong(pkgs []*pkg) (found, remarks []finding) {
	for _, p := range pkgs {
		for _, f := range p.files {
			lines := strings.Count(string(f.src), "\n")
			switch {
			case !f.test && lines > maxFile:
				found = append(found, finding{f.path, fmt.Sprintf("has %d lines; split it by noun at %d", lines, maxFile)})
			case f.test && lines > warnTest:
				remarks = append(remarks, finding{f.path, fmt.Sprintf("has %d lines", lines)})
			}
			if f.test {
				continue
			}
			for _, decl := range f.ast.Decls {
				d, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				lines := f.fset.Position(d.End()).Line - f.fset.Position(d.Pos()).Line + 1
				long := finding{f.where(d.Pos()), fmt.Sprintf("%s has %d lines", d.Name.Name, lines)}
				if lines > maxFunction {
					long.text += fmt.Sprintf("; make it a list of named steps under %d", warnLong)
					found = append(found, long)
				} else if lines > warnLong {
					remarks = append(remarks, long)
				}
			}
		}
	}
	return found, remarks
}

func TestLength(t *testing.T) {
	found, remarks := findLong(packages(t))
	for _, r := range remarks {
		t.Log(r)
	}
	report(t, found)
}

func TestFindLong(t *testing.T) {
	long := func(lines int) string { return "package p\nfunc f() {\n" + strings.Repeat("_ = 1\n", lines-2) + "}\n" }
	found, remarks := findLong([]*pkg{fromSource(t, "policy", map[string]string{
		"a.go": long(101), "b.go": long(61), "c.go": long(60), "d.go": "package p\n" + strings.Repeat("// x\n", 500),
		"e_test.go": long(600),
	})})
	expect(t, found, "policy/a.go:2: f has 101 lines", "policy/d.go: has 501 lines")
	expect(t, remarks, "policy/b.go:2: f has 61 lines")
}

// findSleeps gives every time.Sleep without a comment on its line or the one above: an event can be waited for, and
// where there is none, the reader wants to know why.
func findSleeps(pkgs []*pkg) []finding {
	var found []finding
	for _, p := range pkgs {
		for _, f := range p.files {
			commented := make(map[int]bool)
			for _, group := range f.ast.Comments {
				last := f.fset.Position(group.End()).Line
				commented[last], commented[last+1] = true, true
			}
			for _, use := range uses(f, []string{"time.Sleep"}) {
				var line int
				if _, err := fmt.Sscanf(use.at[strings.LastIndexByte(use.at, ':')+1:], "%d", &line); err == nil && commented[line] {
					continue
				}
				found = append(found, finding{use.at, "time.Sleep without a comment; wait for the event, or say why there is none"})
			}
		}
	}
	return found
}

func TestSleeps(t *testing.T) { report(t, findSleeps(packages(t))) }

func TestFindSleeps(t *testing.T) {
	p := fromSource(t, "policy", map[string]string{"a_test.go": "package p\nimport \"time\"\nfunc f() {\n" +
		"time.Sleep(1) // nothing tells\n// nothing tells\ntime.Sleep(1)\n\ntime.Sleep(1)\n}\n"})
	expect(t, findSleeps([]*pkg{p}), "policy/a_test.go:8: time.Sleep")
}
