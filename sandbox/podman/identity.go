package podman

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

// heldSources are the host's files and folders of a Spec, held open from before podman is asked until the sandbox
// is set up. Podman looks paths up by name. An agent in another sandbox may write in a scope that this one mounts a
// part of, and could exchange that part for a link to somewhere else in between. So what is mounted is compared with
// what was held before the command runs (verify).
type heldSources struct{ held []heldSource }

type heldSource struct {
	field, target, source string
	file                  *os.File
}

func (h *heldSources) close() {
	for _, s := range h.held {
		s.file.Close()
	}
}

// holdSources opens everything of the host that s mounts. A scope must not go through a symbolic link: its name is
// what the person allowed.
func holdSources(s sandbox.Spec, runDir string) (*heldSources, error) {
	h := &heldSources{}
	hold := func(field, source, target string, resolve uint64) error {
		fd, err := unix.Openat2(unix.AT_FDCWD, source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
		switch {
		case errors.Is(err, unix.ELOOP):
			return specError(field, "%s goes through a symbolic link", source)
		case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
			return specError(field, "%s does not exist", source)
		case err != nil:
			return specError(field, "%s cannot be opened: %v", source, err)
		}
		h.held = append(h.held, heldSource{field, target, source, os.NewFile(uintptr(fd), source)})
		return nil
	}
	var err error
	for _, m := range s.Mounts {
		err = errors.Join(err, hold("mount", m.Source, m.Target, unix.RESOLVE_NO_SYMLINKS))
	}
	for _, v := range s.Volumes {
		err = errors.Join(err, hold("volume", v.Source, v.Target, 0))
	}
	for _, o := range []struct{ field, source, target string }{
		{"run directory", runDir, sandbox.RunDirTarget}, {"guest", s.Guest, guestPath},
	} {
		if o.source != "" {
			err = errors.Join(err, hold(o.field, o.source, o.target, 0))
		}
	}
	if s.Display != nil {
		err = errors.Join(err, hold("display", s.Display.Socket, sandbox.DisplayTarget, 0))
	}
	if err != nil {
		h.close()
		return nil, firstSpecError(err)
	}
	return h, nil
}

// firstSpecError takes one error of several, since callers look for the type.
func firstSpecError(err error) error {
	var spec *sandbox.SpecError
	if errors.As(err, &spec) {
		return spec
	}
	return err
}

// checkMountPoints makes sure that there is a place for everything that is mounted inside a scope or a volume: the
// runtime would make it as a user of the container's, in a folder of the person's (pitfalls P20). In a volume, which
// is Handler's own, it is made here.
func checkMountPoints(s sandbox.Spec) error {
	all := places(s)
	for _, p := range all {
		parent, ok := nearest(p.target, all)
		if !ok || parent.source == "" {
			continue
		}
		point := filepath.Join(parent.source, strings.TrimPrefix(p.target, parent.target))
		_, err := os.Lstat(point)
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrNotExist):
			return specError(p.field, "its place %s cannot be looked at: %v", point, err)
		case parent.field == "volume" && !sourceIsFile(p):
			if err := os.MkdirAll(point, 0o700); err != nil {
				return specError(p.field, "its place %s cannot be made: %v", point, err)
			}
		default:
			return specError(p.field, "its place %s does not exist in %s", point, parent.source)
		}
	}
	return nil
}

func sourceIsFile(p place) bool {
	info, err := os.Stat(p.source)
	return p.source != "" && err == nil && !info.IsDir()
}

// nearest is the innermost place that target lies in.
func nearest(target string, all []place) (place, bool) {
	var best place
	for _, p := range all {
		if below(target, p.target) && len(p.target) > len(best.target) {
			best = p
		}
	}
	return best, best.target != ""
}

// verify looks at a sandbox that is set up and whose command does not run yet: the sources are those that were held,
// the tmpfs are memory of the user's own, the root is read-only, and no namespace is the host's. podman, the runtime
// and the kernel each had a part in that, in versions that nobody here chose.
func verify(pid int, in input, held *heldSources) error {
	if pid <= 0 {
		return errors.New("the sandbox ended while it was set up")
	}
	for _, ns := range []string{"user", "net", "pid", "ipc", "uts", "mnt", "cgroup"} {
		inside, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil {
			return fmt.Errorf("looking at the sandbox: %w", err)
		}
		if outside, err := os.Readlink("/proc/self/ns/" + ns); err != nil || inside == outside {
			return fmt.Errorf("the sandbox has no %s namespace of its own", ns)
		}
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("looking at the sandbox: %w", err)
	}
	defer unix.Close(root)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(root, &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		return fmt.Errorf("the sandbox's root is not read-only (%v)", err)
	}
	for _, h := range held.held {
		if err := h.same(root); err != nil {
			return err
		}
	}
	for _, m := range mounts(in) {
		if m.Type == "tmpfs" {
			if err := ownMemory(root, m.Destination, in); err != nil {
				return err
			}
		}
	}
	return nil
}

// openInside opens a path as the sandbox sees it.
func openInside(root int, path string) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}

func (h heldSource) same(root int) error {
	fd, err := openInside(root, h.target)
	if err != nil {
		return fmt.Errorf("looking at the sandbox: %s: %w", h.target, err)
	}
	defer unix.Close(fd)
	var outside, inside unix.Stat_t
	if err := errors.Join(unix.Fstat(int(h.file.Fd()), &outside), unix.Fstat(fd, &inside)); err != nil {
		return fmt.Errorf("looking at the sandbox: %s: %w", h.target, err)
	}
	if outside.Dev != inside.Dev || outside.Ino != inside.Ino {
		return specError(h.field, "%s was exchanged for something else while the sandbox was made", h.source)
	}
	return nil
}

// ownMemory makes sure that target is memory of the user's own, and gives it its mode: runc gives a tmpfs the mode of
// the folder of the image that it covers.
func ownMemory(root int, target string, in input) error {
	fd, err := openInside(root, target)
	if err != nil {
		return fmt.Errorf("looking at the sandbox: %s: %w", target, err)
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &fs), unix.Fstat(fd, &st)); err != nil {
		return fmt.Errorf("looking at the sandbox: %s: %w", target, err)
	}
	const must = unix.ST_NOSUID | unix.ST_NODEV
	if fs.Type != unix.TMPFS_MAGIC || fs.Flags&must != must {
		return fmt.Errorf("%s in the sandbox is no tmpfs that is nosuid and nodev", target)
	}
	for _, c := range in.sub.covered {
		if c.target == target {
			if fs.Flags&unix.ST_RDONLY == 0 {
				return fmt.Errorf("%s in the sandbox can be written", target)
			}
			return nil
		}
	}
	if int(st.Uid) != in.machine.uid {
		return fmt.Errorf("%s in the sandbox belongs to user %d", target, st.Uid)
	}
	if mode := tmpfsMode(target); st.Mode&0o7777 != mode {
		// A descriptor that only names a file is changed by way of its name in /proc.
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode); err != nil {
			return fmt.Errorf("the mode of %s in the sandbox: %w", target, err)
		}
	}
	return nil
}
