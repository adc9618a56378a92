package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/artifacts"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		unbuild()
		os.Exit(code)
	}))
}

// A fakePage is a page as the fake browser shows it.
type fakePage struct {
	url, title string
	frames     []string // of other frames
	workers    []string
	tree       string          // the snapshot
	facts      map[string]fact // by reference
	fields     []field
	focus      []fact
	found      found
	picture    []byte // of every element
}

// A fakeWorker stands in for a sandbox with playwright-mcp: it knows the tools and our programs, and does what a test
// says on each.
type fakeWorker struct {
	toolbox  func(argv []string) ([]byte, error) // what Run runs
	mu       sync.Mutex
	spec     WorkerSpec
	current  fakePage
	tabs     []fakePage // besides the current one
	service  []string
	web      map[string]fakePage // what addresses show
	modal    string              // what waits for an answer
	events   string              // to be told with the next answer
	more     bool                // there are more frames than are told of
	closed   int                 // tabs that were closed because they were too many
	calls    []string            // tools, programs as "facts"
	args     map[string]string   // the last arguments of each, as JSON
	on       map[string]func(w *fakeWorker, args string) *mcp.CallToolResult
	files    map[string][]byte
	written  map[string][]byte
	cut      bool
	done     chan struct{}
	err      error
	hang     chan struct{} // closed when a hanging call begins; nil: none hangs
	hangTool string
	ending   error // it answers that it is ending by this
	deaf     bool  // it answers nothing once something hung
}

func newWorker() *fakeWorker {
	return &fakeWorker{
		current: fakePage{url: "about:blank"}, web: map[string]fakePage{}, args: map[string]string{}, done: make(chan struct{}),
		on: map[string]func(*fakeWorker, string) *mcp.CallToolResult{}, files: map[string][]byte{}, written: map[string][]byte{},
	}
}

func (w *fakeWorker) DialScreen(context.Context) (net.Conn, error) {
	return nil, errors.New("a fake has no screen")
}

func (w *fakeWorker) DialHands(context.Context) (net.Conn, error) {
	return nil, errors.New("a fake takes no hands")
}

func programName(code string) string {
	if strings.Contains(code, "handlerTab !==") {
		return "do"
	}
	for name, mark := range map[string]string{"look": "handlerGuard", "facts": "aria-ref=", "focus": "*:focus", "read": "whole.slice", "typed": "pages().slice(0, arg.tabs)", "shot": "fullPage: true", "hits": "const gather"} {
		if strings.Contains(code, mark) {
			return name
		}
	}
	return "unknown"
}

func (w *fakeWorker) Call(ctx context.Context, tool string, args any) (*mcp.CallToolResult, error) {
	b, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	name := tool
	if tool == upstreamCode {
		name = programName(string(b))
	}
	if name == "do" { // it stands for a tool
		var does struct {
			Tool string
			Args json.RawMessage
		}
		_, arg, _ := strings.Cut(args.(map[string]any)["code"].(string), "const arg = ")
		if err := json.NewDecoder(strings.NewReader(arg)).Decode(&does); err != nil {
			return nil, err
		}
		name, b = does.Tool, does.Args
	}
	w.mu.Lock()
	w.calls, w.args[name] = append(w.calls, name), string(b)
	if w.hang != nil && w.hangTool == name || w.deaf && w.hang == nil {
		if w.hang != nil {
			close(w.hang)
		}
		w.hang = nil
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-w.done:
			return nil, w.Err()
		}
	}
	defer w.mu.Unlock()
	if w.ending != nil {
		return nil, &GoneError{w.ending}
	}
	select {
	case <-w.done:
		return nil, w.err
	default:
	}
	r := w.answer(name, string(b))
	if t, ok := r.Content[0].(mcp.TextContent); ok {
		if w.modal != "" {
			t.Text += "\n### Modal state\n" + w.modal
		}
		if w.events != "" {
			t.Text += "\n### Events\n" + w.events
			w.events = ""
		}
		r.Content[0] = t
	}
	return r, nil
}

// answer does what a tool or a program does. w.mu is held.
func (w *fakeWorker) answer(name, args string) *mcp.CallToolResult {
	program := slices.Contains([]string{"look", "facts", "focus", "read", "typed", "shot", "hits"}, name)
	if w.modal != "" && name != "browser_tabs" && name != "browser_handle_dialog" && name != "browser_file_upload" {
		return mcp.NewToolResultError("### Error\nError: Tool \"x\" does not handle the modal state.")
	}
	if on := w.on[name]; on != nil {
		if r := on(w, args); r != nil {
			return r
		}
	}
	if program {
		return result(w.program(name, args))
	}
	switch name {
	case "browser_navigate":
		var in struct{ URL string }
		_ = json.Unmarshal([]byte(args), &in)
		p, ok := w.web[in.URL]
		if !ok {
			w.current = fakePage{url: "chrome-error://chromewebdata/"}
			return mcp.NewToolResultError("### Error\nError: page.goto: net::ERR_TUNNEL_CONNECTION_FAILED at " + in.URL + "\nCall log: x")
		}
		w.current = p
	case "browser_tabs":
		return mcp.NewToolResultText("### Result\n- 0: (current) [" + w.current.title + "](" + w.current.url + ")")
	}
	return mcp.NewToolResultText("### Result\nok")
}

func result(v any) *mcp.CallToolResult {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return mcp.NewToolResultText("### Result\n" + string(b))
}

// where is where.js. w.mu is held.
func (w *fakeWorker) where() whereabouts {
	var at whereabouts
	at.URL = w.current.url
	all := append([]fakePage{w.current}, w.tabs...)
	at.Tabs = make([]struct {
		Current bool     `json:"current"`
		URL     string   `json:"url"`
		Frames  []string `json:"frames"`
		More    bool     `json:"more"`
		Workers []string `json:"workers"`
	}, len(all))
	for i, p := range all {
		at.Tabs[i].Current, at.Tabs[i].URL, at.Tabs[i].Frames, at.Tabs[i].Workers = i == 0, p.url, append([]string{p.url}, p.frames...), p.workers
	}
	at.Tabs[0].More = w.more
	at.ServiceWorkers = w.service
	return at
}

func (w *fakeWorker) program(name, args string) any {
	switch name {
	case "look":
		at := w.where()
		at.Closed, w.closed = w.closed, 0
		return at
	case "facts":
		f := facts{URL: w.current.url}
		if strings.Contains(args, `\"picture\":true`) {
			f.Title, f.Picture = w.current.title, base64.StdEncoding.EncodeToString(w.current.picture)
		}
		for _, ref := range slices.Sorted(maps.Keys(w.current.facts)) {
			if !strings.Contains(args, `\"`+ref+`\"`) {
				continue
			}
			one := w.current.facts[ref]
			one.Ref, one.Lines = ref, nil
			for line := range strings.Lines(w.current.tree) {
				if strings.Contains(line, "[ref="+ref+"]") {
					one.Lines = append(one.Lines, line)
				}
			}
			f.Elements = append(f.Elements, one)
		}
		return f
	case "focus":
		return facts{URL: w.current.url, Elements: w.current.focus}
	case "hits":
		f := w.current.found
		f.At = w.where()
		return f
	case "typed":
		fields := slices.Clone(w.current.fields)
		for _, tab := range w.tabs {
			fields = append(fields, tab.fields...)
		}
		return map[string]any{"fields": fields}
	case "read":
		return map[string]any{"snapshot": w.current.tree, "title": w.current.title, "fields": w.current.fields, "at": w.where()}
	}
	return nil
}

func (w *fakeWorker) ReadFile(_ context.Context, p string, most int64) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, ok := w.files[p]
	if !ok {
		return nil, fmt.Errorf("%s is not there", p)
	}
	if int64(len(b)) > most {
		return nil, &FileTooLargeError{p, most}
	}
	return b, nil
}

func (w *fakeWorker) WriteFile(_ context.Context, name string, content io.Reader) (string, error) {
	b, err := io.ReadAll(content)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[name] = b
	return "/in/" + name, err
}

func (w *fakeWorker) Run(_ context.Context, argv []string, _ int64) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.toolbox == nil {
		return nil, errors.New("nothing runs here")
	}
	return w.toolbox(argv)
}

func (w *fakeWorker) RecheckNetwork() {
	w.change(func(w *fakeWorker) { w.calls = append(w.calls, "recheck") })
}
func (w *fakeWorker) CutNetwork()   { w.setCut(true) }
func (w *fakeWorker) AllowNetwork() { w.setCut(false) }
func (w *fakeWorker) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}
func (w *fakeWorker) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

func (w *fakeWorker) Done() <-chan struct{} { return w.done }
func (w *fakeWorker) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
func (w *fakeWorker) Close() error { return w.die(ErrWorkerClosed) }

// die ends the worker as a crash does.
func (w *fakeWorker) die(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		close(w.done)
	}
	return nil
}

func (w *fakeWorker) called(name string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c == name {
			n++
		}
	}
	return n
}

// change does something to the page.
func (w *fakeWorker) change(f func(*fakeWorker)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

// A fakeStore keeps artifacts in memory.
type fakeStore struct {
	mu   sync.Mutex
	all  []artifacts.Artifact
	data [][]byte
	full error
}

func (s *fakeStore) Add(_ context.Context, m artifacts.Meta, r io.Reader) (artifacts.Artifact, error) {
	b, err := io.ReadAll(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full != nil || err != nil {
		return artifacts.Artifact{}, errors.Join(s.full, err)
	}
	a := artifacts.Artifact{ID: fmt.Sprintf("id%d", len(s.all)), Owner: m.Owner, Run: m.Run, Session: m.Session, Name: m.Name, Source: m.Source, Bytes: int64(len(b))}
	s.all, s.data = append(s.all, a), append(s.data, b)
	return a, nil
}

func (s *fakeStore) Open(_ context.Context, owner, id string) (artifacts.Artifact, *os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.all {
		if a.ID == id && a.Owner == owner {
			f, err := os.CreateTemp("", "artifact")
			if err != nil {
				return artifacts.Artifact{}, nil, err
			}
			os.Remove(f.Name())
			_, err = f.Write(s.data[i])
			_, seek := f.Seek(0, io.SeekStart)
			return a, f, errors.Join(err, seek)
		}
	}
	return artifacts.Artifact{}, nil, &artifacts.NotFoundError{ID: id}
}
