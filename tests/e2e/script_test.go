package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/handlerd/api/types"
)

// A command is one that scripts have.
type command = func(ts *testscript.TestScript, neg bool, args []string)

// runScripts runs the scripts of testdata/script whose names (without .txtar) keep says yes to, one after the other,
// with more commands besides the common ones. A script finds in its environment, besides testscript's WORK:
//
//	BIN      the programs' folder, first in PATH      CONFIG  ~/.config/handler, empty at the beginning
//	STATE    ~/.local/state/handler                   HOME    a home folder, empty at the beginning
//	RUNS     the parent of the run directories        TOOLS   the folder of probe
//
// and these commands ("!" before one wants it to fail):
//
//	handler ARG…              the command line, without standard input, at most commandLimit; its output is for stdout and stderr
//	exits CODE handler ARG…   the same, and the exit code must be CODE
//	agent [-on NAME] [FLAG…] PROMPT   handler run NAME --yes FLAG… PROMPT (NAME is demo if not said), in the current folder
//	attacker [-on NAME] ARG…  runs the probe with ARG… inside a sandbox: the demo agent's step "run"; its output is stdout
//	json COND…                the last command's stdout is JSON and meets every condition (see match_test.go)
//	acp-client [FLAG…] AGENT FILE   plays FILE to handler acp FLAG… AGENT (see acpclient_test.go)
//	wait-run VAR [COND…]      waits for a run that meets COND (of handler ps --json), sets VAR to its id and remembers its processes
//	kill9 WHAT RUN            SIGKILL to the agent, guest, editor, conmon or handlerd of a run
//	nothing-left RUN [LIMIT]  of a run nothing is left within LIMIT (15s): process, container, mount, folder;
//	                          with "!" before it, all of these are seen now
//	serve NAME [DIR]          an HTTP server on 127.0.0.1 outside every sandbox; sets NAME to host:port, NAME_PORT to the port (see serve_test.go)
//	nameserver VAR NAME=ADDRESS,…|…   a name server on 127.0.0.1; sets VAR to host:port (see nameserver_test.go)
//	served NAME REGEXP        the server NAME saw a request that fits: "METHOD PATH", then its headers, a line each
//	served-soon NAME REGEXP   the same, waited for
//	absent TEXT PATH…         TEXT occurs in none of the files and folders
//	audit COND…               an audit line of this script meets every condition
//	poll LIMIT handler ARG…   repeats the command line until it succeeds, at most LIMIT
//	scripted NAME MODE [ARG…] a harness of the person's own, and an agent without addons, that misbehaves as MODE says (probe/agent.go)
//	event COND…               a line of the last command's stdout, JSON each, meets every condition
//	picture FILE              FILE is a picture with something on it
//	processes-gone RUN LIMIT  every process of the run that was seen ends within LIMIT, daemon or none
//	template FILE NEW         writes FILE to NEW with the script's variables in place of ${NAME}
//	be-there [FLAG…]          handler approvals watch: somebody is there to be asked, until be-gone
//	told COND…                waits until they were told an event that meets every condition
//	listen PATH               a unix socket of the person's own
//	podman-rmi IMAGE          removes an image behind Handler's back
//	inspect RUN               what podman knows of the run's container, on stdout
//	typed CODE FILE handler ARG…  the command line on a terminal of 24 rows and 80 columns, where a person types FILE (see
//	                          typed_test.go); the exit code must be CODE; what the terminal showed is stdout
//	forward NAME RUN PORT [FLAG…]  handler forward, in the background; NAME becomes its host:port, NAME_URL its address
//	forward-ends NAME [INT]   it ends by itself, or by Ctrl-C
//	fetch [-host HOST] URL    a page, as a browser on the host asks for it
//	web-login NAME [FLAG…]    handler web, and a browser that is logged in: its headers are NAME and NAME_TOKEN (see web_test.go)
//	web-ask [-only] [-body TEXT] METHOD URL [HEADER…]  a request with exactly these headers; status, headers and body are stdout
//	watch RUN RRGGBB [browser]  a viewer of a display, who only watches (view_test.go)
//	hands …                   a person who takes the guarded browser over (hands_test.go)
//	say HOST:PORT TEXT        a line over TCP, and what is answered
//	api METHOD PATH [FILE [HEADER…]]  a request to the API; the answer is stdout (see api_test.go)
//	api-event SESSION COND…   the next event of a session that meets every condition
//	full-disk DIR handler ARG…  the command line, with DIR on a disk that is full
//
// Background commands are testscript's own: exec handler run … &name&.
func runScripts(t *testing.T, keep func(name string) bool, more map[string]command) {
	t.Helper()
	if testing.Short() {
		t.Skip("end-to-end scripts need the real thing; run: make test")
	}
	all, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{}
	for _, f := range all {
		if keep(strings.TrimSuffix(filepath.Base(f), ".txtar")) {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatal("no scripts")
	}
	cmds := commands()
	maps.Copy(cmds, more)
	testscript.RunT(inOrder{t}, testscript.Params{
		Files: files, Setup: the.setup, Cmds: cmds, RequireExplicitExec: true, RequireUniqueNames: true,
		Condition: condition, Deadline: deadline(t),
	})
}

func deadline(t *testing.T) time.Time {
	d, _ := t.Deadline()
	return d
}

// inOrder runs scripts one after the other: some of them kill the daemon that all share.
type inOrder struct{ *testing.T }

func (inOrder) Parallel()     {}
func (inOrder) Verbose() bool { return testing.Verbose() }
func (t inOrder) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(inOrder{t}) })
}

// condition adds [cgroup1], [cgroup2] and [systemd] to testscript's own.
func condition(cond string) (bool, error) {
	_, v2 := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	_, systemd := os.Stat("/run/systemd/system")
	switch cond {
	case "cgroup1":
		return v2 != nil, nil
	case "cgroup2":
		return v2 == nil, nil
	case "systemd":
		return systemd == nil, nil
	}
	return false, fmt.Errorf("unknown condition %s", cond)
}

// setup gives a script the suite's environment and an empty configuration.
func (s *suite) setup(e *testscript.Env) error {
	if err := s.clean(); err != nil {
		return err
	}
	for _, kv := range s.env() {
		name, value, _ := strings.Cut(kv, "=")
		e.Setenv(name, value)
	}
	e.Setenv("BIN", s.bin)
	e.Setenv("CONFIG", s.config)
	e.Setenv("STATE", s.state)
	e.Setenv("RUNS", filepath.Join(s.runtime, "handler/runs"))
	e.Setenv("TOOLS", s.tools)
	e.Values[scriptKey{}] = &script{suite: s, auditFrom: s.auditSize(), servers: map[string]*server{}, known: map[string][]process{}}
	e.Defer(func() { s.killRuns() })
	return os.Chmod(e.WorkDir, 0o755) // a scope of its own
}

// A script is what the commands of one script share.
type script struct {
	*suite
	auditFrom int64
	servers   map[string]*server
	known     map[string][]process // what was seen of a run, by its id
	there     *watcher             // who is there to be asked; nil if nobody is
	forwards  map[string]*forwarded
	hands     *viewing         // of who has taken a browser over
	seen      map[string]int64 // the number of the last event of a session that was waited for
}

type scriptKey struct{}

// of gives the script's own state.
func of(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

// killRuns ends what a script that failed left running, so that the next one begins with nothing.
func (s *suite) killRuns() {
	runs, err := s.runs()
	if err != nil {
		return
	}
	for _, r := range runs {
		_, _ = s.command(commandLimit, filepath.Join(s.bin, "handler"), "kill", r.ID) // it may have ended by itself
	}
}

// runs asks the daemon for the live runs.
func (s *suite) runs() ([]types.Run, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "handler"), "ps", "--json")
	cmd.Env = s.env()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("handler ps: %w", err)
	}
	var runs []types.Run
	if err := json.Unmarshal(out, &runs); err != nil {
		return nil, fmt.Errorf("handler ps --json: %w: %.200s", err, out)
	}
	return runs, nil
}

// Bounds of what tests wait for.
const (
	commandLimit = 90 * time.Second // one command of Handler
	stopBound    = 15 * time.Second // until nothing is left of a run (A.5): 10 s for the guest, the rest for a slow machine
)

func commands() map[string]command {
	return map[string]command{
		"handler":      cmdHandler,
		"exits":        cmdExits,
		"agent":        cmdAgent,
		"attacker":     cmdAttacker,
		"json":         cmdJSON,
		"acp-client":   cmdACPClient,
		"wait-run":     cmdWaitRun,
		"kill9":        cmdKill9,
		"nothing-left": cmdNothingLeft,
		"serve":        cmdServe,
		"served":       cmdServed,
		"served-soon":  cmdServedSoon,
		"nameserver":   cmdNameserver,
		"absent":       cmdAbsent,
		"audit":        cmdAudit,
		"poll":         cmdPoll,
		"scripted":     cmdScripted,
		"picture":      cmdPicture,
		"event":        cmdEvent,
		"inspect":      cmdInspect,
		"full-disk":    cmdFullDisk,
		"template":     cmdTemplate,
		"typed":        cmdTyped,
		"be-there":     cmdBeThere,
		"be-gone":      cmdBeGone,
		"told":         cmdTold,
		"listen":       cmdListen,
		"podman-rmi":   cmdPodmanRmi,

		"forward":      cmdForward,
		"forward-ends": cmdForwardEnds,
		"fetch":        cmdFetch,
		"watch":        cmdWatch,
		"hands":        cmdHands,
		"say":          cmdSay,
		"web-login":    cmdWebLogin,
		"web-ask":      cmdWebAsk,
		"api":          cmdAPI,
		"api-event":    cmdAPIEvent,

		"processes-gone": cmdProcessesGone,
	}
}

// runHandler runs the command line as the script's operator and gives its exit code, -1 for a signal or the limit.
func runHandler(ts *testscript.TestScript, args ...string) int {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(of(ts).bin, "handler"), args...)
	cmd.Env, cmd.Dir = scriptEnv(ts), ts.MkAbs(".")
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	err := cmd.Run()
	if ctx.Err() != nil {
		ts.Fatalf("handler %s took longer than %v", strings.Join(args, " "), commandLimit)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	ts.Check(err)
	return 0
}

// scriptEnv is the script's environment as it is now.
func scriptEnv(ts *testscript.TestScript) []string {
	env := []string{}
	for _, name := range []string{
		"PATH", "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "NO_COLOR", "USER", "LOGNAME",
		"LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "EDITOR", "WAYLAND_DISPLAY", "HANDLER_WAYLAND_SOCKET", "CANARY",
	} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// wantCode fails the script unless a command ended as "!" or its absence says.
func wantCode(ts *testscript.TestScript, neg bool, code int) {
	switch {
	case neg && code == 0:
		ts.Fatalf("it succeeded, which it must not")
	case !neg && code != 0:
		ts.Fatalf("exit code %d", code)
	}
}

func cmdHandler(ts *testscript.TestScript, neg bool, args []string) {
	wantCode(ts, neg, runHandler(ts, args...))
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "handler" {
		ts.Fatalf("usage: exits CODE handler ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if code := runHandler(ts, args[2:]...); code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// on takes "-on NAME" off args.
func on(args []string) (agent string, rest []string) {
	if len(args) >= 2 && args[0] == "-on" {
		return args[1], args[2:]
	}
	return "demo", args
}

func cmdAgent(ts *testscript.TestScript, neg bool, args []string) {
	name, args := on(args)
	wantCode(ts, neg, runHandler(ts, append([]string{"run", name, "--yes"}, args...)...))
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	conds := parseConds(ts, args)
	out := []byte(ts.ReadFile("stdout"))
	if !json.Valid(out) {
		ts.Fatalf("stdout is not one JSON value")
	}
	vars, err := conds.match(out)
	if neg == (err == nil) {
		ts.Fatalf("json: %v", err)
	}
	setAll(ts, vars)
}

func setAll(ts *testscript.TestScript, vars map[string]string) {
	for name, value := range vars {
		ts.Setenv(name, value)
	}
}

// cmdWaitRun waits for a run. It also remembers the run's processes, so that nothing-left knows them all.
func cmdWaitRun(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: wait-run VAR [COND…]")
	}
	conds := parseConds(ts, append([]string{"state=running"}, args[1:]...))
	s := of(ts)
	var last any
	found := within(30*time.Second, func() bool {
		runs, err := s.runs()
		last = fmt.Sprint(runs, " ", err)
		for _, r := range runs {
			raw, err := json.Marshal(r)
			ts.Check(err)
			if vars, err := conds.match(raw); err == nil {
				setAll(ts, vars)
				ts.Setenv(args[0], r.ID)
				s.remember(r.ID)
				return true
			}
		}
		return false
	})
	if !found {
		ts.Fatalf("no such run in 30 s; the last answer: %v", last)
	}
}

// within tries f until it is true, at most for limit.
func within(limit time.Duration, f func() bool) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		if f() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// cmdPoll repeats a command that has no event to wait for. The command must be one that reports by its exit code
// alone: "handler".
func cmdPoll(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "handler" {
		ts.Fatalf("usage: poll LIMIT handler ARG…")
	}
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	if !within(limit, func() bool { return runHandler(ts, args[2:]...) == 0 }) {
		ts.Fatalf("it did not succeed in %v", limit)
	}
}

func cmdAbsent(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: absent TEXT PATH…")
	}
	var in []string
	for _, path := range args[1:] {
		ts.Check(filepath.WalkDir(ts.MkAbs(path), func(file string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			there, err := holds(file, args[0])
			if there {
				in = append(in, file)
			}
			return err
		}))
	}
	if neg == (len(in) == 0) {
		ts.Fatalf("%q is in %v", args[0], in)
	}
}

// holds tells whether a file holds text. Holes are passed over: a script of the limits leaves a file of 100 GiB that has
// nothing in it.
func holds(file, text string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for at := int64(0); ; {
		if at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			return false, nil // nothing but a hole from here on
		} else if err != nil {
			return false, err
		}
		n, err := f.ReadAt(buf, at)
		if bytes.Contains(buf[:n], []byte(text)) {
			return true, nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return false, err
		}
		at += int64(n - len(text)) // what may lie on the border
	}
}

func (s *suite) auditFile() string { return filepath.Join(s.state, "audit/audit.jsonl") }

func (s *suite) auditSize() int64 {
	info, err := os.Stat(s.auditFile())
	if err != nil {
		return 0 // nothing was judged yet
	}
	return info.Size()
}

func cmdAudit(ts *testscript.TestScript, neg bool, args []string) {
	conds, s := parseConds(ts, args), of(ts)
	data, err := os.ReadFile(s.auditFile())
	ts.Check(err)
	lines := strings.Split(strings.TrimSpace(string(data[min(s.auditFrom, int64(len(data))):])), "\n")
	for _, line := range lines {
		if vars, err := conds.match([]byte(line)); err == nil {
			setAll(ts, vars)
			if neg {
				ts.Fatalf("there is such a line: %s", line)
			}
			return
		}
	}
	if !neg {
		ts.Fatalf("no such line among %d:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}
