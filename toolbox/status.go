package toolbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/handlerd/handler/sandbox"
)

// States of an Entry.
const (
	Fresh   = "fresh"   // built from what would be built now
	Stale   = "stale"   // built from something else: it runs, and Remedy makes it fresh
	Missing = "missing" // not built
)

// An Entry is one image that is there or could be.
type Entry struct {
	Kind    string // sandbox.KindToolbox, KindAddon or KindHarness
	Name    string
	State   string
	Reason  string // why it is stale or cannot be built, or ""
	Remedy  string // the command that makes it fresh, or ""
	Image   string // the image's id, or ""
	Bytes   int64
	Created time.Time
}

// List gives every image that Handler knows, built or not: toolboxes first, then addons, then harnesses, each by
// name.
func (b *Builder) List(ctx context.Context) ([]Entry, error) {
	var all []Entry
	names, err := b.toolboxNames(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		e, err := b.toolboxEntry(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	for _, kind := range []string{sandbox.KindAddon, sandbox.KindHarness} {
		names, err := b.folderNames(kind)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			e, err := b.folderEntry(ctx, kind, name)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// Status gives one image. An addon or harness that nobody knows is the registry's error.
func (b *Builder) Status(ctx context.Context, kind, name string) (Entry, error) {
	switch kind {
	case sandbox.KindToolbox:
		if name == "" {
			name = DefaultName
		}
		return b.toolboxEntry(ctx, name)
	case sandbox.KindAddon, sandbox.KindHarness:
		return b.folderEntry(ctx, kind, name)
	}
	return Entry{}, fmt.Errorf("there is no kind of image %q", kind)
}

// Remove removes an image, and with a named toolbox its recipe. What is not there is no error. The default toolbox
// takes its base system along, so that the next build starts from nothing.
func (b *Builder) Remove(ctx context.Context, kind, name string) error {
	if err := b.take(ctx, nil); err != nil {
		return err
	}
	defer b.release()
	switch kind {
	case sandbox.KindAddon:
		return b.opts.Images.Remove(ctx, sandbox.AddonImage(name))
	case sandbox.KindHarness:
		return b.opts.Images.Remove(ctx, sandbox.HarnessImage(name))
	case sandbox.KindToolbox:
	default:
		return fmt.Errorf("there is no kind of image %q", kind)
	}
	if err := b.opts.Images.Remove(ctx, sandbox.ToolboxImage(name)); err != nil {
		return err
	}
	if name == "" || name == DefaultName {
		return b.opts.Images.Remove(ctx, baseImage)
	}
	if err := os.Remove(b.recipeFile(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// toolboxNames are the default one, those that are built and those that have a recipe.
func (b *Builder) toolboxNames(ctx context.Context) ([]string, error) {
	images, err := b.opts.Images.List(ctx, map[string]string{sandbox.LabelKind: sandbox.KindToolbox})
	if err != nil {
		return nil, err
	}
	names := []string{DefaultName}
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, image := range images {
		for _, tag := range image.Tags {
			if name, ok := strings.CutPrefix(tag, strings.TrimSuffix(sandbox.ToolboxImage("x"), "x")); ok {
				add(name)
			}
		}
	}
	entries, err := os.ReadDir(b.recipeDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".Containerfile"); ok {
			add(name)
		}
	}
	slices.Sort(names[1:])
	return names, nil
}

func (b *Builder) toolboxEntry(ctx context.Context, name string) (Entry, error) {
	e := Entry{Kind: sandbox.KindToolbox, Name: name}
	want, err := recipeDigest()
	if err != nil {
		return e, err
	}
	reason := "Handler's recipe has changed since"
	if name != DefaultName {
		under, err := b.opts.Images.Inspect(ctx, sandbox.ToolboxImage(DefaultName))
		if err != nil && !errors.As(err, new(*sandbox.ImageNotFoundError)) {
			return e, err
		}
		if text, err := b.namedRecipe(name, BuildOptions{}); err == nil {
			want = digestOf(under.Labels[sandbox.LabelRecipe], text)
			reason = "the default toolbox has changed since"
		}
	}
	return b.entry(ctx, e, sandbox.ToolboxImage(name), want, reason)
}

func (b *Builder) folderNames(kind string) ([]string, error) {
	if kind == sandbox.KindAddon {
		registry, err := b.opts.Addons()
		if err != nil {
			return nil, err
		}
		var names []string
		for _, m := range registry.List() {
			if m.Build != nil {
				names = append(names, m.Name)
			}
		}
		return names, nil
	}
	registry, err := b.opts.Harnesses()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range registry.List() {
		if m.Build != nil {
			names = append(names, m.Name)
		}
	}
	return names, nil
}

func (b *Builder) folderEntry(ctx context.Context, kind, name string) (Entry, error) {
	e := Entry{Kind: kind, Name: name}
	digest, builds, err := b.folderDigest(kind, name)
	if err != nil {
		return e, err
	}
	if !builds {
		e.State, e.Reason = Fresh, "nothing to build"
		return e, nil
	}
	under, err := b.opts.Images.Inspect(ctx, sandbox.ToolboxImage(DefaultName))
	if err != nil && !errors.As(err, new(*sandbox.ImageNotFoundError)) {
		return e, err
	}
	tag := sandbox.AddonImage(name)
	if kind == sandbox.KindHarness {
		tag = sandbox.HarnessImage(name)
	}
	want := folder{digest: digest}.recipe(under)
	return b.entry(ctx, e, tag, want, "its folder or the toolbox has changed since")
}

// folderDigest gives the digest of what an addon or harness is built from; builds is false where there is nothing to
// build.
func (b *Builder) folderDigest(kind, name string) (digest string, builds bool, err error) {
	if kind == sandbox.KindAddon {
		registry, err := b.opts.Addons()
		if err != nil {
			return "", false, err
		}
		m, err := registry.Get(name)
		if err != nil || m.Build == nil {
			return "", false, err
		}
		digest, err = m.Digest()
		return digest, true, err
	}
	registry, err := b.opts.Harnesses()
	if err != nil {
		return "", false, err
	}
	m, err := registry.Get(name)
	if err != nil || m.Build == nil {
		return "", false, err
	}
	digest, err = b.harnessDigest(m)
	return digest, true, err
}

// entry completes e from the image at ref, which is fresh if its label is want.
func (b *Builder) entry(ctx context.Context, e Entry, ref, want, reason string) (Entry, error) {
	image, err := b.opts.Images.Inspect(ctx, ref)
	if errors.As(err, new(*sandbox.ImageNotFoundError)) {
		e.State, e.Remedy = Missing, "handler "+command(e.Kind, "build", e.Name)
		return e, nil
	}
	if err != nil {
		return e, err
	}
	e.Image, e.Bytes, e.Created = image.ID, image.Bytes, image.Created
	e.State = Fresh
	if image.Labels[sandbox.LabelRecipe] != want {
		e.State, e.Reason, e.Remedy = Stale, reason, "handler "+command(e.Kind, "build", e.Name)
	}
	return e, nil
}

func fileDigest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
