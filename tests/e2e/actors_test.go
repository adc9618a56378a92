package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/png" // picture reads screenshots
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// probeIn puts the probe into the current folder, which is a scope of the agent: inside it has the same path.
func probeIn(ts *testscript.TestScript) string {
	inside := ts.MkAbs(".probe")
	if _, err := os.Stat(inside); err != nil {
		data, err := os.ReadFile(filepath.Join(of(ts).tools, "probe"))
		ts.Check(err)
		ts.Check(os.WriteFile(inside, data, 0o755))
	}
	return inside
}

// cmdScripted makes a harness of the person's own, as one TOML file, whose agent is the probe in one of its modes, and
// an agent of the same name that binds no addon. It works in the folder that is the current one now.
func cmdScripted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: scripted NAME MODE [ARG…]")
	}
	words := []string{}
	for _, w := range append([]string{probeIn(ts), "agent"}, args[1:]...) {
		words = append(words, fmt.Sprintf("%q", w))
	}
	text := fmt.Sprintf("name = %q\ncommand = [%s]\nmcpTransports = [\"stdio\", \"http\", \"sse\"]\n", args[0], strings.Join(words, ", "))
	ts.Check(os.WriteFile(filepath.Join(of(ts).config, "harness", args[0]+".toml"), []byte(text), 0o600))
	text = fmt.Sprintf("harness = %q\n[bindings]\n", args[0])
	ts.Check(os.WriteFile(filepath.Join(of(ts).config, "agents", args[0]+".toml"), []byte(text), 0o600))
}

func cmdAttacker(ts *testscript.TestScript, neg bool, args []string) {
	name, args := on(args)
	words := []string{probeIn(ts)}
	for _, a := range args {
		words = append(words, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	wantCode(ts, neg, runHandler(ts, "run", name, "--yes", "run "+strings.Join(words, " ")))
}

// cmdPicture looks at a picture, as a person would: it has this size at least, and it is not all one colour.
func cmdPicture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: picture FILE")
	}
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	img, kind, err := image.Decode(f)
	ts.Check(err)
	b := img.Bounds()
	if b.Dx() < 300 || b.Dy() < 200 {
		ts.Fatalf("the picture is %v", b)
	}
	colours := map[string]int{}
	for y := b.Min.Y; y < b.Max.Y; y += 2 {
		for x := b.Min.X; x < b.Max.X; x += 2 {
			r, g, bl, _ := img.At(x, y).RGBA()
			colours[fmt.Sprint(r>>8, g>>8, bl>>8)]++
		}
	}
	most, all := 0, 0
	for _, n := range colours {
		most, all = max(most, n), all+n
	}
	if len(colours) < 5 || most == all {
		ts.Fatalf("the %s has %d colours", kind, len(colours))
	}
	ts.Logf("a %s of %v with %d colours", kind, b.Size(), len(colours))
}

// cmdEvent looks for a line of the last command's output, JSON a line, that meets every condition.
func cmdEvent(ts *testscript.TestScript, neg bool, args []string) {
	conds := parseConds(ts, args)
	out := strings.TrimSpace(ts.ReadFile("stdout"))
	for line := range strings.Lines(out) {
		if vars, err := conds.match([]byte(line)); err == nil {
			if neg {
				ts.Fatalf("there is such a line: %s", line)
			}
			setAll(ts, vars)
			return
		}
	}
	if !neg {
		ts.Fatalf("no such line in:\n%s", clip([]byte(out)))
	}
}

func cmdTemplate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: template FILE NEW")
	}
	text := variable.ReplaceAllStringFunc(ts.ReadFile(args[0]), func(m string) string { return ts.Getenv(m[2 : len(m)-1]) })
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

func cmdListen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: listen PATH")
	}
	l, err := net.Listen("unix", ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Defer(func() { l.Close() })
}

func cmdPodmanRmi(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: podman-rmi IMAGE")
	}
	data, err := of(ts).podman(http.MethodGet, "images/json")
	ts.Check(err)
	var list []struct {
		ID       string `json:"Id"`
		RepoTags []string
	}
	ts.Check(json.Unmarshal(data, &list))
	for _, i := range list {
		for _, tag := range i.RepoTags {
			if name, _, _ := strings.Cut(strings.TrimPrefix(tag, "localhost/"), ":"); "localhost/"+name == args[0] {
				_, err := of(ts).podman(http.MethodDelete, "images/"+i.ID+"?force=true")
				ts.Check(err)
				return
			}
		}
	}
	ts.Fatalf("no image %s among %s", args[0], clip(data))
}

// podman asks Handler's own podman service, which only lives while the daemon does.
func (s *suite) podman(method, path string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.runtime, "handler/podman/p.sock"))
		},
	}}
	req, err := http.NewRequest(method, "http://podman/v4.0.0/libpod/"+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("podman answers %s: %.300s", res.Status, data)
	}
	return data, err
}

// cmdInspect prints what podman knows of a run's container.
func cmdInspect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: inspect RUN")
	}
	for _, p := range of(ts).ofRun(args[0]) {
		if p.monitored != "" {
			data, err := of(ts).podman(http.MethodGet, "containers/"+p.monitored+"/json")
			ts.Check(err)
			_, _ = ts.Stdout().Write(data) // a strings.Builder
			return
		}
	}
	ts.Fatalf("run %s has no container", args[0])
}

// fullDisk names the variable that turns the test's own program into the inside of cmdFullDisk.
const fullDisk = "HANDLER_E2E_FULL_DISK"

// cmdFullDisk runs handler with a folder that lies on a full disk: a tmpfs of 64 KiB, filled to the last byte, in a
// mount namespace of its own. What was in the folder is there too.
func cmdFullDisk(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 || args[1] != "handler" {
		ts.Fatalf("usage: full-disk DIR handler ARG…")
	}
	self, err := os.Executable()
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = append([]string{"full-disk", ts.MkAbs(args[0]), filepath.Join(of(ts).bin, "handler")}, args[2:]...)
	cmd.Env, cmd.Dir = append(scriptEnv(ts), fullDisk+"=1"), ts.MkAbs(".")
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
	}
	err = cmd.Run()
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code == fullDiskFailed {
		ts.Fatalf("the full disk could not be made")
	}
	wantCode(ts, neg, code)
}

const fullDiskFailed = 90

// insideFullDisk is the other half of cmdFullDisk; it does not return.
func insideFullDisk(args []string) {
	err := fillDisk(args[1])
	if err == nil {
		err = unix.Exec(args[2], args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "full-disk:", err)
	os.Exit(fullDiskFailed)
}

func fillDisk(dir string) error {
	held := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		held[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return err
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	for path, data := range held {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		return err
	}
	defer f.Close()
	for _, size := range []int{4096, 1} {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				break // full, in steps of this size
			}
		}
	}
	return nil
}
