package arch

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// immutable are the functions whose result may stand in a package-level variable: nothing can change it.
func immutable() map[string]bool {
	return map[string]bool{
		"errors.New": true, "fmt.Errorf": true, "regexp.MustCompile": true, "strings.NewReplacer": true,
		"net/netip.MustParsePrefix": true, "net/netip.MustParseAddr": true, "net/netip.MustParseAddrPort": true,
		"net/netip.AddrFrom4": true, "net/netip.AddrFrom16": true, "net/netip.PrefixFrom": true,
		"text/template.Must": true, "html/template.Must": true, "reflect.TypeFor": true, "reflect.TypeOf": true,
		"time.Date": true, "time.Unix": true, "golang.org/x/net/idna.New": true,
	}
}

// findMutable gives the package-level variables that are state, or could be: those without a value, those that hold
// a pointer, a function, or the result of an unknown call, and those that anything assigns to, changes an element of,
// or takes the address of. Tables that only the declaration fills are data and pass.
func findMutable(pkgs []*pkg, l *ledger) []finding {
	var found []finding
	for _, p := range pkgs {
		changed := changedNames(p)
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, decl := range f.ast.Decls {
				d, ok := decl.(*ast.GenDecl)
				if !ok || d.Tok != token.VAR {
					continue
				}
				for _, spec := range d.Specs {
					found = append(found, judgeVar(p, f, d, spec.(*ast.ValueSpec), changed, l)...)
				}
			}
		}
	}
	return found
}

func judgeVar(p *pkg, f *file, d *ast.GenDecl, s *ast.ValueSpec, changed map[string]string, l *ledger) []finding {
	var found []finding
	for i, name := range s.Names {
		why := ""
		switch {
		case name.Name == "_" || embedded(d.Doc) || embedded(s.Doc):
			continue
		case changed[name.Name] != "":
			why = "is changed at " + changed[name.Name]
		case len(s.Values) == 0:
			why = "has no value, so it is there to be given one"
		case len(s.Values) == len(s.Names):
			why = stateful(p, f, s.Values[i])
		default:
			why = stateful(p, f, s.Values[0])
		}
		if why == "" || l.excused("global", p.path, name.Name) {
			continue
		}
		found = append(found, finding{f.where(name.Pos()), "package-level variable " + name.Name + " " + why + "; keep state in a value that the main makes"})
	}
	return found
}

// embedded tells a variable that go:embed fills.
func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

// stateful says why a value could be state, or "".
func stateful(p *pkg, f *file, value ast.Expr) string {
	switch v := value.(type) {
	case *ast.ParenExpr:
		return stateful(p, f, v.X)
	case *ast.UnaryExpr:
		if v.Op == token.AND {
			if isLiteral(f, v.X, "unicode", "RangeTable") { // a table; changes are looked for apart
				return ""
			}
			return "holds a pointer"
		}
		return stateful(p, f, v.X)
	case *ast.FuncLit:
		return "holds a function, which is a hook"
	case *ast.SelectorExpr:
		if id, ok := v.X.(*ast.Ident); ok && id.Obj == nil {
			if target := f.imports()[id.Name]; target == "time" && v.Sel.Name == "Now" {
				return "holds a function, which is a hook"
			}
		}
	case *ast.CompositeLit:
		return statefulLiteral(f, v)
	case *ast.CallExpr:
		return statefulCall(p, f, v)
	}
	return ""
}

// isLiteral tells a composite literal of a type of another package.
func isLiteral(f *file, e ast.Expr, target, name string) bool {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return false
	}
	sel, ok := lit.Type.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && f.imports()[id.Name] == target && sel.Sel.Name == name
}

func statefulLiteral(f *file, v *ast.CompositeLit) string {
	sel, ok := v.Type.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	switch target := f.imports()[id.Name]; target {
	case "sync", "sync/atomic", "net/http", "bytes", "strings":
		return "holds a " + target + "." + sel.Sel.Name
	}
	return ""
}

func statefulCall(p *pkg, f *file, v *ast.CallExpr) string {
	switch fun := v.Fun.(type) {
	case *ast.ParenExpr, *ast.ArrayType, *ast.MapType, *ast.InterfaceType: // a conversion
		return ""
	case *ast.Ident:
		switch fun.Name {
		case "make", "new":
			return "holds a fresh " + fun.Name + "(…), which is there to be filled"
		}
		return "" // a function of the package, or a conversion; changes are looked for apart
	case *ast.SelectorExpr:
		if id, ok := fun.X.(*ast.Ident); ok && id.Obj == nil {
			if target, ok := f.imports()[id.Name]; ok {
				if _, ours := own(target); ours || immutable()[target+"."+fun.Sel.Name] {
					return ""
				}
				return "holds what " + target + "." + fun.Sel.Name + " gave (if nothing can change that, say so in immutable)"
			}
		}
	}
	return ""
}

// changedNames gives, for the package-level variables that any file of the package changes, where.
func changedNames(p *pkg) map[string]string {
	level := make(map[string]bool)
	objects := make(map[any]bool) // what the parser resolved the declarations to
	for _, f := range p.files {
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR && !f.test {
				for _, spec := range d.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						level[name.Name] = true
						objects[name.Obj] = true
					}
				}
			}
		}
	}
	changed := make(map[string]string)
	for _, f := range p.files {
		mark := func(e ast.Expr) {
			id := base(e)
			// In the variable's own file the parser has resolved the name; in others it is left unresolved.
			if id != nil && level[id.Name] && (id.Obj == nil || objects[id.Obj]) && changed[id.Name] == "" {
				changed[id.Name] = f.where(e.Pos())
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, left := range n.Lhs {
						mark(left)
					}
				}
			case *ast.IncDecStmt:
				mark(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					mark(n.X)
				}
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					mark(n.Key)
					mark(n.Value)
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && len(n.Args) > 0 {
					mark(n.Args[0])
				}
			}
			return true
		})
	}
	return changed
}

// base gives the variable that an expression is a part of.
func base(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func TestNoGlobalState(t *testing.T) {
	l := newLedger(exceptions(), "global")
	found := findMutable(packages(t), l)
	report(t, append(found, l.unneeded()...))
}

func TestFindMutable(t *testing.T) {
	one := func(body string) []finding {
		return findMutable([]*pkg{fromSource(t, "policy", map[string]string{
			"a.go": "package p\nimport (\n\"errors\"\n\"sync\"\n\"net/http\"\n\"embed\"\n\"time\"\n\"log/slog\"\n\"unicode\"\n)\n" + body,
			"b.go": "package p\nfunc other() { elsewhere[1] = 2; shadowed := 1; shadowed++ }\n",
		})}, newLedger(nil))
	}
	expect(t, one("var ErrX = errors.New(\"x\")\nvar _ I = (*T)(nil)\nvar table = map[string]int{\"a\": 1}\nvar list = []string{\"a\"}\nvar built = build()\nvar shadowed = 1"))
	expect(t, one("var wide = &unicode.RangeTable{R16: nil}"))
	expect(t, one("//go:embed x\nvar files embed.FS"))
	expect(t, one("var mu sync.Mutex"), "has no value")
	expect(t, one("var count int"), "has no value")
	expect(t, one("var c = &http.Client{}"), "holds a pointer")
	expect(t, one("var o = sync.Once{}"), "holds a sync.Once")
	expect(t, one("var m = make(map[string]int)"), "there to be filled")
	expect(t, one("var now = time.Now"), "hook")
	expect(t, one("var now = func() {}"), "hook")
	expect(t, one("var log = slog.Default()"), "what log/slog.Default gave")
	expect(t, one("var elsewhere = []int{1}"), "is changed at policy/b.go:2")
	expect(t, one("var m = map[string]int{}\nfunc f() { m[\"a\"]++ }"), "is changed at policy/a.go:12")
	expect(t, one("var m = map[string]int{}\nfunc f() { delete(m, \"a\") }"), "is changed")
	expect(t, one("var m = [3]int{}\nfunc f() { g(&m) }"), "is changed")
	expect(t, one("var m = [3]int{}\nfunc f(m []int) { m[0] = 1 }"))
	l := newLedger([]exception{{"global", "policy", "version", "the linker sets it"}}, "global")
	p := fromSource(t, "policy", map[string]string{"a.go": "package p\nvar version string"})
	expect(t, findMutable([]*pkg{p}, l))
	expect(t, l.unneeded())
}
