package addons

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
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

// shipped holds the addons that come with Handler, one folder each. To add one: make the folder with its addon.toml,
// and name what its build needs here.
//
//go:embed playwright/addon.toml playwright/Containerfile playwright/package.json playwright/package-lock.json
//go:embed playwright/bin playwright/lib
var shipped embed.FS

const manifestName = "addon.toml"

// Bounds of an addon's folder as a build context.
const (
	maxFolderFiles = 2000
	maxFolderBytes = 64 << 20
)

// A Registry is every addon there is: the shipped ones and a person's own. It does not change after Load; it may be
// used concurrently.
type Registry struct {
	byName map[string]*Manifest
	broken map[string]error // by name: why a name cannot be used
}

// A NotFoundError says that no addon has this name.
type NotFoundError struct {
	Name  string
	Known []string // sorted
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no addon %q: there are %s; a folder ~/.config/handler/addons/NAME with an addon.toml adds one",
		clip(e.Name), strings.Join(e.Known, ", "))
}

// Load reads the shipped addons and those in dir, the person's folder (~/.config/handler/addons): NAME/addon.toml.
// dir may be "" or missing. An addon that cannot be used — a fault in its file, a name that two of them have —
// spoils only itself: Get gives its error, Problems gives all of them. The error of Load is one of reading dir.
func Load(dir string) (*Registry, error) { return load(shipped, dir) }

func load(own fs.FS, dir string) (*Registry, error) {
	r := &Registry{byName: map[string]*Manifest{}, broken: map[string]error{}}
	entries, err := fs.ReadDir(own, ".")
	if err != nil {
		return nil, fmt.Errorf("read the shipped addons: %w", err)
	}
	for _, e := range entries {
		sub, err := fs.Sub(own, e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the shipped addons: %w", err)
		}
		r.add(e.Name(), &Manifest{Dir: e.Name(), File: "shipped:" + path.Join("addons", e.Name(), manifestName), Source: sub, Shipped: true})
	}
	if dir == "" {
		return r, nil
	}
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read your addons: %w", err)
	}
	for _, e := range found {
		full := filepath.Join(dir, e.Name())
		info, err := os.Stat(full) // a person may keep the real folder elsewhere: this one link is followed
		if strings.HasPrefix(e.Name(), ".") || (err == nil && !info.IsDir()) {
			continue // notes, not addons
		}
		if err != nil {
			r.broken[e.Name()] = err
			continue
		}
		r.add(e.Name(), &Manifest{Dir: full, File: filepath.Join(full, manifestName), Source: folder(full)})
	}
	return r, nil
}

// add reads and checks the manifest of the folder called name, and files it, or why it cannot be used.
func (r *Registry) add(name string, at *Manifest) {
	m, err := read(name, at)
	if err != nil {
		if r.broken[name] == nil {
			r.broken[name] = err
		}
		return
	}
	for _, other := range r.byName {
		if Fold(other.Name) == Fold(name) {
			twice := fmt.Errorf("the addons %q and %q have names that agents cannot tell apart: %s and %s — rename one of yours",
				other.Name, name, other.File, m.File)
			r.broken[other.Name], r.broken[name] = twice, twice
		}
	}
	if r.byName[name] == nil { // the first one stays, so that a third is compared too
		r.byName[name] = m
	}
}

func read(name string, at *Manifest) (*Manifest, error) {
	data, err := readManifest(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: an addon's folder has an %s, and this one has none", at.Dir, manifestName)
	}
	if err != nil {
		return nil, err
	}
	m, err := Parse(at.File, data)
	if err != nil {
		return nil, err
	}
	m.Dir, m.File, m.Source, m.Shipped = at.Dir, at.File, at.Source, at.Shipped
	if m.Name != name {
		return nil, configfile.Errorf(m.File, "name is %q, and its folder is called %q: they must be the same", m.Name, clip(name))
	}
	if m.Build != nil {
		if err := regular(m.Source, m.Build.Containerfile); err != nil {
			return nil, configfile.Errorf(m.File, "build.containerfile: %s", err)
		}
	}
	for i, skill := range m.Skills {
		if err := regular(m.Source, path.Join(skill, "SKILL.md")); err != nil {
			return nil, configfile.Errorf(m.File, "skills[%d]: %s", i, err)
		}
	}
	return m, nil
}

// readManifest reads at most one byte more than a configuration file may have; Parse refuses that.
func readManifest(at *Manifest) ([]byte, error) {
	info, err := fs.Stat(at.Source, manifestName)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a FIFO would block the open
		return nil, configfile.Errorf(at.File, "is not a regular file")
	}
	f, err := at.Source.Open(manifestName)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, configfile.MaxBytes+1))
}

func regular(source fs.FS, name string) error {
	info, err := fs.Stat(source, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %q in the addon's folder", name)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%q is not a regular file", name)
	}
	return nil
}

// Get returns the addon called name. The error is a *NotFoundError, or says why this one cannot be used. What it
// returns is shared: do not change it.
func (r *Registry) Get(name string) (*Manifest, error) {
	if err := r.broken[name]; err != nil {
		return nil, err
	}
	if m := r.byName[name]; m != nil {
		return m, nil
	}
	return nil, &NotFoundError{Name: name, Known: r.Names()}
}

// Names returns the names of the usable addons, sorted.
func (r *Registry) Names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.byName)) {
		if r.broken[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// List returns the usable addons, sorted by name.
func (r *Registry) List() []*Manifest {
	var all []*Manifest
	for _, name := range r.Names() {
		all = append(all, r.byName[name])
	}
	return all
}

// Problems returns what is wrong with the addons that cannot be used, each fault once, sorted by name.
func (r *Registry) Problems() []error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(r.broken)) {
		if err := r.broken[name]; !slices.Contains(all, err) {
			all = append(all, err)
		}
	}
	return all
}

// Digest is the SHA-256, in hexadecimal, over the names and contents of every file of the addon's folder: the recipe
// that an image's label (sandbox.LabelRecipe) is compared with. A symbolic link counts with what it points to, and
// one that leaves the folder is an error.
func (m *Manifest) Digest() (string, error) {
	sum := sha256.New()
	files, left := 0, int64(maxFolderBytes)
	err := fs.WalkDir(m.Source, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if files++; files > maxFolderFiles {
			return fmt.Errorf("more than %d files", maxFolderFiles)
		}
		if err := regular(m.Source, name); err != nil {
			return err
		}
		n, err := hashFile(sum, m.Source, name, left)
		left -= n
		return err
	})
	if err != nil {
		return "", fmt.Errorf("digest of the addon's folder %s: %w", m.Dir, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// hashFile adds a file's name, length and digest, each fenced, so that no two folders look alike.
func hashFile(w io.Writer, source fs.FS, name string, left int64) (int64, error) {
	f, err := source.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	one := sha256.New()
	n, err := io.Copy(one, io.LimitReader(f, left+1))
	if err != nil {
		return 0, err
	}
	if n > left {
		return 0, fmt.Errorf("more than %d MiB", maxFolderBytes>>20)
	}
	_, err = fmt.Fprintf(w, "%q %d %x\n", name, n, one.Sum(nil))
	return n, err
}

// folder is a directory of the host as a file system that no symbolic link leads out of (C02). Each use opens it
// anew, so that a Registry holds no descriptors.
type folder string

// Open opens the file name, following links only as long as they stay inside.
func (f folder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Open(name)
}

// Stat describes the file name, a link's target for a link.
func (f folder) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Stat(name)
}
