package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"golang.org/x/sys/unix"
)

// This file is about podman's service ending under us, at any moment: what was asked is asked again, and what was half
// done is taken away.

// reachTries is how often a call is made whose answer does not come because podman's service has ended.
const reachTries = 3

// reach calls f, which must be such that it can be done twice, with a context for calls of the bindings; and again
// with a new connection where podman's service ended under it. Ours is started anew.
func (d *Driver) reach(ctx context.Context, f func(api context.Context) error) error {
	var err error
	for range reachTries {
		api, _, rerr := d.ready(ctx)
		if rerr != nil {
			return rerr
		}
		if err = f(api); err == nil || !isUnreachable(err) || ctx.Err() != nil {
			return err
		}
		_ = d.failed(err)
	}
	return err
}

// look is find with a connection of its own, which it makes anew where podman's service ended under it.
func (d *Driver) look(ctx context.Context, id string) (c container, ok bool, err error) {
	err = d.reach(ctx, func(api context.Context) error {
		c, ok, err = d.find(api, id)
		return err
	})
	return c, ok, err
}

// endUnknown ends a monitor that podman did not know of, and what it watches: its service ended between starting the
// monitor and writing that down.
func (d *Driver) endUnknown(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTime)
	defer cancel()
	xdg := d.layout().xdg()
	all, err := ours(xdg)
	if err != nil {
		return err
	}
	for _, p := range all {
		if slices.Contains(p.args, id) && !isService(p) {
			if err := signalTree(p.PID, unix.SIGKILL); err != nil {
				return err
			}
		}
	}
	if err := endAll(ctx, xdg, func(p ownProc) bool { return slices.Contains(p.args, id) && !isService(p) }); err != nil {
		return err
	}
	return nil
}

// forgetRuntime removes what the OCI runtime and the monitor noted of a container, which they, or podman, would have
// removed, had no one killed them.
func (d *Driver) forgetRuntime(id string) error {
	xdg := d.layout().xdg()
	return errors.Join(os.RemoveAll(filepath.Join(xdg, "runc", id)), os.RemoveAll(filepath.Join(xdg, "crun", id)),
		os.RemoveAll(filepath.Join(d.layout().podmanTmp(), "exits", id)))
}

// sweepHalfDone removes what podman's service was making, or removing, when it ended: containers that the storage knows
// and podman does not. No one else has a connection to the new service yet, so nothing of this is under way. d.mu is
// held.
func (d *Driver) sweepHalfDone(api context.Context) {
	yes := true
	listed, err := containers.List(api, &containers.ListOptions{All: &yes, External: &yes})
	if err != nil {
		d.log.Warn("what podman's service left half done could not be listed", "error", err)
		return
	}
	for _, c := range listed {
		if len(c.Command) == 0 || c.Command[0] != "storage" && c.Command[0] != "buildah" || c.State != "storage" {
			continue
		}
		timeout := uint(0)
		if _, err := containers.Remove(api, c.ID, &containers.RemoveOptions{Force: &yes, Timeout: &timeout}); err != nil {
			d.log.Warn("what podman's service left half done could not be removed", "id", c.ID, "error", err)
		}
	}
}

// strayLocks is how many of podman's lock files may lie about before those that are nobody's are removed.
const strayLocks = 128

// tidyLocks removes podman's lock files when there are many and no container is left that one could belong to: whoever
// looks at a container at the moment of its removal makes its lock's file again, which no one removes then.
func (d *Driver) tidyLocks(ctx context.Context) {
	entries, err := os.ReadDir(d.layout().locks())
	if err != nil || len(entries) <= strayLocks {
		return
	}
	select {
	case d.creating <- struct{}{}:
		defer func() { <-d.creating }()
	default:
		return // a container comes to be, and has a lock already
	}
	api, _, err := d.ready(ctx)
	if err != nil {
		return
	}
	yes := true
	if listed, err := containers.List(api, &containers.ListOptions{All: &yes}); err != nil || len(listed) > 0 {
		return
	}
	if err := emptyFolder(d.layout().locks()); err != nil {
		d.log.Warn("podman's lock files were not tidied", "error", err)
	}
}

// unmake removes the container of a create whose answer did not come: podman may have made it all the same.
func (d *Driver) unmake(ctx context.Context, in input) error {
	var c container
	err := d.reach(ctx, func(api context.Context) (err error) {
		c, err = inspect(api, in.spec.Name)
		return err
	})
	switch {
	case err != nil && isGone(err):
		return nil
	case err != nil && isHalfGone(err):
		return d.reach(ctx, func(api context.Context) error { return d.remove(api, in.spec.Name) })
	case err != nil:
		return err
	case c.Config.Labels[labelNonce] != in.nonce:
		return nil // another's of the same name
	}
	return d.Remove(ctx, c.ID)
}

// canMakeAgain says that a sandbox could not be made for a reason that is podman's own and passes.
func canMakeAgain(err error) bool {
	var started startedError
	return !errors.As(err, &started) && (isMountTrouble(err) || isUnreachable(err) || isHalfMade(err))
}

// isHalfMade says that a set-up was asked for again, after podman's service ended in the middle of it, and found its
// own beginning in the way.
func isHalfMade(err error) bool {
	text := err.Error()
	return strings.Contains(text, "container with given ID already exists") || strings.Contains(text, "has already been created in runtime")
}

// isMountTrouble says that a container could not be set up because podman, which counts the uses of an image that is
// mounted into several, unmounted it once too often: it counts down both when a container ends and when it is removed.
// A start that comes between the mount and its use finds nothing there; the next one mounts it again.
func isMountTrouble(err error) bool {
	text := err.Error()
	return isBusy(err) || errors.Is(err, errEmptyImage) || strings.Contains(text, "/merge") && strings.Contains(text, "no such file or directory")
}

// isBusy says that a mount of podman's cannot be taken away, because another lies over it.
func isBusy(err error) bool {
	text := err.Error()
	return strings.Contains(text, "/merged: device or resource busy")
}

// renewNamespace ends podman's service and the pause process that keeps its mount namespace, if no container lives: a
// mount that lies under another can be reached by nobody, and goes with the namespace.
func (d *Driver) renewNamespace(ctx context.Context) {
	if d.service == nil {
		return
	}
	all := true
	if err := d.reach(ctx, func(api context.Context) error {
		listed, err := containers.List(api, &containers.ListOptions{All: &all})
		if err == nil && len(listed) > 0 {
			err = fmt.Errorf("%d containers live", len(listed))
		}
		return err
	}); err != nil {
		d.log.Warn("podman's mount namespace cannot be made anew", "error", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.service.restart()
	ctx, cancel := context.WithTimeout(ctx, serviceStopTime)
	defer cancel()
	if err := endAll(ctx, d.layout().xdg(), func(ownProc) bool { return true }); err != nil {
		d.log.Warn("podman's mount namespace was not made anew", "error", err)
	}
	if err := os.Remove(d.layout().pausePID()); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.log.Warn("podman's mount namespace was not made anew", "error", err)
	}
	d.drop()
}
