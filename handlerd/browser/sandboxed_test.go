package browser

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/fake"
	"github.com/handlerd/handler/sandbox/sandboxtest"
)

// built are the programs that workers of the tests run, made once.
var built = sync.OnceValues(func() (dirs struct{ guest, upstream string }, err error) {
	dir, err := os.MkdirTemp("", "browser-test")
	if err != nil {
		return dirs, err
	}
	unbuild = func() { os.RemoveAll(dir) }
	if dirs.guest, err = sandboxtest.BuildGuest(dir); err != nil {
		return dirs, err
	}
	dirs.upstream = filepath.Join(dir, "upstream")
	cmd := exec.Command("go", "build", "-o", dirs.upstream, "../mcpbox/testdata/upstream")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dirs, fmt.Errorf("%w: %s", err, out)
	}
	return dirs, nil
})

// unbuild removes them.
var unbuild = func() {}

// A yard is a launcher over the fake engine.
type yard struct {
	*SandboxLauncher
	driver  *fake.Driver
	runRoot string
	audited chan egress.Record
	limit   chan error // what the watchdog says next
	watched chan sandbox.Limits
}

func newYard(t *testing.T, upstream string, change func(*SandboxOptions, *fake.Options)) *yard {
	t.Helper()
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("", "b") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	y := &yard{runRoot: run, audited: make(chan egress.Record, 100), limit: make(chan error), watched: make(chan sandbox.Limits, 10)}
	o := SandboxOptions{Options: mcpbox.Options{
		Enforced: func(context.Context) (sandbox.Enforced, error) { return sandbox.Enforced{}, nil },
		Watch: func(ctx context.Context, _ string, l sandbox.Limits, stop func(error)) {
			y.watched <- l
			select {
			case err := <-y.limit:
				stop(err)
			case <-ctx.Done():
			}
		},
		Owner: "test-owner-digest", RunRoot: run, Guest: programs.guest,
	}, Audit: func(_ string, r egress.Record) { y.audited <- r }}
	var f fake.Options
	if change != nil {
		change(&o, &f)
	}
	if y.driver, err = fake.New(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := y.driver.Close(); err != nil {
			t.Error(err)
		}
	})
	o.Driver = y.driver
	script := "#!/bin/sh\nUPSTREAM=" + upstream + " exec " + programs.upstream + "\n"
	for ref, files := range map[string]map[string]string{
		sandbox.ToolboxImage(""): {}, sandbox.AddonImage("playwright"): {"bin/playwright-mcp": script},
	} {
		if _, err := y.driver.Images().Import(t.Context(), tarOf(t, files), ref, nil); err != nil {
			t.Fatal(err)
		}
	}
	y.SandboxLauncher = NewLauncher(o)
	t.Cleanup(func() { y.nothingLeft(t) })
	return y
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

// nothingLeft holds that no sandbox and no run directory is there.
func (y *yard) nothingLeft(t *testing.T) {
	t.Helper()
	boxes, err := y.driver.List(context.Background(), nil)
	if err != nil || len(boxes) > 0 {
		t.Errorf("left: %v %v", boxes, err)
	}
	entries, err := os.ReadDir(y.runRoot)
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v %v", entries, err)
	}
}

func spec() WorkerSpec {
	return WorkerSpec{Run: "k7f2", Agent: "web", Session: "s1", Network: func() policy.Network { return PublicNetwork("web") }}
}

func (y *yard) launch(t *testing.T) *worker {
	t.Helper()
	w, err := y.Launch(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w.(*worker)
}

// say calls a tool and gives the text of its result.
func say(t *testing.T, w Worker, tool string, args any) string {
	t.Helper()
	r, err := w.Call(t.Context(), tool, args)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return r.Content[0].(mcp.TextContent).Text
}

// waitGone waits for the worker's end and gives why.
func waitGone(t *testing.T, w Worker) error {
	t.Helper()
	select {
	case <-w.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the worker does not end")
	}
	if w.Err() == nil {
		t.Fatal("it ended without a reason")
	}
	return w.Err()
}

func TestWorkerCalls(t *testing.T) {
	y := newYard(t, "", nil)
	w := y.launch(t)
	if got := say(t, w, "echo", map[string]any{"a": []int{1, 2}}); got != `{"a":[1,2]}` {
		t.Errorf("echo: %s", got)
	}
	if got := say(t, w, "echo", nil); got != `{}` {
		t.Errorf("echo of nothing: %s", got)
	}
	// A line may be long, and lines that are none are passed over.
	if got := say(t, w, "big", map[string]any{"n": 5 << 20}); len(got) != 5<<20 {
		t.Errorf("%d bytes", len(got))
	}
	if got := say(t, w, "noise", map[string]any{"n": 50}); got != "after the noise" {
		t.Errorf("%q", got)
	}
	if _, err := w.Call(t.Context(), "error", nil); err == nil || !strings.Contains(err.Error(), "it went wrong") {
		t.Errorf("%v", err)
	}
	if got := say(t, w, "questions", map[string]any{"n": 1, "method": "ping"}); !strings.Contains(got, `"result":{}`) {
		t.Errorf("a ping: %s", got)
	}
	if got := say(t, w, "questions", map[string]any{"n": 1, "method": "sampling/createMessage"}); !strings.Contains(got, `-32601`) {
		t.Errorf("another question: %s", got)
	}
	if _, err := w.Call(t.Context(), "echo", map[string]any{"a": strings.Repeat("x", mcpbox.MaxRequest)}); err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("arguments without a bound: %v", err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if got := say(t, w, "echo", map[string]any{"i": i}); got != fmt.Sprintf(`{"i":%d}`, i) {
				t.Errorf("%d: %s", i, got)
			}
		})
	}
	wg.Wait()
	if l := <-y.watched; l.Memory.Value != WorkerMemory || !l.Memory.Watched || l.Processes.Value != WorkerProcesses {
		t.Errorf("watched: %+v", l)
	}
	boxes, err := y.driver.List(t.Context(), map[string]string{sandbox.LabelRun: "k7f2", sandbox.LabelPart: sandbox.PartBrowser})
	if err != nil || len(boxes) != 1 || !strings.HasPrefix(boxes[0].Name, "handler-test-own-k7f2-browser-") {
		t.Errorf("%+v %v", boxes, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := waitGone(t, w); !errors.Is(err, ErrWorkerClosed) {
		t.Errorf("%v", err)
	}
	if _, err := w.Call(t.Context(), "echo", nil); !errors.Is(err, ErrWorkerClosed) {
		t.Errorf("a call after the end: %v", err)
	}
	y.nothingLeft(t)
}

// What playwright-mcp knows of its surroundings is little.
func TestWorkerSurroundings(t *testing.T) {
	y := newYard(t, "", nil)
	w := y.launch(t)
	env := say(t, w, "env", nil)
	for _, want := range []string{"HTTPS_PROXY=http://127.0.0.1:3128", "NO_PROXY=\n", "HANDLER_SETTING_HEADLESS=1", "HANDLER_BROWSER_FILES="} {
		if !strings.Contains(env+"\n", want) {
			t.Errorf("its environment lacks %q", want)
		}
	}
	sp := sandboxSpec(WorkerSpec{})
	if len(sp.Mounts)+len(sp.Volumes)+len(sp.Files) > 0 || sp.Display != nil || len(sp.Images) != 1 {
		t.Errorf("its sandbox has more than it needs: %+v", sp)
	}
	if strings.Contains(fmt.Sprint(sp.Env), "CHROMIUM_SANDBOX") {
		t.Error("its environment speaks of the browser's sandbox")
	}
}

func TestWorkerCancel(t *testing.T) {
	y := newYard(t, "", nil)
	w := y.launch(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the turn was cancelled")
	result := make(chan error, 1)
	go func() {
		_, err := w.Call(ctx, "hang", nil)
		result <- err
	}()
	say(t, w, "echo", nil) // which playwright-mcp gets after the other
	cancel(reason)
	if err := <-result; !errors.Is(err, reason) {
		t.Errorf("%v", err)
	}
	// It is told, and lives on.
	for end := time.Now().Add(20 * time.Second); ; {
		if _, err := w.ReadFile(t.Context(), "out/cancelled", 1); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("playwright-mcp was not told of the cancellation")
		}
		say(t, w, "echo", nil)
	}
}

// Whatever ends it is told in words, to calls under way and to the next ones.
func TestWorkerEnds(t *testing.T) {
	for name, c := range map[string]struct {
		tool string
		args map[string]any
		want string
	}{
		"exit":       {"exit", map[string]any{"n": 3}, "playwright-mcp ended with exit code 3; it said last: \"upstream: told to end"},
		"kill":       {"kill", nil, "playwright-mcp was ended by signal"},
		"noise":      {"noise", map[string]any{"n": 500}, "what is no message"},
		"too big":    {"big", map[string]any{"n": mcpbox.MaxResult + 2<<10}, "more than 64 MiB"},
		"unisolated": {"said", map[string]any{"isError": true, "text": "### Error\nError: browserType.launch: Failed to launch the browser process.\n[pid=9][err] FATAL: No usable sandbox! If this is a Debian system\n"}, "never runs without it (A.7)"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t, "", nil)
			w := y.launch(t)
			_, err := w.Call(t.Context(), c.tool, c.args)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the call: %v, want %q", err, c.want)
			}
			if err := waitGone(t, w); !strings.Contains(err.Error(), c.want) {
				t.Errorf("the worker: %v, want %q", err, c.want)
			}
			if _, err := w.Call(t.Context(), "echo", nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the next call: %v", err)
			}
			y.nothingLeft(t)
		})
	}
}

// Only what an error says of isolation counts; a page may say what it likes.
func TestWorkerPageSaysIsolation(t *testing.T) {
	y := newYard(t, "", nil)
	w := y.launch(t)
	const page = "### Page\n- Page Title: No usable sandbox\n### Snapshot\nZygote process exited prematurely\n"
	for _, isError := range []bool{false, true} {
		say(t, w, "said", map[string]any{"isError": isError, "text": page})
	}
	say(t, w, "echo", nil)
}

func TestWorkerLimit(t *testing.T) {
	y := newYard(t, "", nil)
	w := y.launch(t)
	result := make(chan error, 1)
	go func() {
		_, err := w.Call(t.Context(), "hang", nil)
		result <- err
	}()
	say(t, w, "echo", nil)
	y.limit <- errors.New("memory limit: used 2.1 GiB of 2 GiB")
	for _, err := range []error{<-result, waitGone(t, w)} {
		if err == nil || !strings.Contains(err.Error(), "memory limit: used 2.1 GiB of 2 GiB") {
			t.Errorf("%v", err)
		}
	}
}

// A sandbox that somebody kills is noticed.
func TestWorkerKilledOutside(t *testing.T) {
	y := newYard(t, "", nil)
	w := y.launch(t)
	if err := y.driver.Stop(t.Context(), w.ID(), 0); err != nil {
		t.Fatal(err)
	}
	if err := waitGone(t, w); !strings.Contains(err.Error(), "killed") && !strings.Contains(err.Error(), "signal") {
		t.Errorf("%v", err)
	}
}

// What cannot start leaves nothing and says why.
func TestWorkerStartFails(t *testing.T) {
	for upstream, want := range map[string]string{
		"dies": "exit code 7; it said last: \"upstream: no such page", "unisolated": "never runs without it",
	} {
		y := newYard(t, upstream, nil)
		_, err := y.Launch(t.Context(), spec())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", upstream, err)
		}
		y.nothingLeft(t)
	}
	y := newYard(t, "silent", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := y.Launch(ctx, spec()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent: %v", err)
	}
	y.nothingLeft(t)
	for _, step := range []fake.Step{fake.StepCheck, fake.StepExec} {
		broken := errors.New("the engine is broken")
		y := newYard(t, "", func(_ *SandboxOptions, f *fake.Options) {
			f.Fault = func(s fake.Step, name string) error {
				if s == step && name != "" {
					return broken
				}
				return nil
			}
		})
		if _, err := y.Launch(t.Context(), spec()); !errors.Is(err, broken) {
			t.Errorf("%s: %v", step, err)
		}
		y.nothingLeft(t)
	}
	y = newYard(t, "", nil)
	if err := y.driver.Images().Remove(t.Context(), sandbox.AddonImage("playwright")); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Launch(t.Context(), spec()); err == nil || !strings.Contains(err.Error(), "addon playwright, which is not built") {
		t.Errorf("%v", err)
	}
}

// A sandbox that cannot be removed is owed.
func TestWorkerOwes(t *testing.T) {
	var mu sync.Mutex
	broken, owed := true, []string{}
	y := newYard(t, "", func(o *SandboxOptions, f *fake.Options) {
		f.Fault = func(s fake.Step, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			if s == fake.StepRemove && broken {
				return errors.New("busy")
			}
			return nil
		}
		o.Owed = func(id string, _ error) { owed = append(owed, id) }
	})
	w, err := y.Launch(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("%v", err)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	if len(owed) != 1 {
		t.Fatalf("owed: %v", owed)
	}
	if err := y.driver.Remove(t.Context(), owed[0]); err != nil {
		t.Error(err)
	}
}

func TestWorkerFiles(t *testing.T) {
	y := newYard(t, "", nil)
	w := y.launch(t)
	name := say(t, w, "file", map[string]any{"n": 1000})
	for _, path := range []string{name, "out/made"} {
		if b, err := w.ReadFile(t.Context(), path, 1000); err != nil || len(b) != 1000 {
			t.Errorf("%s: %d bytes, %v", path, len(b), err)
		}
	}
	var large *FileTooLargeError
	if _, err := w.ReadFile(t.Context(), name, 999); !errors.As(err, &large) || large.Limit != 999 {
		t.Errorf("%v", err)
	}
	for _, path := range []string{WorkerFiles + "/out/link", WorkerFiles + "/out", WorkerFiles, "/etc/hostname", "../etc/hostname",
		WorkerFiles + "/../etc/hostname", WorkerFiles + "-x/f", "", "out/made\x00", "/proc/1/environ"} {
		if _, err := w.ReadFile(t.Context(), path, 1<<20); err == nil {
			t.Errorf("%q was read", path)
		}
	}
	a, err := w.WriteFile(t.Context(), "report ü.pdf", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.WriteFile(t.Context(), "report ü.pdf", strings.NewReader("again"))
	if err != nil || a == b || filepath.Base(a) != "report ü.pdf" || !strings.HasPrefix(a, WorkerFiles+"/in/") {
		t.Errorf("%s, %s, %v", a, b, err)
	}
	if got, err := w.ReadFile(t.Context(), a, 100); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "/x", "a\x00", strings.Repeat("x", 256)} {
		if at, err := w.WriteFile(t.Context(), name, strings.NewReader("x")); err == nil {
			t.Errorf("%q was written as %s", name, at)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.WriteFile(ctx, "late", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestWorkerRun(t *testing.T) {
	y := newYard(t, "", nil)
	w := y.launch(t)
	if out, err := w.Run(t.Context(), []string{"/bin/sh", "-c", "cat; echo out; echo err >&2"}, 100); err != nil || string(out) != "out\n" {
		t.Errorf("%q %v", out, err)
	}
	for want, argv := range map[string][]string{
		"it ended with status 3; it said last: \"no such page": {"/bin/sh", "-c", "echo no such page >&2; exit 3"},
		"more than 100 bytes":   {"/bin/sh", "-c", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"},
		"no-such-program":       {"/no-such-program"},
		"no program is named":   {},
		"name is empty":         {""},
		"a word of the command": {"x", "a\x00b"},
	} {
		if out, err := w.Run(t.Context(), argv, 100); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %q %v, want %q", argv, out, err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := w.Run(ctx, []string{"/bin/sleep", "1000"}, 100); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	say(t, w, "echo", nil) // it lives on
}

// proxy speaks to the worker's proxy as its sandbox does, and gives the answer's status and body.
func (w *worker) proxy(t *testing.T, request string) (int, string) {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(w.RunDir(), sandbox.SocketEgress))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, request+"\r\nHost: x\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: strings.Fields(request)[0]})
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// The worker reaches what is public and local to it, and nothing between turns.
func TestWorkerNetwork(t *testing.T) {
	denied, err := ParseDenied("bad.example, worse.example")
	if err != nil {
		t.Fatal(err)
	}
	y := newYard(t, "", func(o *SandboxOptions, _ *fake.Options) { o.Denied = denied })
	sp := spec()
	sp.Local = func(host string) http.Handler {
		if host != "files.workspace.invalid" {
			return nil
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "local "+r.URL.Path) })
	}
	launched, err := y.Launch(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	defer launched.Close()
	w := launched.(*worker)
	for request, want := range map[string]string{
		"CONNECT bad.example:443 HTTP/1.1":               "HANDLER_BROWSER_DENIED_HOSTS",
		"CONNECT www.worse.example:443 HTTP/1.1":         "HANDLER_BROWSER_DENIED_HOSTS",
		"CONNECT example.org:8443 HTTP/1.1":              "refused by D.3",
		"GET http://127.0.0.1/ HTTP/1.1":                 "loopback",
		"GET http://169.254.169.254/latest/ HTTP/1.1":    "refused by D",
		"GET http://127.0.0.1:3128/upstream/x/ HTTP/1.1": "no upstream",
		"CONNECT files.workspace.invalid:443 HTTP/1.1":   "refused by F.6",
	} {
		if status, body := w.proxy(t, request); status != 403 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", request, status, body)
		}
	}
	const local = "GET http://files.workspace.invalid/a HTTP/1.1"
	if status, body := w.proxy(t, local); status != 200 || body != "local /a" {
		t.Errorf("%d %s", status, body)
	}
	for len(y.audited) > 0 {
		<-y.audited
	}
	w.CutNetwork()
	for _, request := range []string{local, "CONNECT example.org:443 HTTP/1.1"} {
		if status, body := w.proxy(t, request); status != 403 || !strings.Contains(body, "refused by F.2") {
			t.Errorf("%s: %d %s", request, status, body)
		}
	}
	if len(y.audited) > 0 {
		t.Errorf("what is refused between turns is in the audit: %+v", <-y.audited)
	}
	w.AllowNetwork()
	if status, body := w.proxy(t, local); status != 200 || body != "local /a" {
		t.Errorf("%d %s", status, body)
	}
}

func TestParseDenied(t *testing.T) {
	for _, text := range []string{"", "  "} {
		if rules, err := ParseDenied(text); err != nil || len(rules) > 0 {
			t.Errorf("%q: %v %v", text, rules, err)
		}
	}
	rules, err := ParseDenied("Bank.Example,*.intra.example.org")
	if err != nil {
		t.Fatal(err)
	}
	n := PublicNetwork("web")
	n.Rules = rules
	for host, want := range map[string]policy.Action{
		"bank.example": policy.Refuse, "www.bank.example": policy.Refuse, "mybank.example": policy.Allow,
		"intra.example.org": policy.Refuse, "a.b.intra.example.org": policy.Refuse, "example.org": policy.Allow,
	} {
		if v := n.Decide(host, 443); v.Action != want {
			t.Errorf("%s: %v", host, v)
		}
	}
	for _, text := range []string{"a.example,,b.example", ",", "a.example,", "https://a.example", "a.example:443", "10.0.0.1", "a/b", "*", "a.*.example", "a b"} {
		if rules, err := ParseDenied(text); err == nil {
			t.Errorf("%q: %v", text, rules)
		}
	}
}
