package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A process as /proc shows it from the host.
type process struct {
	pid, parent int
	start       string // clock ticks since boot: with pid, the process for ever
	zombie      bool
	inner       int    // its number in its own PID namespace
	command     string // argv, blanks between
	run         string // the run whose directory is mounted in it; "" for none
	monitored   string // of a conmon: the container's name
}

func (p process) String() string {
	return fmt.Sprintf("process %d (%.120s)", p.pid, p.command)
}

// isGuest tells process 1 of a run's sandbox; a browser has PID namespaces of its own in it.
func (p process) isGuest(run string) bool {
	return p.run == run && p.inner == 1 && strings.Contains(p.command, "handler-guest init")
}

// processes gives every process of ours, in sandboxes too: there they have our uid or one of our subordinate ones.
func (s *suite) processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := s.process(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

// process reads one process; ok is false for another user's, for kernel threads and for one that has gone meanwhile.
func (s *suite) process(pid int) (process, bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	p := process{pid: pid}
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return p, false
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		switch {
		case len(f) == 0:
		case key == "Uid" && !ours(f[0]):
			return p, false
		case key == "PPid":
			p.parent, _ = strconv.Atoi(f[0])
		case key == "State":
			p.zombie = f[0] == "Z"
		case key == "NSpid":
			p.inner, _ = strconv.Atoi(f[len(f)-1])
		}
	}
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return p, false
	}
	if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(f) > 19 {
		p.start = f[19]
	}
	argv, _ := os.ReadFile(dir + "cmdline") // empty for zombies
	p.command = strings.TrimSpace(strings.ReplaceAll(string(argv), "\x00", " "))
	if m := regexp.MustCompile(`conmon .* -n (\S+) `).FindStringSubmatch(p.command); m != nil {
		p.monitored = m[1]
	}
	mounts, _ := os.ReadFile(dir + "mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/run/handler" {
			p.run = filepath.Base(f[3])
		}
	}
	return p, true
}

// ours tells whether uid is the test's or one of its subordinate ones.
func ours(uid string) bool {
	n, err := strconv.Atoi(uid)
	if err != nil || n == os.Getuid() {
		return err == nil
	}
	table, _ := os.ReadFile("/etc/subuid")
	for line := range strings.Lines(string(table)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != os.Getenv("USER") && f[0] != strconv.Itoa(os.Getuid()) {
			continue
		}
		first, _ := strconv.Atoi(f[1])
		count, _ := strconv.Atoi(f[2])
		if n >= first && n < first+count {
			return true
		}
	}
	return false
}

// ofRun gives the processes of a run: those with its directory, their descendants (a browser's renderers see no
// mounts) and its monitor. The guest is the first.
func (s *suite) ofRun(run string) []process {
	all := s.processes()
	var found []process
	in := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !in[p.pid] && (p.run == run || in[p.parent]) {
				in[p.pid], grown = true, true
				found = append(found, p)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b process) int {
		return strings.Compare(strconv.FormatBool(b.isGuest(run)), strconv.FormatBool(a.isGuest(run)))
	})
	for _, p := range all {
		if strings.HasSuffix(p.monitored, "-"+run) {
			found = append(found, p)
		}
	}
	return found
}

// remember notes the processes of a run, so that nothing-left can look for each of them.
func (s *script) remember(run string) {
	for _, p := range s.ofRun(run) {
		if !slices.ContainsFunc(s.known[run], func(k process) bool { return k.pid == p.pid && k.start == p.start }) {
			s.known[run] = append(s.known[run], p)
		}
	}
}

// cmdKill9 kills one process of a run as nobody could expect.
func cmdKill9(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: kill9 agent|guest|conmon|editor|handlerd RUN")
	}
	s, what, run := of(ts), args[0], args[1]
	s.remember(run)
	var found []process
	guest := 0
	for _, p := range s.known[run] {
		if p.isGuest(run) {
			guest = p.pid
		}
	}
	for _, p := range s.processes() {
		fits := false
		switch what {
		case "agent":
			fits = p.parent == guest && p.run == run && !p.zombie
		case "guest":
			fits = p.pid == guest
		case "conmon":
			fits = strings.HasSuffix(p.monitored, "-"+run)
		case "editor":
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
			fits = exe == filepath.Join(s.bin, "handler") && regexp.MustCompile(`^\S+ (acp|run) `).MatchString(p.command)
		case "handlerd":
			fits = strings.HasPrefix(p.command, filepath.Join(s.bin, "handlerd"))
		default:
			ts.Fatalf("kill9 knows no %s", what)
		}
		if fits {
			found = append(found, p)
		}
	}
	if what == "agent" && len(found) > 1 { // what its children left behind came later
		found = []process{slices.MinFunc(found, func(a, b process) int { return a.pid - b.pid })}
	}
	if len(found) != 1 {
		ts.Fatalf("%d processes are the %s of run %s: %v; all of it: %v", len(found), what, run, found, s.known[run])
	}
	ts.Logf("SIGKILL to %v", found[0])
	ts.Check(syscall.Kill(found[0].pid, syscall.SIGKILL))
}

func cmdNothingLeft(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: nothing-left RUN [LIMIT]")
	}
	s, run, limit := of(ts), args[0], stopBound
	if len(args) == 2 {
		var err error
		limit, err = time.ParseDuration(args[1])
		ts.Check(err)
	}
	if !regexp.MustCompile(`^[a-z0-9]{2,}$`).MatchString(run) {
		ts.Fatalf("%q is no run's id", run)
	}
	if neg {
		wantSeen(ts, s.left(run))
		return
	}
	began := time.Now()
	if !within(limit, func() bool { return len(s.left(run)) == 0 }) {
		ts.Fatalf("after %v this is left of run %s:\n  %s", limit, run, strings.Join(s.left(run), "\n  "))
	}
	ts.Logf("nothing is left after %v", time.Since(began).Round(time.Millisecond))
}

// wantSeen holds that of a run that lives everything is seen: what looks for nothing finds nothing for ever.
func wantSeen(ts *testscript.TestScript, left []string) {
	for _, kind := range []string{"process ", "mount ", "container ", "a container in podman's ", "folder "} {
		if !slices.ContainsFunc(left, func(what string) bool { return strings.HasPrefix(what, kind) }) {
			ts.Fatalf("of a run that lives no %swas seen, but only:\n  %s", kind, strings.Join(left, "\n  "))
		}
	}
}

// cmdProcessesGone is for when there is no daemon: then mounts and podman's books stay until the next one sweeps, but
// no process may.
func cmdProcessesGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: processes-gone RUN LIMIT")
	}
	s, run := of(ts), args[0]
	limit, err := time.ParseDuration(args[1])
	ts.Check(err)
	if len(s.known[run]) == 0 {
		ts.Fatalf("of run %s no process was seen; say wait-run first", run)
	}
	if !within(limit, func() bool { return len(s.alive(run)) == 0 }) {
		ts.Fatalf("after %v these live: %s", limit, strings.Join(s.alive(run), "\n  "))
	}
}

// alive gives the processes that were seen of a run and are still there.
func (s *script) alive(run string) []string {
	var left []string
	for _, k := range s.known[run] {
		if p, ok := s.process(k.pid); ok && p.start == k.start && !p.zombie {
			left = append(left, p.String()+", which belonged to it")
		}
	}
	return left
}

// left says what is left of a run.
func (s *script) left(run string) []string {
	left := s.alive(run)
	dir := filepath.Join(s.runtime, "handler/runs", run)
	return append(left, s.traces(func(text string) bool {
		return strings.Contains(text, "/handler/runs/"+run) || containerOf(text, run)
	}, dir)...)
}

// containerOf tells whether text names the container of a run.
func containerOf(text, run string) bool {
	return regexp.MustCompile(`handler-[0-9a-f]{8}-` + regexp.QuoteMeta(run) + `\b`).MatchString(text)
}

// allLeft says what is left of any run; while the daemon lives its own mounts and processes are no leftover.
func (s *suite) allLeft(daemon bool) []string {
	var left []string
	runs := filepath.Join(s.runtime, "handler/runs")
	entries, err := os.ReadDir(runs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		left = append(left, err.Error())
	}
	for _, e := range entries {
		left = append(left, "folder "+filepath.Join(runs, e.Name()))
	}
	anyRun := regexp.MustCompile(regexp.QuoteMeta(runs) + `/|/handler/runs/|handler-[0-9a-f]{8}-[a-z0-9]{4}\b`)
	left = append(left, s.traces(anyRun.MatchString, "")...)
	if daemon {
		return left
	}
	podman := filepath.Join(s.runtime, "handler/podman")
	for _, p := range s.processes() {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if !p.zombie && (strings.Contains(string(environ), "="+podman) || strings.Contains(p.command, podman)) {
			left = append(left, p.String()+" of podman")
		}
	}
	return left
}

// traces says where something of a run shows: processes, mounts in every mount namespace of ours, podman, dir.
func (s *suite) traces(fits func(string) bool, dir string) []string {
	var left []string
	seen := map[string]bool{}
	self := os.Getpid()
	for _, p := range s.processes() {
		if p.pid == self || p.zombie {
			continue
		}
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid)) // not readable of one that has gone
		if p.run != "" && fits("/handler/runs/"+p.run) || p.monitored != "" && fits(p.monitored) || fits(string(environ)) {
			left = append(left, p.String())
		}
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", p.pid))
		if err != nil || seen[ns] {
			continue
		}
		seen[ns] = true
		mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.pid))
		for line := range strings.Lines(string(mounts)) {
			if fits(line) {
				left = append(left, fmt.Sprintf("mount in the namespace of %v: %s", p, strings.TrimSpace(line)))
			}
		}
	}
	if dir != "" {
		if _, err := os.Lstat(dir); err == nil {
			left = append(left, "folder "+dir)
		}
	}
	return append(left, s.containers(fits)...)
}

// containers asks podman's own books and, while it runs, podman.
func (s *suite) containers(fits func(string) bool) []string {
	var left []string
	for _, name := range []string{"containers.json", "volatile-containers.json"} {
		data, _ := os.ReadFile(filepath.Join(s.data, "handler/podman/storage/overlay-containers", name)) // not there before the first container
		if fits(string(data)) {
			left = append(left, "a container in podman's "+name)
		}
	}
	data, err := s.podman(http.MethodGet, "containers/json?all=true")
	if err != nil {
		return left // no service runs, so that its books are all there is
	}
	var list []struct {
		Names []string
		State string
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return append(left, "podman's list of containers cannot be read: "+err.Error())
	}
	for _, c := range list {
		if fits(strings.Join(c.Names, " ")) {
			left = append(left, fmt.Sprintf("container %v (%s)", c.Names, c.State))
		}
	}
	return left
}
