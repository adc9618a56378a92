package podman

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/images"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/proctree"
)

// Build builds an image from a Containerfile with `podman build`, in podman's own environment and storage. It is not
// the API's build because that of podman 4.3 takes no Mounts. A .containerignore in the context is obeyed, and a link
// in the context is copied as a link. Builds, imports and removals of one Driver wait for each other.
//
// Env reaches the steps as build arguments of every stage, so it is not in the image's environment, but may be in its
// history: it is no place for secrets. The proxy variables of Options.Env reach the steps too, and are in neither.
// When ctx ends, the build's processes are ended and its half-made containers removed. An image that Tag named
// before, and that no sandbox is made of, is removed.
func (i *Images) Build(ctx context.Context, b sandbox.Build, progress io.Writer) (id string, err error) {
	if err := checkBuild(b); err != nil {
		return "", err
	}
	i.d.building.Lock()
	defer i.d.building.Unlock()
	ctx, cancel := i.d.untilClose(ctx)
	defer cancel()
	_, m, err := i.d.ready(ctx) // with the service the folders are there, and no one else uses them
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(i.d.layout().tmp(), "build-")
	if err != nil {
		return "", folderError(i.d.layout().tmp(), err)
	}
	defer os.RemoveAll(dir)
	podman, err := i.d.opts.findPodman()
	if err != nil {
		return "", err
	}
	file, err := i.containerfile(b, dir)
	if err != nil {
		return "", err
	}
	iid := filepath.Join(dir, "iid")
	old := i.tagged(ctx, b.Tag)
	args := append(i.d.urlArgs(), buildArgs(b, file, iid)...)
	if err := runBuild(ctx, podman, args, environ(i.d.opts, i.d.layout(), m.systemd), progress); err != nil {
		i.d.sweepBuild()
		return "", i.d.buildError(ctx, b, err)
	}
	data, err := os.ReadFile(iid)
	if err != nil {
		return "", i.d.engineError("build image", err)
	}
	id = strings.TrimPrefix(strings.TrimSpace(string(data)), "sha256:")
	i.dropOld(ctx, old, id)
	return id, nil
}

// checkBuild refuses what podman's command line would read as something else.
func checkBuild(b sandbox.Build) error {
	if err := checkImage("tag", b.Tag); err != nil {
		return err
	}
	if err := checkPath("build context", b.Context); err != nil {
		return err
	}
	if !filepath.IsLocal(b.Containerfile) {
		return specError("build", "the Containerfile %q does not lie in the context", b.Containerfile)
	}
	root, err := os.OpenRoot(b.Context)
	if err != nil {
		return specError("build", "the context cannot be opened: %v", err)
	}
	defer root.Close()
	if info, err := root.Stat(b.Containerfile); err != nil || !info.Mode().IsRegular() {
		return specError("build", "%s is no file in %s", b.Containerfile, b.Context)
	}
	for what, names := range map[string]map[string]string{"build argument": b.Args, "environment": b.Env} {
		for name, value := range names {
			if !envPattern.MatchString(name) || !printable(value) {
				return specError(what, "%q is not a variable's name, or its value has control characters", name)
			}
		}
	}
	for _, m := range b.Mounts {
		for _, p := range []string{m.Source, m.Target} {
			if err := checkPath("build mount", p); err != nil {
				return err
			}
			if strings.ContainsAny(p, ":,") {
				return specError("build mount", "%q has a colon or comma", p)
			}
		}
	}
	return checkLabelSyntax(b.Labels)
}

// buildArgs is the command line, in a fixed order.
func buildArgs(b sandbox.Build, file, iidfile string) []string {
	args := []string{"build", "--file=" + file, "--tag=" + b.Tag, "--iidfile=" + iidfile, "--force-rm", "--layers"}
	given := maps.Clone(b.Env)
	if given == nil {
		given = make(map[string]string)
	}
	maps.Copy(given, b.Args)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		args = append(args, "--build-arg="+name+"="+given[name])
	}
	for _, name := range slices.Sorted(maps.Keys(b.Labels)) {
		args = append(args, "--label="+name+"="+b.Labels[name])
	}
	for _, m := range b.Mounts {
		args = append(args, "--volume="+m.Source+":"+m.Target+":ro")
	}
	network, pull := "none", "never"
	if b.Network {
		network = "host"
	}
	if b.Pull {
		pull = "missing"
	}
	args = append(args, "--network="+network, "--pull="+pull)
	if b.NoCache {
		args = append(args, "--no-cache")
	}
	return append(args, b.Context)
}

// maxContainerfile bounds what is read of a Containerfile.
const maxContainerfile = 1 << 20

// containerfile gives the file to build from: b's own, or a copy in dir that declares b.Env.
func (i *Images) containerfile(b sandbox.Build, dir string) (string, error) {
	if len(b.Env) == 0 {
		return filepath.Join(b.Context, b.Containerfile), nil
	}
	root, err := os.OpenRoot(b.Context)
	if err != nil {
		return "", specError("build", "the context cannot be opened: %v", err)
	}
	defer root.Close()
	f, err := root.Open(b.Containerfile)
	if err != nil {
		return "", specError("build", "%s cannot be opened: %v", b.Containerfile, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxContainerfile+1))
	if err != nil || len(data) > maxContainerfile {
		return "", specError("build", "%s cannot be read, or has more than %d bytes (%v)", b.Containerfile, maxContainerfile, err)
	}
	path := filepath.Join(dir, "Containerfile")
	if err := writePrivate(path, declareArgs(string(data), slices.Collect(maps.Keys(b.Env)))); err != nil {
		return "", folderError(dir, err)
	}
	return path, nil
}

// urlArgs lead podman's command line to the person's service, where Options.Socket names one.
func (d *Driver) urlArgs() []string {
	if d.service != nil {
		return nil
	}
	return []string{"--url=unix://" + d.opts.Socket}
}

// A buildFailure is a build that ended by itself, and what it said last.
type buildFailure struct {
	said  string
	cause error
}

func (e *buildFailure) Error() string {
	if e.said == "" {
		return e.cause.Error()
	}
	return e.said
}

func (e *buildFailure) Unwrap() error { return e.cause }

// buildStopTime is how long a build that is to end may take to do so in order.
const buildStopTime = 5 * time.Second

// runBuild runs podman and passes on what it says, a line a Write. When ctx ends, everything that it started ends.
func runBuild(ctx context.Context, podman string, args, env []string, progress io.Writer) error {
	cmd := exec.Command(podman, args...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	in.Close()
	if err != nil {
		return err
	}
	said := &tail{}
	var reading sync.WaitGroup
	reading.Go(func() { copyLines(out, progress, said) })
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		endBuild(cmd.Process.Pid, ended)
		err = ctx.Err()
	}
	// A step's stray process may hold the pipe; it is not waited for.
	timer := time.AfterFunc(time.Second, func() { out.Close() })
	reading.Wait()
	timer.Stop()
	if err != nil && ctx.Err() == nil {
		return &buildFailure{said.String(), err}
	}
	return err
}

// endBuild ends a build and the steps that it runs. They are looked for before their parent is gone.
func endBuild(pid int, ended <-chan error) {
	procs, err := proctree.Scan()
	if err != nil {
		procs = nil
	}
	steps := proctree.Below(procs, pid)
	_ = unix.Kill(pid, unix.SIGTERM) // it is our child and not reaped yet, so the number is its own
	select {
	case <-ended:
	case <-time.After(buildStopTime):
		_ = unix.Kill(pid, unix.SIGKILL)
		<-ended
	}
	for _, p := range steps {
		_ = proctree.Signal(p, unix.SIGKILL) // those that are gone are no error, and the rest are ours
	}
}

// copyLines passes r on to progress, a line a Write, each cut to 64 KiB, and keeps the end in said.
func copyLines(r io.Reader, progress io.Writer, said *tail) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, more, err := in.ReadLine()
		if err != nil {
			return
		}
		text := string(line)
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		said.add(text)
		if progress != nil {
			// A reader of progress that is gone must not stop the build.
			_, _ = io.WriteString(progress, text+"\n")
		}
	}
}

// buildError says what a build that failed wants.
func (d *Driver) buildError(ctx context.Context, b sandbox.Build, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("sandbox engine: build image: %w", ctx.Err())
	}
	text := err.Error()
	e := d.engineError("build image", err)
	var known *sandbox.EngineError
	if !errors.As(e, &known) || known.Hint != "" {
		return e
	}
	switch {
	case strings.Contains(text, "image not known") || strings.Contains(text, "pull policy is") || strings.Contains(text, "short-name"):
		known.Hint = "a base image is not there; build it first (handler toolbox build), or allow a registry"
	case strings.Contains(text, "Temporary failure in name resolution") || strings.Contains(text, "Could not resolve"):
		known.Hint = "a step found no network; look at the proxy variables and at /etc/resolv.conf"
		if !b.Network {
			known.Hint = "a step wants the network and this build has none"
		}
	case strings.Contains(text, "certificate"):
		known.Hint = "a step does not know the certificate authority; name your own in the configuration"
	}
	return known
}

// tagged is the id of the image that tag names, or "".
func (i *Images) tagged(ctx context.Context, tag string) string {
	image, err := i.Inspect(ctx, tag)
	if err != nil {
		return ""
	}
	return image.ID
}

// dropOld removes an image that lost its last tag to a new one, and what else no tag names and nothing uses: the
// leavings of builds are a gigabyte each. An image that sandboxes are made of stays until they are gone.
func (i *Images) dropOld(ctx context.Context, old, new string) {
	api, _, err := i.d.ready(ctx)
	if err != nil {
		return
	}
	if old != "" && old != new {
		if image, err := i.Inspect(ctx, old); err == nil && len(image.Tags) == 0 {
			if _, errs := images.Remove(api, []string{old}, nil); len(errs) > 0 {
				i.d.log.Info("an image without a tag stays for now", "image", old, "error", errors.Join(errs...))
			}
		}
	}
	if i.d.service == nil {
		return // the rest is the person's
	}
	if _, err := images.Prune(api, nil); err != nil {
		i.d.log.Info("images without a tag could not be removed", "error", err)
	}
}
