package main_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
	"github.com/handlerd/handler/sandbox/proctree"
	"github.com/handlerd/handler/sandbox/rundir"
	"github.com/handlerd/handler/sandbox/sandboxtest"
)

var guestBin string // built once by TestMain

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "guest")
	if err == nil {
		guestBin, err = sandboxtest.BuildGuest(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

const patience = 20 * time.Second // for what takes milliseconds on an idle machine

// A guest under test.
type guest struct {
	t   *testing.T
	cmd *exec.Cmd
	dir *rundir.Dir
	acp *net.UnixConn
}

// in says where the guest runs: as PID 1 of a namespace or as a plain process of the host.
var in = map[string]func(*exec.Cmd){
	"host": func(*exec.Cmd) {},
	"pid1": func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		}
	},
}

// both runs a test in both places.
func both(t *testing.T, f func(t *testing.T, place func(*exec.Cmd))) {
	for name, place := range in {
		t.Run(name, func(t *testing.T) { f(t, place) })
	}
}

func newDir(t *testing.T, o rundir.Options) *rundir.Dir {
	t.Helper()
	parent, err := os.MkdirTemp("", "hg") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	d, err := rundir.New(parent, "r", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(); os.RemoveAll(parent) })
	return d
}

// startGuest runs a shell script as the agent and waits until its connection is there.
func startGuest(t *testing.T, place func(*exec.Cmd), o rundir.Options, script string) *guest {
	t.Helper()
	g := &guest{t: t, dir: newDir(t, o)}
	g.cmd = exec.Command(guestBin, "init", "--run-dir", g.dir.Path(), "--proxy-addr", "", "--runtime-dir", "",
		"--", "/bin/sh", "-c", script)
	place(g.cmd)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.cmd.Process.Kill(); _ = g.cmd.Wait() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := g.dir.ACP(ctx)
	if err != nil {
		t.Fatal(err)
	}
	g.acp = c.(*net.UnixConn)
	t.Cleanup(func() { c.Close() })
	return g
}

// wait returns the exit code, and fails if the guest lives longer than most.
func (g *guest) wait(most time.Duration) int {
	g.t.Helper()
	timer := time.AfterFunc(most, func() { g.t.Errorf("the guest lives after %v", most); _ = g.cmd.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := g.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		g.t.Fatal(err)
	}
	return g.cmd.ProcessState.ExitCode()
}

func (g *guest) line() string {
	g.t.Helper()
	_ = g.acp.SetReadDeadline(time.Now().Add(patience))
	s, err := bufio.NewReaderSize(g.acp, 16).ReadString('\n')
	if err != nil {
		g.t.Fatalf("%q: %v", s, err)
	}
	return strings.TrimSuffix(s, "\n")
}

func within(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("no %s", what)
	}
}

// Bytes pass unchanged both ways; the end of the input reaches the agent, and the end of its output the daemon while
// the agent lives; stderr and the exit code are told.
func TestStdio(t *testing.T) {
	both(t, func(t *testing.T, place func(*exec.Cmd)) {
		g := startGuest(t, place, rundir.Options{}, `cat; echo "last words" >&2; exec >&-; read x <&2 2>/dev/null; exit 7`)
		within(t, "start", g.dir.Started())
		want := strings.Repeat("0123456789abcde\n", 1<<16)
		go func() { _, _ = io.WriteString(g.acp, want); _ = g.acp.CloseWrite() }()
		_ = g.acp.SetReadDeadline(time.Now().Add(patience))
		got, err := io.ReadAll(g.acp)
		if err != nil || string(got) != want {
			t.Fatalf("%d bytes of %d, %v", len(got), len(want), err)
		}
		if code := g.wait(patience); code != 7 {
			t.Errorf("exit %d", code)
		}
		within(t, "done", g.dir.Done())
		if r := g.dir.Result(); r.Code != 7 || !r.Exited || r.Signal != "" || r.Err != nil {
			t.Errorf("%+v", r)
		}
		if end, lost := g.dir.Stderr(); string(end) != "last words\n" || lost != 0 {
			t.Errorf("stderr %q, %d lost", end, lost)
		}
	})
}

// The daemon sees the end of the output while the agent lives.
func TestOutputEndsFirst(t *testing.T) {
	g := startGuest(t, in["host"], rundir.Options{}, `exec >&-; read x; exit 3`)
	_ = g.acp.SetReadDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(g.acp); err != nil || len(b) != 0 {
		t.Fatalf("%q %v", b, err)
	}
	if r := g.dir.Result(); r.Exited {
		t.Error("the agent has ended too early for this test")
	}
	if _, err := g.acp.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if code := g.wait(patience); code != 3 {
		t.Errorf("exit %d", code)
	}
}

// What the agent wrote before it died is not lost, even when it dies by a signal at once.
func TestDiesAtOnce(t *testing.T) {
	both(t, func(t *testing.T, place func(*exec.Cmd)) {
		g := startGuest(t, place, rundir.Options{}, `echo out; echo err >&2; kill -KILL $$`)
		_ = g.acp.SetReadDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(g.acp); err != nil || string(b) != "out\n" {
			t.Errorf("%q %v", b, err)
		}
		if code := g.wait(patience); code != 137 {
			t.Errorf("exit %d", code)
		}
		within(t, "done", g.dir.Done())
		if r := g.dir.Result(); r.Code != 137 || r.Signal != "KILL" {
			t.Errorf("%+v", r)
		}
		if end, _ := g.dir.Stderr(); string(end) != "err\n" {
			t.Errorf("stderr %q", end)
		}
	})
}

// TERM, from the engine or from the daemon, reaches everyone; the agent's own code comes back.
func TestTerm(t *testing.T) {
	both(t, func(t *testing.T, place func(*exec.Cmd)) {
		for name, stop := range map[string]func(g *guest) error{
			"signal": func(g *guest) error { return g.cmd.Process.Signal(syscall.SIGTERM) },
			"frame":  func(g *guest) error { return g.dir.Signal("TERM") },
		} {
			t.Run(name, func(t *testing.T) {
				g := startGuest(t, place, rundir.Options{},
					`trap "ended=1" TERM; setsid sh -c 'trap "echo grandchild; exit" TERM; echo up; while :; do sleep 0.02; done' & `+
						`until [ "$ended" ]; do sleep 0.02; done; wait $!; exit 9`)
				if s := g.line(); s != "up" {
					t.Fatal(s)
				}
				if err := stop(g); err != nil {
					t.Fatal(err)
				}
				if s := g.line(); s != "grandchild" {
					t.Error(s)
				}
				if code := g.wait(patience); code != 9 {
					t.Errorf("exit %d", code)
				}
			})
		}
	})
}

// Other signals are the agent's alone.
func TestForwards(t *testing.T) {
	both(t, func(t *testing.T, place func(*exec.Cmd)) {
		g := startGuest(t, place, rundir.Options{},
			`for s in HUP INT USR1 USR2; do trap "echo $s" $s; done; echo up; while :; do sleep 0.02; done`)
		g.line()
		for name, sig := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "USR1": syscall.SIGUSR1, "INT": syscall.SIGINT} {
			if err := g.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if s := g.line(); s != name {
				t.Errorf("%s: %s", name, s)
			}
		}
		if err := g.dir.Signal("USR2"); err != nil {
			t.Fatal(err)
		}
		if s := g.line(); s != "USR2" {
			t.Error(s)
		}
		if err := g.dir.Signal("KILL"); err != nil {
			t.Fatal(err)
		}
		if code := g.wait(patience); code != 137 {
			t.Errorf("exit %d", code)
		}
	})
}

// Orphans are reaped at once, and the agent's status is its own even when others end around it.
func TestReaps(t *testing.T) {
	g := startGuest(t, in["host"], rundir.Options{}, `for i in 1 2 3 4 5 6 7 8; do (sh -c 'exit 1' &) ; done; echo up; read x; exit 5`)
	g.line()
	deadline := time.Now().Add(patience)
	for {
		procs, err := proctree.Scan()
		if err != nil {
			t.Fatal(err)
		}
		dead, below := 0, proctree.Below(procs, g.cmd.Process.Pid)
		for _, p := range below {
			if p.Dead() {
				dead++
			}
		}
		if dead == 0 && len(below) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d zombies of %d", dead, len(below))
		}
	}
	_, _ = g.acp.Write([]byte("end\n"))
	if code := g.wait(patience); code != 5 {
		t.Errorf("exit %d", code)
	}
}

// ignorers is a script that leaves a stubborn grandchild in a session of its own, and prints its number, as the
// host sees it through the marker in its command line.
func ignorers(mark string, then string) string {
	return `setsid sh -c 'trap "" TERM; echo up; while :; do sleep 1; done' ` + mark + ` & ` + then
}

// left returns the live processes whose command line has mark.
func left(t *testing.T, mark string) (pids []int) {
	t.Helper()
	procs, err := proctree.Scan()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if strings.Contains(string(b), mark) && !p.Dead() {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// When the agent has ended, a grandchild that ignores TERM has two seconds.
func TestKillsAfterCommand(t *testing.T) {
	both(t, func(t *testing.T, place func(*exec.Cmd)) {
		t.Parallel()
		mark := "mark-" + strconv.Itoa(os.Getpid()) + strings.ReplaceAll(t.Name(), "/", "-")
		g := startGuest(t, place, rundir.Options{}, ignorers(mark, "read x; exit 4"))
		g.line()
		if len(left(t, mark)) == 0 {
			t.Fatal("the grandchild is not there")
		}
		_, _ = g.acp.Write([]byte("end\n"))
		began := time.Now()
		if code := g.wait(patience); code != 4 {
			t.Errorf("exit %d", code)
		}
		if took := time.Since(began); took < 1500*time.Millisecond {
			t.Errorf("killed after %v, before its two seconds", took)
		}
		if pids := left(t, mark); len(pids) != 0 {
			t.Errorf("left: %v", pids)
		}
	})
}

// When the daemon is gone the sandbox is gone within ten seconds, whoever ignores TERM.
func TestDaemonGone(t *testing.T) {
	both(t, func(t *testing.T, place func(*exec.Cmd)) {
		t.Parallel()
		mark := "mark-" + strconv.Itoa(os.Getpid()) + strings.ReplaceAll(t.Name(), "/", "-")
		g := startGuest(t, place, rundir.Options{}, ignorers(mark, `trap "" TERM; while :; do sleep 1; done`))
		g.line()
		if err := g.dir.Close(); err != nil {
			t.Fatal(err)
		}
		if code := g.wait(10 * time.Second); code != 137 {
			t.Errorf("exit %d", code)
		}
		if pids := left(t, mark); len(pids) != 0 {
			t.Errorf("left: %v", pids)
		}
	})
}

// KILL from the daemon ends all at once.
func TestKillFrame(t *testing.T) {
	g := startGuest(t, in["pid1"], rundir.Options{}, `trap "" TERM; echo up; while :; do sleep 1; done`)
	g.line()
	if err := g.dir.Signal("KILL"); err != nil {
		t.Fatal(err)
	}
	if code := g.wait(2 * time.Second); code != 137 {
		t.Errorf("exit %d", code)
	}
}

// A daemon that does not read stderr blocks nobody; what was lost is counted.
func TestStderrNeverBlocks(t *testing.T) {
	hold := make(chan struct{})
	g := startGuest(t, in["host"], rundir.Options{StderrLine: func([]byte) { <-hold }},
		`head -c 4000000 /dev/zero | tr '\0' 'x' | fold -w 99 >&2; echo written`)
	if s := g.line(); s != "written" {
		t.Error(s)
	}
	close(hold)
	g.wait(patience)
	within(t, "done", g.dir.Done())
	end, lost := g.dir.Stderr()
	if total := int64(4000000 + 4000000/99); lost+int64(len(end)) < total-1 || lost+int64(len(end)) > total+1 {
		t.Errorf("%d kept and %d lost of %d", len(end), lost, total)
	}
}

// Small bursts on stderr are not lost on a daemon that reads.
func TestStderrBurst(t *testing.T) {
	g := startGuest(t, in["host"], rundir.Options{}, `i=0; while [ $i -lt 2000 ]; do echo "line $i" >&2; i=$((i+1)); done`)
	g.wait(patience)
	within(t, "done", g.dir.Done())
	if end, lost := g.dir.Stderr(); lost != 0 || !strings.HasSuffix(string(end), "line 1999\n") || strings.Count(string(end), "\n") != 2000 {
		t.Errorf("%d bytes, %d lost", len(end), lost)
	}
}

// A command that cannot be started says why, with a code that tells.
func TestCannotStart(t *testing.T) {
	dir := t.TempDir()
	plain, script := filepath.Join(dir, "plain"), filepath.Join(dir, "script")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]int{"no-such-command": 127, "/no/such/file": 127, plain: 126, script: 127, dir: 126} {
		t.Run(filepath.Base(command), func(t *testing.T) {
			g := &guest{t: t, dir: newDir(t, rundir.Options{})}
			g.cmd = exec.Command(guestBin, "init", "--run-dir", g.dir.Path(), "--proxy-addr", "", "--", command, "arg")
			if err := g.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if code := g.wait(patience); code != want {
				t.Errorf("exit %d, want %d", code, want)
			}
			within(t, "done", g.dir.Done())
			if r := g.dir.Result(); r.Started || !strings.Contains(r.Failed, command) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Files are there, private, before the command is; one that is there already is not touched.
func TestFiles(t *testing.T) {
	root := t.TempDir()
	d := newDir(t, rundir.Options{})
	run := func(files ...sandbox.File) (*guest, error) {
		s, err := rundir.ServeFiles(d.Path(), files)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		g := &guest{t: t, dir: d}
		g.cmd = exec.Command(guestBin, "init", "--files", "--run-dir", d.Path(), "--proxy-addr", "", "--",
			"/bin/sh", "-c", `cd "$1" && cat deep/er/secret && stat -c %a deep deep/er deep/er/secret`, "sh", root)
		if err := g.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.cmd.Process.Kill(); _ = g.cmd.Wait() })
		return g, s.Wait(t.Context())
	}
	secret := sandbox.File{Path: root + "/deep/er/secret", Mode: 0o440, Content: []byte("s3cret\n")}
	g, err := run(secret, sandbox.File{Path: root + "/empty", Mode: 0o777})
	if err != nil {
		t.Fatal(err)
	}
	acp, err := d.ACP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer acp.Close()
	if b, err := io.ReadAll(acp); err != nil || string(b) != "s3cret\n700\n700\n440\n" {
		t.Errorf("%q %v", b, err)
	}
	if code := g.wait(patience); code != 0 {
		t.Errorf("exit %d", code)
	}
	d = newDir(t, rundir.Options{})
	g, err = run(secret)
	if err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("over an existing file: %v", err)
	}
	if code := g.wait(patience); code != 125 {
		t.Errorf("exit %d", code)
	}
}

// Without acp.sock the command reads nothing and writes where the guest writes.
func TestWithoutSockets(t *testing.T) {
	cmd := exec.Command(guestBin, "init", "--run-dir", t.TempDir(), "--proxy-addr", "", "--", "/bin/sh", "-c", `cat; echo out; echo err >&2`)
	cmd.Stdin = strings.NewReader("not for the command")
	b, err := cmd.CombinedOutput()
	if err != nil || string(b) != "out\nerr\n" {
		t.Errorf("%q %v", b, err)
	}
}

// The runtime folder becomes a private one.
func TestRuntimeDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(guestBin, "init", "--run-dir", t.TempDir(), "--proxy-addr", "", "--runtime-dir", dir, "--",
		"/bin/sh", "-c", `printf %s "$XDG_RUNTIME_DIR"; stat -c ,%a "$XDG_RUNTIME_DIR"`)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "XDG_RUNTIME_DIR=/elsewhere"}
	b, err := cmd.CombinedOutput()
	if err != nil || string(b) != dir+",700\n" {
		t.Errorf("%q %v", b, err)
	}
}

// Usage errors exit 125 and say what is wrong.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"run"}, {"init"}, {"init", "--no-such"}, {"init", "--", ""}} {
		cmd := exec.Command(guestBin, args...)
		b, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 125 || !strings.Contains(string(b), "handler-guest") {
			t.Errorf("%q: %d %q", args, cmd.ProcessState.ExitCode(), b)
		}
	}
}

// A daemon of another build is told from its frames: hello comes first.
func TestHello(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, sandbox.SocketGuest))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command(guestBin, "init", "--run-dir", dir, "--proxy-addr", "", "--", "/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if f, err := guestwire.NewReader(c).Next(); err != nil || f.Kind != guestwire.Hello || f.Version != guestwire.Version {
		t.Errorf("%+v %v", f, err)
	}
}
