// Package doctor looks at everything that Handler needs of a machine, says what is unusual and what Handler does about
// it, and gives the command that mends what is wrong.
//
// All that it looks at comes in through Sources, so that tests can be any machine; System gives the sources of the
// real one. It changes nothing, and no check waits longer than CheckTimeout.
package doctor

import (
	"context"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/display"
	"github.com/handlerd/handler/sandbox"
)

// Levels of a Finding.
const (
	OK      = "ok"
	Remark  = "remark"  // unusual; Handler works, and Detail says what it does about it
	Problem = "problem" // something will not work until it is mended
)

// CheckTimeout bounds each check.
const CheckTimeout = 10 * time.Second

// A Finding is one line of the report. Title is one line; Detail, one sentence, says what Handler does about it or
// why it matters; Remedy is command lines, in order, and may be empty. A finding that is OK has a Title alone.
type Finding = types.Finding

// Sources are what the checks look at. Root, User and the functions up to Now must be set; a nil Engine, Images,
// Secrets or Display leaves its checks out.
type Sources struct {
	Root fs.FS // the machine's file system, from "/"; what Stat says of an owner is a *syscall.Stat_t
	User User

	RuntimeDir string // XDG_RUNTIME_DIR; "" when it is not set
	StateDir   string // Handler's state folder, absolute; need not exist
	DataDir    string // where Handler's podman storage lies, absolute; need not exist
	Runtime    string // the runtime that the settings name; "" for the one that works

	LookPath func(program string) (string, error)                      // where a program lies
	Output   func(ctx context.Context, argv ...string) ([]byte, error) // what a program prints
	Caps     func(path string) bool                                    // whether a file has capabilities of its own
	Free     func(path string) (bytes int64, err error)                // space for this user at the nearest folder that exists
	OpenFile func() (hard uint64, err error)                           // this process's hard limit on open files
	Now      func() time.Time

	Engine  func(ctx context.Context) (sandbox.Info, error)  // the engine as it answers
	Images  func(ctx context.Context) ([]types.Image, error) // toolboxes, addons, harnesses, built or not
	Secrets func(ctx context.Context) ([]Secret, error)      // what the saved agents name, looked at without asking anybody

	Live func() Live // nil where no daemon is asked

	// Display gives the socket that runs would get, whether they get it by a security context, and what is offered
	// to them then.
	Display func(ctx context.Context) (socket string, restricted bool, offered display.Compositor, err error)
}

// Live is what lives in the daemon.
type Live struct {
	Runs, Browsers, Servers int
	Memory                  int64 // bytes that all of it uses, as far as its watches have seen
	Owed                    int   // sandboxes of ended runs that the engine could not remove
}

// A User is whoever Handler runs as.
type User struct {
	Name      string // "" for the one that /etc/passwd gives the UID
	UID, EUID int
}

// A check gives the findings on one subject.
type check func(context.Context, *machine) []Finding

// checks are all, in the order in which a person would mend things.
var checks = []check{
	checkUser, checkRuntimeDir, checkPodman, checkRuntime, checkIDTools, checkSubIDs,
	checkUserNamespaces, checkAppArmor, checkSELinux, checkSeccomp,
	checkEngine, checkSystemd, checkOpenFiles, checkRootMount, checkMemory, checkClock, checkSpace,
	checkToolboxTools, checkImages, checkSecrets, checkDisplay, checkLive,
}

// Checks looks at everything and gives what it found, in a fixed order. It never fails: what cannot be looked at is
// a finding. When the context ends, the remaining checks find what they can without waiting.
func Checks(ctx context.Context, s Sources) []Finding {
	m := &machine{s}
	if m.User.Name == "" {
		m.User.Name = m.nameOf(m.User.UID)
	}
	var found []Finding
	for _, c := range checks {
		bounded, cancel := context.WithTimeout(ctx, CheckTimeout)
		found = append(found, c(bounded, m)...)
		cancel()
	}
	return found
}

// A machine is the sources with what several checks ask of them.
type machine struct{ Sources }

func ok(id, title string) []Finding {
	return []Finding{{ID: id, Level: OK, Title: title}}
}

func remark(id, title, detail string, remedy ...string) []Finding {
	return []Finding{{ID: id, Level: Remark, Title: title, Detail: detail, Remedy: remedy}}
}

func problem(id, title, detail string, remedy ...string) []Finding {
	return []Finding{{ID: id, Level: Problem, Title: title, Detail: detail, Remedy: remedy}}
}

// nameOf gives a user's name by /etc/passwd, or the number where it has none.
func (m *machine) nameOf(uid int) string {
	text, _ := m.read("/etc/passwd")
	for _, line := range strings.Split(text, "\n") {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[2] == strconv.Itoa(uid) {
			return fields[0]
		}
	}
	return strconv.Itoa(uid)
}

// maxRead bounds what is read of a file: those of /proc, /sys and /etc that matter here are far smaller.
const maxRead = 1 << 20

// read gives a file of the machine by its absolute path, without surrounding space, and whether it could be read.
func (m *machine) read(path string) (string, bool) {
	file, err := m.Root.Open(rel(path))
	if err != nil {
		return "", false
	}
	defer file.Close()
	var b strings.Builder
	if _, err := copyBounded(&b, file); err != nil {
		return "", false
	}
	return strings.TrimSpace(b.String()), true
}

// exists tells whether an absolute path is there.
func (m *machine) exists(path string) bool {
	_, err := fs.Stat(m.Root, rel(path))
	return err == nil
}

// rel makes an absolute path one of an fs.FS.
func rel(path string) string {
	if path = strings.Trim(path, "/"); path != "" {
		return path
	}
	return "."
}

// Layouts of the control groups.
const (
	cgroupNone = iota
	cgroupV1
	cgroupHybrid
	cgroupV2
)

// cgroups tells the layout by the files that only one of them has.
func (m *machine) cgroups() int {
	switch {
	case m.exists("/sys/fs/cgroup/cgroup.controllers"):
		return cgroupV2
	case m.exists("/sys/fs/cgroup/unified/cgroup.controllers"):
		return cgroupHybrid
	case m.exists("/sys/fs/cgroup"):
		return cgroupV1
	default:
		return cgroupNone
	}
}

// systemd tells whether it is PID 1.
func (m *machine) systemd() bool {
	name, _ := m.read("/proc/1/comm")
	return name == "systemd" && m.exists("/run/systemd/system")
}

// install is the command that installs a package, by its name in Debian, with the distribution's own installer.
func (m *machine) install(pkg string) string {
	elsewhere := map[string]string{"uidmap": "shadow-utils"}
	text, _ := m.read("/etc/os-release")
	ids := ""
	for _, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(line, "=")
		if key == "ID" || key == "ID_LIKE" {
			ids += " " + strings.Trim(value, `"'`)
		}
	}
	other := pkg
	if name := elsewhere[pkg]; name != "" {
		other = name
	}
	for _, id := range strings.Fields(ids) {
		switch id {
		case "debian", "ubuntu":
			return "sudo apt install " + pkg
		case "fedora", "rhel":
			return "sudo dnf install " + other
		case "arch":
			return "sudo pacman -S " + strings.Replace(other, "shadow-utils", "shadow", 1)
		case "suse", "opensuse":
			return "sudo zypper install " + strings.Replace(other, "shadow-utils", "shadow", 1)
		}
	}
	return "install the package " + pkg
}
