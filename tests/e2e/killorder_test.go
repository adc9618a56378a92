package e2e

import (
	"bytes"
	"fmt"

	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// killables are those who can be killed of a run, and around it.
var killables = []string{"agent", "guest", "conmon", "editor", "podman", "handlerd"}

// TestKillOrders kills every two of a run's agent, guest, monitor and client, podman's service and the daemon, in both
// orders, in mid-turn. VERIFIES A.5: nothing is left of the run, and the next one starts. Where neither the service nor
// the daemon is killed, the runs live beside each other.
func TestKillOrders(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the real thing; run: make test")
	}
	if err := the.clean(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(the.config, "agents/bare.toml"), []byte("harness = \"demo\"\nbindings = {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var alone [][2]string
	var beside sync.WaitGroup
	for _, first := range killables {
		for _, second := range killables {
			pair := [2]string{first, second}
			switch {
			case first == second:
			case shared(first) || shared(second):
				alone = append(alone, pair)
			default:
				beside.Go(func() { killPair(t, pair) })
			}
		}
	}
	beside.Wait()
	for _, pair := range alone {
		killPair(t, pair)
	}
}

// shared says whether all runs have the same one.
func shared(who string) bool { return who == "podman" || who == "handlerd" }

func killPair(t *testing.T, pair [2]string) {
	began := time.Now()
	dir := t.TempDir()
	s := &script{suite: the, known: map[string][]process{}}
	editor := exec.Command(filepath.Join(the.bin, "handler"), "run", "bare", "--yes", "--json", "say begun; wait 300 s")
	editor.Env, editor.Dir = the.env(), dir
	var errs bytes.Buffer
	editor.Stderr = &errs
	out, err := editor.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	if err := editor.Start(); err != nil {
		t.Error(err)
		return
	}
	var said strings.Builder
	run := ""
	for buf := make([]byte, 4096); !strings.Contains(said.String(), "begun\\n"); {
		n, err := out.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			break
		}
	}
	if _, after, ok := strings.Cut(said.String(), `"run":"`); ok {
		run, _, _ = strings.Cut(after, `"`)
	}
	if run == "" || len(s.ofRun(run)) < 3 {
		t.Errorf("%v: the run did not begin: %q %s", pair, said.String(), errs.String())
		_ = editor.Process.Kill()
		_ = editor.Wait()
		return
	}
	s.remember(run)
	for _, who := range pair {
		for _, pid := range s.victims(who, run, editor.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the first may have taken the second with it
		}
	}
	if pair[0] != "editor" && pair[1] != "editor" && !dies(pair[0]) && !dies(pair[1]) {
		_ = editor.Process.Kill() // the run outlives its monitor and podman's service, and ends with its client
	}
	_ = editor.Wait()
	if !within(stopBound, func() bool { return len(s.alive(run)) == 0 }) {
		t.Errorf("%v: of run %s these live: %v", pair, run, s.alive(run))
	}
	again, err := runAgain(dir)
	if err != nil || !strings.Contains(again, "again") {
		t.Errorf("%v: the next run: %v\n%s", pair, err, again)
	}
	if !within(stopBound, func() bool { return len(s.left(run)) == 0 }) {
		t.Errorf("%v: of run %s this is left:\n  %s", pair, run, strings.Join(s.left(run), "\n  "))
	}
	t.Logf("%v: %v", pair, time.Since(began).Round(time.Millisecond))
}

// runAgain is a short run after it.
func runAgain(dir string) (string, error) {
	cmd := exec.Command(filepath.Join(the.bin, "handler"), "run", "bare", "--yes", "say again")
	cmd.Env, cmd.Dir = the.env(), dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// dies says whether a run ends when this one is killed.
func dies(who string) bool { return who != "conmon" && who != "podman" }

// victims gives the processes that are who of a run.
func (s *script) victims(who, run string, editor int) []int {
	if who == "editor" {
		return []int{editor}
	}
	guest := 0
	for _, p := range s.known[run] {
		if p.isGuest(run) {
			guest = p.pid
		}
	}
	var found []int
	for _, p := range s.processes() {
		fits := false
		switch who {
		case "agent":
			fits = p.parent == guest && p.run == run
		case "guest":
			fits = p.pid == guest
		case "conmon":
			fits = strings.HasSuffix(p.monitored, "-"+run)
		case "podman":
			fits = strings.Contains(p.command, " system service ") && strings.Contains(p.command, filepath.Join(s.runtime, "handler/podman"))
		case "handlerd":
			fits = strings.HasPrefix(p.command, filepath.Join(s.bin, "handlerd"))
		}
		if fits && !p.zombie {
			found = append(found, p.pid)
		}
	}
	return found
}

// TestTwoDaemons starts daemons at the same moment, in one runtime folder and in two. VERIFIES A.5: in one folder all
// commands find the same one; with a second runtime folder and the same state the second is refused and says who holds
// it; once the first is killed the second starts, and removes what the first left.
func TestTwoDaemons(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the real thing; run: make test")
	}
	if err := the.clean(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(the.config, "agents/bare.toml"), []byte("harness = \"demo\"\nbindings = {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	handler := filepath.Join(the.bin, "handler")
	if out, err := the.command(time.Minute, handler, "daemon", "stop"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	// A lock file that a daemon of long ago left means nothing.
	if err := os.WriteFile(filepath.Join(the.runtime, "handler/handlerd.lock"), []byte("99999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if out, err := runAgain(t.TempDir()); err != nil || !strings.Contains(out, "again") {
				t.Errorf("one of six first commands: %v %s", err, out)
			}
		})
	}
	wg.Wait()
	if pids := (&script{suite: the}).victims("handlerd", "", 0); len(pids) != 1 {
		t.Fatalf("%d daemons: %v", len(pids), pids)
	}
	other, err := os.MkdirTemp("", "hr")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(other)
	second := func(args ...string) (string, error) {
		cmd := exec.Command(handler, args...)
		cmd.Dir = t.TempDir()
		for _, kv := range the.env() {
			if !strings.HasPrefix(kv, "XDG_RUNTIME_DIR=") {
				cmd.Env = append(cmd.Env, kv)
			}
		}
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+other)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := second("run", "bare", "--yes", "say no"); err == nil || !strings.Contains(out, "another handlerd") || !strings.Contains(out, "XDG_RUNTIME_DIR="+the.runtime) {
		t.Errorf("a second daemon: %v %s", err, out)
	}
	editor := exec.Command(handler, "run", "bare", "--yes", "wait 300 s")
	editor.Env, editor.Dir = the.env(), t.TempDir()
	if err := editor.Start(); err != nil {
		t.Fatal(err)
	}
	s := &script{suite: the, known: map[string][]process{}}
	run := ""
	if !within(30*time.Second, func() bool {
		runs, err := the.runs()
		if err == nil && len(runs) == 1 && runs[0].Turn == "working" {
			run = runs[0].ID
		}
		return run != ""
	}) {
		t.Fatal("the run did not begin")
	}
	s.remember(run)
	for _, pid := range s.victims("handlerd", run, 0) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = editor.Wait()
	if out, err := second("run", "bare", "--yes", "say second"); err != nil || !strings.Contains(out, "second") {
		t.Errorf("the second daemon, after the first was killed: %v %s", err, out)
	}
	if out, err := runAgain(t.TempDir()); err == nil || !strings.Contains(out, "XDG_RUNTIME_DIR="+other) {
		t.Errorf("the first daemon, while the second lives: %v %s", err, out)
	}
	if left := s.containers(func(text string) bool { return containerOf(text, run) }); len(left) > 0 {
		t.Errorf("the second left of the first: %v", left)
	}
	if out, err := second("daemon", "stop"); err != nil {
		t.Errorf("stop: %v %s", err, out)
	}
	if out, err := runAgain(t.TempDir()); err != nil || !strings.Contains(out, "again") {
		t.Errorf("the first runtime folder again: %v %s", err, out)
	}
	if !within(stopBound, func() bool { return len(s.left(run)) == 0 }) {
		t.Errorf("of run %s this is left:\n  %s", run, strings.Join(s.left(run), "\n  "))
	}
}

// TestLogout empties the runtime folder under a daemon with a live run, as systemd does at a logout without lingering.
// VERIFIES: the next command works within seconds, and nothing is left of the run.
func TestLogout(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the real thing; run: make test")
	}
	if err := the.clean(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(the.config, "agents/bare.toml"), []byte("harness = \"demo\"\nbindings = {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &script{suite: the, known: map[string][]process{}}
	editor := exec.Command(filepath.Join(the.bin, "handler"), "run", "bare", "--yes", "wait 300 s")
	editor.Env, editor.Dir = the.env(), t.TempDir()
	if err := editor.Start(); err != nil {
		t.Fatal(err)
	}
	run := ""
	if !within(30*time.Second, func() bool {
		runs, err := the.runs()
		if err == nil && len(runs) == 1 && runs[0].Turn == "working" {
			run = runs[0].ID
		}
		return run != ""
	}) {
		t.Fatal("the run did not begin")
	}
	s.remember(run)
	// Some of it belongs to subordinate ids, and only root removes it; taken away it is as gone.
	gone, err := os.MkdirTemp(the.runtime, "gone")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(the.runtime, "handler"), filepath.Join(gone, "handler")); err != nil {
		t.Fatal(err)
	}
	defer removeAsRoot(t, gone)
	if out, err := runAgain(t.TempDir()); err != nil || !strings.Contains(out, "again") {
		t.Errorf("after a logout: %v %s", err, out)
	}
	_ = editor.Wait()
	if !within(stopBound, func() bool { return len(s.left(run)) == 0 }) {
		t.Errorf("of run %s this is left:\n  %s", run, strings.Join(s.left(run), "\n  "))
	}
}

// removeAsRoot removes a folder whose files belong to subordinate ids, as root of a user namespace of podman's.
func removeAsRoot(t *testing.T, dir string) {
	own := t.TempDir()
	cmd := exec.Command("podman", "unshare", "rm", "-rf", dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + own, "XDG_RUNTIME_DIR=" + own}
	out, err := cmd.CombinedOutput()
	if _, serr := os.Stat(dir); serr == nil {
		t.Errorf("%s is left: %v: %s", dir, err, out)
	}
	for _, p := range the.processes() { // podman's pause process
		if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid)); err == nil && bytes.Contains(environ, []byte("XDG_RUNTIME_DIR="+own)) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}
