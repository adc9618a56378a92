package podman

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	place
	file *os.File
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
	hold := func(p place, resolve uint64) error {
		field, source := p.field, p.source
		fd, err := unix.Openat2(unix.AT_FDCWD, source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
		switch {
		case errors.Is(err, unix.ELOOP):
			return specError(field, "%s goes through a symbolic link", source)
		case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
			return specError(field, "%s does not exist", source)
		case err != nil:
			return specError(field, "%s cannot be opened: %v", source, err)
		}
		h.held = append(h.held, heldSource{p, os.NewFile(uintptr(fd), source)})
		return nil
	}
	var err error
	for _, m := range s.Mounts {
		err = errors.Join(err, hold(place{"mount", m.Target, m.Source, m.ReadOnly}, unix.RESOLVE_NO_SYMLINKS))
	}
	for _, v := range s.Volumes {
		err = errors.Join(err, hold(place{"volume", v.Target, v.Source, false}, 0))
	}
	for _, p := range []place{{"run directory", sandbox.RunDirTarget, runDir, true}, {"guest", guestPath, s.Guest, true}} {
		if p.source != "" {
			err = errors.Join(err, hold(p, 0))
		}
	}
	if hostDisplay(s) {
		err = errors.Join(err, hold(place{"display", sandbox.DisplayTarget, s.Display.Socket, true}, 0))
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
// and each is mounted where it was asked for and nothing is that was not, the tmpfs are memory of the user's own, the root is read-only, and no namespace is the host's. podman, the runtime
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
	mountinfo, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return fmt.Errorf("looking at the sandbox: %w", err)
	}
	points := mountPoints(string(mountinfo))
	for _, h := range held.held {
		if err := h.same(root, points, in.spec); err != nil {
			return err
		}
	}
	if err := nothingElse(root, points, in); err != nil {
		return err
	}
	for _, i := range in.spec.Images {
		if err := notEmpty(root, i); err != nil {
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

// errEmptyImage says that an image is mounted and shows none of its files.
var errEmptyImage = errors.New("it is empty")

// notEmpty makes sure that an image's files are there: podman may have unmounted it just before it was used, and a
// mount of nothing is no error to the kernel.
func notEmpty(root int, i sandbox.ImageMount) error {
	fd, err := unix.Openat2(root, i.Target, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return fmt.Errorf("looking at the sandbox: %s: %w", i.Target, err)
	}
	dir := os.NewFile(uintptr(fd), i.Target)
	defer dir.Close()
	if _, err := dir.Readdirnames(1); err != nil {
		return fmt.Errorf("image %s at %s: %w (%v)", i.Image, i.Target, errEmptyImage, err)
	}
	return nil
}

// openInside opens a path as the sandbox sees it.
func openInside(root int, path string) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}

// same makes sure that what was held is mounted at its target. That the target is the same file is not enough: a
// scope holds its own protected files whether they are mounted over themselves or not.
func (h heldSource) same(root int, points map[uint64]string, s sandbox.Spec) error {
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
	id, mounted, err := mountOf(fd)
	if err != nil {
		return fmt.Errorf("looking at the sandbox: %s: %w", h.target, err)
	}
	// A link of the image's own (/home to /var/home) may lie on the way, but none in what an agent writes to.
	parent, nested := nearest(h.target, places(s))
	if point, there := points[id]; !mounted || !there || point != h.target && nested && parent.source != "" {
		return specError(h.field, "%q is not mounted at %q in the sandbox", h.source, h.target)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || h.readOnly && fs.Flags&unix.ST_RDONLY == 0 {
		return specError(h.field, "%q can be written in the sandbox (%v)", h.target, err)
	}
	return nil
}

// mountOf gives the id of the mount that a descriptor lies on, and whether it is what that mount mounts.
func mountOf(fd int) (id uint64, root bool, err error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return 0, false, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 || st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return 0, false, errors.New("the kernel does not tell mounts apart (Linux 5.8 does)")
	}
	return st.Mnt_id, st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// mountPoints gives the mount points of a mountinfo by the ids of their mounts. Fields are cut at single spaces only:
// the kernel escapes no other white space than it must.
func mountPoints(mountinfo string) map[uint64]string {
	points := make(map[uint64]string)
	for line := range strings.Lines(mountinfo) {
		fields := strings.Split(line, " ")
		if len(fields) < 6 {
			continue
		}
		if id, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
			points[id] = unescapeMount(fields[4])
		}
	}
	return points
}

// enginePoints are what podman and the runtime mount of their own accord, and engineFolders that in which they do.
var (
	enginePoints = []string{"/", "/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/passwd",
		"/etc/group", "/run/.containerenv", "/run/secrets"}
	engineFolders = []string{"/proc", "/sys", "/dev"}
)

// nothingElse makes sure that nothing is mounted but what was asked for and what every container has.
func nothingElse(root int, points map[uint64]string, in input) error {
	asked := make(map[uint64]bool)
	var targets []string
	for _, m := range mounts(in) {
		targets = append(targets, m.Destination)
	}
	for _, i := range in.spec.Images {
		targets = append(targets, i.Target)
	}
	for _, target := range targets {
		// By id too, since the image may have a link on the way.
		fd, err := openInside(root, target)
		if err != nil {
			return fmt.Errorf("looking at the sandbox: %s: %w", target, err)
		}
		id, mounted, err := mountOf(fd)
		unix.Close(fd)
		if err != nil || !mounted {
			return fmt.Errorf("nothing is mounted at %q in the sandbox (%v)", target, err)
		}
		asked[id] = true
	}
	if point := uninvited(points, asked, in.sub.covered); point != "" {
		return fmt.Errorf("the sandbox has something mounted at %q that was not asked for", point)
	}
	return nil
}

// uninvited gives a mount point that is none of those asked for, the engine's own, and what is hidden; "" for none.
func uninvited(points map[uint64]string, asked map[uint64]bool, hiding []covered) string {
	for id, point := range points {
		under := func(dir string) bool { return below(point, dir) }
		hidden := func(c covered) bool { return point == c.target || below(point, c.target) }
		if asked[id] || slices.Contains(enginePoints, point) || slices.ContainsFunc(engineFolders, under) ||
			slices.ContainsFunc(hiding, hidden) {
			continue
		}
		return point
	}
	return ""
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
