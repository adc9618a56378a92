package mcpbox

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/fake"
	"github.com/handlerd/handler/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		unbuild()
		os.Exit(code)
	}))
}

// built are the programs that boxes of the tests run, made once.
var built = sync.OnceValues(func() (dirs struct{ guest, upstream string }, err error) {
	dir, err := os.MkdirTemp("", "mcpbox-test")
	if err != nil {
		return dirs, err
	}
	unbuild = func() { os.RemoveAll(dir) }
	if dirs.guest, err = sandboxtest.BuildGuest(dir); err != nil {
		return dirs, err
	}
	dirs.upstream = filepath.Join(dir, "upstream")
	cmd := exec.Command("go", "build", "-o", dirs.upstream, "./testdata/upstream")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dirs, fmt.Errorf("%w: %s", err, out)
	}
	return dirs, nil
})

// unbuild removes them.
var unbuild = func() {}

// A yard is a host over the fake engine.
type yard struct {
	*Host
	driver  *fake.Driver
	runRoot string
	room    *Room

	mu       sync.Mutex
	said     []string          // to standard error
	sessions map[string]string // by token
	broken   error             // of Spec
	started  int
	live     int // boxes that somebody was told of
}

func newYard(t *testing.T, upstream string, change func(*HostOptions)) *yard {
	t.Helper()
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("", "m") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	y := &yard{runRoot: run, room: NewRoom(3), sessions: map[string]string{}}
	if y.driver, err = fake.New(fake.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := y.driver.Close(); err != nil {
			t.Error(err)
		}
	})
	script := "#!/bin/sh\nUPSTREAM=" + upstream + " exec " + programs.upstream + "\n"
	for ref, files := range map[string]map[string]string{sandbox.ToolboxImage(""): {}, sandbox.AddonImage("notes"): {"bin/notes": script}} {
		if _, err := y.driver.Images().Import(t.Context(), tarOf(t, files), ref, nil); err != nil {
			t.Fatal(err)
		}
	}
	launcher := New(Options{
		Driver:   y.driver,
		Enforced: func(context.Context) (sandbox.Enforced, error) { return sandbox.Enforced{}, nil },
		Watch:    func(ctx context.Context, _ string, _ sandbox.Limits, _ func(error)) { <-ctx.Done() },
		Live: func(a About) func() {
			y.mu.Lock()
			defer y.mu.Unlock()
			if a.Run != "k7f2" || a.Part != sandbox.PartServer || a.Addon != "notes" || a.Sandbox == "" || a.Limits.Memory.Value != ServerMemory || a.Since.IsZero() {
				t.Errorf("%+v", a)
			}
			y.live++
			return func() {
				_ = a.Traffic()
				y.mu.Lock()
				defer y.mu.Unlock()
				y.live--
			}
		},
		Owner: "test-owner-digest", RunRoot: run, Guest: programs.guest, Connections: 10,
	})
	o := HostOptions{Name: "notes", Launcher: launcher, Room: y.room, Spec: y.spec, Session: func(token string) string {
		y.mu.Lock()
		defer y.mu.Unlock()
		return y.sessions[token]
	}}
	if change != nil {
		change(&o)
	}
	y.Host = NewHost(o)
	t.Cleanup(func() {
		if err := y.Close(); err != nil {
			t.Error(err)
		}
		y.left(t, 0)
	})
	return y
}

func (y *yard) spec(context.Context, string) (Spec, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.broken != nil {
		return Spec{}, y.broken
	}
	y.started++
	return Spec{
		Run: "k7f2", Agent: "web", Part: sandbox.PartServer, What: "server notes", Program: "notes", Addon: "notes",
		Sandbox: sandbox.Spec{
			Image: sandbox.ToolboxImage(""), Images: []sandbox.ImageMount{{Image: sandbox.AddonImage("notes"), Target: sandbox.AddonsTarget + "/notes"}},
			Command: []string{sandbox.AddonsTarget + "/notes/bin/notes"}, Dir: sandbox.HomeTarget, Env: map[string]string{"HANDLER_SETTING_SIZE": "big"},
			Limits: sandbox.Limits{Memory: sandbox.Limit{Value: ServerMemory}, Processes: sandbox.Limit{Value: ServerProcesses}, TmpBytes: 1 << 20, HomeBytes: 1 << 20, ShmBytes: 1 << 20},
		},
		Network: func() policy.Network { return policy.Network{Agent: "web", Server: "notes"} },
		Audit:   func(egress.Record) {}, LaunchTime: time.Minute, CallTime: time.Minute, Closed: errors.New("closed"), Discreet: true,
		StderrLine: func(line []byte) {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.said = append(y.said, string(line))
		},
	}, nil
}

func tarOf(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// left holds that so many sandboxes and run directories are there.
func (y *yard) left(t *testing.T, n int) {
	t.Helper()
	boxes, err := y.driver.List(context.Background(), nil)
	if err != nil || len(boxes) != n {
		t.Errorf("there are %d sandboxes, want %d: %v %v", len(boxes), n, boxes, err)
	}
	y.mu.Lock()
	if y.live != n {
		t.Errorf("%d sandboxes are said to live, want %d", y.live, n)
	}
	y.mu.Unlock()
	entries, err := os.ReadDir(y.runRoot)
	if err != nil || len(entries) != n {
		t.Errorf("there are %d run directories, want %d: %v %v", len(entries), n, entries, err)
	}
}

func (y *yard) open(t *testing.T, token string) gateway.Instance {
	t.Helper()
	i, err := y.Open(t.Context(), gateway.Caller{Run: "k7f2", Agent: "web", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// use calls a tool and gives the texts of its result.
func use(t *testing.T, i gateway.Instance, tool string, args any) (string, error) {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	r, err := i.Call(t.Context(), gateway.Call{Tool: tool, Args: raw, Progress: func(float64, float64, string) {}})
	if err != nil {
		return "", err
	}
	var all []string
	for _, part := range r.Content {
		all = append(all, part.(mcp.TextContent).Text)
	}
	return strings.Join(all, "\n"), nil
}

func (y *yard) starts() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.started
}

func TestHost(t *testing.T) {
	y := newYard(t, "", nil)
	a := y.open(t, "A")
	y.left(t, 0) // nothing starts before it is used
	tools, err := a.Tools(t.Context())
	if err != nil || len(tools) != 7 {
		t.Fatalf("%d tools, %v", len(tools), err)
	}
	b, err := json.Marshal(tools[0])
	if err != nil || !strings.Contains(string(b), `"oneOf":[{"required":["n"]}]`) || !strings.Contains(string(b), `"x-mine":true`) {
		t.Errorf("a schema that is not the server's: %s %v", b, err)
	}
	if got, err := use(t, a, "echo", map[string]any{"n": 1}); err != nil || got != `{"n":1}` {
		t.Errorf("%q %v", got, err)
	}
	env, err := use(t, a, "env", nil)
	if err != nil || !strings.Contains(env, "HANDLER_SETTING_SIZE=big") {
		t.Errorf("%q %v", env, err)
	}
	// Another connection of the session shares its box, another session has its own; the list is known.
	again, other := y.open(t, "A"), y.open(t, "B")
	if _, err := other.Tools(t.Context()); err != nil || y.starts() != 1 {
		t.Errorf("%d starts, %v", y.starts(), err)
	}
	if _, err := use(t, again, "echo", nil); err != nil || y.starts() != 1 {
		t.Errorf("%d starts, %v", y.starts(), err)
	}
	if _, err := use(t, other, "changed", nil); err != nil || y.starts() != 2 {
		t.Errorf("%d starts, %v", y.starts(), err)
	}
	y.left(t, 2)
	y.mu.Lock()
	y.broken = errors.New("no more")
	y.mu.Unlock()
	if _, err := other.Tools(t.Context()); err != nil { // of its own box, which has other tools now
		t.Error(err)
	}
	for i, want := range []int{2, 1, 0} {
		if err := []gateway.Instance{a, again, other}[i].Close(); err != nil {
			t.Error(err)
		}
		y.left(t, want)
	}
}

func TestProgress(t *testing.T) {
	y := newYard(t, "", nil)
	var told []string
	r, err := y.open(t, "A").Call(t.Context(), gateway.Call{Tool: "progress", Args: json.RawMessage("{}"), Progress: func(done, total float64, text string) {
		told = append(told, fmt.Sprint(done, total, text))
	}})
	if err != nil || len(told) != 1 || told[0] != "1 4a quarter" || r.Content[0].(mcp.TextContent).Text != "done" {
		t.Errorf("%v %v %v", told, r, err)
	}
}

// A server that dies in a call is told of in its place; one that dies in between, with the next result.
func TestCrash(t *testing.T) {
	y := newYard(t, "", nil)
	a := y.open(t, "A")
	if _, err := use(t, a, "kill", nil); err == nil || !strings.Contains(err.Error(), "the server notes ended: notes was ended by signal") ||
		!strings.Contains(err.Error(), "starts it afresh") {
		t.Errorf("%v", err)
	}
	if got, err := use(t, a, "echo", nil); err != nil || got != "{}" || y.starts() != 2 {
		t.Errorf("%q %v, %d starts", got, err, y.starts())
	}
	y.mu.Lock()
	y.said = nil
	y.mu.Unlock()
	boxes, err := y.driver.List(t.Context(), map[string]string{sandbox.LabelPart: sandbox.PartServer})
	if err != nil || len(boxes) != 1 || !strings.HasPrefix(boxes[0].Name, "handler-test-own-k7f2-server-") {
		t.Fatalf("%v %v", boxes, err)
	}
	y.Host.mu.Lock()
	box := y.seats["A"].now.Box
	y.Host.mu.Unlock()
	if err := y.driver.Stop(t.Context(), box.ID(), 0); err != nil {
		t.Fatal(err)
	}
	<-box.Done()
	got, err := use(t, a, "echo", nil)
	if err != nil || !strings.HasPrefix(got, "{}\n[the server notes was started afresh, and what it held before is gone: ") {
		t.Errorf("%q %v", got, err)
	}
	if got, err := use(t, a, "echo", nil); err != nil || got != "{}" {
		t.Errorf("told twice: %q %v", got, err)
	}
	// What it said last is for the person alone.
	if _, err := use(t, a, "exit", map[string]any{"n": 3}); err == nil || !strings.Contains(err.Error(), "exit code 3") || strings.Contains(err.Error(), "told to end") {
		t.Errorf("%v", err)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.said) != 1 || y.said[0] != "upstream: told to end" {
		t.Errorf("the log: %q", y.said)
	}
}

// The person's stop ends what is there, and a session's end what is the session's; neither is undone by a call.
func TestStop(t *testing.T) {
	y := newYard(t, "", nil)
	y.sessions["A"], y.sessions["B"] = "s1", "s2"
	a, b := y.open(t, "A"), y.open(t, "B")
	for _, i := range []gateway.Instance{a, b} {
		if _, err := use(t, i, "echo", nil); err != nil {
			t.Fatal(err)
		}
	}
	y.Host.mu.Lock()
	box := y.seats["A"].now.Box
	y.Host.mu.Unlock()
	y.SessionClosed("s1")
	y.SessionClosed("")
	<-box.Done()
	y.left(t, 1)
	if _, err := use(t, a, "echo", nil); err == nil || !strings.Contains(err.Error(), "its session is over") {
		t.Errorf("%v", err)
	}
	hung := make(chan error, 1)
	go func() {
		_, err := use(t, b, "hang", nil)
		hung <- err
	}()
	if _, err := use(t, b, "echo", nil); err != nil { // which is after the other
		t.Fatal(err)
	}
	y.Stop()
	y.left(t, 0)
	if err := <-hung; !errors.Is(err, gateway.ErrStopped) {
		t.Errorf("%v", err)
	}
	for _, i := range []gateway.Instance{a, b} {
		if _, err := use(t, i, "echo", nil); err == nil {
			t.Error("it was started again")
		}
	}
	if _, err := b.Tools(t.Context()); !errors.Is(err, gateway.ErrStopped) {
		t.Errorf("%v", err)
	}
	if _, err := y.Open(t.Context(), gateway.Caller{Token: "C"}); !errors.Is(err, gateway.ErrStopped) {
		t.Errorf("%v", err)
	}
}

func TestIdleAndLife(t *testing.T) {
	for want, change := range map[string]func(*HostOptions){
		"nobody called it for 1ms": func(o *HostOptions) { o.Idle = time.Millisecond },
		"it was 200ms old":         func(o *HostOptions) { o.Life = 200 * time.Millisecond },
	} {
		y := newYard(t, "", change)
		a := y.open(t, "A")
		if _, err := use(t, a, "echo", nil); err != nil && !strings.Contains(err.Error(), want) {
			t.Fatal(err)
		}
		y.Host.mu.Lock()
		box := y.seats["A"].now.Box
		y.Host.mu.Unlock()
		<-box.Done()
		if err := box.Err(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		y.left(t, 0)
	}
}

// There is room for so many, and no more.
func TestRoom(t *testing.T) {
	y := newYard(t, "", nil)
	for n := range 4 {
		_, err := use(t, y.open(t, fmt.Sprint(n)), "echo", nil)
		if full := err != nil && strings.Contains(err.Error(), "3 hosted servers run at this time"); (n == 3) != full {
			t.Errorf("%d: %v", n, err)
		}
	}
	if _, err := y.Open(t.Context(), gateway.Caller{Token: "more"}); err == nil || !strings.Contains(err.Error(), "4 sessions of this run use the server notes") {
		t.Errorf("%v", err)
	}
}

// What does not start or list leaves nothing, says why, and takes no room.
func TestHostFails(t *testing.T) {
	for upstream, want := range map[string]string{
		"dies": "notes ended with exit code 7", "no-tools": "none today", "odd-name": `a tool's name is "a b"`,
		"no-schema": "bare has no schema", "endless": "more than 64 pages",
	} {
		y := newYard(t, upstream, nil)
		a := y.open(t, "A")
		for range 2 {
			if _, err := a.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", upstream, err)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		y.left(t, 0)
	}
	y := newYard(t, "silent", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	a := y.open(t, "A")
	if _, err := a.Call(ctx, gateway.Call{Tool: "echo", Args: json.RawMessage("{}")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	y.broken = errors.New("its secret cannot be read")
	if _, err := use(t, a, "echo", nil); !errors.Is(err, y.broken) {
		t.Errorf("%v", err)
	}
	y.left(t, 0)
	if len(y.room.places) != 0 {
		t.Errorf("%d places are taken", len(y.room.places))
	}
	y = newYard(t, "", nil)
	if err := y.driver.Images().Remove(t.Context(), sandbox.AddonImage("notes")); err != nil {
		t.Fatal(err)
	}
	if _, err := use(t, y.open(t, "A"), "echo", nil); err == nil || !strings.Contains(err.Error(), "the server notes needs the addon notes, which is not built") {
		t.Errorf("%v", err)
	}
}
