package podman

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox"
)

// Tests of this file need podman and an ordinary user with subordinate ids. They skip, loudly, for root; the
// end-to-end runner runs them as the user that it makes.

const testImage = "localhost/handler/podmantest:latest"

func needUser(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED IN SHORT MODE: needs real podman; run: make test")
	}
	if os.Geteuid() == 0 {
		t.Skip("SKIPPED AS ROOT: rootless podman is what is tested; run: " +
			"go test -c -tags remote,containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper " +
			"-o /tmp/podman.test ./sandbox/podman && runuser -u USER -- /tmp/podman.test, in this folder")
	}
}

// probe is the program of testdata/probe, built once.
var probe = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "probe"), "./testdata/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the probe: %w\n%s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "probe"))
})

// rootTar is a root file system of the probe and empty folders.
func rootTar(t testing.TB) io.Reader {
	t.Helper()
	program, err := probe()
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	// Some of the sandbox's own places are there already, with modes that must not stay.
	for _, dir := range []string{"etc", "proc", "sys", "dev", "run", "tmp", "home", "run/handler-secrets", "run/handler-user"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}))
	}
	err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "probe", Mode: 0o755, Size: int64(len(program))}))
	_, werr := w.Write(program)
	if err := errors.Join(err, werr, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// A rig is a Driver with folders of its own and the test's image in it.
type rig struct {
	*Driver
	dir string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	needUser(t)
	dir, err := os.MkdirTemp("/tmp", "hp") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{dir: dir}
	r.Driver = r.driver(t)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		r.wantNothing(t)
		removeStorage(t, dir)
	})
	if _, err := r.Images().Import(t.Context(), rootTar(t), testImage, map[string]string{"made-by": "test"}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) driver(t testing.TB) *Driver {
	t.Helper()
	d, err := New(Options{StateDir: filepath.Join(r.dir, "s"), RunDir: filepath.Join(r.dir, "r"), Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wantNothing fails when a process of the rig's podman is left, or a mount.
func (r *rig) wantNothing(t testing.TB) {
	t.Helper()
	left, err := ours(layout{run: filepath.Join(r.dir, "r")}.xdg())
	if err != nil {
		t.Error(err)
	}
	for _, p := range left {
		t.Errorf("process %d is left: %q", p.PID, p.args)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(string(mounts), r.dir) {
		t.Errorf("mounts of %s are left", r.dir)
	}
}

// removeStorage removes a storage whose files belong to subordinate ids.
func removeStorage(t testing.TB, dir string) {
	t.Helper()
	own := t.TempDir()
	cmd := exec.Command("podman", "unshare", "rm", "-rf", dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + own, "XDG_RUNTIME_DIR=" + own}
	out, err := cmd.CombinedOutput()
	if _, serr := os.Stat(dir); serr == nil {
		t.Errorf("%s is left: %v: %s", dir, err, out)
	}
	if err := endAll(context.Background(), own, func(ownProc) bool { return true }); err != nil {
		t.Error(err)
	}
}

func (r *rig) spec(command ...string) sandbox.Spec {
	return sandbox.Spec{Name: "one", Image: testImage, Command: append([]string{"/probe"}, command...)}
}

// run starts a sandbox, waits for its end and gives what it printed, by check.
func (r *rig) run(t testing.TB, s sandbox.Spec) map[string]string {
	t.Helper()
	id, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := r.Wait(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Output(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if !exit.Known || exit.Code != 0 {
		t.Errorf("exit %+v, output %q", exit, out)
	}
	said := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		said[name] = value
	}
	return said
}

// The system calls that A.3 takes out are out, however the arguments are spelled, and what Chromium needs is in.
func TestSeccompInside(t *testing.T) {
	r := newRig(t)
	want := map[string]string{
		"vsock": "operation not permitted", "vsock-high": "operation not permitted",
		"alg": "function not implemented", "packet": "function not implemented",
		"unix": "ok", "inet": "ok", "inet6": "ok", "route": "ok",
		"audit": "function not implemented", "audit-high": "function not implemented",
		"io_uring": "operation not permitted", "bpf": "operation not permitted",
		"userfaultfd": "operation not permitted", "perf": "operation not permitted",
		"chroot": "bad address", // allowed, and the kernel did not like the address
		"x32":    "killed",
		"userns": "true: yes <nil>",
	}
	var all []string
	for name := range want {
		all = append(all, name)
	}
	got := r.run(t, r.spec(all...))
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %q, want %q", name, got[name], w)
		}
	}
}

// A process limit holds without any cgroup.
func TestProcessLimit(t *testing.T) {
	r := newRig(t)
	s := r.spec("forks")
	s.Limits.Processes = sandbox.Limit{Value: 64, Asked: true}
	got := r.run(t, s)["forks"]
	var n int
	var again bool
	if _, err := fmt.Sscan(got, &n, &again); err != nil || n < 1 || n >= 64 || !again {
		t.Errorf("forks: %q, want fewer than 64 and then EAGAIN", got)
	}
}

// Mounts lie where and how they were asked for; nothing of the host's shows through.
func TestMountsInside(t *testing.T) {
	r := newRig(t)
	scope := filepath.Join(r.dir, "scope")
	inner := filepath.Join(scope, "inner")
	volume := filepath.Join(r.dir, "vol/state")
	for _, dir := range []string{inner} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(inner, "kept"), []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := r.spec("write="+scope+"/new", "write="+inner+"/new", "read="+inner+"/kept", "list=/lib/image")
	s.Command = append([]string{"/probe"}, "write="+scope+"/new")
	s.Mounts = []sandbox.Mount{{Source: scope, Target: scope}, {Source: inner, Target: inner, ReadOnly: true}, {Source: "/dev", Target: "/mnt/dev", ReadOnly: true}}
	s.Volumes = []sandbox.Volume{{Source: volume, Target: sandbox.HomeTarget + "/.config/deep/state"}}
	s.Images = []sandbox.ImageMount{{Image: testImage, Target: sandbox.AddonsTarget + "/one"}}
	for check, want := range map[string]string{
		"write=" + scope + "/new":                                 "<nil>",
		"write=" + inner + "/new":                                 "read-only file system",
		"read=" + inner + "/kept":                                 "theirs",
		"list=" + sandbox.AddonsTarget + "/one":                   "dev etc home probe proc run sys tmp",
		"write=" + sandbox.AddonsTarget + "/one/new":              "read-only file system",
		"write=" + sandbox.HomeTarget + "/.config/deep/state/new": "<nil>",
		"write=" + sandbox.HomeTarget + "/.config/deep/beside":    "<nil>",
		"write=/new": "read-only file system",
		"write=" + sandbox.SecretsTarget + "/new": "<nil>",
		"write=" + sandbox.RuntimeTarget + "/new": "<nil>",
		"write=/dev/shm/new":                      "<nil>",
		"list=/mnt/dev/shm":                       "",
		"write=/mnt/dev/shm/new":                  "read-only file system",
		"read=/etc/hosts":                         strings.ReplaceAll(hostsFile, "\n", "|"),
		"mode=" + sandbox.SecretsTarget:           fmt.Sprintf("0700 %d", os.Getuid()),
		"env=HOME":                                "true " + sandbox.HomeTarget,
		"env=XDG_RUNTIME_DIR":                     "true " + sandbox.RuntimeTarget,
		"env=DISPLAY":                             "false",
		"env=WAYLAND_DISPLAY":                     "false",
		"env=HTTPS_PROXY":                         "false",
	} {
		s.Command = []string{"/probe", check}
		name, _, _ := strings.Cut(check, "=")
		if got := r.run(t, s)[name]; strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, want %q", check, got, want)
		}
	}
	if info, err := os.Stat(volume); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the volume: %v %v", info, err)
	}
}

// Names that mountinfo and JSON escape are mounted where they are; a link in a scope, which an agent may have made,
// does not lead a mount elsewhere.
func TestMountPointsInside(t *testing.T) {
	r := newRig(t)
	scope := filepath.Join(r.dir, "scope")
	odd := filepath.Join(scope, "a\n\t,:\"\\040 \u00a0\ufffd'é")
	for _, dir := range []string{odd, filepath.Join(scope, "inner")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("inner", filepath.Join(scope, "link")); err != nil {
		t.Fatal(err)
	}
	s := r.spec("write=" + scope + "/new")
	s.Mounts = []sandbox.Mount{{Source: scope, Target: scope}, {Source: odd, Target: odd, ReadOnly: true}}
	if got := r.run(t, s)["write"]; strings.TrimSpace(got) != "<nil>" {
		t.Error(got)
	}
	s.Mounts[1] = sandbox.Mount{Source: filepath.Join(scope, "inner"), Target: filepath.Join(scope, "link"), ReadOnly: true}
	var spec *sandbox.SpecError
	if _, err := r.Start(t.Context(), s); !errors.As(err, &spec) {
		t.Errorf("a mount at a link: %v", err)
	}
}

// Bad specifications fail with the type that says so, and leave nothing.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	link := filepath.Join(r.dir, "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	scope := filepath.Join(r.dir, "scope")
	if err := os.Mkdir(scope, 0o755); err != nil {
		t.Fatal(err)
	}
	var spec *sandbox.SpecError
	var unenforced *sandbox.UnenforcedError
	var missing *sandbox.ImageNotFoundError
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		as     any
	}{
		"link":           {func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: link, Target: "/mnt/x"}} }, &spec},
		"missing source": {func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: scope + "/no", Target: "/mnt/x"}} }, &spec},
		"no mount point": {func(s *sandbox.Spec) {
			s.Mounts = []sandbox.Mount{{Source: scope, Target: scope}, {Source: "/etc/hosts", Target: scope + "/hosts", ReadOnly: true}}
		}, &spec},
		"image": {func(s *sandbox.Spec) { s.Image = "localhost/none:latest" }, &missing},
		"image mount": {func(s *sandbox.Spec) {
			s.Images = []sandbox.ImageMount{{Image: "localhost/none:latest", Target: "/opt/handler/addons/x"}}
		}, &missing},
		"display": {func(s *sandbox.Spec) { s.Display = &sandbox.Display{Mode: sandbox.DisplayWayland, Socket: scope} }, &spec},
	} {
		s := r.spec("true")
		c.change(&s)
		if id, err := r.Start(t.Context(), s); !errors.As(err, c.as) {
			t.Errorf("%s: %q %v", name, id, err)
		}
	}
	s := r.spec("true")
	s.Limits.Memory = sandbox.Limit{Value: 1 << 30, Asked: true}
	if info, err := r.Info(t.Context()); err != nil {
		t.Error(err)
	} else if id, err := r.Start(t.Context(), s); !info.Enforced.Memory && !errors.As(err, &unenforced) {
		t.Errorf("memory limit: %q %v", id, err)
	}
	if left, err := r.List(t.Context(), nil); err != nil || len(left) > 1 {
		t.Errorf("left: %v %v", left, err)
	}
}

// A name is taken until its sandbox is removed, and a failed start does not touch the one that has it.
func TestNameTaken(t *testing.T) {
	r := newRig(t)
	id, err := r.Start(t.Context(), r.spec("sleep=1m"))
	if err != nil {
		t.Fatal(err)
	}
	var spec *sandbox.SpecError
	if other, err := r.Start(t.Context(), r.spec("true")); !errors.As(err, &spec) || spec.Field != "name" {
		t.Errorf("second start: %q %v", other, err)
	}
	listed, err := r.List(t.Context(), nil)
	if err != nil || len(listed) != 1 || listed[0].ID != id || !listed[0].Running {
		t.Errorf("listed: %+v %v", listed, err)
	}
	for range 2 {
		if err := r.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// The service is started again after it died, and a sandbox outlives it.
func TestServiceDies(t *testing.T) {
	r := newRig(t)
	id, err := r.Start(t.Context(), r.spec("sleep=1m"))
	if err != nil {
		t.Fatal(err)
	}
	r.service.mu.Lock()
	c := r.service.child
	r.service.mu.Unlock()
	if err := c.process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.done
	listed, err := r.List(t.Context(), nil)
	if err != nil || len(listed) != 1 || !listed[0].Running {
		t.Errorf("listed: %+v %v", listed, err)
	}
	if err := r.Stop(t.Context(), id, 0); err != nil {
		t.Error(err)
	}
	if exit, err := r.Wait(t.Context(), id); err != nil || exit.Code != 137 {
		t.Errorf("exit: %+v %v", exit, err)
	}
}

// The next daemon finds and removes what one that was killed left.
func TestKilledDaemon(t *testing.T) {
	if dir := os.Getenv("HANDLER_TEST_DAEMON"); dir != "" {
		r := &rig{dir: dir}
		if id, err := r.driver(t).Start(context.Background(), r.spec("sleep=1m")); err != nil {
			t.Fatal(id, err)
		}
		fmt.Println("started")
		select {}
	}
	r := newRig(t)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestKilledDaemon$")
	cmd.Env = append(os.Environ(), "HANDLER_TEST_DAEMON="+r.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 8)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "started\n" {
		t.Fatalf("%q %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	r.Driver = r.driver(t)
	if n, err := r.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("sweep: %d %v", n, err)
	}
	if listed, err := r.List(t.Context(), nil); err != nil || len(listed) != 0 {
		t.Errorf("listed: %+v %v", listed, err)
	}
}

// A service whose socket was taken away is started anew.
func TestRunFolderRemoved(t *testing.T) {
	r := newRig(t)
	if err := os.RemoveAll(filepath.Join(r.dir, "r")); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.drop() // as after the first call that fails
	r.mu.Unlock()
	if listed, err := r.List(t.Context(), nil); err != nil || len(listed) != 0 {
		t.Errorf("listed: %v %v", listed, err)
	}
	if got := r.run(t, r.spec("true"))["true"]; got != "yes" {
		t.Errorf("a sandbox after it: %q", got)
	}
}

// A service of the person's serves as well, and goes on after the driver is closed.
func TestPersonsService(t *testing.T) {
	r := newRig(t)
	second, err := New(Options{StateDir: filepath.Join(r.dir, "s2"), RunDir: filepath.Join(r.dir, "r2"), Owner: "other", Socket: r.layout().socket()})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	s2 := &rig{Driver: second, dir: r.dir}
	mine, err := r.Start(t.Context(), r.spec("sleep=1m"))
	if err != nil {
		t.Fatal(err)
	}
	s := r.spec("read=/etc/hosts")
	s.Name = "two"
	if got := s2.run(t, s)["read"]; got != strings.ReplaceAll(hostsFile, "\n", "|") {
		t.Errorf("inside: %q", got)
	}
	dir := filepath.Join(r.dir, "ctx")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/Containerfile", []byte("FROM "+testImage+"\nRUN [\"/probe\", \"env=A\"]\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if _, err := second.Images().Build(t.Context(), sandbox.Build{Tag: "localhost/handler/built:1", Context: dir, Containerfile: "Containerfile",
		Env: map[string]string{"A": "b c"}}, &said); err != nil || !strings.Contains(said.String(), "true b c") {
		t.Errorf("build: %v: %s", err, said.String())
	}
	if n, err := second.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("it sweeps another's: %d %v", n, err)
	}
	if err := errors.Join(second.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	if _, err := second.List(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	if listed, err := r.List(t.Context(), nil); err != nil || len(listed) != 1 || listed[0].ID != mine {
		t.Errorf("the first one's: %+v %v", listed, err)
	}
}

// An entrypoint, a user, a volume and a health check of an image's have no say.
func TestImageHasNoSay(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.dir, "ctx")
	text := "FROM " + testImage + "\nENTRYPOINT [\"/probe\", \"exit=3\"]\nCMD [\"exit=4\"]\nUSER 0\nVOLUME /data\nWORKDIR /home\nHEALTHCHECK CMD /probe exit=1\n"
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/Containerfile", []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Images().Build(t.Context(), sandbox.Build{Tag: "localhost/handler/odd:1", Context: dir, Containerfile: "Containerfile"}, nil); err != nil {
		t.Fatal(err)
	}
	s := r.spec("mode="+sandbox.HomeTarget, "write=/data/x")
	s.Image = "localhost/handler/odd:1"
	got := r.run(t, s)
	if got["mode"] != fmt.Sprintf("0700 %d", os.Getuid()) || got["write"] != "read-only file system" && got["write"] != "no such file or directory" {
		t.Errorf("inside: %q", got)
	}
}

// A build that is given up leaves no process and no half-made container, and one with its tag taken replaces it.
func TestBuildEnds(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.dir, "ctx")
	write := func(text string) {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/Containerfile", []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	build := func(ctx context.Context, progress io.Writer) (string, error) {
		return r.Images().Build(ctx, sandbox.Build{Tag: "localhost/handler/b:1", Context: dir, Containerfile: "Containerfile"}, progress)
	}
	write("FROM " + testImage + "\nRUN [\"/probe\", \"true\", \"sleep=5m\"]\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := build(ctx, writerFunc(func(line string) {
		if strings.HasPrefix(line, "true: yes") {
			cancel() // the step runs
		}
	})); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if left, err := r.leftovers(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	write("FROM " + testImage + "\nRUN [\"/probe\", \"exit=9\"]\n")
	var engine *sandbox.EngineError
	if _, err := build(t.Context(), nil); !errors.As(err, &engine) || !strings.Contains(err.Error(), "9") {
		t.Errorf("a step that fails: %v", err)
	}
	var ids []string
	for i := range 2 {
		write(fmt.Sprintf("FROM %s\nLABEL n=%d\n", testImage, i))
		id, err := build(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	var missing *sandbox.ImageNotFoundError
	if _, err := r.Images().Inspect(t.Context(), ids[0]); !errors.As(err, &missing) {
		t.Errorf("the image that had the tag: %v", err)
	}
	if image, err := r.Images().Inspect(t.Context(), "localhost/handler/b:1"); err != nil || image.ID != ids[1] {
		t.Errorf("the new one: %+v %v", image, err)
	}
}

type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

// Two daemons do not use one run folder.
func TestBusy(t *testing.T) {
	r := newRig(t)
	second := r.driver(t)
	defer second.Close()
	if _, err := second.List(t.Context(), nil); !errors.Is(err, ErrBusy) {
		t.Errorf("second daemon: %v", err)
	}
}

// Stop is as quick as the sandbox, and as patient as it was told.
func TestStop(t *testing.T) {
	r := newRig(t)
	scope := filepath.Join(r.dir, "scope")
	if err := os.Mkdir(scope, 0o755); err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(scope, "ready")
	for name, c := range map[string]struct {
		command  []string
		grace    time.Duration
		code     int
		min, max time.Duration
	}{
		"obeys":    {[]string{"on-term-exit=" + ready}, 10 * time.Second, 7, 0, 3 * time.Second},
		"stubborn": {[]string{"ignore-term", "write=" + ready, "sleep=1m"}, 300 * time.Millisecond, 137, 300 * time.Millisecond, 3 * time.Second},
	} {
		s := r.spec(c.command...)
		s.Mounts = []sandbox.Mount{{Source: scope, Target: scope}}
		id, err := r.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, ready)
		began := time.Now()
		if err := r.Stop(t.Context(), id, c.grace); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took < c.min || took > c.max {
			t.Errorf("%s: took %v", name, took)
		}
		if exit, err := r.Wait(t.Context(), id); err != nil || !exit.Known || exit.Code != c.code {
			t.Errorf("%s: %+v %v", name, exit, err)
		}
		if err := errors.Join(r.Stop(t.Context(), id, 0), r.Remove(t.Context(), id), r.Stop(t.Context(), id, 0), os.Remove(ready)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if exit, err := r.Wait(t.Context(), id); err != nil || exit.Known {
			t.Errorf("%s after removal: %+v %v", name, exit, err)
		}
	}
}

// waitFor waits until a file is there.
func waitFor(t testing.TB, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			t.Fatalf("%s did not appear", path)
		}
	}
}

// Stats counts what lies in a tmpfs, which no process has mapped.
func TestStatsCountsTmpfs(t *testing.T) {
	r := newRig(t)
	scope := filepath.Join(r.dir, "scope")
	if err := os.Mkdir(scope, 0o755); err != nil {
		t.Fatal(err)
	}
	s := r.spec("fill=/dev/shm/x:50000000", "write="+scope+"/ready", "sleep=1m")
	s.Mounts = []sandbox.Mount{{Source: scope, Target: scope}}
	id, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, scope+"/ready")
	got, err := r.Stats(t.Context(), id)
	if err != nil || got.MemoryBytes < 50_000_000 || got.MemoryBytes > 150_000_000 || got.Processes != 1 {
		t.Errorf("stats: %+v %v", got, err)
	}
}

// The display's socket is mounted alone, and only a compositor's.
func TestDisplayInside(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(r.dir, "wayland-7")
	l := fakeCompositor(t, path)
	defer l.Close()
	s := r.spec("env=WAYLAND_DISPLAY", "list="+filepath.Dir(sandbox.DisplayTarget))
	s.Display = &sandbox.Display{Mode: sandbox.DisplayWayland, Socket: path}
	got := r.run(t, s)
	if got["env"] != "true "+sandbox.DisplayTarget || got["list"] != "wayland-0" {
		t.Errorf("inside: %q", got)
	}
}

// fakeCompositor answers one sync request a connection.
func fakeCompositor(t testing.TB, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 12)
			if _, err := io.ReadFull(c, request); err == nil {
				_, _ = c.Write([]byte{2, 0, 0, 0, 0, 0, 12, 0, 1, 0, 0, 0})
			}
			c.Close()
		}
	}()
	return l
}
