package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/display"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a machine made up for a test.
type fake struct {
	files    fstest.MapFS
	programs map[string]string // name to what --version prints
	Sources
}

// text adds a file of the machine.
func (f *fake) text(path, content string) {
	f.files[rel(path)] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
}

// dir adds a folder of an owner.
func (f *fake) dir(path string, mode fs.FileMode, uid uint32) {
	f.files[rel(path)] = &fstest.MapFile{Mode: fs.ModeDir | mode, Sys: &syscall.Stat_t{Uid: uid}}
}

func (f *fake) program(name, version string) {
	f.programs[name] = version
	mode := fs.FileMode(0o755)
	if strings.HasPrefix(name, "new") {
		mode |= fs.ModeSetuid
	}
	f.files["usr/bin/"+name] = &fstest.MapFile{Mode: mode}
}

// ordinary is a machine where nothing is unusual: Debian 13, systemd, cgroup v2, podman 5, all built.
func ordinary() *fake {
	f := &fake{files: fstest.MapFS{}, programs: map[string]string{}}
	f.text("/etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\n")
	f.text("/etc/subuid", "ana:100000:65536\n")
	f.text("/etc/subgid", "ana:100000:65536\n")
	f.text("/proc/1/comm", "systemd\n")
	f.dir("/run/systemd/system", 0o755, 0)
	f.dir("/run/user/1000", 0o700, 1000)
	f.dir("/run/user/1000/systemd", 0o700, 1000)
	f.text("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n")
	f.text("/proc/self/ns/user", "")
	f.text("/proc/sys/user/max_user_namespaces", "127234\n")
	f.text("/proc/sys/kernel/seccomp/actions_avail", "kill_process errno allow\n")
	f.text("/proc/self/mountinfo", "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
	f.text("/proc/meminfo", "MemTotal:       16303412 kB\nMemFree:         1303412 kB\n")
	f.text("/usr/share/keyrings/debian-archive-keyring.gpg", "")
	f.program("podman", "podman version 5.4.2\n")
	f.program("crun", "crun version 1.21\ncommit: 10269840aa07fb7e6b7e1acff6198692d8ff5c88\n")
	f.program("newuidmap", "")
	f.program("newgidmap", "")
	f.program("mmdebstrap", "")
	f.Sources = Sources{
		Root: f.files, User: User{Name: "ana", UID: 1000, EUID: 1000},
		RuntimeDir: "/run/user/1000", StateDir: "/home/ana/.local/state/handler", DataDir: "/home/ana/.local/share/handler",
		LookPath: func(name string) (string, error) {
			if _, found := f.programs[name]; found {
				return "/usr/bin/" + name, nil
			}
			return "", exec.ErrNotFound
		},
		Output: func(_ context.Context, argv ...string) ([]byte, error) {
			return []byte(f.programs[filepath.Base(argv[0])]), nil
		},
		Caps:     func(string) bool { return false },
		Free:     func(string) (int64, error) { return 100 << 30, nil },
		OpenFile: func() (uint64, error) { return 524288, nil },
		Now:      func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) },
		Engine: func(context.Context) (sandbox.Info, error) {
			return sandbox.Info{Engine: "podman", CgroupVersion: 2, Storage: "overlay (native)", Rootless: true,
				Enforced: sandbox.Enforced{Memory: true, CPU: true, Processes: true}}, nil
		},
		Images: func(context.Context) ([]types.Image, error) {
			return []types.Image{
				{Kind: types.KindToolbox, Name: "default", State: "fresh"}, {Kind: types.KindAddon, Name: "playwright", State: "fresh"},
				{Kind: types.KindHarness, Name: "demo", State: "fresh"}, {Kind: types.KindHarness, Name: "claude-code", State: "fresh"},
			}, nil
		},
		Display: func(context.Context) (string, bool, display.Compositor, error) {
			return "/run/user/1000/wayland-0", false, display.Compositor{}, nil
		},
	}
	return f
}

// ubuntu is Ubuntu 24.04 whose podman was built by hand, so that no AppArmor profile lets it make user namespaces,
// for a user made without subordinate ids, on a desktop whose compositor trusts every client.
func ubuntu() *fake {
	f := ordinary()
	f.text("/etc/os-release", "NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n")
	f.text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
	f.text("/etc/subuid", "root:100000:65536\nbea:165536:65536\n")
	f.text("/etc/subgid", "root:100000:65536\nbea:165536:65536\n")
	f.dir("/var/lib/systemd/linger/ana", 0o644, 0)
	f.program("podman", "podman version 4.9.3\n")
	f.program("crun", "crun version 1.14.1\n")
	delete(f.files, "usr/share/keyrings/debian-archive-keyring.gpg")
	delete(f.programs, "mmdebstrap")
	f.Engine = func(context.Context) (sandbox.Info, error) {
		return sandbox.Info{}, &sandbox.EngineError{Op: "info", Err: errors.New("cannot set up namespace using newuidmap")}
	}
	f.Images = func(context.Context) ([]types.Image, error) {
		return []types.Image{
			{Kind: types.KindToolbox, Name: "default", State: "missing", Remedy: "handler toolbox build"},
			{Kind: types.KindAddon, Name: "playwright", State: "missing", Remedy: "handler addon build playwright"},
		}, nil
	}
	f.Display = func(context.Context) (string, bool, display.Compositor, error) {
		return "/run/user/1000/wayland-1", false, display.Compositor{Globals: []display.Global{{Interface: "zwlr_screencopy_manager_v1"}, {Interface: "zwp_virtual_keyboard_manager_v1"}}}, nil
	}
	return f
}

// container is a Debian 12 machine without systemd: cgroup v1 in hybrid mode, an old crun beside runc, a private
// root mount, a low limit on open files, no display.
func container() *fake {
	f := ordinary()
	delete(f.files, "sys/fs/cgroup/cgroup.controllers")
	f.text("/sys/fs/cgroup/unified/cgroup.controllers", "")
	delete(f.files, "run/systemd/system")
	f.text("/proc/1/comm", "init\n")
	delete(f.files, "run/user/1000/systemd")
	f.text("/proc/self/mountinfo", "28 1 8:1 / / rw,relatime - ext4 /dev/vda rw\n29 28 0:5 / /dev rw shared:2 - tmpfs dev rw\n")
	f.text("/proc/meminfo", "MemTotal:       3145728 kB\n")
	f.program("podman", "podman version 4.3.1\n")
	f.program("crun", "crun version 1.8.1\n")
	f.program("runc", "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\n")
	f.OpenFile = func() (uint64, error) { return 4096, nil }
	f.Free = func(string) (int64, error) { return 5 << 30, nil }
	f.Engine = func(context.Context) (sandbox.Info, error) {
		return sandbox.Info{Engine: "podman", CgroupVersion: 1, Storage: "overlay (native)", Rootless: true,
			Enforced: sandbox.Enforced{Processes: true, WholeCPUs: true}}, nil
	}
	f.Images = func(context.Context) ([]types.Image, error) {
		return []types.Image{
			{Kind: types.KindToolbox, Name: "default", State: "stale", Reason: "its recipe has changed", Remedy: "handler toolbox build"},
			{Kind: types.KindAddon, Name: "playwright", State: "fresh"},
			{Kind: types.KindHarness, Name: "claude-code", State: "missing", Remedy: "handler harness build claude-code"},
		}, nil
	}
	f.Display = func(context.Context) (string, bool, display.Compositor, error) {
		none := &display.NotFoundError{Dir: "/run/user/1000"}
		return "", false, display.Compositor{}, &fault.Fault{Text: none.Error(), Err: none}
	}
	return f
}

func TestMachines(t *testing.T) {
	for name, f := range map[string]*fake{"debian13": ordinary(), "ubuntu2404": ubuntu(), "container": container()} {
		t.Run(name, func(t *testing.T) {
			var text, data bytes.Buffer
			found := Checks(t.Context(), f.Sources)
			if err := errors.Join(Render(&text, found, false), RenderJSON(&data, found)); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", text.Bytes())
			golden(t, name+".json", data.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
	}
}

// TestEach changes one thing of the ordinary machine at a time: exactly that is found.
func TestEach(t *testing.T) {
	for _, test := range []struct {
		id, level, want string // want is part of title, detail or remedy
		change          func(*fake)
	}{
		{"user", Problem, "started by root", func(f *fake) { f.User = User{"root", 1000, 0} }},
		{"runtime-dir", Problem, "sudo install -d -m 0700 -o 1000 /run/user/1000", func(f *fake) {
			f.RuntimeDir = ""
			delete(f.files, "run/user/1000")
			delete(f.files, "run/user/1000/systemd")
		}},
		{"runtime-dir", Problem, "belongs to another user", func(f *fake) { f.dir("/run/user/1000", 0o700, 0) }},
		{"runtime-dir", Problem, "chmod 700 /run/user/1000", func(f *fake) { f.dir("/run/user/1000", 0o755, 1000) }},
		{"runtime-dir", Problem, "is no folder", func(f *fake) { f.RuntimeDir = "/etc/subuid" }},
		{"runtime-dir", Remark, "export XDG_RUNTIME_DIR=/run/user/1000", func(f *fake) { f.RuntimeDir = "" }},
		{"podman", Problem, "sudo apt install podman", func(f *fake) { delete(f.programs, "podman") }},
		{"podman", Problem, "sudo dnf install podman", func(f *fake) {
			delete(f.programs, "podman")
			f.text("/etc/os-release", "ID=fedora\n")
		}},
		{"podman", Problem, "3.4.4 is too old", func(f *fake) { f.program("podman", "podman version 3.4.4\n") }},
		{"podman", Problem, "is too old", func(f *fake) { f.program("podman", "") }},
		{"runtime", Problem, "sudo apt install crun", func(f *fake) { delete(f.programs, "crun") }},
		{"runtime", Problem, "handler.toml", func(f *fake) { f.Runtime = "runc" }},
		{"id-tools", Problem, "sudo apt install uidmap", func(f *fake) { delete(f.programs, "newgidmap") }},
		{"id-tools", Problem, "sudo chmod u+s /usr/bin/newuidmap", func(f *fake) { f.files["usr/bin/newuidmap"].Mode = 0o755 }},
		{"subordinate-ids", Problem, "--add-subuids 165536-231071 --add-subgids 165536-231071 ana", func(f *fake) {
			f.text("/etc/subuid", "bea:100000:65536\n")
			f.text("/etc/subgid", "bea:100000:65536\n")
		}},
		{"subordinate-ids", Problem, "sudo usermod --add-subgids 100000-165535 ana", func(f *fake) { delete(f.files, "etc/subgid") }},
		{"subordinate-ids", Problem, "1000 subordinate ids", func(f *fake) { f.text("/etc/subuid", "ana:100000:1000\n") }},
		{"subordinate-ids", Problem, "no subordinate ids", func(f *fake) { f.text("/etc/subuid", "ana:x:65536\nana:1\n:::\nana:5:-1\n") }},
		{"subordinate-ids", Remark, "subid: sss", func(f *fake) { f.text("/etc/nsswitch.conf", "passwd: files\nsubid: sss\n") }},
		{"user-namespaces", Problem, "kernel.unprivileged_userns_clone=1", func(f *fake) { f.text("/proc/sys/kernel/unprivileged_userns_clone", "0\n") }},
		{"user-namespaces", Problem, "user.max_user_namespaces is 0", func(f *fake) { f.text("/proc/sys/user/max_user_namespaces", "0\n") }},
		{"user-namespaces", Problem, "no user namespaces", func(f *fake) { delete(f.files, "proc/self/ns/user") }},
		{"apparmor", Problem, "apparmor_parser -r", func(f *fake) { f.text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n") }},
		{"selinux", Remark, "SELinux is enforcing", func(f *fake) { f.text("/sys/fs/selinux/enforce", "1") }},
		{"seccomp", Problem, "no seccomp", func(f *fake) { delete(f.files, "proc/sys/kernel/seccomp/actions_avail") }},
		{"engine", Problem, "does not answer", func(f *fake) {
			f.Engine = func(context.Context) (sandbox.Info, error) { return sandbox.Info{}, errors.New("gone") }
		}},
		{"engine", Problem, "is root's", func(f *fake) {
			f.Engine = func(context.Context) (sandbox.Info, error) { return sandbox.Info{Rootless: false}, nil }
		}},
		{"limits", Remark, "delegate.conf", func(f *fake) { f.info(func(i *sandbox.Info) { i.Enforced.CPU = false }) }},
		{"limits", Remark, "systemd.unified_cgroup_hierarchy=1", func(f *fake) {
			f.info(func(i *sandbox.Info) { i.Enforced.Memory, i.CgroupVersion = false, 1 })
		}},
		{"storage", Remark, "start slower", func(f *fake) { f.info(func(i *sandbox.Info) { i.Storage = "overlay (fuse-overlayfs)" }) }},
		{"storage", Remark, "not overlay", func(f *fake) { f.info(func(i *sandbox.Info) { i.Storage = "vfs" }) }},
		{"systemd", Remark, "no systemd", func(f *fake) { f.text("/proc/1/comm", "tini\n") }},
		{"systemd", Remark, "enable-linger ana", func(f *fake) { delete(f.files, "run/user/1000/systemd") }},
		{"open-files", Problem, "raise the hard limit", func(f *fake) { f.OpenFile = func() (uint64, error) { return 256, nil } }},
		{"open-files", Remark, "sandboxes get 4096", func(f *fake) { f.OpenFile = func() (uint64, error) { return 4096, nil } }},
		{"open-files", Remark, "cannot be read", func(f *fake) { f.OpenFile = func() (uint64, error) { return 0, errors.New("x") } }},
		{"root-mount", Remark, "make-rshared", func(f *fake) { f.text("/proc/self/mountinfo", "1 1 8:1 / / rw - ext4 x rw\n") }},
		{"memory", Remark, "2.0 GiB of memory", func(f *fake) { f.text("/proc/meminfo", "MemTotal: 2097152 kB\n") }},
		{"memory", Remark, "unknown", func(f *fake) { f.text("/proc/meminfo", "MemTotal: much\n") }},
		{"clock", Problem, "1 January 1970", func(f *fake) { f.Now = func() time.Time { return time.Unix(0, 0).UTC() } }},
		{"toolbox-tools", Remark, "sudo apt install mmdebstrap", func(f *fake) { delete(f.programs, "mmdebstrap") }},
		{"toolbox-tools", Remark, "debian-archive-keyring", func(f *fake) { delete(f.files, "usr/share/keyrings/debian-archive-keyring.gpg") }},
		{"images", Problem, "cannot be listed", func(f *fake) {
			f.Images = func(context.Context) ([]types.Image, error) { return nil, errors.New("x") }
		}},
		{"left", Remark, "2 sandboxes of ended runs could not be removed", func(f *fake) {
			f.Live = func() Live { return Live{Runs: 1, Browsers: 1, Memory: 400 << 20, Owed: 2} }
		}},
		{"display", Remark, "choose", func(f *fake) {
			f.Display = func(context.Context) (string, bool, display.Compositor, error) {
				return "", false, display.Compositor{}, fault.New(fault.Failed, "choose one", "several Wayland sockets live")
			}
		}},
	} {
		f := ordinary()
		test.change(f)
		var odd []Finding
		for _, finding := range Checks(t.Context(), f.Sources) {
			if finding.Level != OK {
				odd = append(odd, finding)
			}
		}
		if len(odd) == 0 {
			t.Errorf("%s: nothing found, want %q", test.id, test.want)
			continue
		}
		got := odd[0]
		text := strings.Join(append([]string{got.Title, got.Detail}, got.Remedy...), "\n")
		if got.ID != test.id || got.Level != test.level || !strings.Contains(text, test.want) {
			t.Errorf("%s, %s with %q: got %s, %s:\n%s", test.id, test.level, test.want, got.ID, got.Level, text)
		}
		if others := odd[1:]; len(others) > 0 && test.id != "runtime-dir" { // the user session lies in the runtime folder
			t.Errorf("%s: also found %+v", test.want, others)
		}
	}
}

// info changes what the engine answers.
func (f *fake) info(change func(*sandbox.Info)) {
	before := f.Engine
	f.Engine = func(ctx context.Context) (sandbox.Info, error) {
		info, err := before(ctx)
		change(&info)
		return info, err
	}
}

func TestSpace(t *testing.T) {
	for _, test := range []struct {
		free int64
		err  error
		want string // levels of storage and state
	}{{100 << 30, nil, "ok ok"}, {5 << 30, nil, "remark ok"}, {100 << 20, nil, "problem problem"}, {0, errors.New("x"), "remark remark"}} {
		m := &machine{Sources{Free: func(string) (int64, error) { return test.free, test.err }}}
		found := checkSpace(t.Context(), m)
		if len(found) != 2 || found[0].Level+" "+found[1].Level != test.want {
			t.Errorf("%d bytes, %v: got %+v, want %s", test.free, test.err, found, test.want)
		}
	}
}

// TestOrdinaryIsQuiet: where nothing is unusual, nothing is remarked.
func TestOrdinaryIsQuiet(t *testing.T) {
	if got := Summary(Checks(t.Context(), ordinary().Sources)); got != "no problems" {
		t.Errorf("got %q", got)
	}
}

// TestNamed: where the environment does not name the user, /etc/passwd does.
func TestNamed(t *testing.T) {
	f := ordinary()
	f.User.Name = ""
	f.text("/etc/passwd", "root:x:0:0::/root:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\n")
	found := Checks(t.Context(), f.Sources)
	if Summary(found) != "no problems" || found[0].Title != "ordinary user ana (1000)" {
		t.Errorf("%s: %+v", Summary(found), found[0])
	}
}

// TestBare: no engine, no images, no display, an empty disk, a context that has ended: findings and no panic.
func TestBare(t *testing.T) {
	f := ordinary()
	f.Root = fstest.MapFS{}
	f.Engine, f.Images, f.Display = nil, nil, nil
	f.LookPath = func(string) (string, error) { return "", exec.ErrNotFound }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	problems, _ := Count(Checks(ctx, f.Sources))
	if problems < 5 {
		t.Errorf("%d problems on an empty disk", problems)
	}
}

func TestFindingsSayWhatToDo(t *testing.T) {
	for _, f := range []*fake{ubuntu(), container()} {
		for _, finding := range Checks(t.Context(), f.Sources) {
			if finding.ID == "" || finding.Title == "" || strings.Contains(finding.Title, "\n") {
				t.Errorf("%+v has no id or not a title of one line", finding)
			}
			if finding.Level != OK && finding.Detail == "" && len(finding.Remedy) == 0 {
				t.Errorf("%q says neither what Handler does nor what to type", finding.Title)
			}
			if strings.Contains(strings.Join(finding.Remedy, " "), "restrict_unprivileged_userns=0") {
				t.Error("the AppArmor restriction is told to be switched off")
			}
		}
	}
}

func TestRender(t *testing.T) {
	found := append(append(ok("a", "fine"), problem("b", "broken", "so it goes", "mend it")...), remark("c", "odd", "")...)
	var plain, colored, data bytes.Buffer
	if err := errors.Join(Render(&plain, found, false), Render(&colored, found, true), RenderJSON(&data, nil)); err != nil {
		t.Fatal(err)
	}
	want := "✓ fine\n✗ broken\n    so it goes\n    mend it\n! odd\n1 problem, 1 remark\n"
	if diff := cmp.Diff(want, plain.String()); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(colored.String(), "\x1b[32m✓\x1b[0m fine\n") {
		t.Errorf("colored: %q", colored.String())
	}
	var empty []Finding
	if err := json.Unmarshal(data.Bytes(), &empty); err != nil || empty == nil {
		t.Errorf("no findings are %q in JSON", data.String())
	}
	for want, found := range map[string][]Finding{
		"no problems": nil, "no problems, 1 remark": remark("", "", ""), "1 problem": problem("", "", ""),
		"2 problems, 2 remarks": append(append(problem("", "", ""), problem("", "", "")...), append(remark("", "", ""), remark("", "", "")...)...),
	} {
		if got := Summary(found); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestSystem: the real machine answers everything without an error of ours.
func TestSystem(t *testing.T) {
	s := System("/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
	s.StateDir, s.DataDir = filepath.Join(t.TempDir(), "not/yet"), "/"
	s.User.Name = "ana"
	found := Checks(t.Context(), s)
	if len(found) < 10 {
		t.Errorf("only %d findings: %+v", len(found), found)
	}
	for _, f := range found {
		if strings.HasPrefix(f.ID, "space-") && f.Level == Remark && strings.Contains(f.Title, "unknown") {
			t.Errorf("%s", f.Title)
		}
	}
	if _, err := s.LookPath("sh"); err != nil {
		t.Error(err)
	}
	if path, err := lookPath("relative:", "sh"); err == nil {
		t.Errorf("found %s in a relative folder", path)
	}
	if s.Caps("/bin/sh") {
		t.Error("/bin/sh has capabilities")
	}
}
