package harness

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/handlerd/handler/configfile"
)

// shipped holds the harnesses that come with Handler, one folder each. To add one: make the folder with its
// harness.toml, and name it here.
//
//go:embed claude-code demo
var shipped embed.FS

const manifestName = "harness.toml"

// Bounds of a harness's folder as a build context.
const (
	maxFolderFiles = 2000
	maxFolderBytes = 64 << 20
)

// A Registry is every harness there is: the shipped ones and a person's own (B.11). It does not change after Load;
// it may be used concurrently.
type Registry struct {
	byName map[string]*Manifest
	broken map[string]error // by name: why a name cannot be used
}

// A NotFoundError says that no harness has this name.
type NotFoundError struct {
	Name  string
	Known []string // sorted
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no harness %q: there are %s — handler harness list shows them, and a file ~/.config/handler/harness/NAME.toml adds one",
		clip(e.Name), strings.Join(e.Known, ", "))
}

// Load reads the shipped harnesses and those in dir, the person's folder (~/.config/handler/harness): NAME.toml,
// or NAME/harness.toml where the harness brings files to build. dir may be "" or missing. A harness that cannot
// be used — a fault in its file, a name that two of them have — spoils only itself: Get gives its error, Problems
// gives all of them. The error of Load is one of reading dir itself.
func Load(dir string) (*Registry, error) { return load(shipped, dir) }

func load(own fs.FS, dir string) (*Registry, error) {
	r := &Registry{byName: map[string]*Manifest{}, broken: map[string]error{}}
	entries, err := fs.ReadDir(own, ".")
	if err != nil {
		return nil, fmt.Errorf("read the shipped harnesses: %w", err)
	}
	for _, e := range entries {
		sub, err := fs.Sub(own, e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the shipped harnesses: %w", err)
		}
		r.add(e.Name(), "shipped:"+path.Join("harness", e.Name(), manifestName), &Manifest{Dir: e.Name(), Source: sub, Shipped: true})
	}
	if dir == "" {
		return r, nil
	}
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read your harnesses: %w", err)
	}
	for _, e := range found {
		r.addOwn(dir, e.Name())
	}
	return r, nil
}

// addOwn adds one entry of the person's folder. Hidden files and files that are not TOML are notes, not harnesses.
func (r *Registry) addOwn(dir, entry string) {
	full := filepath.Join(dir, entry)
	info, err := os.Stat(full) // a person may keep the real file elsewhere: links are followed
	switch {
	case strings.HasPrefix(entry, "."):
	case err != nil:
		r.broken[strings.TrimSuffix(entry, ".toml")] = err
	case info.IsDir():
		r.add(entry, filepath.Join(full, manifestName), &Manifest{Dir: full, Source: os.DirFS(full)})
	case strings.HasSuffix(entry, ".toml"):
		r.add(strings.TrimSuffix(entry, ".toml"), full, &Manifest{Dir: dir})
	}
}

// add reads and checks the manifest of the folder or file called name, and files it, or why it cannot be used.
func (r *Registry) add(name, file string, at *Manifest) {
	m, err := r.read(name, file, at)
	if err != nil {
		if r.broken[name] == nil {
			r.broken[name] = err
		}
		return
	}
	for _, other := range r.byName {
		if fold(other.Name) == fold(name) {
			twice := fmt.Errorf("the harnesses %q and %q have names that agents cannot tell apart: %s and %s — rename one of yours",
				other.Name, name, other.File, m.File)
			r.broken[other.Name], r.broken[name] = twice, twice
		}
	}
	if r.byName[name] == nil { // the first one stays, so that a third is compared too
		r.byName[name] = m
	}
}

func (r *Registry) read(name, file string, at *Manifest) (*Manifest, error) {
	data, err := readManifest(file, at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: a folder of harnesses has one %s each, and this one has none", at.Dir, manifestName)
	}
	if err != nil {
		return nil, err
	}
	m, err := Parse(file, data)
	if err != nil {
		return nil, err
	}
	m.Dir, m.File, m.Source, m.Shipped = at.Dir, file, at.Source, at.Shipped
	switch {
	case m.Name != name:
		return nil, configfile.Errorf(file, "name is %q, and its place says %q: they must be the same", m.Name, name)
	case m.Build == nil:
	case m.Source == nil:
		return nil, configfile.Errorf(file, "has [build], whose files need a folder of their own: move it to %s", filepath.Join(at.Dir, name, manifestName))
	default:
		if info, err := fs.Stat(m.Source, m.Build.Containerfile); err != nil || !info.Mode().IsRegular() {
			return nil, configfile.Errorf(file, "build.containerfile: there is no file %q beside it", m.Build.Containerfile)
		}
	}
	return m, nil
}

// readManifest reads at most one byte more than a configuration file may have; Parse refuses that.
func readManifest(file string, at *Manifest) ([]byte, error) {
	var f fs.File
	var err error
	if at.Source != nil {
		f, err = at.Source.Open(manifestName)
	} else {
		f, err = os.Open(file)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, configfile.Errorf(file, "is not a regular file")
	}
	return io.ReadAll(io.LimitReader(f, configfile.MaxBytes+1))
}

// Get returns the harness called name. The error is a *NotFoundError, or says why this one cannot be used. What it
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

// Names returns the names of the usable harnesses, sorted.
func (r *Registry) Names() []string {
	var names []string
	for _, name := range sortedKeys(r.byName) {
		if r.broken[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// List returns the usable harnesses, sorted by name.
func (r *Registry) List() []*Manifest {
	var all []*Manifest
	for _, name := range r.Names() {
		all = append(all, r.byName[name])
	}
	return all
}

// Problems returns what is wrong with the harnesses that cannot be used, each fault once, sorted by name.
func (r *Registry) Problems() []error {
	var all []error
	for _, name := range sortedKeys(r.broken) {
		if err := r.broken[name]; !slices.Contains(all, err) {
			all = append(all, err)
		}
	}
	return all
}

// Digest is the SHA-256, in hexadecimal, over the names and contents of every file of the harness's folder: the
// recipe that an image's label (sandbox.LabelRecipe) is compared with. A harness without a folder gives the digest
// of nothing.
func (m *Manifest) Digest() (string, error) { return Digest(m.Source) }

// Digest is Manifest.Digest over any folder; nil gives the digest of nothing. Modes and times do not count: the
// shipped file system has none. Folders of more than 2,000 files or 64 MiB, and files that are not regular, are
// errors.
func Digest(folder fs.FS) (string, error) {
	sum := sha256.New()
	if folder == nil {
		return hex.EncodeToString(sum.Sum(nil)), nil
	}
	files, left := 0, int64(maxFolderBytes)
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if files++; files > maxFolderFiles {
			return fmt.Errorf("more than %d files", maxFolderFiles)
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		n, err := hashFile(sum, folder, name, left)
		left -= n
		return err
	})
	if err != nil {
		return "", fmt.Errorf("digest of a harness's folder: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// hashFile adds a file's name, size and content, each with its length, so that no two folders look alike.
func hashFile(w io.Writer, folder fs.FS, name string, left int64) (int64, error) {
	f, err := folder.Open(name)
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
	_, err = fmt.Fprintf(w, "%d:%s%d:%x\n", len(name), name, n, one.Sum(nil))
	return n, err
}

// fold is how agents' own sanitising makes names alike: two harnesses that fold to one are one too many. Valid
// names hold only a-z, 0-9 and "-", so runs of "-" are all there is to fold.
func fold(name string) string { return dashesRE.ReplaceAllString(name, "_") }

var dashesRE = regexp.MustCompile("-+")
