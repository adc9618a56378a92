package toolbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/sandbox"
)

// BuildToolbox builds the toolbox called name, "" for the default one, makes its id-mapped copy (so that the first
// start is as quick as the next), and runs the check of every addon that is built. A named one is built on top of
// the default one from o.Packages or o.Containerfile, or from what it was built from last time. Progress is called
// from one goroutine at a time and may be nil. Errors: *BuildError, *CheckError (the toolbox is built then),
// *NotBuiltError.
func (b *Builder) BuildToolbox(ctx context.Context, name string, o BuildOptions, progress func(Event)) error {
	if name == "" {
		name = DefaultName
	}
	r := newReporter("toolbox "+name, progress)
	defer r.end()
	if err := b.take(ctx, r); err != nil {
		return err
	}
	defer b.release()
	if o.IfStale {
		entry, err := b.toolboxEntry(ctx, name)
		if err != nil {
			return r.fail(err)
		}
		if entry.State == Fresh && len(o.Packages) == 0 && o.Containerfile == "" {
			return nil
		}
	}
	build := b.buildNamed
	if name == DefaultName {
		build = b.buildDefault
	}
	if err := build(ctx, name, o, r); err != nil {
		return r.fail(err)
	}
	if err := b.try(ctx, name, r); err != nil {
		return r.fail(err)
	}
	return b.checkAll(ctx, name, r)
}

func (b *Builder) buildDefault(ctx context.Context, name string, o BuildOptions, r *reporter) error {
	if len(o.Packages) > 0 || o.Containerfile != "" {
		return errors.New("the default toolbox takes no packages and no Containerfile: give the new toolbox a name, such as handler toolbox build mine --packages …")
	}
	base, pull, err := b.base(ctx, o, r)
	if err != nil {
		return err
	}
	digest, err := recipeDigest()
	if err != nil {
		return err
	}
	w, err := b.workspace(o)
	if err != nil {
		return err
	}
	defer w.close()
	source, err := fs.Sub(recipe, "recipe")
	if err != nil {
		return err
	}
	if err := w.copyTree(source); err != nil {
		return err
	}
	r.begin("building the toolbox")
	return b.build(ctx, w, o, r, sandbox.Build{
		Tag: sandbox.ToolboxImage(name), Containerfile: "Containerfile", Pull: pull,
		Args:   map[string]string{"BASE": base, "RECIPE": digest},
		Labels: map[string]string{sandbox.LabelKind: sandbox.KindToolbox, sandbox.LabelRecipe: digest},
	})
}

// buildNamed builds over the default toolbox and keeps the recipe, so that it can be built again by its name.
func (b *Builder) buildNamed(ctx context.Context, name string, o BuildOptions, r *reporter) error {
	if err := addons.ValidName(name); err != nil {
		return err
	}
	under, err := b.toolbox(ctx, DefaultName)
	if err != nil {
		return err
	}
	text, err := b.namedRecipe(name, o)
	if err != nil {
		return err
	}
	w, err := b.workspace(o)
	if err != nil {
		return err
	}
	defer w.close()
	if err := os.WriteFile(filepath.Join(w.context(), "Containerfile"), []byte(text), 0o644); err != nil {
		return err
	}
	r.begin("building the toolbox")
	err = b.build(ctx, w, o, r, sandbox.Build{
		Tag: sandbox.ToolboxImage(name), Containerfile: "Containerfile",
		Args: map[string]string{"TOOLBOX": sandbox.ToolboxImage(DefaultName)},
		Labels: map[string]string{sandbox.LabelKind: sandbox.KindToolbox,
			sandbox.LabelRecipe: digestOf(under.Labels[sandbox.LabelRecipe], text)},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.recipeDir(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(b.recipeFile(name), []byte(text), 0o600)
}

func (b *Builder) recipeDir() string { return filepath.Join(b.opts.StateDir, "toolboxes") }

func (b *Builder) recipeFile(name string) string {
	return filepath.Join(b.recipeDir(), name+".Containerfile")
}

// namedRecipe gives the Containerfile of a named toolbox.
func (b *Builder) namedRecipe(name string, o BuildOptions) (string, error) {
	switch {
	case len(o.Packages) > 0 && o.Containerfile != "":
		return "", errors.New("give packages or a Containerfile, not both")
	case len(o.Packages) > 0:
		return packagesContainerfile(o.Packages)
	case o.Containerfile == "":
		data, err := readBounded(b.recipeFile(name), 1<<20)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("a toolbox called %q was never built: give --packages a,b or --file Containerfile", name)
		}
		return string(data), err
	}
	data, err := readBounded(o.Containerfile, 1<<20)
	if err != nil {
		return "", err
	}
	if !fromToolbox.Match(data) {
		return "", fmt.Errorf("%s is not on top of the default toolbox: begin it with the lines ARG TOOLBOX and FROM ${TOOLBOX}", o.Containerfile)
	}
	return string(data), nil
}

// BuildAddon builds an addon over the default toolbox and runs its check. Errors as BuildToolbox.
func (b *Builder) BuildAddon(ctx context.Context, name string, o BuildOptions, progress func(Event)) error {
	r := newReporter("addon "+name, progress)
	defer r.end()
	registry, err := b.opts.Addons()
	if err != nil {
		return err
	}
	m, err := registry.Get(name)
	if err != nil {
		return err
	}
	if m.Build == nil {
		return fmt.Errorf("addon %s has nothing to build", name)
	}
	if err := b.take(ctx, r); err != nil {
		return err
	}
	defer b.release()
	digest, err := m.Digest()
	if err != nil {
		return err
	}
	f := folder{kind: sandbox.KindAddon, name: name, tag: sandbox.AddonImage(name), source: m.Source,
		containerfile: m.Build.Containerfile, inside: sandbox.AddonsTarget + "/" + name, digest: digest}
	built, err := b.buildFolder(ctx, f, o, r)
	if err != nil {
		return r.fail(err)
	}
	if !built {
		return nil
	}
	return b.check(ctx, m, DefaultName, r)
}

// BuildHarness builds a harness over the default toolbox. Errors as BuildToolbox.
func (b *Builder) BuildHarness(ctx context.Context, name string, o BuildOptions, progress func(Event)) error {
	r := newReporter("harness "+name, progress)
	defer r.end()
	registry, err := b.opts.Harnesses()
	if err != nil {
		return err
	}
	m, err := registry.Get(name)
	if err != nil {
		return err
	}
	if m.Build == nil {
		return fmt.Errorf("harness %s has nothing to build: its agent is in the toolbox already", name)
	}
	if err := b.take(ctx, r); err != nil {
		return err
	}
	defer b.release()
	digest, err := b.harnessDigest(m)
	if err != nil {
		return err
	}
	f := folder{kind: sandbox.KindHarness, name: name, tag: sandbox.HarnessImage(name), source: m.Source,
		containerfile: m.Build.Containerfile, inside: sandbox.HarnessTarget, digest: digest, files: b.harnessFiles(m)}
	if _, err := b.buildFolder(ctx, f, o, r); err != nil {
		return r.fail(err)
	}
	return nil
}

// harnessFiles are the host files of a shipped harness's context.
func (b *Builder) harnessFiles(m *harness.Manifest) map[string]string {
	if !m.Shipped {
		return nil
	}
	return b.opts.HarnessFiles[m.Name]
}

// harnessDigest is over the harness's folder and the host files that come to it.
func (b *Builder) harnessDigest(m *harness.Manifest) (string, error) {
	digest, err := m.Digest()
	if err != nil {
		return "", err
	}
	files := b.harnessFiles(m)
	if len(files) == 0 {
		return digest, nil
	}
	parts := []string{digest}
	for _, name := range sortedKeys(files) {
		sum, err := fileDigest(files[name])
		if err != nil {
			return "", err
		}
		parts = append(parts, name, sum)
	}
	return digestOf(parts...), nil
}

// A folder is what addons and harnesses are to a build.
type folder struct {
	kind, name, tag string
	source          fs.FS
	containerfile   string
	inside          string // the folder that becomes the image
	digest          string
	files           map[string]string
}

// recipe is what the image's label holds: the folder, over this toolbox.
func (f folder) recipe(toolbox sandbox.Image) string {
	return digestOf(f.digest, toolbox.Labels[sandbox.LabelRecipe])
}

// buildFolder builds it over the default toolbox. built is false when it was fresh and o says to leave it then.
func (b *Builder) buildFolder(ctx context.Context, f folder, o BuildOptions, r *reporter) (built bool, err error) {
	under, err := b.toolbox(ctx, DefaultName)
	if err != nil {
		return false, err
	}
	recipe := f.recipe(under)
	if o.IfStale {
		if have, err := b.opts.Images.Inspect(ctx, f.tag); err == nil && have.Labels[sandbox.LabelRecipe] == recipe {
			return false, nil
		}
	}
	r.begin("building the " + f.kind)
	w, err := b.workspace(o)
	if err != nil {
		return false, err
	}
	defer w.close()
	if err := w.copyTree(f.source); err != nil {
		return false, err
	}
	for _, name := range sortedKeys(f.files) {
		if err := w.copyFile(name, f.files[name]); err != nil {
			return false, err
		}
	}
	if err := w.appendStage(f.containerfile, f.inside); err != nil {
		return false, err
	}
	return true, b.build(ctx, w, o, r, sandbox.Build{
		Tag: f.tag, Containerfile: f.containerfile,
		Args:   map[string]string{"TOOLBOX": under.ID},
		Labels: map[string]string{sandbox.LabelKind: f.kind, sandbox.LabelRecipe: recipe},
	})
}

// build runs one image build in the workspace, and removes the image that had the tag before.
func (b *Builder) build(ctx context.Context, w *workspace, o BuildOptions, r *reporter, build sandbox.Build) error {
	old, err := b.opts.Images.Inspect(ctx, build.Tag)
	if err != nil && !errors.As(err, new(*sandbox.ImageNotFoundError)) {
		return err
	}
	if err := w.declare(build.Containerfile); err != nil {
		return err
	}
	build.Context, build.Mounts = w.context(), w.ca
	for name, value := range w.env {
		build.Args[name] = value
	}
	build.Network, build.NoCache = true, o.NoCache
	if _, err := b.opts.Images.Build(ctx, build, r); err != nil {
		return err
	}
	b.removeOld(ctx, old.ID, build.Tag)
	return nil
}

// toolbox gives the image of a toolbox, or a *NotBuiltError with the command that makes it.
func (b *Builder) toolbox(ctx context.Context, name string) (sandbox.Image, error) {
	image, err := b.opts.Images.Inspect(ctx, sandbox.ToolboxImage(name))
	if errors.As(err, new(*sandbox.ImageNotFoundError)) {
		return image, &NotBuiltError{Subject: "toolbox " + name, Hint: "handler " + command(sandbox.KindToolbox, "build", name)}
	}
	return image, err
}

// command gives the words of the command line for an image.
func command(kind, verb, name string) string {
	words := []string{kind, verb}
	if kind != sandbox.KindToolbox || name != DefaultName {
		words = append(words, name)
	}
	return strings.Join(words, " ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
