package toolbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/sandbox"
)

// DefaultName is the toolbox that everything is built over.
const DefaultName = "default"

// Options are what a Builder is made of. The first block is required.
type Options struct {
	Images sandbox.Images
	Driver sandbox.Driver
	// Guest is the host path of the static handler-guest binary.
	Guest string
	// RunRoot is where run directories of the sandboxes that try an image are made; short, since sockets lie in it.
	RunRoot string
	// StateDir keeps the recipes of named toolboxes; made, 0700, when the first one is built.
	StateDir string
	// Addons and Harnesses give what can be built; they are asked at each build.
	Addons    func() (*addons.Registry, error)
	Harnesses func() (*harness.Registry, error)

	// HarnessFiles are host files that a shipped harness's build context gets besides its folder, by the name there:
	// {"demo": {"handler-demo-agent": "/usr/lib/handler/handler-demo-agent"}}.
	HarnessFiles map[string]map[string]string
	// TempDir is a folder on a disk where a root file system of 2 GB can be unpacked and that other user ids can pass
	// through, as mmdebstrap's do; "" for /var/tmp.
	TempDir string
	// CABundles are PEM files whose authorities are trusted while building, and are not kept in the image; a missing
	// one is passed over. nil for /etc/ssl/certs/ca-certificates.crt.
	CABundles []string
	// Env is added to the environment of build steps and of mmdebstrap: proxy variables. It is not kept.
	Env map[string]string
	// MMDebstrap is the program; "" for /usr/bin/mmdebstrap.
	MMDebstrap string
	// Keyring is Debian's; "" for /usr/share/keyrings/debian-archive-keyring.gpg.
	Keyring string
	// AptDir is where the machine's own apt sources are read for a Debian mirror; "" for /etc/apt.
	AptDir string
	// Logger may be nil.
	Logger *slog.Logger
}

// BuildOptions are what one build may be told. The zero value builds what is not built, from what is cached.
type BuildOptions struct {
	// NoCache makes every step anew, the base system too: with today's packages.
	NoCache bool
	// IfStale does nothing where the image is fresh.
	IfStale bool
	// Mirror is the Debian mirror, such as "http://deb.debian.org/debian"; "" for the machine's own, else that one.
	Mirror string
	// CACerts are further PEM files to trust while building.
	CACerts []string
	// NPMRegistry is the address of the npm registry; "" for npm's own default.
	NPMRegistry string
	// Base says where Debian comes from: BaseAuto (also if empty), BaseMMDebstrap or BaseRegistry.
	Base string
	// Packages are Debian packages of a named toolbox, on top of the default one.
	Packages []string
	// Containerfile is a host file that builds a named toolbox on top of the default one. It begins
	// "ARG TOOLBOX" and "FROM ${TOOLBOX}", and it is the only file of its build context.
	Containerfile string
}

// Values of BuildOptions.Base.
const (
	BaseAuto       = "auto"       // mmdebstrap where it is installed, else the registry
	BaseMMDebstrap = "mmdebstrap" // from a Debian mirror
	BaseRegistry   = "registry"   // docker.io/library/debian:trixie-slim
)

// A Builder builds, checks, lists and removes images. It may be used concurrently; builds wait for each other.
type Builder struct {
	opts Options
	log  *slog.Logger
	turn chan struct{} // holds a token while a build goes on
}

// take waits for a turn, and tells that it does; the person would else look at a build that says nothing. r may be nil.
func (b *Builder) take(ctx context.Context, r *reporter) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	default:
	}
	if r != nil {
		r.begin("waiting for another build")
	}
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Builder) release() { <-b.turn }

// New checks options and makes a Builder. It touches no file and starts nothing.
func New(opts Options) (*Builder, error) {
	switch {
	case opts.Images == nil || opts.Driver == nil:
		return nil, errors.New("toolbox: images and driver are required")
	case opts.Addons == nil || opts.Harnesses == nil:
		return nil, errors.New("toolbox: registries of addons and harnesses are required")
	}
	for what, path := range map[string]string{"guest": opts.Guest, "run root": opts.RunRoot, "state folder": opts.StateDir} {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("toolbox: %s %q is not an absolute path", what, path)
		}
	}
	for value, otherwise := range map[*string]string{
		&opts.TempDir:    "/var/tmp",
		&opts.MMDebstrap: "/usr/bin/mmdebstrap",
		&opts.Keyring:    "/usr/share/keyrings/debian-archive-keyring.gpg",
		&opts.AptDir:     "/etc/apt",
	} {
		if *value == "" {
			*value = otherwise
		}
	}
	if opts.CABundles == nil {
		opts.CABundles = []string{"/etc/ssl/certs/ca-certificates.crt"}
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Builder{opts: opts, log: log, turn: make(chan struct{}, 1)}, nil
}
