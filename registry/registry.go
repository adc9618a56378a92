// Package registry finds what Handler ships of a kind, such as addons, and what its person added in a folder: one thing
// a folder or file, each with a manifest. It knows nothing of what a manifest says.
package registry

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/handlerd/handler/configfile"
)

// A Kind is what a registry holds.
type Kind[M any] struct {
	One, Many string // for errors: "addon", "addons"
	Place     string // where the shipped ones lie in Handler's source: "addons"
	Manifest  string // the name of a manifest in its folder: "addon.toml"
	// Alone: a file NAME.toml in the person's folder is a manifest that needs no folder.
	Alone bool
	// Parse reads a manifest and checks it against its place.
	Parse func(at Entry, data []byte) (M, error)
	// Fold makes names equal that agents cannot tell apart.
	Fold func(name string) string
	// Missing is the error for a name that nothing has; known are those there are, sorted.
	Missing func(name string, known []string) error
}

// An Entry is a place where something is.
type Entry struct {
	Name    string // that its place says
	File    string // its manifest, for errors; "shipped:PATH" of what comes with Handler
	Dir     string // the folder that it lies in
	Source  fs.FS  // that folder's files; nil for a manifest without a folder
	Shipped bool
}

// A Registry is everything of a kind: what is shipped and a person's own. It does not change after Load; it may be used
// concurrently.
type Registry[M any] struct {
	kind   Kind[M]
	byName map[string]found[M]
	broken map[string]error // by name: why a name cannot be used
}

type found[M any] struct {
	file string
	m    M
}

// Load reads what is in shipped, and in dir, the person's folder, which may be "" or missing. What cannot be used — a fault
// in its file, a name that two of them have — spoils only itself: Get gives its error, Problems gives all of them. The
// error of Load is one of reading dir itself.
func Load[M any](kind Kind[M], shipped fs.FS, dir string) (*Registry[M], error) {
	r := &Registry[M]{kind: kind, byName: map[string]found[M]{}, broken: map[string]error{}}
	entries, err := fs.ReadDir(shipped, ".")
	if err != nil {
		return nil, fmt.Errorf("read the shipped %s: %w", kind.Many, err)
	}
	for _, e := range entries {
		sub, err := fs.Sub(shipped, e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the shipped %s: %w", kind.Many, err)
		}
		r.add(Entry{Name: e.Name(), Dir: e.Name(), File: "shipped:" + path.Join(kind.Place, e.Name(), kind.Manifest), Source: sub, Shipped: true})
	}
	if dir == "" {
		return r, nil
	}
	own, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read your %s: %w", kind.Many, err)
	}
	for _, e := range own {
		r.addOwn(dir, e.Name())
	}
	return r, nil
}

// addOwn adds one entry of the person's folder. Hidden entries, and files that are no manifest, are notes.
func (r *Registry[M]) addOwn(dir, entry string) {
	full := filepath.Join(dir, entry)
	name, toml := strings.CutSuffix(entry, ".toml")
	info, err := os.Stat(full) // a person may keep the real one elsewhere: this one link is followed
	switch {
	case strings.HasPrefix(entry, "."):
	case err != nil:
		r.broken[name] = err
	case info.IsDir():
		r.add(Entry{Name: entry, Dir: full, File: filepath.Join(full, r.kind.Manifest), Source: Folder(full)})
	case toml && r.kind.Alone:
		r.add(Entry{Name: name, Dir: dir, File: full})
	}
}

// add reads and checks one manifest, and files it, or why it cannot be used.
func (r *Registry[M]) add(at Entry) {
	m, err := r.read(at)
	if err != nil {
		if r.broken[at.Name] == nil {
			r.broken[at.Name] = err
		}
		return
	}
	for other, f := range r.byName {
		if r.kind.Fold(other) == r.kind.Fold(at.Name) {
			twice := fmt.Errorf("the %s %q and %q have names that agents cannot tell apart: %s and %s — rename one of yours",
				r.kind.Many, other, at.Name, f.file, at.File)
			r.broken[other], r.broken[at.Name] = twice, twice
		}
	}
	if _, ok := r.byName[at.Name]; !ok { // the first one stays, so that a third is compared too
		r.byName[at.Name] = found[M]{at.File, m}
	}
}

func (r *Registry[M]) read(at Entry) (m M, err error) {
	data, err := r.manifest(at)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%s: there is no %s in it, which the folder of each %s has", at.Dir, r.kind.Manifest, r.kind.One)
	}
	if err != nil {
		return m, err
	}
	return r.kind.Parse(at, data)
}

// manifest reads at most one byte more than a configuration file may have; parsing refuses that.
func (r *Registry[M]) manifest(at Entry) ([]byte, error) {
	source, name := at.Source, r.kind.Manifest
	if source == nil {
		// Alone, it may be a link to anywhere, as the entry of the person's folder that it is.
		real, err := filepath.EvalSymlinks(at.File)
		if err != nil {
			return nil, err
		}
		source, name = Folder(filepath.Dir(real)), filepath.Base(real)
	}
	if err := Regular(source, name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, configfile.Errorf(at.File, "%s", err)
	}
	f, err := source.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, configfile.MaxBytes+1))
}

// Get returns what is called name. The error is Kind.Missing's, or says why this one cannot be used. What it returns is
// shared: do not change it.
func (r *Registry[M]) Get(name string) (m M, err error) {
	if err := r.broken[name]; err != nil {
		return m, err
	}
	if f, ok := r.byName[name]; ok {
		return f.m, nil
	}
	return m, r.kind.Missing(name, r.Names())
}

// Names returns the names of what can be used, sorted.
func (r *Registry[M]) Names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.byName)) {
		if r.broken[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// List returns what can be used, sorted by name.
func (r *Registry[M]) List() []M {
	var all []M
	for _, name := range r.Names() {
		all = append(all, r.byName[name].m)
	}
	return all
}

// Problems returns what is wrong with what cannot be used, each fault once, sorted by name.
func (r *Registry[M]) Problems() []error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(r.broken)) {
		if err := r.broken[name]; !slices.Contains(all, err) {
			all = append(all, err)
		}
	}
	return all
}
