package podman

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/containers/image/v5/manifest"
	"github.com/containers/podman/v5/pkg/specgen"
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/handlerd/handler/sandbox"
)

// labelNonce tells one creation from another, so that a request that was sent twice is known again (pitfalls P09).
const labelNonce = "io.handlerd.nonce"

// The one user of a sandbox. Its number is the person's own, so that files in scopes keep their owner.
const (
	userName = "agent"
	hostname = "sandbox"
	userPATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// An input is everything that build needs to know besides the Spec: build itself looks at nothing.
type input struct {
	spec    sandbox.Spec
	owner   string
	nonce   string
	machine machine
	layout  layout
	runDir  string // host folder for RunDirTarget, "" for none
	sub     submounts
}

// build makes the specification of a container: the strict set (A.3) and what the Spec asks for. It is pure; its
// golden file is testdata/spec.json.
func build(in input) *specgen.SpecGenerator {
	s := in.spec
	g := specgen.NewSpecGenerator(s.Image, false)
	g.Name, g.RawImageName = s.Name, s.Image
	argv := command(s)
	g.Entrypoint, g.Command = argv[:1], argv[1:] // an entrypoint of the image's would come before a command
	// A health check of the image's would be run from outside, by a timer.
	g.HealthConfig = &manifest.Schema2HealthConfig{Test: []string{"NONE"}}
	g.Env = env(s)
	g.EnvHost, g.HTTPProxy, g.Terminal, g.Stdin, g.Remove = ptr(false), ptr(false), ptr(false), ptr(false), ptr(false)
	g.Labels = labels(in)
	g.WorkDir = workDir(s)
	g.Systemd, g.SdNotifyMode = "false", "ignore"
	g.StopTimeout = ptr(uint(0)) // Stop does its own waiting
	g.LogConfiguration = &specgen.LogConfig{Driver: "k8s-file", Path: in.layout.log(in.nonce), Size: logBytes}
	isolate(g, in)
	g.Mounts = mounts(in)
	for _, i := range s.Images {
		// No "ro": podman knows no such option here, and read-only is what it does (pitfalls P22).
		g.ImageVolumes = append(g.ImageVolumes, &specgen.ImageVolume{Source: i.Image, Destination: i.Target, ReadWrite: false})
	}
	limit(g, in)
	return g
}

// isolate is contract A.3.
func isolate(g *specgen.SpecGenerator, in input) {
	g.UserNS = specgen.Namespace{NSMode: specgen.KeepID}
	for _, ns := range []*specgen.Namespace{&g.PidNS, &g.IpcNS, &g.UtsNS, &g.CgroupNS} {
		ns.NSMode = specgen.Private
	}
	g.NetNS = specgen.Namespace{NSMode: specgen.NoNetwork}
	g.User = strconv.Itoa(in.machine.uid) + ":" + strconv.Itoa(in.machine.gid)
	g.Hostname = hostname
	g.PasswdEntry = fmt.Sprintf("%s:*:%d:%d:%s:%s:/bin/sh", userName, in.machine.uid, in.machine.gid, userName, sandbox.HomeTarget)
	g.GroupEntry = fmt.Sprintf("%s:x:%d:", userName, in.machine.gid)
	g.Privileged, g.NoNewPrivileges, g.ReadOnlyFilesystem = ptr(false), ptr(true), ptr(true)
	g.CapDrop = []string{"all"}
	g.SeccompProfilePath = in.layout.seccomp()
	// Scopes are the person's own folders: relabelling them would break them for everything else, and the label of
	// containers could not connect to our sockets (pitfalls P31).
	g.SelinuxOpts = []string{"disable"}
	g.ImageVolumeMode = "ignore" // an image must not bring writable folders on disk
	g.RootfsPropagation = "private"
	g.UseImageResolvConf, g.UseImageHosts = ptr(true), ptr(true) // ours are mounted
	g.Umask = "0022"
}

// command is the guest's, which runs the Spec's, or the Spec's own when there is no guest.
func command(s sandbox.Spec) []string {
	if s.Guest == "" {
		return slices.Clone(s.Command)
	}
	argv := []string{guestPath, "init"}
	if len(s.Files) > 0 {
		argv = append(argv, "--files")
	}
	if s.Display != nil {
		argv = append(argv, s.Display.GuestFlags()...)
	}
	return append(append(argv, "--"), s.Command...)
}

// hostDisplay tells whether a display of the host's is shared.
func hostDisplay(s sandbox.Spec) bool {
	return s.Display != nil && s.Display.Mode == sandbox.DisplayWayland
}

const guestPath = sandbox.GuestTarget + "/handler-guest"

// driverEnv are the variables that the sandbox sets, whatever the Spec says.
func driverEnv(s sandbox.Spec) map[string]string {
	fixed := map[string]string{"HOME": sandbox.HomeTarget, "XDG_RUNTIME_DIR": sandbox.RuntimeTarget}
	if s.Display != nil {
		fixed["WAYLAND_DISPLAY"] = s.Display.Target()
	}
	return fixed
}

func env(s sandbox.Spec) map[string]string {
	all := map[string]string{"PATH": userPATH}
	maps.Copy(all, s.Env)
	maps.Copy(all, driverEnv(s))
	return all
}

func labels(in input) map[string]string {
	all := maps.Clone(in.spec.Labels)
	if all == nil {
		all = make(map[string]string)
	}
	all[sandbox.LabelOwner], all[labelNonce] = in.owner, in.nonce
	return all
}

func workDir(s sandbox.Spec) string {
	if s.Dir == "" {
		return sandbox.HomeTarget
	}
	return s.Dir
}

// mounts lists every mount but those of images. Podman sorts them by depth, so a child always lies over its parent.
func mounts(in input) []oci.Mount {
	s, m := in.spec, in.machine
	or := func(value, fallback int64) int64 {
		if value == 0 {
			return fallback
		}
		return value
	}
	home := or(s.Limits.HomeBytes, sandbox.DefaultHomeBytes)
	memory := []sandbox.Tmpfs{
		{Target: "/tmp", Bytes: or(s.Limits.TmpBytes, sandbox.DefaultTmpBytes), Exec: true},
		{Target: "/dev/shm", Bytes: or(s.Limits.ShmBytes, sandbox.DefaultShmBytes)},
		{Target: sandbox.HomeTarget, Bytes: home, Exec: true},
		{Target: sandbox.SecretsTarget, Bytes: secretsBytes},
		{Target: sandbox.RuntimeTarget, Bytes: runtimeBytes},
	}
	memory = append(memory, s.Tmpfs...)
	var all []oci.Mount
	for _, t := range append(memory, between(s, memory, home)...) {
		all = append(all, tmpfs(t, m))
	}
	all = append(all, bind(in.layout.hosts(), "/etc/hosts", true), bind(in.layout.resolv(), "/etc/resolv.conf", true))
	for _, p := range places(s) {
		if p.source != "" {
			m := bind(p.source, p.target, p.readOnly)
			if in.sub.recursive[p.target] {
				m.Options[0], m.Options[1] = "rbind", "rprivate"
			}
			all = append(all, m)
		}
	}
	for _, c := range in.sub.covered {
		all = append(all, c.mount(in.layout))
	}
	if in.runDir != "" {
		all = append(all, bind(in.runDir, sandbox.RunDirTarget, true))
	}
	if s.Guest != "" {
		all = append(all, bind(s.Guest, guestPath, true))
	}
	if hostDisplay(s) {
		all = append(all, bind(s.Display.Socket, sandbox.DisplayTarget, true))
	}
	return all
}

const (
	secretsBytes = 80 << 20 // a little more than guestwire.MaxFilesBytes
	runtimeBytes = 16 << 20
)

// between lists the folders that lie between a tmpfs and something mounted deeper in it. The runtime would make them
// as root; as tmpfs of their own they belong to the user, who can then make more beside the mount (pitfalls P20).
func between(s sandbox.Spec, memory []sandbox.Tmpfs, bytes int64) []sandbox.Tmpfs {
	taken := make(map[string]bool)
	for _, t := range memory {
		taken[t.Target] = true
	}
	all := places(s)
	for _, p := range all {
		taken[p.target] = true
	}
	var made []sandbox.Tmpfs
	for _, p := range all {
		for dir := path.Dir(p.target); dir != "/" && !taken[dir]; dir = path.Dir(dir) {
			if t, ok := innermost(dir, memory, all); ok {
				taken[dir] = true
				made = append(made, sandbox.Tmpfs{Target: dir, Bytes: min(bytes, t.Bytes), Exec: t.Exec})
			}
		}
	}
	return made
}

// innermost is the tmpfs that dir lies in, unless something of the host or of an image is mounted nearer.
func innermost(dir string, memory []sandbox.Tmpfs, all []place) (sandbox.Tmpfs, bool) {
	var best sandbox.Tmpfs
	for _, t := range memory {
		if below(dir, t.Target) && len(t.Target) > len(best.Target) {
			best = t
		}
	}
	for _, p := range all {
		if p.field != "tmpfs" && below(dir, p.target) && len(p.target) > len(best.Target) {
			return sandbox.Tmpfs{}, false
		}
	}
	return best, best.Target != ""
}

// tmpfs is memory of the user's own. podman has no option for the owner of a tmpfs, but passes the value of mode on
// as it is, and the kernel reads the rest of it. Start makes sure that it did (identity.go).
func tmpfs(t sandbox.Tmpfs, m machine) oci.Mount {
	options := []string{"rw", "nosuid", "nodev", "notmpcopyup", "private", "size=" + strconv.FormatInt(t.Bytes, 10),
		fmt.Sprintf("mode=%04o,uid=%d,gid=%d", tmpfsMode(t.Target), m.uid, m.gid)}
	if t.Exec {
		options = append(options, "exec")
	} else {
		options = append(options, "noexec")
	}
	return oci.Mount{Type: "tmpfs", Source: "tmpfs", Destination: t.Target, Options: options}
}

// tmpfsMode is the mode of a tmpfs: the user's alone, but for the two that every program expects to be everyone's.
func tmpfsMode(target string) uint32 {
	if target == "/tmp" || target == "/dev/shm" {
		return 0o1777
	}
	return 0o700
}

// bind mounts a file or folder of the host. What is mounted below it there does not come along.
func bind(source, target string, readOnly bool) oci.Mount {
	options := []string{"bind", "private", "nosuid", "nodev"}
	if readOnly {
		options = append(options, "ro")
	} else {
		options = append(options, "rw")
	}
	return oci.Mount{Type: "bind", Source: source, Destination: target, Options: options}
}

// limit sets what the kernel keeps (A.4). Limits that it does not keep are not set: podman would take them and do
// nothing. Start has refused those that were asked for.
func limit(g *specgen.SpecGenerator, in input) {
	l, m := in.spec.Limits, in.machine
	files := uint64(sandbox.DefaultOpenFiles)
	if l.OpenFiles > 0 {
		files = uint64(l.OpenFiles)
	}
	files = min(files, m.noFile)
	procs := m.noProc
	if l.Processes.Value > 0 {
		procs = min(procs, uint64(l.Processes.Value))
	}
	g.Rlimits = []oci.POSIXRlimit{
		{Type: "nofile", Hard: files, Soft: files},
		{Type: "nproc", Hard: procs, Soft: procs},
		{Type: "core", Hard: 0, Soft: 0}, // a core file would take secrets out of memory into a scope
	}
	r := &oci.LinuxResources{}
	set := false
	if m.systemd && m.enforced.Memory && l.Memory.Value > 0 {
		r.Memory, set = &oci.LinuxMemory{Limit: ptr(l.Memory.Value), Swap: ptr(l.Memory.Value)}, true
	}
	if m.systemd && m.enforced.CPU && l.CPU.Value > 0 {
		const period = 100_000 // microseconds
		r.CPU, set = &oci.LinuxCPU{Period: ptr(uint64(period)), Quota: ptr(l.CPU.Value * period / 1000)}, true
	}
	if set {
		g.ResourceLimits = r
	}
}

func ptr[T any](v T) *T { return &v }
