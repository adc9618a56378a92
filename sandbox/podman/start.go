package podman

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/bindings/images"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// Bounds of the steps of a start. The first container of an image copies its layers to the user's ids, which takes
// twenty seconds for a toolbox on a slow disk, once.
const (
	createTime  = 5 * time.Minute
	beginTime   = 5 * time.Minute
	cleanUpTime = time.Minute
	filesTime   = 30 * time.Second
)

// An undo is what takes back the steps of a start that fails, the last one first.
type undo []func(context.Context) error

func (u *undo) add(step func(context.Context) error) { *u = append(*u, step) }

// run takes all back, in a time of its own: the caller's may be what ended.
func (u undo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	var all []error
	for i := len(u) - 1; i >= 0; i-- {
		all = append(all, u[i](ctx))
	}
	return errors.Join(all...)
}

// Start creates and starts a sandbox (contract A). It returns when the Spec's files are in place and the guest is
// about to run the command. A request to podman that is under way is waited for when ctx ends, so that what it made
// is removed; that may take as long as podman takes.
func (d *Driver) Start(ctx context.Context, s sandbox.Spec) (id string, err error) {
	if err := validate(s); err != nil {
		return "", err
	}
	api, m, err := d.ready(ctx)
	if err != nil {
		return "", err
	}
	if err := m.check(s.Limits); err != nil {
		return "", err
	}
	var back undo
	defer func() {
		if err == nil {
			return
		}
		id = ""
		if berr := back.run(ctx); berr != nil {
			err = errors.Join(err, fmt.Errorf("and what was made is not all gone: %w", berr))
		}
	}()
	in := input{spec: s, owner: d.opts.Owner, nonce: rand.Text(), machine: *m, layout: d.layout()}
	held, err := d.prepareHost(ctx, &in, &back)
	if err != nil {
		return "", err
	}
	defer held.close()
	files, err := serveFiles(in, &back)
	if err != nil {
		return "", err
	}
	if id, err = d.make(ctx, api, in, held); err != nil {
		return "", err
	}
	made := id
	back.add(func(ctx context.Context) error { return d.Remove(ctx, made) })
	if files != nil {
		if err := d.handOver(ctx, api, id, files); err != nil {
			return "", err
		}
	}
	return id, nil
}

// makeTries is how often a sandbox is made before podman's trouble with itself is the caller's.
const makeTries = 5

// make creates a container and lets its command run. What it made when it fails is removed.
func (d *Driver) make(ctx, api context.Context, in input, held *heldSources) (id string, err error) {
	for try := range makeTries {
		if id, err = d.makeOnce(ctx, api, in, held); err == nil || !canMakeAgain(err) {
			return id, err
		}
		d.log.Info("podman's mounts were in each other's way, or its service ended, and a sandbox is made again", "sandbox", in.spec.Name, "error", err)
		if pause(ctx, time.Duration(try+1)*50*time.Millisecond) != nil {
			return "", err
		}
		if isBusy(err) {
			d.renewNamespace(ctx)
		}
		if api, _, err = d.ready(ctx); err != nil {
			return "", err
		}
	}
	return "", err
}

func (d *Driver) makeOnce(ctx, api context.Context, in input, held *heldSources) (string, error) {
	select {
	case d.creating <- struct{}{}:
	case <-ctx.Done():
		return "", d.engineError("start", ctx.Err())
	}
	id, err := d.create(api, in)
	<-d.creating
	if err != nil {
		return "", d.startError(api, in.spec, "create", err)
	}
	if err = ctx.Err(); err == nil {
		err = d.begin(api, id, in, held)
	}
	if err == nil {
		return id, nil
	}
	err = d.startError(api, in.spec, "start", err)
	d.views.drop(id)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	if rerr := d.Remove(clean, id); rerr != nil {
		err = errors.Join(err, fmt.Errorf("and what was made is not all gone: %w", rerr))
	}
	return "", err
}

// check refuses a limit that was asked for and that neither the kernel keeps nor the caller (A.4).
func (m *machine) check(l sandbox.Limits) error {
	for _, c := range []struct {
		name  string
		limit sandbox.Limit
		kept  bool
	}{{"memory", l.Memory, m.enforced.Memory}, {"process", l.Processes, m.enforced.Processes}} {
		if c.limit.Asked && c.limit.Value > 0 && !c.kept && !c.limit.Watched {
			return &sandbox.UnenforcedError{Limit: c.name, Reason: m.reason}
		}
	}
	return m.checkCPU(l.CPU)
}

// prepareHost makes what the sandbox needs on the host and holds what must not be exchanged until it is mounted.
func (d *Driver) prepareHost(ctx context.Context, in *input, back *undo) (*heldSources, error) {
	s := in.spec
	if hostDisplay(s) {
		if err := checkWayland(ctx, s.Display.Socket); err != nil {
			return nil, err
		}
	}
	for _, v := range s.Volumes {
		if err := makeVolume(v.Source, back); err != nil {
			return nil, err
		}
	}
	in.runDir = s.RunDir
	if in.runDir == "" && len(s.Files) > 0 {
		dir := in.layout.filesOf(in.nonce)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, folderError(in.layout.files(), err)
		}
		back.add(func(context.Context) error { return os.RemoveAll(dir) })
		in.runDir = dir
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, d.engineError("start", err)
	}
	in.sub = findSubmounts(places(s), string(mountinfo))
	held, err := holdSources(s, in.runDir)
	if err != nil {
		return nil, err
	}
	in.sub.stat()
	if err := checkMountPoints(s); err != nil {
		held.close()
		return nil, err
	}
	return held, nil
}

// stat finds out which covered targets are files.
func (f submounts) stat() {
	for i, c := range f.covered {
		// Only a look at what lies under the mount would be exact, but a mount and its point are of one kind.
		if info, err := os.Stat(c.source); err == nil {
			f.covered[i].file = !info.IsDir()
		}
	}
}

// makeVolume makes a volume's folder, and those above it, 0700. What it makes is taken back with the rest, unless
// something lies in it by then.
func makeVolume(path string, back *undo) error {
	var missing []string // the innermost first
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || !errors.Is(err, os.ErrNotExist) {
			break
		}
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			if isDiskFull(err) {
				return folderError(dir, err)
			}
			return specError("volume", "%s cannot be made: %v", path, err)
		}
		back.add(func(context.Context) error {
			_ = os.Remove(dir) // not empty is a reason to keep it
			return nil
		})
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return specError("volume", "%s is no folder (%v)", path, err)
	}
	return nil
}

// serveFiles offers the Spec's files in the run directory. nil when there are none.
func serveFiles(in input, back *undo) (*rundir.FileServer, error) {
	if len(in.spec.Files) == 0 {
		return nil, nil
	}
	files, err := rundir.ServeFiles(in.runDir, in.spec.Files)
	if err != nil {
		return nil, fmt.Errorf("sandbox files: %w", err)
	}
	back.add(func(context.Context) error { files.Close(); return nil })
	return files, nil
}

// create makes the container. The request is not cut off when ctx ends, because podman would finish it all the same
// and no one would know. The bindings send a request again when its connection breaks: then the name is taken, and
// the nonce tells whether by us (pitfalls P09).
func (d *Driver) create(ctx context.Context, in input) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	defer cancel()
	g := build(in)
	made, err := containers.CreateWithSpec(ctx, g, nil)
	if err == nil {
		return made.ID, nil
	}
	c, ierr := inspect(ctx, in.spec.Name)
	switch {
	case ierr == nil && c.Config.Labels[labelNonce] == in.nonce:
		if statusCode(err) == http.StatusConflict || statusCode(err) == http.StatusInternalServerError {
			return c.ID, nil
		}
		return "", errors.Join(err, d.remove(ctx, c.ID))
	case ierr == nil:
		return "", specError("name", "a sandbox called %s exists already", in.spec.Name)
	case isUnreachable(err) || isUnreachable(ierr):
		_ = d.failed(err)
		return "", errors.Join(err, d.unmake(ctx, in))
	}
	return "", err
}

// begin sets the container up, makes sure that it is what was asked for, and lets its command run.
func (d *Driver) begin(ctx context.Context, id string, in input, held *heldSources) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginTime)
	defer cancel()
	if err := containers.ContainerInit(ctx, id, nil); err != nil {
		return d.failed(err)
	}
	c, err := inspect(ctx, id)
	if err != nil {
		return d.failed(err)
	}
	if err := verify(c.State.Pid, in, held); err != nil {
		return err
	}
	v, err := openView(c.State.Pid)
	if err != nil {
		return fmt.Errorf("looking at the sandbox: %w", err)
	}
	d.views.add(id, v)
	if err := d.giveCPUs(c.State.Pid, in, v); err != nil {
		return err
	}
	// Starting what runs is no error, so this can be asked again. A container must not be made anew after it: its guest
	// may have been here, and the run directory takes one.
	if err := d.reach(ctx, func(api context.Context) error { return containers.Start(api, id, nil) }); err != nil {
		return startedError{err}
	}
	return nil
}

// A startedError is a failure after which the command may have begun.
type startedError struct{ error }

func (e startedError) Unwrap() error { return e.error }

// handOver waits until the guest has written the files, or has ended.
func (d *Driver) handOver(ctx, api context.Context, id string, files *rundir.FileServer) error {
	wait, cancel := context.WithTimeout(ctx, filesTime)
	defer cancel()
	died := make(chan struct{})
	go func() {
		defer close(died)
		if _, err := d.Wait(wait, id); err == nil {
			files.Close() // no one will come any more
		}
	}()
	err := files.Wait(wait)
	cancel()
	<-died
	files.Close()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return d.engineError("start", ctx.Err())
	}
	said, oerr := d.Output(context.WithoutCancel(ctx), id)
	if oerr != nil || len(said) == 0 {
		return &sandbox.EngineError{Op: "start", Err: fmt.Errorf("handing over the files: %w", err)}
	}
	return &sandbox.EngineError{Op: "start", Err: fmt.Errorf("handing over the files: %w; the guest said: %s", err, said)}
}

// startError tells a missing image, or a mount that cannot be, from a failure of the engine.
func (d *Driver) startError(ctx context.Context, s sandbox.Spec, op string, err error) error {
	var spec *sandbox.SpecError
	if errors.As(err, &spec) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	refs := []string{s.Image}
	for _, i := range s.Images {
		refs = append(refs, i.Image)
	}
	for _, ref := range refs {
		if there, xerr := images.Exists(ctx, ref, nil); xerr == nil && !there {
			return &sandbox.ImageNotFoundError{Ref: ref}
		}
	}
	return d.engineError(op, err)
}

// Output is the end of what a sandbox's first process wrote to its standard output and error, at most 16 KiB. With a
// guest that is what the guest itself says; its command's errors go to the run directory. For a sandbox that is gone
// it is empty.
func (d *Driver) Output(ctx context.Context, id string) ([]byte, error) {
	api, _, err := d.ready(ctx)
	if err != nil {
		return nil, err
	}
	c, ok, err := d.find(api, id)
	if err != nil {
		return nil, d.engineError("output", err)
	}
	if !ok {
		return nil, nil
	}
	return readLog(d.layout().log(c.Config.Labels[labelNonce]))
}
