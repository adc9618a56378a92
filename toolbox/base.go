package toolbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/handlerd/handler/sandbox"
)

const (
	// baseImage is the root file system that mmdebstrap made.
	baseImage = "localhost/handler/toolbox-base:" + suite
	// registryImage is the one from a registry.
	registryImage = "docker.io/library/debian:" + suite + "-slim"
	// kindBase is baseImage's value of sandbox.LabelKind.
	kindBase = "toolbox-base"
)

// stopGrace is how long mmdebstrap has to remove its temporary folder, which belongs to other user ids.
const stopGrace = 20 * time.Second

// dpkgOptions make what debian:trixie-slim has too: no manuals, no translations.
var dpkgOptions = []string{
	"force-unsafe-io",
	"path-exclude=/usr/share/man/*",
	"path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/locale/*",
	"path-exclude=/usr/share/doc/*",
	"path-include=/usr/share/doc/*/copyright",
}

// base gives the image that the default toolbox is built on, and whether a registry may be asked for it.
func (b *Builder) base(ctx context.Context, o BuildOptions, r *reporter) (ref string, pull bool, err error) {
	switch o.Base {
	case BaseRegistry:
		return registryImage, true, nil
	case "", BaseAuto, BaseMMDebstrap:
		if _, err := exec.LookPath(b.opts.MMDebstrap); err == nil {
			break
		}
		if o.Base != BaseMMDebstrap {
			return registryImage, true, nil
		}
		return "", false, &BuildError{Subject: r.subject, Step: "installing Debian " + suite,
			Err:  fmt.Errorf("there is no %s", b.opts.MMDebstrap),
			Hint: "install it: sudo apt-get install mmdebstrap debian-archive-keyring, or use --base registry"}
	default:
		return "", false, fmt.Errorf("the base %q is not known: it may be %s, %s or %s", o.Base, BaseAuto, BaseMMDebstrap, BaseRegistry)
	}
	packages, err := defaultPackages()
	if err != nil {
		return "", false, err
	}
	recipe := digestOf(append(append([]string{kindBase, suite}, packages...), dpkgOptions...)...)
	have, err := b.opts.Images.Inspect(ctx, baseImage)
	var missing *sandbox.ImageNotFoundError
	switch {
	case err == nil && have.Labels[sandbox.LabelRecipe] == recipe && !o.NoCache:
		return baseImage, false, nil
	case err != nil && !errors.As(err, &missing):
		return "", false, err
	}
	if err := b.bootstrap(ctx, o, packages, recipe, r); err != nil {
		return "", false, err
	}
	b.removeOld(ctx, have.ID, baseImage)
	return baseImage, false, nil
}

// bootstrap makes baseImage. A suite of the mirror that is not there, other than the main one, is done without.
func (b *Builder) bootstrap(ctx context.Context, o BuildOptions, packages []string, recipe string, r *reporter) error {
	r.begin("installing Debian " + suite)
	if _, err := os.Stat(b.opts.Keyring); err != nil {
		return &BuildError{Subject: r.subject, Step: "installing Debian " + suite, Err: err,
			Hint: "Debian's keys are missing: sudo apt-get install debian-archive-keyring"}
	}
	from := machineMirror(os.DirFS(b.opts.AptDir))
	if o.Mirror != "" {
		var err error
		if from, err = givenMirror(o.Mirror); err != nil {
			return err
		}
	}
	wanted := suites()
	for {
		missing, err := b.bootstrapOnce(ctx, from.sources(b.opts.Keyring, wanted), packages, recipe, r)
		if err == nil {
			return nil
		}
		if missing == "" || missing == suite || !slices.Contains(wanted, missing) || ctx.Err() != nil {
			return err
		}
		r.count("the mirror has no "+missing+": going on without it", 0, 0)
		wanted = slices.DeleteFunc(wanted, func(s string) bool { return s == missing })
	}
}

// bootstrapOnce runs mmdebstrap and imports what it writes. missing names a suite that the mirror does not have.
func (b *Builder) bootstrapOnce(ctx context.Context, sources, packages []string, recipe string, r *reporter) (missing string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := b.mmdebstrap(ctx, sources, packages)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	said := &installLog{r: r}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		return "", err
	}
	tar := &rootfs{from: bufio.NewReaderSize(out, 1<<20), r: r, wait: sync.OnceValue(cmd.Wait)}
	// Nothing is imported before there is something: mmdebstrap writes when all packages are installed.
	if _, err := tar.from.Peek(1); err != nil {
		err = tar.wait()
		if err == nil {
			err = errors.New("mmdebstrap wrote nothing")
		}
		return said.missing(), fmt.Errorf("mmdebstrap: %w", err)
	}
	r.begin("importing the base system")
	labels := map[string]string{sandbox.LabelKind: kindBase, sandbox.LabelRecipe: recipe}
	_, err = b.opts.Images.Import(ctx, tar, baseImage, labels)
	cancel() // an import that failed leaves a program that still writes
	_, _ = io.Copy(io.Discard, tar.from)
	waited := tar.wait()
	if err == nil && tar.ended {
		err = waited
	}
	return "", err
}

func (b *Builder) mmdebstrap(ctx context.Context, sources, packages []string) *exec.Cmd {
	args := []string{"--verbose", "--mode=unshare", "--variant=minbase", "--format=tar"}
	for _, o := range dpkgOptions {
		args = append(args, "--dpkgopt="+o)
	}
	args = append(args, "--include="+strings.Join(packages, ","), suite, "-")
	cmd := exec.CommandContext(ctx, b.opts.MMDebstrap, append(args, sources...)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8", "TMPDIR=" + b.opts.TempDir}
	for name, value := range b.opts.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	// The whole group: it runs apt, and TERM makes it remove its temporary folder, which we could not.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// rootfs is mmdebstrap's output. Its end is the end of the program: an archive that was cut off is an error, not an
// image.
type rootfs struct {
	from  *bufio.Reader
	r     *reporter
	wait  func() error
	done  int64
	ended bool
}

func (t *rootfs) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	t.done += int64(n)
	t.r.bytes(t.done)
	if err == io.EOF {
		t.ended = true
		if failed := t.wait(); failed != nil {
			return n, fmt.Errorf("mmdebstrap: %w", failed)
		}
	}
	return n, err
}

var (
	newlyInstalled = regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed`)
	packageStep    = regexp.MustCompile(`^(Get:\d+ .* amd64 |Get:\d+ .* (arm64|all) |Unpacking |Setting up )`)
	noRelease      = regexp.MustCompile(`The repository '\S+ ([a-z-]+) (Release|InRelease)' (does not have a Release file|is no longer signed|is not signed)|Failed to fetch \S+/dists/([a-z-]+)/\S* +404`)
)

// installLog reads mmdebstrap's and apt's messages: each package is fetched, unpacked and set up.
type installLog struct {
	r *reporter

	mu          sync.Mutex // Cmd copies from a goroutine; missing is asked after it ended
	part        string
	done, total int64
	lacks       string
}

func (l *installLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.part + string(p)
	for {
		line, rest, whole := strings.Cut(text, "\n")
		if !whole {
			l.part = text[max(0, len(text)-4*maxLine):]
			return len(p), nil
		}
		l.line(strings.TrimRight(line, "\r"))
		text = rest
	}
}

func (l *installLog) line(line string) {
	if m := newlyInstalled.FindStringSubmatch(line); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 32)
		l.total += 3 * n
	}
	if m := noRelease.FindStringSubmatch(line); m != nil {
		l.lacks = m[1] + m[4]
	}
	if packageStep.MatchString(line) && l.total > 0 {
		l.done = min(l.done+1, l.total)
		l.r.count(line, l.done, l.total)
		return
	}
	_, _ = l.r.Write([]byte(line + "\n"))
}

func (l *installLog) missing() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lacks
}

// removeOld removes the image that ref stood for before, unless it still does. One that a sandbox uses stays.
func (b *Builder) removeOld(ctx context.Context, old, ref string) {
	if old == "" {
		return
	}
	if now, err := b.opts.Images.Inspect(ctx, ref); err != nil || now.ID == old {
		return
	}
	if err := b.opts.Images.Remove(ctx, old); err != nil {
		b.log.Debug("old image stays", "image", filepath.Base(ref), "err", err)
	}
}
