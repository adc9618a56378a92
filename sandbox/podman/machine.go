package podman

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

// A machine is what this computer, and this user on it, can do. It is found once, before the first sandbox.
type machine struct {
	uid, gid int
	cgroup   int  // 1 (hybrid too) or 2
	systemd  bool // systemd makes the cgroups
	enforced sandbox.Enforced
	reason   string // why something is not enforced; "" when all is
	noFile   uint64 // the process's own hard limits
	noProc   uint64
	runtime  string // name or path
}

// findMachine looks at the kernel, at cgroups and at the programs in o.Path. It reads no file of the person's.
func findMachine(ctx context.Context, o Options) (*machine, error) {
	m := &machine{uid: os.Getuid(), gid: os.Getgid(), cgroup: 1}
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		m.cgroup = 2
	}
	m.systemd = m.cgroup == 2 && busWorks(o.SessionBus)
	var controllers []string
	if m.systemd {
		controllers = delegated(fmt.Sprintf("/sys/fs/cgroup/user.slice/user-%d.slice/user@%d.service/cgroup.controllers", m.uid, m.uid))
	}
	m.setEnforced(controllers, kernelRelease())
	for _, l := range []struct {
		resource int
		hard     *uint64
	}{{unix.RLIMIT_NOFILE, &m.noFile}, {unix.RLIMIT_NPROC, &m.noProc}} {
		var r unix.Rlimit
		if err := unix.Getrlimit(l.resource, &r); err != nil {
			return nil, setupError(fmt.Errorf("reading this process's own limits: %w", err), "")
		}
		*l.hard = r.Max
	}
	if o.Socket != "" {
		return m, nil // the person's service has a runtime of its own
	}
	var err error
	m.runtime, err = chooseRuntime(m.cgroup, o.Runtime, func(name string) (string, error) { return lookPath(o.Path, name) },
		func(path string) (string, error) { return firstLine(ctx, path, "--version") })
	return m, err
}

// setEnforced decides which limits the kernel keeps (A.4). Memory and processor need a delegated cgroup v2
// controller that systemd hands out; with podman's cgroupfs manager limits are shown and have no effect (pitfalls
// P26). Processes are bounded without any cgroup: since Linux 5.14 RLIMIT_NPROC is counted in each user namespace,
// and every sandbox has one of its own.
func (m *machine) setEnforced(controllers []string, release string) {
	m.enforced = sandbox.Enforced{
		Memory:    slices.Contains(controllers, "memory"),
		CPU:       slices.Contains(controllers, "cpu"),
		Processes: slices.Contains(controllers, "pids") || atLeast(release, 5, 14),
	}
	switch {
	case m.enforced.Memory && m.enforced.CPU && m.enforced.Processes:
	case m.cgroup == 1:
		m.reason = "rootless podman on cgroup v1; boot with systemd.unified_cgroup_hierarchy=1 to have the kernel do it"
	case !m.systemd:
		m.reason = "there is no systemd user session to hand out cgroups"
	default:
		m.reason = "systemd has not delegated that cgroup controller to this user"
	}
}

// busWorks says whether address names a unix socket that is there.
func busWorks(address string) bool {
	for part := range strings.SplitSeq(address, ",") {
		if path, ok := strings.CutPrefix(part, "unix:path="); ok {
			info, err := os.Stat(path)
			return err == nil && info.Mode()&os.ModeSocket != 0
		}
	}
	return false
}

func delegated(file string) []string {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// atLeast compares the first two numbers of a version such as "6.18.5-amd64". What cannot be read is too old.
func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		rest = rest[:digits]
	}
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(rest)
	return errA == nil && errB == nil && (a > major || a == major && b >= minor)
}

// chooseRuntime gives the OCI runtime to use. crun before 1.14 refuses cgroups in hybrid mode, so runc is taken on
// cgroup v1 unless crun is new enough; elsewhere crun is the quicker one.
func chooseRuntime(cgroup int, asked string, look func(string) (string, error), version func(string) (string, error)) (string, error) {
	if asked != "" {
		path, err := look(asked)
		if err != nil {
			return "", setupError(fmt.Errorf("%w: engine.runtime %q: %v", ErrNoRuntime, asked, err), "install it, or unset engine.runtime")
		}
		return path, nil
	}
	crun, errCrun := look("crun")
	runc, errRunc := look("runc")
	if errCrun == nil {
		if cgroup == 2 {
			return crun, nil
		}
		line, err := version(crun) // "crun version 1.14.1"
		if fields := strings.Fields(line); err == nil && len(fields) >= 3 && atLeast(fields[2], 1, 14) {
			return crun, nil
		}
	}
	if errRunc == nil {
		return runc, nil
	}
	if errCrun == nil {
		return "", setupError(fmt.Errorf("%w: crun before 1.14 refuses cgroup v1", ErrNoRuntime), installHint("runc"))
	}
	return "", setupError(ErrNoRuntime, installHint("crun"))
}

// lookPath is exec.LookPath in a search path that is given, not the process's own.
func lookPath(path, name string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s: not found in %s", name, path)
}

// firstLine runs a program for at most ten seconds, in an empty environment, and gives its first line of output.
func firstLine(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.WaitDelay = []string{}, time.Second
	out, err := cmd.Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return line, err
}

// checkSubIDs finds out why podman could not map ids before podman fails with less to say.
func checkSubIDs(o Options) error {
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if _, err := lookPath(o.Path, program); err != nil {
			return setupError(ErrUIDMapMissing, installHint("uidmap"))
		}
	}
	name := ""
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		name = u.Username
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		f, err := os.Open(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return folderError(file, err)
		}
		found := false
		if err == nil {
			found = hasSubIDs(f, name, os.Getuid())
			f.Close()
		}
		if !found && !subIDsElsewhere() {
			if name == "" {
				name = "YOUR-NAME"
			}
			return setupError(fmt.Errorf("%w in %s", ErrNoSubIDs, file),
				"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "+name)
		}
	}
	return nil
}

// hasSubIDs looks for a range of at least 65536 ids for the user, by name or number, in the format of /etc/subuid.
func hasSubIDs(r io.Reader, name string, uid int) bool {
	lines := bufio.NewScanner(io.LimitReader(r, 16<<20))
	total := 0
	for lines.Scan() {
		part := strings.Split(lines.Text(), ":")
		if len(part) != 3 || part[0] != strconv.Itoa(uid) && (name == "" || part[0] != name) {
			continue
		}
		if n, err := strconv.Atoi(part[2]); err == nil && n > 0 {
			total += n
		}
	}
	return total >= 65536
}

// subIDsElsewhere says whether the ranges come from a directory service, which only podman itself can ask.
func subIDsElsewhere() bool {
	data, err := os.ReadFile("/etc/nsswitch.conf")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "subid:"); ok {
			return strings.TrimSpace(rest) != "files"
		}
	}
	return false
}

// installHint is the command that installs a package here, in the words of the distribution.
func installHint(pkg string) string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		data = nil
	}
	return installCommand(string(data), pkg)
}

func installCommand(osRelease, pkg string) string {
	var ids []string
	for line := range strings.Lines(osRelease) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if name == "ID" || name == "ID_LIKE" {
			ids = append(ids, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
	other := map[string]string{"uidmap": "shadow-utils"} // the one name that differs
	switch {
	case slices.Contains(ids, "debian") || slices.Contains(ids, "ubuntu"):
		return "sudo apt install " + pkg
	case slices.Contains(ids, "fedora") || slices.Contains(ids, "rhel"):
		if o, ok := other[pkg]; ok {
			pkg = o
		}
		return "sudo dnf install " + pkg
	}
	return "install the package " + pkg
}
