package arch

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// findRoutes holds the routes of handlerd/api against the table of handlerd/web, which says of each whether the page
// reaches it: none is in neither, and the table has none that is no more.
func findRoutes(types, api, web *pkg) []finding {
	known := texts(types)
	routes := map[string]string{}
	var found []finding
	for _, f := range api.files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "HandleFunc" && sel.Sel.Name != "Handle" {
				return true
			}
			pattern, ok := textOf(call.Args[0], known)
			switch {
			case !ok:
				found = append(found, finding{f.where(n.Pos()), "this route's pattern is not made of text and constants of handlerd/api/types, so nobody knows whether the page reaches it"})
			case pattern != "/": // what the API has no route for
				routes[pattern] = f.where(n.Pos())
			}
			return true
		})
	}
	for pattern, at := range doorTable(web, known) {
		if routes[pattern] == "" {
			found = append(found, finding{at, "the API has no route " + pattern + "; take the line out"})
		}
		delete(routes, pattern)
	}
	for pattern, at := range routes {
		found = append(found, finding{at, "the route " + pattern + " is in no line of routes() of handlerd/web/routes.go: say there whether the page reaches it, and if not, why"})
	}
	return found
}

// doorTable gives the patterns of the table that the function routes returns, and where they stand.
func doorTable(web *pkg, known map[string]string) map[string]string {
	table := map[string]string{}
	for _, f := range web.files {
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || f.test || d.Name.Name != "routes" {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if lit, ok := n.(*ast.CompositeLit); ok && len(lit.Elts) == 2 {
					if pattern, ok := textOf(lit.Elts[0], known); ok {
						table[pattern] = f.where(n.Pos())
					}
				}
				return true
			})
		}
	}
	return table
}

// texts gives a package's constants that are text.
func texts(p *pkg) map[string]string {
	found := map[string]string{}
	for name, e := range constants(p) {
		if text, ok := textOf(e, nil); ok {
			found[name] = text
		}
	}
	return found
}

// textOf gives the text of an expression of text and known constants.
func textOf(e ast.Expr, known map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.SelectorExpr:
		text, ok := known[e.Sel.Name]
		return text, ok
	case *ast.BinaryExpr:
		left, ok := textOf(e.X, known)
		right, ok2 := textOf(e.Y, known)
		return left + right, ok && ok2 && e.Op == token.ADD
	}
	return "", false
}

func TestRoutes(t *testing.T) {
	at := map[string]*pkg{}
	for _, p := range packages(t) {
		at[p.path] = p
	}
	types, api, web := at["handlerd/api/types"], at["handlerd/api"], at["handlerd/web"]
	if types == nil || api == nil || web == nil {
		t.Fatal("handlerd/api/types, handlerd/api or handlerd/web is not there")
	}
	if n := len(doorTable(web, texts(types))); n < 20 {
		t.Fatalf("the table of handlerd/web has %d lines", n)
	}
	report(t, findRoutes(types, api, web))
}

func TestFindRoutes(t *testing.T) {
	types := fromSource(t, "handlerd/api/types", map[string]string{"a.go": "package types\nconst (\nPathA = \"/v1/a\"\nPathB = \"/v1/b\"\n)"})
	api := func(body string) *pkg {
		return fromSource(t, "handlerd/api", map[string]string{"a.go": "package api\nfunc f(mux M, x string) {\n" + body + "\n}"})
	}
	web := fromSource(t, "handlerd/web", map[string]string{"a.go": strings.Join([]string{"package web", "func routes() []route { return []route{",
		"{\"GET \" + types.PathA, \"\"},", "{\"POST \" + types.PathB + \"/{id}\", \"because\"},", "} }"}, "\n")})
	both := "mux.HandleFunc(\"GET \"+types.PathA, h)\nmux.Handle(\"POST \"+types.PathB+\"/{id}\", h)\nmux.HandleFunc(\"/\", h)\n"
	expect(t, findRoutes(types, api(both), web))
	expect(t, findRoutes(types, api(both+"mux.HandleFunc(\"DELETE \"+types.PathA, h)"), web), "the route DELETE /v1/a is in no line")
	expect(t, findRoutes(types, api("mux.HandleFunc(\"GET \"+types.PathA, h)"), web), "the API has no route POST /v1/b/{id}")
	expect(t, findRoutes(types, api(both+"mux.HandleFunc(x, h)"), web), "handlerd/api/a.go:6: this route's pattern")
}
