package podman

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/domain/entities/types"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/proctree"
)

// idPattern is podman's own id of a container.
var idPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// find inspects a container of ours. ok is false when it is gone, or half gone, was never ours, or id is none.
func (d *Driver) find(ctx context.Context, id string) (c container, ok bool, err error) {
	if !idPattern.MatchString(id) {
		return c, false, nil
	}
	c, err = inspect(ctx, id)
	if err != nil {
		if isGone(err) {
			return c, false, nil
		}
		if isHalfGone(err) {
			return container{ID: id, half: true}, false, nil
		}
		return c, false, d.failed(err)
	}
	return c, c.Config.Labels[sandbox.LabelOwner] == d.opts.Owner, nil
}

// Wait blocks until the sandbox's first process has ended, without asking podman meanwhile, and says how it ended.
func (d *Driver) Wait(ctx context.Context, id string) (sandbox.Exit, error) {
	for {
		c, ok, err := d.look(ctx, id)
		switch {
		case err != nil:
			return sandbox.Exit{}, d.engineError("wait", err)
		case !ok:
			return sandbox.Exit{}, nil
		case c.ended():
			return sandbox.Exit{Known: true, Code: c.State.ExitCode, OutOfMemory: c.State.OOMKilled}, nil
		case c.State.Pid > 0:
			if err := waitProc(ctx, c.State.Pid); err != nil {
				return sandbox.Exit{}, d.engineError("wait", err)
			}
		}
		// The process has ended, or has not begun. Podman learns of the end a moment later, from its monitor.
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return sandbox.Exit{}, d.engineError("wait", err)
		}
	}
}

// waitProc blocks until a process has ended. One that has ended already is no error.
func waitProc(ctx context.Context, pid int) error {
	h, err := openProc(pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	return h.wait(ctx)
}

// pause waits for what cannot be waited for otherwise.
func pause(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop sends TERM to every process, the first one too, waits at most grace until the first one has ended, which
// takes the others with it, and sends KILL. When ctx ends before, KILL is sent at once.
func (d *Driver) Stop(ctx context.Context, id string, grace time.Duration) error {
	if v := d.views.get(id); v != nil && grace <= 0 {
		v.kill() // at once, without asking podman, who may be what does not get to run; what follows makes sure of it
	}
	c, ok, err := d.look(ctx, id)
	if err != nil {
		return d.engineError("stop", err)
	}
	if !ok || c.ended() || c.State.Pid <= 0 {
		return nil
	}
	h, err := openProc(c.State.Pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return d.engineError("stop", err)
	}
	defer h.Close()
	if grace > 0 {
		if err := signalTree(c.State.Pid, unix.SIGTERM); err != nil {
			return d.engineError("stop", err)
		}
		wait, cancel := context.WithTimeout(ctx, grace)
		err := h.wait(wait)
		cancel()
		if err == nil {
			return nil
		}
		d.log.Info("a sandbox did not end in its grace and is killed", "sandbox", c.Name, "grace", grace)
	}
	// With the first process the kernel ends all others of its namespace, and the first ends after them.
	if err := h.signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return d.engineError("stop", err)
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	if err := h.wait(wait); err != nil {
		return d.engineError("stop", fmt.Errorf("a process does not end (look for state D in ps): %w", err))
	}
	return nil
}

// signalTree signals the first process of a sandbox, and every other one when the first is no guest that passes it
// on. Sending it twice would make shells and servers give up their own orderly end.
func signalTree(pid int, sig unix.Signal) error {
	procs, err := proctree.Scan()
	if err != nil {
		return err
	}
	for _, p := range procs {
		if p.PID == pid {
			if err := proctree.Signal(p, sig); err != nil {
				return err
			}
		}
	}
	if isGuest(pid) {
		return nil
	}
	var all []error
	for _, p := range proctree.Below(procs, pid) {
		all = append(all, proctree.Signal(p, sig))
	}
	return errors.Join(all...)
}

// isGuest says whether a sandbox's first process was started as our guest. The command cannot change that: it is
// read from what the process was started with, and at worst TERM reaches the first process only, before KILL.
func isGuest(pid int) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasPrefix(string(cmdline), guestPath+"\x00")
}

// Remove removes a sandbox without a trace (A.5): its processes, container, log, layer and mounts, and the monitor
// that podman kept for it. It is idempotent.
func (d *Driver) Remove(ctx context.Context, id string) error {
	c, ok, err := d.look(ctx, id)
	if err != nil {
		return d.engineError("remove", err)
	}
	if !ok && !c.half {
		d.views.drop(id)
		return nil
	}
	if err := d.reach(ctx, func(api context.Context) error { return d.remove(api, id) }); err != nil {
		return d.engineError("remove", err)
	}
	d.views.drop(id)
	if nonce := c.Config.Labels[labelNonce]; nonce != "" {
		if err := errors.Join(os.RemoveAll(d.layout().log(nonce)), os.RemoveAll(d.layout().filesOf(nonce))); err != nil {
			return d.engineError("remove", err)
		}
	}
	if d.service == nil {
		// The person's service keeps its monitors where it likes, and those are not ours to end.
		return d.monitorEnds(ctx, c)
	}
	if err := errors.Join(d.monitorEnds(ctx, c), d.forgetRuntime(id)); err != nil {
		return d.engineError("remove", err)
	}
	d.tidyLocks(ctx)
	return nil
}

// monitorEnds waits for the end of a container's monitor, which comes a moment after it told podman of the end. One
// that podman does not know of is ended.
func (d *Driver) monitorEnds(ctx context.Context, c container) error {
	if c.State.ConmonPid <= 0 {
		if d.service == nil {
			return nil
		}
		return d.endUnknown(ctx, c.ID)
	}
	wait, cancel := context.WithTimeout(ctx, cleanUpTime)
	defer cancel()
	if err := waitProc(wait, c.State.ConmonPid); err != nil {
		return d.engineError("remove", fmt.Errorf("podman's monitor %d does not end: %w", c.State.ConmonPid, err))
	}
	return nil
}

// errNotRemoved says that podman answered well and the container is still there.
var errNotRemoved = errors.New("podman did not remove it")

// removeTime is how long podman is asked to remove a container that it says it cannot remove.
const removeTime = 20 * time.Second

// remove asks podman to remove a container until it is not there any more. Podman's own cleaning up after the end of
// a process may be under way at the same time, and either of them may find the other's work half done.
func (d *Driver) remove(ctx context.Context, id string) error {
	force, volumes, timeout := true, true, uint(0)
	options := &containers.RemoveOptions{Force: &force, Volumes: &volumes, Timeout: &timeout}
	var last error
	began := time.Now()
	for attempt := 0; attempt == 0 || time.Since(began) < removeTime; attempt++ {
		if attempt > 0 {
			if err := pause(ctx, time.Duration(min(attempt, 20))*20*time.Millisecond); err != nil {
				return errors.Join(err, last)
			}
		}
		reports, err := containers.Remove(ctx, id, options)
		if err != nil {
			last = err
			if isGone(err) {
				return nil
			}
			if isUnreachable(err) {
				return d.failed(err)
			}
			continue
		}
		if _, err := inspect(ctx, id); err != nil && isGone(err) {
			return nil
		} else if err != nil {
			last = err
			continue
		}
		last = errNotRemoved
		for _, r := range reports {
			if r.Err != nil {
				last = fmt.Errorf("%w: %w", errNotRemoved, r.Err)
			}
		}
	}
	return last
}

// List returns the sandboxes of this Driver's owner that carry all of labels, ended ones too.
func (d *Driver) List(ctx context.Context, labels map[string]string) ([]sandbox.Sandbox, error) {
	// Only the owner's: podman's filter matches patterns, and what a value may hold differs between its versions.
	filter := []string{sandbox.LabelOwner + "=" + d.opts.Owner}
	all := true
	var listed []types.ListContainer
	if err := d.reach(ctx, func(api context.Context) (err error) {
		listed, err = containers.List(api, &containers.ListOptions{All: &all, Filters: map[string][]string{"label": filter}})
		return d.failed(err)
	}); err != nil {
		return nil, d.engineError("list", err)
	}
	found := make([]sandbox.Sandbox, 0, len(listed))
	for _, c := range listed {
		if c.Labels[sandbox.LabelOwner] != d.opts.Owner || !hasLabels(c.Labels, labels) {
			continue
		}
		delete(c.Labels, sandbox.LabelOwner)
		delete(c.Labels, labelNonce)
		s := sandbox.Sandbox{ID: c.ID, Labels: c.Labels, Running: c.State == "running"}
		if len(c.Names) > 0 {
			s.Name = c.Names[0]
		}
		if c.StartedAt > 0 {
			s.Started = time.Unix(c.StartedAt, 0)
		}
		found = append(found, s)
	}
	return found, nil
}

func hasLabels(have, want map[string]string) bool {
	for name, value := range want {
		if got, ok := have[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// Sweep removes every sandbox of this Driver's owner: what a predecessor that was killed left (A.5). It says how
// many there were.
func (d *Driver) Sweep(ctx context.Context) (int, error) {
	left, err := d.List(ctx, nil)
	if err != nil {
		return 0, err
	}
	var all []error
	for _, s := range left {
		d.log.Info("a sandbox that was left is removed", "sandbox", s.Name, "id", s.ID)
		all = append(all, d.Remove(ctx, s.ID))
	}
	if d.service != nil { // then the storage and the run folder are this Driver's alone
		if d.building.TryLock() { // what is being built is no leaving
			d.sweepBuild()
			d.building.Unlock()
		}
		all = append(all, emptyFolder(d.layout().files()), emptyFolder(d.layout().logs()))
	}
	return len(left), errors.Join(all...)
}

// sweepBuild removes the containers that a build which was ended left in our storage. They are in no list of podman's
// but that of the storage. It must be called with d.building held.
func (d *Driver) sweepBuild() {
	if d.service == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpTime)
	defer cancel()
	api, _, err := d.ready(ctx)
	if err != nil {
		return
	}
	yes := true
	listed, err := containers.List(api, &containers.ListOptions{All: &yes, External: &yes})
	if err != nil {
		d.log.Warn("what a build left could not be listed", "error", err)
		return
	}
	for _, c := range listed {
		if len(c.Command) == 0 || c.Command[0] != "buildah" {
			continue // such as a sandbox that is just being made
		}
		if err := d.remove(api, c.ID); err != nil {
			d.log.Warn("what a build left could not be removed", "id", c.ID, "error", err)
		}
	}
}

// emptyFolder removes what a folder of ours holds.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it was never made
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return folderError(dir, err)
	}
	defer root.Close()
	var all []error
	for _, e := range entries {
		all = append(all, root.RemoveAll(e.Name()))
	}
	return errors.Join(all...)
}

// closeTime bounds the sweep of Close.
const closeTime = 30 * time.Second

// Close removes the sandboxes that are left, ends podman's service and every process of it, and leaves none. With
// Options.Socket the service is the person's and goes on. It is idempotent; every later call fails with ErrClosed.
func (d *Driver) Close() error {
	d.once.Do(func() { close(d.closing) })
	d.building.Lock() // a build that was under way has ended, and has removed what it half made
	defer d.building.Unlock()
	d.mu.Lock()
	used := d.conn != nil && !d.closed
	d.mu.Unlock()
	var err error
	if used {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		_, err = d.Sweep(ctx)
		cancel()
	}
	d.mu.Lock()
	d.closed = true
	d.drop()
	d.mu.Unlock()
	d.views.dropAll()
	if d.service != nil {
		err = errors.Join(err, d.service.stop())
	}
	return err
}

// untilClose is ctx that also ends when d is closed.
func (d *Driver) untilClose(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-d.closing:
			cancel(ErrClosed)
		case <-done:
		}
	}()
	return ctx, sync.OnceFunc(func() { close(done); cancel(context.Canceled) })
}

// readLog reads the end of a log in podman's k8s-file format: time, stream, F or P, and text.
func readLog(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, folderError(path, err)
	}
	defer f.Close()
	const most = 16 << 10
	if info, err := f.Stat(); err == nil && info.Size() > 2*most {
		if _, err := f.Seek(-2*most, io.SeekEnd); err != nil {
			return nil, folderError(path, err)
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, 2*most))
	if err != nil {
		return nil, folderError(path, err)
	}
	var text []byte
	for line := range strings.Lines(string(data)) {
		part := strings.SplitN(line, " ", 4)
		if len(part) != 4 || part[1] != "stdout" && part[1] != "stderr" {
			continue // the first line may be a half one
		}
		if part[2] == "P" {
			part[3] = strings.TrimSuffix(part[3], "\n")
		}
		text = append(text, part[3]...)
	}
	return text[max(0, len(text)-most):], nil
}
