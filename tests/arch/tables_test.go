package arch

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rows gives the cells of every table of a page of docs/handlers whose header begins with first, without header and
// rule.
func rows(t *testing.T, page, first string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs/handlers", page))
	if err != nil {
		t.Fatal(err)
	}
	found := parseTable(string(text), first)
	if len(found) == 0 {
		t.Fatalf("docs/handlers/%s has no table that begins with | %s |", page, first)
	}
	return found
}

func parseTable(text, first string) [][]string {
	var found [][]string
	inside := false
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !inside && cells[0] == first:
			inside = true
		case inside && strings.Trim(cells[0], ":-") != "":
			found = append(found, cells)
		}
	}
	return found
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// spans gives the code spans of a cell.
func spans(cell string) []string {
	var found []string
	for _, m := range codeSpan.FindAllStringSubmatch(cell, -1) {
		found = append(found, m[1])
	}
	return found
}

// TestLimits holds docs/handlers/limits.md against the constants that its last column names, and wants every default
// of the sandbox in it.
func TestLimits(t *testing.T) {
	pkgs := packages(t)
	named := make(map[string]bool)
	for _, row := range rows(t, "limits.md", "what") {
		if len(row) != 4 {
			t.Errorf("limits.md: %q has %d cells; it wants what, value, at the bound, constant", row, len(row))
			continue
		}
		names := spans(row[3])
		if len(names) != 1 {
			t.Errorf("limits.md: %q names %d constants; it wants one", row[0], len(names))
			continue
		}
		named[names[0]] = true
		want, err := quantity(row[1])
		if err != nil {
			t.Errorf("limits.md: %q: %v", row[0], err)
			continue
		}
		got, err := constantOf(pkgs, names[0])
		if err != nil {
			t.Errorf("limits.md: %q: %v", row[0], err)
		} else if got != want {
			t.Errorf("limits.md says %q is %s, but %s is %d", row[0], row[1], names[0], got)
		}
	}
	for _, p := range pkgs {
		if p.path != "sandbox" {
			continue
		}
		for name := range constants(p) {
			if strings.HasPrefix(name, "Default") && !named["sandbox."+name] {
				t.Errorf("limits.md lacks sandbox.%s", name)
			}
		}
	}
}

// quantity reads a value as the manual writes one: "4 GiB", "2048", "10 s", "none". Times are in nanoseconds.
func quantity(cell string) (int64, error) {
	if cell == "none" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(cell, " ")
	n, err := strconv.ParseInt(strings.ReplaceAll(number, ",", ""), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no value: write a whole number and a unit", cell)
	}
	units := map[string]int64{
		"": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
		"ms": int64(time.Millisecond), "s": int64(time.Second), "min": int64(time.Minute), "h": int64(time.Hour),
	}
	factor, ok := units[unit]
	if !ok {
		return 0, fmt.Errorf("%q has an unknown unit", cell)
	}
	return n * factor, nil
}

// constants gives the constant declarations of a package by name, and the defaults of its limits as "Type.Field".
func constants(p *pkg) map[string]ast.Expr {
	found := make(map[string]ast.Expr)
	for _, f := range p.files {
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Name.Name == "withDefaults" && !f.test {
				maps.Copy(found, fieldDefaults(d))
			}
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST || f.test {
				continue
			}
			for _, spec := range d.Specs {
				s := spec.(*ast.ValueSpec)
				for i, name := range s.Names {
					if i < len(s.Values) {
						found[name.Name] = s.Values[i]
					}
				}
			}
		}
	}
	return found
}

// fieldDefaults gives what a withDefaults method of a struct fills into its fields, by calls of the form
// orInt(&receiver.Field, value).
func fieldDefaults(d *ast.FuncDecl) map[string]ast.Expr {
	found := make(map[string]ast.Expr)
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return found
	}
	typ, ok := d.Recv.List[0].Type.(*ast.Ident)
	if !ok {
		return found
	}
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		if address, ok := call.Args[0].(*ast.UnaryExpr); ok && address.Op == token.AND {
			if field, ok := address.X.(*ast.SelectorExpr); ok {
				found[typ.Name+"."+field.Sel.Name] = call.Args[1]
			}
		}
		return true
	})
	return found
}

// constantOf evaluates "path/of/package.Name" or "path/of/package.Type.Field".
func constantOf(pkgs []*pkg, name string) (int64, error) {
	last := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[last:], '.') + last
	if dot < last {
		return 0, fmt.Errorf("%q is not package.Constant", name)
	}
	for _, p := range pkgs {
		if p.path != name[:dot] {
			continue
		}
		all := constants(p)
		e, ok := all[name[dot+1:]]
		if !ok {
			return 0, fmt.Errorf("there is no constant %s", name)
		}
		v, err := evaluate(e, all, 0)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		n, ok := constant.Int64Val(constant.ToInt(v))
		if !ok {
			return 0, fmt.Errorf("%s is no whole number", name)
		}
		return n, nil
	}
	return 0, fmt.Errorf("there is no package %s", name[:dot])
}

func evaluate(e ast.Expr, all map[string]ast.Expr, depth int) (constant.Value, error) {
	if depth > 20 {
		return nil, fmt.Errorf("goes too deep")
	}
	switch x := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(x.Value, x.Kind, 0), nil
	case *ast.ParenExpr:
		return evaluate(x.X, all, depth+1)
	case *ast.Ident:
		if next, ok := all[x.Name]; ok {
			return evaluate(next, all, depth+1)
		}
	case *ast.SelectorExpr:
		units := map[string]time.Duration{"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
			"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
		if id, ok := x.X.(*ast.Ident); ok && id.Name == "time" && units[x.Sel.Name] != 0 {
			return constant.MakeInt64(int64(units[x.Sel.Name])), nil
		}
	case *ast.CallExpr: // a conversion, such as int64(1)
		if len(x.Args) == 1 {
			return evaluate(x.Args[0], all, depth+1)
		}
	case *ast.BinaryExpr:
		left, err := evaluate(x.X, all, depth+1)
		if err != nil {
			return nil, err
		}
		right, err := evaluate(x.Y, all, depth+1)
		if err != nil {
			return nil, err
		}
		if x.Op == token.SHL {
			n, ok := constant.Uint64Val(right)
			if !ok || n > 62 {
				return nil, fmt.Errorf("shifts too far")
			}
			return constant.Shift(left, token.SHL, uint(n)), nil
		}
		op := x.Op
		if op == token.QUO {
			op = token.QUO_ASSIGN // integer division
		}
		return constant.BinaryOp(left, op, right), nil
	}
	return nil, fmt.Errorf("is more than a test can evaluate")
}

func TestConstantOf(t *testing.T) {
	p := fromSource(t, "sandbox", map[string]string{"a.go": "package p\nimport \"time\"\nconst (\nA = 4 << 30\nB = A/2 + (1 << 10)\nC = 10 * time.Second\nD = iota\nE int64 = 7\n)\n" +
		"func (l Limits) withDefaults() Limits { orInt(&l.Idle, 2*time.Minute); other(l); return l }\n"})
	for name, want := range map[string]string{"A": "4 GiB", "C": "10 s", "E": "7", "Limits.Idle": "2 min"} {
		got, err := constantOf([]*pkg{p}, "sandbox."+name)
		value, err2 := quantity(want)
		if err != nil || err2 != nil || got != value {
			t.Errorf("%s is %d (%v), want %d (%v)", name, got, err, value, err2)
		}
	}
	if got, err := constantOf([]*pkg{p}, "sandbox.B"); err != nil || got != 2<<30+1024 {
		t.Errorf("B is %d, %v", got, err)
	}
	for _, name := range []string{"sandbox.D", "sandbox.Z", "other.A", "A"} {
		if got, err := constantOf([]*pkg{p}, name); err == nil {
			t.Errorf("%s is %d, want an error", name, got)
		}
	}
	for _, cell := range []string{"", "much", "4 apples", "4GiB"} {
		if got, err := quantity(cell); err == nil {
			t.Errorf("quantity(%q) is %d, want an error", cell, got)
		}
	}
}

// TestDependencies holds docs/handlers/dependencies.md against the direct requirements and tools of go.mod, and the
// imports of the code against the places that the page gives each module.
func TestDependencies(t *testing.T) {
	mod := goMod(t)
	want := make(map[string]bool)
	for _, r := range mod.Require {
		if !r.Indirect {
			want[r.Path] = true
		}
	}
	places := make(map[string][]string)
	for _, row := range rows(t, "dependencies.md", "module") {
		names := spans(row[0])
		if len(row) != 3 || len(names) != 1 || row[2] == "" {
			t.Errorf("dependencies.md: %q wants a module, where it is used, and the reason", row)
			continue
		}
		if !want[names[0]] {
			t.Errorf("dependencies.md lists %s, which go.mod does not require directly; take it out", names[0])
		}
		places[names[0]] = spans(row[1])
	}
	for path := range want {
		if places[path] == nil {
			t.Errorf("dependencies.md lacks %s: say where it is used and why it is worth it", path)
		}
	}
	report(t, findStrays(packages(t), places))

	tools := make(map[string]bool)
	for _, row := range rows(t, "dependencies.md", "tool") {
		for _, name := range spans(row[0]) {
			tools[name] = true
		}
	}
	for _, tool := range mod.Tool {
		if !tools[tool.Path] {
			t.Errorf("dependencies.md lacks the tool %s", tool.Path)
		}
	}
}

// findStrays gives imports of a listed module outside the places listed for it. A place is a package, with all below
// it; "tests" stands for every test file and tests/.
func findStrays(pkgs []*pkg, places map[string][]string) []finding {
	var found []finding
	for _, p := range pkgs {
		for _, f := range p.files {
			for _, target := range f.imports() {
				module := moduleOf(target, places)
				if module == "" || placed(p, f, places[module]) {
					continue
				}
				found = append(found, finding{f.path, "imports " + target + ", which dependencies.md places in " + strings.Join(places[module], ", ") + " only"})
			}
		}
	}
	return found
}

func moduleOf(target string, places map[string][]string) string {
	for module := range places {
		if target == module || strings.HasPrefix(target, module+"/") {
			return module
		}
	}
	return ""
}

func placed(p *pkg, f *file, places []string) bool {
	for _, place := range places {
		if place == "tests" && (f.test || strings.HasPrefix(p.path, "tests/")) {
			return true
		}
		if p.path == place || strings.HasPrefix(p.path, place+"/") {
			return true
		}
	}
	return false
}

func TestFindStrays(t *testing.T) {
	p := fromSource(t, "policy", map[string]string{
		"a.go": "package p\nimport _ \"example.org/m/sub\"", "a_test.go": "package p\nimport _ \"example.org/n\"",
	})
	expect(t, findStrays([]*pkg{p}, map[string][]string{"example.org/m": {"policy"}, "example.org/n": {"tests"}}))
	expect(t, findStrays([]*pkg{p}, map[string][]string{"example.org/m": {"render", "tests"}}), "imports example.org/m/sub")
}

func TestParseTable(t *testing.T) {
	got := parseTable("| x | y |\n|---|---|\n| 1 | 2 |\n\n| a | b |\n|:--|---|\n| `3` | 4 |\n", "a")
	if len(got) != 1 || got[0][0] != "`3`" || got[0][1] != "4" {
		t.Errorf("got %q", got)
	}
}
