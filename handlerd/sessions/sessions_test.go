package sessions

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/handlerd/secrets"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/fake"
)

// programs are the real guest and demo agent, built once.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sessions")
	if err != nil {
		panic(err)
	}
	programs = dir
	for _, p := range []string{"handler-guest", "handler-demo-agent"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, p), "github.com/handlerd/handler/cmd/"+p)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// A world is a Manager over the fake engine, with agents that need no image but the toolbox.
type world struct {
	m       *Manager
	driver  *fake.Driver
	runRoot string
	audit   string
	scope   string
}

func newWorld(t *testing.T, fakeOptions fake.Options, agentTOML map[string]string) *world {
	t.Helper()
	dir := t.TempDir()
	// Sockets have 107 bytes for their path, and the test's own folder may be deep.
	run, err := os.MkdirTemp("", "r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	w := &world{runRoot: filepath.Join(run, "runs"), audit: filepath.Join(dir, "audit.jsonl"), scope: filepath.Join(dir, "home", "src")}
	c := catalog.Catalog{Config: filepath.Join(dir, "config"), State: filepath.Join(dir, "state"), Home: filepath.Join(dir, "home")}
	write(t, filepath.Join(c.Config, "harness", "script.toml"), fmt.Sprintf(
		"name = %q\ntitle = \"Script\"\nversion = \"1\"\ncommand = [%q]\nmcpTransports = [\"stdio\"]\n", "script", filepath.Join(programs, "handler-demo-agent")))
	write(t, filepath.Join(c.Config, "harness", "dies.toml"),
		"name = \"dies\"\ntitle = \"Dies\"\nversion = \"1\"\ncommand = [\"/bin/sh\", \"-c\", \"echo last words >&2; exit 7\"]\nmcpTransports = [\"stdio\"]\n")
	for name, text := range agentTOML {
		write(t, filepath.Join(c.Config, "agents", name+".toml"), text)
	}
	if err := os.MkdirAll(w.scope, 0o700); err != nil {
		t.Fatal(err)
	}
	if w.driver, err = fake.New(fakeOptions); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.driver.Close() })
	if _, err := w.driver.Images().Import(t.Context(), emptyTar(t), sandbox.ToolboxImage(""), nil); err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	w.m = New(Options{
		Driver: w.driver, Plan: c.Plan, Network: c.Network,
		Display: func(context.Context, types.Wayland) (string, error) {
			return "", fault.New(fault.Failed, "export WAYLAND_DISPLAY=…", "no Wayland socket")
		},
		Scopes: func() (scopes.Config, error) {
			return scopes.Config{Home: c.Home, Handler: []string{c.Config, c.State}}, nil
		},
		Audit: log, Secrets: secrets.NewReader(secrets.Options{}), Approvals: approvals.New(approvals.Options{Audit: log.Append}), SaveRule: c.SaveRule, Owner: "test-owner", RunRoot: w.runRoot, StateDir: c.State, Guest: filepath.Join(programs, "handler-guest"),
	})
	t.Cleanup(func() {
		if err := w.m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func emptyTar(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

const plain = "harness = \"script\"\nbindings = {}\n"

func (w *world) start(t *testing.T, agent string) (*Run, error) {
	t.Helper()
	return w.m.Start(t.Context(), types.RunRequest{Agent: agent, Cwd: w.scope})
}

// join serves the run and gives the client's end; done gives what Serve said.
func join(t *testing.T, r *Run) (*jsonrpc.Peer, <-chan error) {
	t.Helper()
	ours, theirs := socketPair(t)
	done := make(chan error, 1)
	go func() { done <- r.Serve(context.Background(), theirs) }()
	peer := jsonrpc.New(context.Background(), ours, jsonrpc.Options{Handler: func(context.Context, *jsonrpc.Request) {}})
	t.Cleanup(func() { peer.Close() })
	return peer, done
}

// socketPair is a pair of unix connections, whose halves can be closed apart as the relay wants it.
func socketPair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// nothingLeft asserts contract A.5.
func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	if left, err := w.driver.List(t.Context(), nil); err != nil || len(left) > 0 {
		t.Errorf("sandboxes are left: %v %v", left, err)
	}
	if entries, _ := os.ReadDir(w.runRoot); len(entries) > 0 {
		t.Errorf("run folders are left: %v", entries)
	}
	if runs := w.m.List(t.Context()); len(runs) > 0 {
		t.Errorf("runs are left: %v", runs)
	}
}

func TestWholeRun(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	peer, done := join(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var init jsonrpc.InitializeResult
	if err := peer.Call(ctx, "initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{"terminal": true}}, &init); err != nil {
		t.Fatal(err)
	}
	var session jsonrpc.NewSessionResult
	if err := peer.Call(ctx, "session/new", map[string]any{"cwd": w.scope, "mcpServers": []any{}}, &session); err != nil {
		t.Fatal(err)
	}
	var answer jsonrpc.PromptResult
	prompt := []map[string]any{{"type": "text", "text": "say hello"}}
	if err := peer.Call(ctx, "session/prompt", map[string]any{"sessionId": session.SessionID, "prompt": prompt}, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.StopReason != "end_turn" {
		t.Errorf("stop reason %q", answer.StopReason)
	}
	status, err := w.m.Find(t.Context(), r.ID()[:2])
	if err != nil || status.State != types.StateRunning || status.Agent != "web" || len(status.Scopes) != 1 || status.Refused != 0 {
		t.Errorf("%+v, %v", status, err)
	}
	err = peer.Call(ctx, "session/new", map[string]any{"cwd": "/etc", "mcpServers": []any{}}, nil)
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) || !strings.Contains(string(refused.Data), `"P1"`) {
		t.Errorf("a session outside the scope: %v", err)
	}
	peer.Close()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	w.nothingLeft(t)
	w.audited(t, audit.KindStart, audit.KindMessage, audit.KindStop)
}

// audited asserts that the audit log has a record of each kind, in this order.
func (w *world) audited(t *testing.T, kinds ...string) {
	t.Helper()
	records, err := audit.Tail(w.audit, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		if len(kinds) > 0 && r.Kind == kinds[0] {
			kinds = kinds[1:]
		}
		got = append(got, r.Kind)
	}
	if len(kinds) > 0 {
		t.Errorf("no audit record %v in %v", kinds, got)
	}
}

// TestStartRollsBack makes every step of the engine fail, and looks for what is left (A.5).
func TestStartRollsBack(t *testing.T) {
	for _, step := range []fake.Step{fake.StepCheck, fake.StepFolders, fake.StepVolumes, fake.StepExec, fake.StepInfo} {
		t.Run(string(step), func(t *testing.T) {
			broken := errors.New("broken on purpose")
			w := newWorld(t, fake.Options{Fault: func(s fake.Step, _ string) error {
				if s == step {
					return broken
				}
				return nil
			}}, map[string]string{"web": plain})
			if _, err := w.start(t, "web"); !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
			w.nothingLeft(t)
		})
	}
}

func TestRefusedStarts(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{
		"web":     plain,
		"home":    plain + "[[scopes]]\npath = \"~/\"\n",
		"gone":    plain + "[[scopes]]\npath = \"~/nowhere\"\n",
		"default": "harness = \"script\"\n", // the playwright addon is not built
		"limited": plain + "[limits]\ncpus = 0.5\n",
		"dies":    "harness = \"dies\"\nbindings = {}\n",
		"named":   plain + "toolbox = \"rust\"\n",
	})
	for agent, want := range map[string]struct {
		kind       fault.Kind
		says, hint string
	}{
		"nobody":  {fault.NotFound, "nobody", ""},
		"home":    {fault.Refused, "home", "project folder"},
		"gone":    {fault.Refused, "nowhere", "mkdir -p"},
		"default": {fault.Failed, "the addon playwright is not built", "handler addon build playwright"},
		"limited": {fault.Failed, "CPU limit", "handler agent edit limited"},
		"named":   {fault.Failed, "toolbox rust is not built", "handler toolbox build rust"},
	} {
		t.Run(agent, func(t *testing.T) {
			_, err := w.start(t, agent)
			f := fault.Of(err)
			if err == nil || f.Kind != want.kind || !strings.Contains(f.Text, want.says) || !strings.Contains(f.Hint, want.hint) {
				t.Errorf("got kind %d, %q, hint %q", f.Kind, f.Text, f.Hint)
			}
			w.nothingLeft(t)
		})
	}
	t.Run("display", func(t *testing.T) {
		_, err := w.m.Start(t.Context(), types.RunRequest{Agent: "web", Cwd: w.scope, Display: true})
		if f := fault.Of(err); err == nil || !strings.Contains(f.Text, "no Wayland socket") {
			t.Errorf("got %v", err)
		}
		w.nothingLeft(t)
	})
}

// TestAgentDies has an agent that ends at once: whoever waits is told how, and what it said last.
func TestAgentDies(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"dies": "harness = \"dies\"\nbindings = {}\n"})
	r, err := w.start(t, "dies")
	if err == nil {
		peer, done := join(t, r)
		err = peer.Call(t.Context(), "initialize", map[string]any{"protocolVersion": 1}, nil)
		if served := <-done; err == nil {
			err = served
		}
	}
	if err == nil || !strings.Contains(err.Error(), "exit code 7") || !strings.Contains(err.Error(), "last words") {
		t.Errorf("got %v", err)
	}
	var end *types.Error
	if err := w.m.Log(t.Context(), "", false, func(l types.LogLine) error { end = l.End; return nil }); err != nil {
		t.Error(err)
	}
	if end == nil || !strings.Contains(end.Message, "exit code 7") {
		t.Errorf("the log ends with %+v", end)
	}
	w.nothingLeft(t)
}

func TestKillInMidTurn(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	peer, done := join(t, r)
	var session jsonrpc.NewSessionResult
	if err := errors.Join(
		peer.Call(t.Context(), "initialize", map[string]any{"protocolVersion": 1}, nil),
		peer.Call(t.Context(), "session/new", map[string]any{"cwd": w.scope, "mcpServers": []any{}}, &session),
	); err != nil {
		t.Fatal(err)
	}
	turn := make(chan error, 1)
	go func() {
		prompt := []map[string]any{{"type": "text", "text": "wait 60 seconds"}}
		turn <- peer.Call(context.Background(), "session/prompt", map[string]any{"sessionId": session.SessionID, "prompt": prompt}, nil)
	}()
	if err := w.m.Kill(t.Context(), r.ID()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errKilled) {
		t.Errorf("Serve: %v", err)
	}
	<-turn
	w.nothingLeft(t)
	if err := w.m.Kill(t.Context(), r.ID()); fault.Of(err).Kind != fault.NotFound {
		t.Errorf("a second kill: %v", err)
	}
	var lines []string
	if err := w.m.Log(t.Context(), r.ID(), true, func(l types.LogLine) error { lines = append(lines, l.Text); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(lines) == 0 || !strings.Contains(lines[len(lines)-1], "killed") {
		t.Errorf("log %q", lines)
	}
}

// TestSweep leaves what a killed daemon leaves, and starts a run over it.
func TestSweep(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	if _, err := w.driver.Start(t.Context(), sandbox.Spec{
		Name: "handler-left", Image: sandbox.ToolboxImage(""), Command: []string{"/bin/sleep", "600"}, Dir: "/",
		Labels: map[string]string{sandbox.LabelOwner: "test-owner"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(w.runRoot, "left", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	list, err := w.driver.List(t.Context(), nil)
	if err != nil || len(list) != 1 || list[0].Labels[sandbox.LabelRun] != r.ID() {
		t.Errorf("%v %v", list, err)
	}
	r.Abort()
	w.nothingLeft(t)
}

// TestServerEnv looks at what the engine tells the plan's MCP servers: the way out, and the display if there is one.
func TestServerEnv(t *testing.T) {
	for _, display := range []bool{false, true} {
		got := map[string]string{}
		var screen *sandbox.Display
		if display {
			screen = &sandbox.Display{Mode: sandbox.DisplayVNC}
		}
		for _, p := range serverEnv(screen) {
			got[p.Name] = p.Value
		}
		if _, ok := got["WAYLAND_DISPLAY"]; got["HTTPS_PROXY"] != "http://127.0.0.1:3128" || ok != display {
			t.Errorf("display %v: %v", display, got)
		}
	}
}
