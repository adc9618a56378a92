package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
)

// modulePath is the module's, as in go.mod.
const modulePath = "github.com/handlerd/handler"

// buildTags are those that `make build` uses: without them podman's bindings do not build without cgo.
const buildTags = "remote,containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper"

// A pkg is one package of the module, parsed.
type pkg struct {
	path  string // below the module: "sandbox/podman"
	name  string
	files []*file
}

// A file is one source file.
type file struct {
	path string // below the module
	test bool
	ast  *ast.File
	fset *token.FileSet
	src  []byte
}

// A finding is one breach of a rule.
type finding struct {
	at   string // file:line, or a package
	text string
}

func (f finding) String() string { return f.at + ": " + f.text }

// where gives file:line of a position.
func (f *file) where(p token.Pos) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(p).Line)
}

// imports gives the file's imports by the name they have in it.
func (f *file) imports() map[string]string {
	names := make(map[string]string, len(f.ast.Imports))
	for _, spec := range f.ast.Imports {
		target := strings.Trim(spec.Path.Value, `"`)
		name := importName(target)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = target
	}
	return names
}

// importName guesses the name of an imported package: its last element, or the one before a major version.
func importName(target string) string {
	base := path.Base(target)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(target))
	}
	return base
}

// root is the module's folder; tests run in their package's.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("tests/arch is not two folders below go.mod: %v", err)
	}
	return dir
}

// A listed package is what `go list -find` says of one.
type listed struct {
	ImportPath                         string
	Name, Dir                          string
	GoFiles, TestGoFiles, XTestGoFiles []string
	CgoFiles, IgnoredGoFiles, SFiles   []string
	Error                              *struct{ Err string }
}

var tree struct { // parsed once for all tests
	once sync.Once
	pkgs []*pkg
	err  error
}

// packages lists and parses the module's packages, once.
func packages(t testing.TB) []*pkg {
	t.Helper()
	dir := root(t)
	tree.once.Do(func() { tree.pkgs, tree.err = load(dir) })
	if tree.err != nil {
		t.Fatal(tree.err)
	}
	return tree.pkgs
}

func load(dir string) ([]*pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-find", "-json", "-tags", buildTags, "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	var pkgs []*pkg
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		p, err := parsePackage(dir, l)
		if err != nil {
			return nil, err
		}
		if len(p.files) > 0 {
			pkgs = append(pkgs, p)
		}
	}
}

func parsePackage(dir string, l listed) (*pkg, error) {
	p := &pkg{path: strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, modulePath), "/"), name: l.Name}
	add := func(names []string, test bool) error {
		for _, name := range names {
			full := filepath.Join(l.Dir, name)
			src, err := os.ReadFile(full)
			if errors.Is(err, os.ErrNotExist) {
				continue // taken away since it was listed
			} else if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, full)
			if err != nil {
				return err
			}
			f, err := parseFile(rel, src, test)
			if err != nil {
				return err
			}
			p.files = append(p.files, f)
		}
		return nil
	}
	return p, errors.Join(
		add(l.GoFiles, false), add(l.CgoFiles, false),
		add(l.TestGoFiles, true), add(l.XTestGoFiles, true))
}

// parseFile parses with object resolution, which findMutable needs.
func parseFile(rel string, src []byte, test bool) (*file, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, rel, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &file{path: rel, test: test, ast: tree, fset: fset, src: src}, nil
}

// fromSource makes a package of sources for the tests of the checkers. A name that ends in _test.go is a test file.
func fromSource(t *testing.T, path string, sources map[string]string) *pkg {
	t.Helper()
	p := &pkg{path: path}
	names := make([]string, 0, len(sources))
	for name := range sources {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		f, err := parseFile(path+"/"+name, []byte(sources[name]), strings.HasSuffix(name, "_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		p.name = f.ast.Name.Name
		p.files = append(p.files, f)
	}
	return p
}

// report fails the test with every finding, in order.
func report(t *testing.T, found []finding) {
	t.Helper()
	sort.Slice(found, func(i, j int) bool { return found[i].at < found[j].at })
	for _, f := range found {
		t.Error(f)
	}
}

// expect compares what a checker found, as "at: text" beginnings, with what it should.
func expect(t *testing.T, found []finding, want ...string) {
	t.Helper()
	if len(found) != len(want) {
		t.Fatalf("found %v, want %d findings %q", found, len(want), want)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].at < found[j].at })
	for i, f := range found {
		if !strings.Contains(f.String(), want[i]) {
			t.Errorf("finding %d is %q, want it to have %q", i, f, want[i])
		}
	}
}
