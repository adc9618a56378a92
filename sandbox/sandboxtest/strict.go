package sandboxtest

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/sandboxtest/facts"
)

// strictContracts are the sentences of A.3.
func (s *suite) strictContracts() []contract {
	return []contract{
		{"Namespaces", s.namespaces},
		{"Privileges", s.privileges},
		{"ReadOnlyRoot", s.readOnlyRoot},
		{"NoNetwork", s.noNetwork},
		{"ChromiumsOwnSandbox", s.chromium},
		{"RefusedCalls", s.refusedCalls},
		{"Tmpfs", s.tmpfs},
		{"Descriptors", s.descriptors},
		{"NothingOfTheHost", s.nothingOfTheHost},
	}
}

func (s *suite) report(t *testing.T) facts.Report {
	t.Helper()
	var r facts.Report
	s.prepare(t, "report").once(&r)
	return r
}

func (s *suite) try(t *testing.T, change func(*sandbox.Spec), ops ...string) map[string]facts.Outcome {
	t.Helper()
	r := s.prepare(t)
	if change != nil {
		change(&r.spec)
	}
	return r.try(ops...)
}

// User, PID, IPC, UTS, mount and network namespaces are the sandbox's own, and cgroup too.
func (s *suite) namespaces(t *testing.T) {
	r := s.report(t)
	for name, inside := range r.NS {
		host, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if inside == "" || inside == host {
			t.Errorf("%s namespace is %q, the host's is %q", name, inside, host)
		}
	}
	if host, _ := os.Hostname(); r.Host == host {
		t.Errorf("the host's name %s is seen inside", host)
	}
}

// The user is the person, not root, with no capability, no way to new ones and a filter of system calls.
func (s *suite) privileges(t *testing.T) {
	r := s.report(t)
	if r.UID == 0 || r.UID != os.Getuid() || r.GID != os.Getgid() {
		t.Errorf("uid %d gid %d, want %d and %d, not root", r.UID, r.GID, os.Getuid(), os.Getgid())
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if v, err := strconv.ParseUint(r.Status[set], 16, 64); err != nil || v != 0 {
			t.Errorf("%s is %q", set, r.Status[set])
		}
	}
	for k, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2"} {
		if r.Status[k] != want {
			t.Errorf("%s is %q, want %s", k, r.Status[k], want)
		}
	}
}

func (s *suite) readOnlyRoot(t *testing.T) {
	ops := []string{"create=/new", "create=/etc/new", "create=/usr/new", "create=/var/new", "create=/opt/new", "write=" + probePath + ",x",
		"create=" + sandbox.GuestTarget + "/new", "create=/run/new", "mkdir=/sys/new", "create=/proc/sys/new"}
	for op, o := range s.try(t, nil, ops...) {
		if o.OK || o.Errno == "ENOSPC" {
			t.Errorf("%s: %+v", op, o)
		}
	}
	for _, m := range s.report(t).Mounts {
		if m.Target == "/" && !slices.Contains(m.Options, "ro") {
			t.Errorf("/ is mounted %v", m.Options)
		}
	}
	for op, o := range s.try(t, nil, "mount=/tmp", "write=/proc/sys/kernel/core_pattern,x") {
		if o.OK {
			t.Errorf("%s: done", op)
		}
	}
}

// There is no interface but lo, and no way to any address or name: not to the host's loopback either.
func (s *suite) noNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if devs := s.report(t).NetDev; !slices.Equal(devs, []string{"lo"}) {
		t.Errorf("interfaces: %v", devs)
	}
	ops := []string{"tcp=127.0.0.1:" + port, "tcp=10.0.2.2:" + port, "tcp=169.254.1.2:" + port, "tcp=1.1.1.1:443", "tcp=[2606:4700:4700::1111]:443",
		"udp=1.1.1.1:53", "udp=[2606:4700:4700::1111]:53", "dns=example.com"}
	for op, o := range s.try(t, nil, ops...) {
		if o.OK {
			t.Errorf("%s: reached (%s)", op, o.Text)
		} else if strings.HasPrefix(op, "tcp=1.1.1.1") && o.Errno != "ENETUNREACH" {
			t.Errorf("%s: %+v, want ENETUNREACH", op, o)
		}
	}
}

// Chromium's own sandbox needs chroot within a user namespace of its own (A.7).
func (s *suite) chromium(t *testing.T) {
	for op, o := range s.try(t, nil, "chroot-in-userns") {
		if !o.OK {
			t.Errorf("%s: %+v", op, o)
		}
	}
}

// Our seccomp profile refuses these before the kernel sees them.
func (s *suite) refusedCalls(t *testing.T) {
	for op, o := range s.try(t, nil, "io_uring_setup", "bpf", "userfaultfd", "perf_event_open") {
		if o.Errno != "EPERM" && o.Errno != "ENOSYS" {
			t.Errorf("%s: %+v, want EPERM or ENOSYS", op, o)
		}
	}
	for op, o := range s.try(t, nil, "sched_setaffinity") {
		if o.Errno != "EPERM" { // a limit of whole processors would not hold
			t.Errorf("%s: %+v, want EPERM", op, o)
		}
	}
	for op, o := range s.try(t, nil, "vsock") {
		if o.OK {
			t.Errorf("%s: %+v", op, o)
		}
	}
}

// Every tmpfs is nosuid and nodev, noexec where nothing must run, and as large as it says.
func (s *suite) tmpfs(t *testing.T) {
	change := func(sp *sandbox.Spec) {
		sp.Limits.TmpBytes, sp.Limits.HomeBytes, sp.Limits.ShmBytes = 16<<20, 24<<20, 8<<20
		sp.Tmpfs = []sandbox.Tmpfs{{Target: "/var/plain", Bytes: 4 << 20}, {Target: "/var/exec", Bytes: 16 << 20, Exec: true}}
	}
	r := s.prepare(t, "report")
	change(&r.spec)
	var rep facts.Report
	r.once(&rep)
	sizes := map[string]int64{"/tmp": 16 << 20, sandbox.HomeTarget: 24 << 20, "/dev/shm": 8 << 20, "/var/plain": 4 << 20, "/var/exec": 16 << 20}
	noexec := []string{sandbox.SecretsTarget, "/dev/shm", "/var/plain"}
	seen := map[string]bool{}
	for _, m := range rep.Mounts {
		if _, sized := sizes[m.Target]; !sized && m.Target != sandbox.SecretsTarget && m.Target != sandbox.RuntimeTarget {
			continue
		}
		seen[m.Target] = true
		want := []string{"nosuid", "nodev"}
		if slices.Contains(noexec, m.Target) {
			want = append(want, "noexec")
		}
		for _, o := range want {
			if !slices.Contains(m.Options, o) {
				t.Errorf("%s is not %s: %v", m.Target, o, m.Options)
			}
		}
		if m.FS != "tmpfs" || m.Target == "/var/exec" && slices.Contains(m.Options, "noexec") {
			t.Errorf("%+v", m)
		}
	}
	ops := []string{"exec=/var/exec/x"}
	for target, size := range sizes {
		if !seen[target] {
			t.Errorf("%s is no mount", target)
		}
		ops = append(ops, "size="+target, fmt.Sprintf("fill=%s/fill,%d", target, size+1<<20))
	}
	for op, o := range s.try(t, change, ops...) {
		name, arg, _ := strings.Cut(op, "=")
		switch {
		case name == "exec" && !o.OK:
			t.Errorf("%s: %+v", op, o)
		case name == "size" && o.Text != strconv.FormatInt(sizes[arg], 10):
			t.Errorf("%s: %s bytes, want %d", arg, o.Text, sizes[arg])
		case name == "fill" && o.Errno != "ENOSPC":
			t.Errorf("%s: %+v, want ENOSPC", op, o)
		}
	}
	for op, o := range s.try(t, change, "exec="+sandbox.SecretsTarget+"/x", "exec=/var/plain/x") {
		if o.OK {
			t.Errorf("%s: ran", op)
		}
	}
}

// A process may have as many descriptors as the Spec says, at most as many as we may have ourselves.
func (s *suite) descriptors(t *testing.T) {
	var host unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &host); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{0, 1024} {
		r := s.prepare(t, "report")
		r.spec.Limits.OpenFiles = int64(want)
		var rep facts.Report
		r.once(&rep)
		if want == 0 {
			want = sandbox.DefaultOpenFiles
		}
		if want = min(want, host.Max); rep.NoFile[0] != want || rep.NoFile[1] != want {
			t.Errorf("soft and hard limit %v, want %d", rep.NoFile, want)
		}
	}
}

// Nothing of the host is seen but what the Spec names: no file, no process, no socket.
func (s *suite) nothingOfTheHost(t *testing.T) {
	dir := hostDir(t)
	write(t, dir+"/secret", "x")
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	var files []facts.File
	s.prepare(t, "files", dir+"/secret", home, "/proc", "/run").once(&files)
	for _, f := range files[:2] {
		if f.Err == "" {
			t.Errorf("%s of the host is seen: %+v", f.Path, f)
		}
	}
	processes := 0
	for _, name := range files[2].Names {
		if _, err := strconv.Atoi(name); err == nil {
			processes++
		}
	}
	if processes != 2 {
		t.Errorf("%d processes are seen, want the guest and the probe", processes)
	}
	for _, name := range files[3].Names {
		if !strings.HasPrefix(name, "handler") && name != ".containerenv" && name != "lock" && name != "secrets" {
			t.Errorf("/run/%s is seen", name)
		}
	}
}
