package harness

import (
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/registry"
)

// shipped holds the harnesses that come with Handler, one folder each. To add one: make the folder with its
// harness.toml, and name it here.
//
//go:embed claude-code demo
var shipped embed.FS

const manifestName = "harness.toml"

// A Registry is every harness there is: the shipped ones and a person's own (B.11).
type Registry = registry.Registry[*Manifest]

// A NotFoundError says that no harness has this name.
type NotFoundError struct {
	Name  string
	Known []string // sorted
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no harness %q: there are %s — handler harness list shows them, and a file ~/.config/handler/harness/NAME.toml adds one",
		configfile.Clip(e.Name), strings.Join(e.Known, ", "))
}

// Load reads the shipped harnesses and those in dir, the person's folder (~/.config/handler/harness): NAME.toml, or
// NAME/harness.toml where the harness brings files to build. dir may be "" or missing. The error of a harness that
// cannot be used is for whoever asks for it.
func Load(dir string) (*Registry, error) { return load(shipped, dir) }

func load(own fs.FS, dir string) (*Registry, error) {
	return registry.Load(registry.Kind[*Manifest]{
		One: "harness", Many: "harnesses", Place: "harness", Manifest: manifestName, Alone: true,
		Parse: read, Fold: fold,
		Missing: func(name string, known []string) error { return &NotFoundError{Name: name, Known: known} },
	}, own, dir)
}

func read(at registry.Entry, data []byte) (*Manifest, error) {
	m, err := Parse(at.File, data)
	if err != nil {
		return nil, err
	}
	m.Dir, m.File, m.Source, m.Shipped = at.Dir, at.File, at.Source, at.Shipped
	switch {
	case m.Name != at.Name:
		return nil, configfile.Errorf(at.File, "name is %q, and its place says %q: they must be the same", m.Name, at.Name)
	case m.Build == nil:
	case m.Source == nil:
		return nil, configfile.Errorf(at.File, "has [build], whose files need a folder of their own: move it to %s", filepath.Join(at.Dir, at.Name, manifestName))
	default:
		if err := registry.Regular(m.Source, m.Build.Containerfile); err != nil {
			return nil, configfile.Errorf(at.File, "build.containerfile: there is no file %q beside it", m.Build.Containerfile)
		}
	}
	return m, nil
}

// Digest is registry.Digest of the harness's folder; of one without a folder, the digest of nothing.
func (m *Manifest) Digest() (string, error) {
	d, err := registry.Digest(m.Source)
	if err != nil {
		return "", fmt.Errorf("digest of the harness's folder %s: %w", m.Dir, err)
	}
	return d, nil
}

// fold is how agents' own sanitising makes names alike: two harnesses that fold to one are one too many. Valid
// names hold only a-z, 0-9 and "-", so runs of "-" are all there is to fold.
func fold(name string) string { return dashesRE.ReplaceAllString(name, "_") }

var dashesRE = regexp.MustCompile("-+")
