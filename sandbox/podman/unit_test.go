package podman

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/errorhandling"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, d)
	}
}

func modernMachine() machine {
	m := machine{uid: 1000, gid: 1000, cgroup: 2, systemd: true, noFile: 524288, noProc: 96000, runtime: "/usr/bin/crun"}
	m.setEnforced([]string{"cpu", "memory", "pids"}, "6.12.0")
	return m
}

func oldMachine() machine {
	m := machine{uid: 1001, gid: 1002, cgroup: 1, noFile: 4096, noProc: 1000, runtime: "/usr/sbin/runc"}
	m.setEnforced(nil, "6.1.0")
	return m
}

func fullSpec() sandbox.Spec {
	return sandbox.Spec{
		Name: "run-k3f9", Labels: map[string]string{sandbox.LabelRun: "k3f9", sandbox.LabelAgent: "web"},
		Image: "localhost/handler/toolbox:default", Command: []string{"agent", "--stdio"}, Env: map[string]string{"LANG": "C.UTF-8"},
		Dir:     "/home/ana/shop",
		Mounts:  []sandbox.Mount{{Source: "/home/ana/shop", Target: "/home/ana/shop"}, {Source: "/home/ana/shop/.git/hooks", Target: "/home/ana/shop/.git/hooks", ReadOnly: true}},
		Images:  []sandbox.ImageMount{{Image: "localhost/handler/harness-demo:latest", Target: sandbox.HarnessTarget}},
		Volumes: []sandbox.Volume{{Source: "/home/ana/.local/state/handler/volumes/web", Target: sandbox.HomeTarget + "/.config/agent"}},
		Tmpfs:   []sandbox.Tmpfs{{Target: "/var/tmp", Bytes: 1 << 20, Exec: true}},
		Files:   []sandbox.File{{Path: sandbox.SecretsTarget + "/token", Mode: 0o600, Content: []byte("TOP-SECRET")}},
		RunDir:  "/run/user/1000/handler/runs/k3f9", Guest: "/usr/lib/handler/handler-guest",
		Display: &sandbox.Display{Mode: sandbox.DisplayWayland, Socket: "/run/user/1000/wayland-0"},
		Limits: sandbox.Limits{Memory: sandbox.Limit{Value: 2 << 30, Asked: true}, CPU: sandbox.Limit{Value: 1500},
			Processes: sandbox.Limit{Value: 500}},
	}
}

func fullInput(m machine) input {
	s := fullSpec()
	return input{spec: s, owner: "o1", nonce: "n1", machine: m, runDir: s.RunDir,
		layout: layout{state: "/home/ana/.local/share/handler/podman", run: "/run/user/1000/handler/podman"},
		sub: submounts{recursive: map[string]bool{"/home/ana/shop": true},
			covered: []covered{{target: "/home/ana/shop/mnt", source: "/home/ana/shop/mnt"}}}}
}

// The whole of what podman is asked for, on a machine that keeps limits and on one that does not.
func TestBuildGolden(t *testing.T) {
	for name, m := range map[string]machine{"spec-cgroup2.json": modernMachine(), "spec-cgroup1.json": oldMachine()} {
		data, err := json.MarshalIndent(build(fullInput(m)), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, string(data)+"\n")
		if strings.Contains(string(data), "TOP-SECRET") {
			t.Errorf("%s has the content of a file", name)
		}
	}
}

// A Spec of nothing but what is required has the whole strict set too.
func TestBuildStrict(t *testing.T) {
	for _, s := range []sandbox.Spec{fullSpec(), {Name: "x", Image: "y", Command: []string{"z"}}} {
		g := build(input{spec: s, owner: "o", nonce: "n", machine: oldMachine(), layout: layout{state: "/s", run: "/r"}})
		if g.UserNS.NSMode != "keep-id" || g.NetNS.NSMode != "none" || g.PidNS.NSMode != "private" || g.IpcNS.NSMode != "private" ||
			g.UtsNS.NSMode != "private" || g.CgroupNS.NSMode != "private" || !*g.ReadOnlyFilesystem || !*g.NoNewPrivileges || *g.Privileged ||
			len(g.CapAdd) > 0 || !cmp.Equal(g.CapDrop, []string{"all"}) || g.SeccompProfilePath != "/s/seccomp.json" || *g.EnvHost || *g.HTTPProxy ||
			len(g.Devices) > 0 || g.User == "" || strings.HasPrefix(g.User, "0") || len(g.Entrypoint) != 1 || *g.Remove {
			t.Errorf("%s is not strict: %+v", s.Name, g)
		}
		targets := make(map[string]bool)
		for _, m := range g.Mounts {
			options := strings.Join(m.Options, ",")
			if !strings.Contains(options, "nosuid") || !strings.Contains(options, "nodev") || !strings.Contains(options, "private") {
				t.Errorf("%s: %s has %s", s.Name, m.Destination, options)
			}
			if m.Type == "tmpfs" && !strings.Contains(options, "size=") {
				t.Errorf("%s: %s has no bound", s.Name, m.Destination)
			}
			if targets[m.Destination] {
				t.Errorf("%s: %s twice", s.Name, m.Destination)
			}
			targets[m.Destination] = true
		}
		for _, want := range []string{"/tmp", "/dev/shm", sandbox.HomeTarget, sandbox.SecretsTarget, sandbox.RuntimeTarget, "/etc/resolv.conf", "/etc/hosts"} {
			if !targets[want] {
				t.Errorf("%s: %s is not mounted", s.Name, want)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	if err := validate(fullSpec()); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a", 64)
	for field, changes := range map[string][]func(*sandbox.Spec){
		"name":  {func(s *sandbox.Spec) { s.Name = "" }, func(s *sandbox.Spec) { s.Name = "A" }, func(s *sandbox.Spec) { s.Name = long }, func(s *sandbox.Spec) { s.Name = "-x" }},
		"image": {func(s *sandbox.Spec) { s.Image = "" }, func(s *sandbox.Spec) { s.Image = "/etc" }, func(s *sandbox.Spec) { s.Image = "a/../b" }, func(s *sandbox.Spec) { s.Image = "--privileged" }},
		"command": {func(s *sandbox.Spec) { s.Command = nil }, func(s *sandbox.Spec) { s.Command = []string{""} },
			func(s *sandbox.Spec) { s.Command = []string{"a\x00b"} }, func(s *sandbox.Spec) { s.Command = []string{"a", strings.Repeat("x", maxText)} }},
		"working directory": {func(s *sandbox.Spec) { s.Dir = "x" }, func(s *sandbox.Spec) { s.Dir = "/a/../b" }},
		"environment": {func(s *sandbox.Spec) { s.Env = map[string]string{"A B": ""} }, func(s *sandbox.Spec) { s.Env = map[string]string{"DISPLAY": ":0"} },
			func(s *sandbox.Spec) { s.Env = map[string]string{"HOME": "/root"} }, func(s *sandbox.Spec) { s.Env = map[string]string{"A": "\x00"} },
			func(s *sandbox.Spec) { s.Display, s.Env = nil, map[string]string{"WAYLAND_DISPLAY": "wayland-0"} }},
		"label": {func(s *sandbox.Spec) { s.Labels = map[string]string{sandbox.LabelOwner: "x"} }, func(s *sandbox.Spec) { s.Labels = map[string]string{"a=b": "x"} }},
		"mount": {func(s *sandbox.Spec) { s.Mounts[0].Target = "/" }, func(s *sandbox.Spec) { s.Mounts[0].Target = "/etc" },
			func(s *sandbox.Spec) { s.Mounts[0].Target = "/proc/x" }, func(s *sandbox.Spec) { s.Mounts[0].Target = sandbox.RunDirTarget },
			func(s *sandbox.Spec) { s.Mounts[0].Target = sandbox.RunDirTarget + "/x" }, func(s *sandbox.Spec) { s.Mounts[0].Source = "/" },
			func(s *sandbox.Spec) { s.Mounts[0].Source = "x" }, func(s *sandbox.Spec) { s.Mounts[0].Source = "/a/../b" },
			func(s *sandbox.Spec) { s.Mounts[0], s.Mounts[1] = s.Mounts[1], s.Mounts[0] }, func(s *sandbox.Spec) { s.Mounts[1].Target = s.Mounts[0].Target },
			func(s *sandbox.Spec) { s.Mounts = make([]sandbox.Mount, maxMounts+1) }},
		"volume":                  {func(s *sandbox.Spec) { s.Volumes[0].Target = "/home/ana/shop" }, func(s *sandbox.Spec) { s.Volumes[0].Source = "rel" }},
		"image mount":             {func(s *sandbox.Spec) { s.Images[0].Image = "/srv" }, func(s *sandbox.Spec) { s.Images[0].Target = "/usr" }},
		"tmpfs":                   {func(s *sandbox.Spec) { s.Tmpfs[0].Bytes = 0 }, func(s *sandbox.Spec) { s.Tmpfs[0].Target = "/tmp" }},
		"memory limit":            {func(s *sandbox.Spec) { s.Limits.Memory.Value = 5 }, func(s *sandbox.Spec) { s.Limits.Memory.Value = -1 }},
		"CPU limit":               {func(s *sandbox.Spec) { s.Limits.CPU.Value = 1 }},
		"process limit":           {func(s *sandbox.Spec) { s.Limits.Processes.Value = 2 }},
		"size of /tmp":            {func(s *sandbox.Spec) { s.Limits.TmpBytes = -1 }},
		"size of the home folder": {func(s *sandbox.Spec) { s.Limits.HomeBytes = 1 }},
		"size of /dev/shm":        {func(s *sandbox.Spec) { s.Limits.ShmBytes = 1 << 50 }},
		"limit of open files":     {func(s *sandbox.Spec) { s.Limits.OpenFiles = 3 }},
		"guest":                   {func(s *sandbox.Spec) { s.Guest = "" }, func(s *sandbox.Spec) { s.Guest = "x" }},
		"run directory":           {func(s *sandbox.Spec) { s.RunDir = "x" }},
		"display":                 {func(s *sandbox.Spec) { s.Display.Mode = "x11" }, func(s *sandbox.Spec) { s.Display.Socket = "wayland-0" }},
		"files":                   {func(s *sandbox.Spec) { s.Files = append(s.Files, s.Files[0]) }, func(s *sandbox.Spec) { s.Files[0].Mode = 0o4755 }},
		"file": {func(s *sandbox.Spec) { s.Files[0].Path = "/etc/x" }, func(s *sandbox.Spec) { s.Files[0].Path = "/home/ana/shop/x" },
			func(s *sandbox.Spec) { s.Files[0].Path = sandbox.HomeTarget + "/.config/agent/x" }},
	} {
		for i, change := range changes {
			s := fullSpec()
			change(&s)
			var spec *sandbox.SpecError
			if err := validate(s); !errors.As(err, &spec) || spec.Field != field {
				t.Errorf("%s %d: %v", field, i, err)
			}
		}
	}
}

// JSON would make another path of bytes that are not UTF-8.
func TestValidateUTF8(t *testing.T) {
	const bad = "/home/ana/\xff"
	for field, change := range map[string]func(*sandbox.Spec){
		"mount source":  func(s *sandbox.Spec) { s.Mounts[0].Source = bad },
		"mount target":  func(s *sandbox.Spec) { s.Mounts[0].Target = bad },
		"volume source": func(s *sandbox.Spec) { s.Volumes[0].Source = bad },
		"volume target": func(s *sandbox.Spec) { s.Volumes[0].Target = bad },
		"image target":  func(s *sandbox.Spec) { s.Images[0].Target = bad },
		"tmpfs":         func(s *sandbox.Spec) { s.Tmpfs[0].Target = bad },
		"file":          func(s *sandbox.Spec) { s.Files[0].Path = sandbox.SecretsTarget + "/\xff" },
		"run directory": func(s *sandbox.Spec) { s.RunDir = bad },
		"guest":         func(s *sandbox.Spec) { s.Guest = bad },
		"display":       func(s *sandbox.Spec) { s.Display.Socket = bad },
		"dir":           func(s *sandbox.Spec) { s.Dir = bad },
		"environment":   func(s *sandbox.Spec) { s.Env = map[string]string{"A": bad} },
		"label":         func(s *sandbox.Spec) { s.Labels = map[string]string{"a": bad} },
		"command":       func(s *sandbox.Spec) { s.Command = []string{"a", bad} },
	} {
		s := fullSpec()
		change(&s)
		var spec *sandbox.SpecError
		if err := validate(s); !errors.As(err, &spec) {
			t.Errorf("%s: %v", field, err)
		}
	}
	s := fullSpec()
	s.Mounts = append(s.Mounts, sandbox.Mount{Source: "/srv/a\n,:\"\ufffd", Target: "/srv/a\n,:\"\ufffd"})
	if err := validate(s); err != nil {
		t.Error(err)
	}
}

func TestMountPoints(t *testing.T) {
	got := mountPoints("36 35 98:0 / /a\\040b\\012c\u00a0d ro,noatime master:1 - ext4 /dev/x rw\n37 36 0:5 / / rw - tmpfs t rw\nbroken\n")
	if len(got) != 2 || got[36] != "/a b\nc\u00a0d" || got[37] != "/" {
		t.Errorf("%v", got)
	}
}

// A file that is the one held but is not mounted, as where the runtime mounted it elsewhere, is not the same.
func TestHeldIsMounted(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	held, err := holdSources(sandbox.Spec{Mounts: []sandbox.Mount{{Source: dir, Target: dir, ReadOnly: true}, {Source: "/proc", Target: "/proc", ReadOnly: true}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	points := mountPoints(string(mountinfo))
	for i, want := range []string{"is not mounted", "can be written"} {
		var spec *sandbox.SpecError
		if err := held.held[i].same(root, points, sandbox.Spec{}); !errors.As(err, &spec) || !strings.Contains(spec.Reason, want) {
			t.Errorf("%s: %v", held.held[i].source, err)
		}
	}
	proc := held.held[1]
	proc.readOnly = false
	if err := proc.same(root, points, sandbox.Spec{}); err != nil {
		t.Error(err)
	}
}

func TestUninvited(t *testing.T) {
	points := map[uint64]string{1: "/", 2: "/proc/kcore", 3: "/dev/pts", 4: "/etc/hosts", 5: "/srv/scope", 6: "/srv/scope/sub/x"}
	asked, hiding := map[uint64]bool{5: true}, []covered{{target: "/srv/scope/sub"}}
	if got := uninvited(points, asked, hiding); got != "" {
		t.Error(got)
	}
	for _, point := range []string{"/srv/scope/\ufffd/.vscode", "/etc/ssh", "/process", "/srv/scope"} {
		points[7] = point
		if got := uninvited(points, asked, hiding); got != point {
			t.Errorf("%s: %q", point, got)
		}
	}
}

func TestOptions(t *testing.T) {
	good := Options{StateDir: "/home/ana/s", RunDir: "/run/user/1000/h", Owner: "a1"}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"relative state": func(o *Options) { o.StateDir = "s" },
		"unclean run":    func(o *Options) { o.RunDir = "/run/../x" },
		"line end":       func(o *Options) { o.StateDir = "/a\nb" },
		"long run":       func(o *Options) { o.RunDir = "/" + strings.Repeat("r", MaxRunDir) },
		"no owner":       func(o *Options) { o.Owner = "" },
		"bad owner":      func(o *Options) { o.Owner = "a=b" },
		"remote socket":  func(o *Options) { o.Socket = "ssh://host/run/podman.sock" },
		"bad variable":   func(o *Options) { o.Env = []string{"PROXY"} },
		"our variable":   func(o *Options) { o.Env = []string{"CONTAINERS_CONF=/x"} },
	} {
		o := good
		change(&o)
		if err := o.check(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	_, err := New(good)
	if root := os.Geteuid() == 0; root != errors.Is(err, ErrRoot) {
		t.Errorf("as user %d: %v", os.Geteuid(), err)
	}
}

// podman's environment is ours: what the process has does not reach it.
func TestEnviron(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://leak")
	l := layout{state: "/s", run: "/r"}
	o := Options{Path: "/bin", Env: []string{"HTTPS_PROXY=http://given"}, SessionBus: "unix:path=/run/user/1/bus"}
	want := []string{"HTTPS_PROXY=http://given", "PATH=/bin", "HOME=/s/home", "TMPDIR=/s/tmp", "XDG_RUNTIME_DIR=/r/x",
		"CONTAINERS_CONF=/s/containers.conf", "CONTAINERS_STORAGE_CONF=/s/storage.conf"}
	if d := cmp.Diff(want, environ(o, l, false)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(append(want, "DBUS_SESSION_BUS_ADDRESS="+o.SessionBus), environ(o, l, true)); d != "" {
		t.Error(d)
	}
}

func TestConfGolden(t *testing.T) {
	l := layout{state: `/home/a "b"/s`, run: "/run/user/1000/h"}
	m := modernMachine()
	golden(t, "containers.conf", containersConf(l, &m))
	golden(t, "storage.conf", storageConf(l))
}

func TestChooseRuntime(t *testing.T) {
	for _, c := range []struct {
		cgroup      int
		asked, crun string // crun is its version, "" for none
		runc        bool
		want        string
		missing     bool
	}{
		{2, "", "1.8.1", true, "/bin/crun", false},
		{2, "", "", true, "/bin/runc", false},
		{1, "", "1.8.1", true, "/bin/runc", false},
		{1, "", "1.14", true, "/bin/crun", false},
		{1, "", "1.8.1", false, "", true},
		{1, "", "junk", true, "/bin/runc", false},
		{2, "", "", false, "", true},
		{1, "crun", "1.8.1", true, "/bin/crun", false},
		{1, "kata", "1.8.1", true, "", true},
	} {
		look := func(name string) (string, error) {
			if name == "crun" && c.crun != "" || name == "runc" && c.runc {
				return "/bin/" + name, nil
			}
			return "", errors.New("not found")
		}
		got, err := chooseRuntime(c.cgroup, c.asked, look, func(string) (string, error) { return "crun version " + c.crun, nil })
		if got != c.want || errors.Is(err, ErrNoRuntime) != c.missing {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
}

func TestEnforced(t *testing.T) {
	for _, c := range []struct {
		m           machine
		controllers []string
		kernel      string
		want        sandbox.Enforced
		reason      string
	}{
		{machine{cgroup: 1}, nil, "6.18.5", sandbox.Enforced{Processes: true}, "cgroup v1"},
		{machine{cgroup: 1}, nil, "5.10.0", sandbox.Enforced{}, "cgroup v1"},
		{machine{cgroup: 2}, nil, "6.1", sandbox.Enforced{Processes: true}, "no systemd"},
		{machine{cgroup: 2, systemd: true}, []string{"memory", "pids"}, "5.4", sandbox.Enforced{Memory: true, Processes: true}, "delegated"},
		{machine{cgroup: 2, systemd: true}, []string{"cpu", "memory", "pids"}, "6.1", sandbox.Enforced{Memory: true, CPU: true, Processes: true}, ""},
	} {
		c.m.setEnforced(c.controllers, c.kernel)
		if c.m.enforced != c.want || !strings.Contains(c.m.reason, c.reason) || (c.m.reason == "") != (c.reason == "") {
			t.Errorf("%v %s: %+v %q", c.controllers, c.kernel, c.m.enforced, c.m.reason)
		}
	}
	m := oldMachine()
	var un *sandbox.UnenforcedError
	if err := m.check(sandbox.Limits{Memory: sandbox.Limit{Value: 1, Asked: true}}); !errors.As(err, &un) || un.Limit != "memory" {
		t.Errorf("asked for: %v", err)
	}
	if err := m.check(sandbox.Limits{Memory: sandbox.Limit{Value: 1, Asked: true, Watched: true}}); err != nil {
		t.Errorf("asked for and watched: %v", err)
	}
	if err := m.check(sandbox.Limits{Memory: sandbox.Limit{Value: 1}, CPU: sandbox.Limit{Asked: true}}); err != nil {
		t.Errorf("not asked for: %v", err)
	}
}

func TestHasSubIDs(t *testing.T) {
	for file, want := range map[string]bool{
		"": false, "ana:100000:65536\n": true, "bob:100000:65536\n": false, "1000:100000:65536": true,
		"ana:100000:1000\n": false, "ana:1:30000\nana:50000:40000\n": true, "ana:x\nana:1:-5\n": false,
	} {
		if got := hasSubIDs(strings.NewReader(file), "ana", 1000); got != want {
			t.Errorf("%q: %v", file, got)
		}
	}
}

func TestInstallCommand(t *testing.T) {
	for release, want := range map[string]string{
		"ID=debian\n": "sudo apt install uidmap", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n": "sudo apt install uidmap",
		"ID=\"fedora\"\n": "sudo dnf install shadow-utils", "ID=nixos\n": "install the package uidmap", "": "install the package uidmap",
	} {
		if got := installCommand(release, "uidmap"); got != want {
			t.Errorf("%q: %s", release, got)
		}
	}
}

func TestSubmounts(t *testing.T) {
	const mountinfo = `24 1 0:6 / / rw - ext4 /dev/vda rw
25 24 0:23 / /home/ana/shop/usb\040stick rw - vfat /dev/sdb rw
26 25 0:24 / /home/ana/shop/usb\040stick/deep rw - tmpfs tmpfs rw
27 24 0:25 / /home/ana/shop/data rw - ext4 /dev/sdc rw
28 24 0:26 / /home/ana/shopping rw - ext4 /dev/sdd rw
junk
`
	got := findSubmounts([]place{
		{field: "mount", target: "/home/ana/shop", source: "/home/ana/shop"},
		{field: "mount", target: "/home/ana/shop/data", source: "/home/ana/shop/data"},
		{field: "mount", target: "/other", source: "/home/ana/other"},
	}, mountinfo)
	want := submounts{recursive: map[string]bool{"/home/ana/shop": true},
		covered: []covered{{target: "/home/ana/shop/usb stick", source: "/home/ana/shop/usb stick"}}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(submounts{}, covered{})); d != "" {
		t.Error(d)
	}
}

func TestDeclareArgs(t *testing.T) {
	for in, want := range map[string]string{
		"FROM a\nRUN x\n": "FROM a\nARG A\nARG B\nRUN x\n",
		"ARG V=1\nfrom a:$V AS one\n\nFROM b\nRUN FROM": "ARG V=1\nfrom a:$V AS one\nARG A\nARG B\n\nFROM b\nARG A\nARG B\nRUN FROM",
		"FROM \\\n  # note\n  a\nRUN \\\nFROM x\n":      "FROM \\\n  # note\n  a\nARG A\nARG B\nRUN \\\nFROM x\n",
		"FROM a\nRUN <<EOF\nFROM no\nEOF\nFROM b":       "FROM a\nARG A\nARG B\nRUN <<EOF\nFROM no\nEOF\nFROM b\nARG A\nARG B\n",
		"# escape=`\nFROM `\na\nRUN x\\\n":              "# escape=`\nFROM `\na\nARG A\nARG B\nRUN x\\\n",
		"# FROM a\n":                                    "# FROM a\n",
	} {
		if d := cmp.Diff(want, declareArgs(in, []string{"B", "A"})); d != "" {
			t.Errorf("%q (-want +got):\n%s", in, d)
		}
		if got := declareArgs(in, nil); got != in {
			t.Errorf("%q without names: %q", in, got)
		}
	}
}

func TestBuildArgs(t *testing.T) {
	got := buildArgs(sandbox.Build{Tag: "t:1", Context: "/c", Args: map[string]string{"B": "2", "A": "1"}, Env: map[string]string{"E": "3"},
		Labels: map[string]string{"l": "v"}, Mounts: []sandbox.Mount{{Source: "/etc/ssl", Target: "/etc/ssl"}}, NoCache: true}, "/c/Containerfile", "/i")
	want := []string{"build", "--file=/c/Containerfile", "--tag=t:1", "--iidfile=/i", "--force-rm", "--layers", "--build-arg=A=1", "--build-arg=B=2",
		"--build-arg=E=3", "--label=l=v", "--volume=/etc/ssl:/etc/ssl:ro", "--network=none", "--pull=never", "--no-cache", "/c"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCheckBuild(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/Containerfile", nil, 0o600), os.Symlink("/etc/hostname", dir+"/out")); err != nil {
		t.Fatal(err)
	}
	good := sandbox.Build{Tag: "localhost/x:1", Context: dir, Containerfile: "Containerfile"}
	if err := checkBuild(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*sandbox.Build){
		"tag is an option": func(b *sandbox.Build) { b.Tag = "--rm" },
		"relative context": func(b *sandbox.Build) { b.Context = "." },
		"no context":       func(b *sandbox.Build) { b.Context = dir + "/none" },
		"file above":       func(b *sandbox.Build) { b.Containerfile = "../Containerfile" },
		"file not there":   func(b *sandbox.Build) { b.Containerfile = "none" },
		"link out":         func(b *sandbox.Build) { b.Containerfile = "out" },
		"folder":           func(b *sandbox.Build) { b.Containerfile = "." },
		"argument":         func(b *sandbox.Build) { b.Args = map[string]string{"A=B": "1"} },
		"variable":         func(b *sandbox.Build) { b.Env = map[string]string{"A": "1\n2"} },
		"mount":            func(b *sandbox.Build) { b.Mounts = []sandbox.Mount{{Source: "/a:/b", Target: "/c"}} },
		"label":            func(b *sandbox.Build) { b.Labels = map[string]string{"": "x"} },
	} {
		b := good
		change(&b)
		var spec *sandbox.SpecError
		if err := checkBuild(b); !errors.As(err, &spec) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEngineError(t *testing.T) {
	d := &Driver{opts: Options{StateDir: "/s"}}
	for text, hint := range map[string]string{
		"write /x: no space left on device":                               "free some space",
		"runc create failed: fork/exec: Resource temporarily unavailable": "ulimit -u",
		"cgroups in hybrid mode not supported":                            "runc",
		"something else":                                                  "",
	} {
		var e *sandbox.EngineError
		if err := d.engineError("start", errors.New(text)); !errors.As(err, &e) || !strings.Contains(e.Hint, hint) || hint == "" && e.Hint != "" {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := d.engineError("start", fmt.Errorf("x: %w", syscall.ENOSPC)); !errors.Is(err, ErrDiskFull) {
		t.Errorf("full disk: %v", err)
	}
	if err := d.engineError("wait", context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	gone := &errorhandling.ErrorModel{ResponseCode: http.StatusNotFound, Message: "no such container"}
	if !isGone(gone) || isUnreachable(gone) || !isUnreachable(fmt.Errorf("dial: %w", syscall.ECONNREFUSED)) || isGone(errors.New("boom")) {
		t.Error("answers are mistaken for one another")
	}
}

// A service of the person's that is missing, refused or not there says which of the three (pitfalls P10).
func TestSocketErrors(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/stale", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for path, want := range map[string]string{dir + "/none": "no socket", dir + "/stale": "nothing listens"} {
		d := &Driver{opts: Options{Socket: path, StateDir: dir + "/s", RunDir: dir + "/r", Owner: "x", Path: DefaultPath}, closing: make(chan struct{})}
		var e *sandbox.EngineError
		_, err := d.List(t.Context(), nil)
		if !errors.As(err, &e) || !errors.Is(err, ErrSocket) || !strings.Contains(err.Error(), want) || e.Hint == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// What is missing is named with the command that mends it.
func TestMissingPrograms(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"runc", "crun"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+name+" version 1.20\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	try := func() error {
		o := Options{StateDir: dir + "/s", RunDir: dir + "/r", Owner: "x", Path: dir}
		d := &Driver{opts: o, log: newLog(nil), closing: make(chan struct{}), service: newService(o, newLog(nil))}
		defer d.Close()
		_, err := d.List(t.Context(), nil)
		return err
	}
	var e *sandbox.EngineError
	if err := try(); !errors.Is(err, ErrPodmanMissing) || !errors.As(err, &e) || e.Hint == "" {
		t.Errorf("no podman: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "podman"), []byte("#!/bin/sh\necho podman version 4.2.0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := try(); !errors.Is(err, ErrUIDMapMissing) || !errors.As(err, &e) || e.Hint == "" {
		t.Errorf("no newuidmap: %v", err)
	}
}

func TestWayland(t *testing.T) {
	dir := t.TempDir()
	good := fakeCompositor(t, dir+"/good")
	defer good.Close()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/stale", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	web, err := net.Listen("unix", dir+"/web")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.NotFoundHandler()}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(web) }()
	defer func() { server.Close(); <-done }()
	if err := errors.Join(os.WriteFile(dir+"/file", nil, 0o600), os.Symlink(dir+"/good", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"good": "", "none": "does not exist", "stale": "stale", "file": "not a socket", "link": "not a socket", "web": "not the socket of a Wayland"} {
		err := checkWayland(t.Context(), filepath.Join(dir, name))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseRollup(t *testing.T) {
	got, err := parseRollup([]byte("00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\nPss: 700 kB\nPss_Anon: 300 kB\nPss_File: 200 kB\nPss_Shmem: 200 kB\nSwapPss: 8 kB\n"))
	if err != nil || got != (memoryUse{own: 308 << 10, shared: 200 << 10}) {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "Pss: 1 kB\n", "Pss_Anon: x kB\n"} {
		if got, err := parseRollup([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestTmpfsMounts(t *testing.T) {
	got := tmpfsMounts(`1 0 0:50 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1k
2 0 0:51 / /dev rw - tmpfs tmpfs rw
3 0 0:52 / /dev/shm rw shared:1 master:2 - tmpfs tmpfs rw
4 0 0:53 /handler/runs/x /run/handler ro - tmpfs tmpfs rw
5 0 0:54 / /proc/acpi ro - tmpfs tmpfs ro
6 0 0:50 / /again rw - tmpfs tmpfs rw
7 0 8:1 / / ro - ext4 /dev/sda rw
`)
	want := []tmpfsMount{{"/tmp", true}, {"/dev/shm", true}, {"/run/handler", false}, {"/again", true}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(tmpfsMount{})); d != "" {
		t.Error(d)
	}
}

func TestReadLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got, err := readLog(path); got != nil || err != nil {
		t.Errorf("no log: %q %v", got, err)
	}
	text := "2026-01-01T00:00:00.0+00:00 stdout F one\n2026-01-01T00:00:00.0+00:00 stderr P tw\n2026-01-01T00:00:00.0+00:00 stderr F o\njunk\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readLog(path); string(got) != "one\ntwo\n" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("t stdout F "+strings.Repeat("x", 99)+"\n", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readLog(path); len(got) > 16<<10 || len(got) < 8<<10 || err != nil {
		t.Errorf("%d bytes %v", len(got), err)
	}
}

// A stream that broke is not sent again as if its rest were the whole.
func TestOnceReader(t *testing.T) {
	r := &onceReader{r: strings.NewReader("abc")}
	if b, err := io.ReadAll(r); string(b) != "abc" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errReadAgain) {
		t.Errorf("read again: %v", err)
	}
}

func TestRuntimeName(t *testing.T) {
	for in, want := range map[string]string{"runc version 1.1.5+ds1\ncommit: x": "runc 1.1.5", "crun version 1.14\nx": "runc 1.14", "": "runc"} {
		if got := runtimeName("runc", in); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

// An answer of the bindings' own retry is told from another sandbox of the same name (pitfalls P09).
func TestCreateTwice(t *testing.T) {
	for nonce, wantID := range map[string]string{"mine": strings.Repeat("a", 64), "theirs": ""} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v5.6.2/libpod/_ping", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Libpod-API-Version", "4.3.1")
		})
		mux.HandleFunc("POST /v5.6.2/libpod/containers/create", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"cause":"that name is already in use","message":"that name is already in use","response":409}`)
		})
		mux.HandleFunc("GET /v5.6.2/libpod/containers/one/json", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"Id":%q,"Name":"one","Config":{"StopSignal":15,"Labels":{%q:%q}}}`, strings.Repeat("a", 64), labelNonce, nonce)
		})
		d, ctx := fakeService(t, mux)
		id, err := d.create(ctx, input{spec: sandbox.Spec{Name: "one", Image: "i", Command: []string{"c"}}, owner: "o", nonce: "mine", machine: oldMachine(), layout: layout{state: "/s", run: "/r"}})
		if id != wantID || (wantID == "") != (err != nil) {
			t.Errorf("%s: %q %v", nonce, id, err)
		}
	}
}

// An older service is refused with the remedy.
func TestOldService(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v5.6.2/libpod/_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Libpod-API-Version", "4.2.0")
	})
	path := serve(t, mux)
	m := oldMachine()
	d := &Driver{opts: Options{Socket: path}, log: newLog(nil), machine: &m}
	if err := d.dial(t.Context(), path); !errors.Is(err, ErrPodmanOld) {
		t.Errorf("%v", err)
	}
}

// serve answers on a unix socket until the test ends.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })
	return path
}

// fakeService is a Driver that talks to h as its podman, and a context for calls.
func fakeService(t *testing.T, h http.Handler) (*Driver, context.Context) {
	t.Helper()
	path := serve(t, h)
	m := oldMachine()
	d := &Driver{opts: Options{Socket: path, Owner: "o"}, log: newLog(nil), machine: &m, closing: make(chan struct{})}
	held, err := bindings.NewConnection(context.WithoutCancel(t.Context()), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	d.conn = &connection{held: held}
	t.Cleanup(d.drop)
	return d, callContext{t.Context(), held}
}

// A database of podman's that somebody else's podman made in our storage, or that speaks of another run folder, holds
// another storage driver and other paths, and would win over our configuration.
func TestForgetMoved(t *testing.T) {
	for name, tt := range map[string]struct {
		last string // content of the file that names the run folder; "" for none
		gone bool
	}{
		"ours":            {"RUN\n", false},
		"moved":           {"/elsewhere\n", true},
		"somebody else's": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := layout{state: t.TempDir(), run: t.TempDir()}
			db := filepath.Join(l.storage(), "libpod", "bolt_state.db")
			if err := errors.Join(os.MkdirAll(filepath.Dir(db), 0o700), os.WriteFile(db, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if tt.last != "" {
				if err := os.WriteFile(l.lastRun(), []byte(strings.Replace(tt.last, "RUN", l.run, 1)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := forgetMoved(l); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(db); os.IsNotExist(err) != tt.gone {
				t.Errorf("gone: %v, want %v", os.IsNotExist(err), tt.gone)
			}
		})
	}
}
