package addons

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/registry"
)

// shipped holds the addons that come with Handler, one folder each. To add one: make the folder with its addon.toml,
// and name what its build needs here.
//
//go:embed playwright/addon.toml playwright/Containerfile playwright/package.json playwright/package-lock.json
//go:embed playwright/bin playwright/lib
var shipped embed.FS

// A Registry is every addon there is: the shipped ones and a person's own.
type Registry = registry.Registry[*Manifest]

// A NotFoundError says that no addon has this name.
type NotFoundError struct {
	Name  string
	Known []string // sorted
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no addon %q: there are %s; a folder ~/.config/handler/addons/NAME with an addon.toml adds one",
		configfile.Clip(e.Name), strings.Join(e.Known, ", "))
}

// Load reads the shipped addons and those in dir, the person's folder (~/.config/handler/addons): NAME/addon.toml. dir
// may be "" or missing. The error of an addon that cannot be used is for whoever asks for it.
func Load(dir string) (*Registry, error) {
	return registry.Load(registry.Kind[*Manifest]{
		One: "addon", Many: "addons", Place: "addons", Manifest: "addon.toml",
		Parse: read, Fold: Fold,
		Missing: func(name string, known []string) error { return &NotFoundError{Name: name, Known: known} },
	}, shipped, dir)
}

func read(at registry.Entry, data []byte) (*Manifest, error) {
	m, err := Parse(at.File, data)
	if err != nil {
		return nil, err
	}
	m.Dir, m.File, m.Source, m.Shipped = at.Dir, at.File, at.Source, at.Shipped
	if m.Name != at.Name {
		return nil, configfile.Errorf(m.File, "name is %q, and its folder is called %q: they must be the same", m.Name, configfile.Clip(at.Name))
	}
	if m.Build != nil {
		if err := has(m, m.Build.Containerfile); err != nil {
			return nil, configfile.Errorf(m.File, "build.containerfile: %s", err)
		}
	}
	for i, skill := range m.Skills {
		if err := has(m, path.Join(skill, "SKILL.md")); err != nil {
			return nil, configfile.Errorf(m.File, "skills[%d]: %s", i, err)
		}
	}
	return m, nil
}

func has(m *Manifest, name string) error {
	err := registry.Regular(m.Source, name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file %q in the addon's folder", name)
	}
	return err
}

// Digest is registry.Digest of the addon's folder.
func (m *Manifest) Digest() (string, error) {
	d, err := registry.Digest(m.Source)
	if err != nil {
		return "", fmt.Errorf("digest of the addon's folder %s: %w", m.Dir, err)
	}
	return d, nil
}
