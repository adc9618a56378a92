package toolbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// images is a sandbox.Images in memory. It keeps what each build's context held.
type images struct {
	mu       sync.Mutex
	byTag    map[string]sandbox.Image
	imported []byte
	builds   []sandbox.Build
	contexts []map[string]string // file name -> content, of each build
	buildErr error
	output   string
	next     int
}

func newImages() *images { return &images{byTag: map[string]sandbox.Image{}} }

func (f *images) put(tag string, labels map[string]string) string {
	f.next++
	id := fmt.Sprintf("id%d", f.next)
	f.byTag[tag] = sandbox.Image{ID: id, Tags: []string{tag}, Labels: labels, Bytes: 1, Created: time.Unix(1, 0)}
	return id
}

func (f *images) Build(_ context.Context, b sandbox.Build, progress io.Writer) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := map[string]string{}
	err := filepath.WalkDir(b.Context, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(b.Context, path)
		files[name] = string(data)
		return err
	})
	if err != nil {
		return "", err
	}
	for _, m := range b.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			return "", err
		}
	}
	f.builds, f.contexts = append(f.builds, b), append(f.contexts, files)
	_, _ = io.WriteString(progress, "STEP 1/2: FROM x\n"+f.output)
	if f.buildErr != nil {
		return "", f.buildErr
	}
	return f.put(b.Tag, b.Labels), nil
}

func (f *images) Import(_ context.Context, rootfs io.Reader, tag string, labels map[string]string) (string, error) {
	data, err := io.ReadAll(rootfs)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.imported = data
	return f.put(tag, labels), nil
}

func (f *images) Inspect(_ context.Context, ref string) (sandbox.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for tag, image := range f.byTag {
		if tag == ref || image.ID == ref {
			return image, nil
		}
	}
	return sandbox.Image{}, &sandbox.ImageNotFoundError{Ref: ref}
}

func (f *images) List(_ context.Context, labels map[string]string) ([]sandbox.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []sandbox.Image
	for _, image := range f.byTag {
		if image.Labels[sandbox.LabelKind] == labels[sandbox.LabelKind] {
			all = append(all, image)
		}
	}
	return all, nil
}

func (f *images) Remove(_ context.Context, ref string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byTag, ref)
	return nil
}

// driver is a sandbox.Driver whose sandboxes print what says gives for their command and end with its code. It plays
// the guest on the run directory's sockets.
type driver struct {
	says func(spec sandbox.Spec) (stdout, stderr string, code int)

	mu     sync.Mutex
	specs  []sandbox.Spec
	ends   map[string]chan sandbox.Exit
	living int
	hang   bool // the command never ends by itself
}

func (f *driver) Start(_ context.Context, spec sandbox.Spec) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctl, err := net.Dial("unix", filepath.Join(spec.RunDir, sandbox.SocketGuest))
	if err != nil {
		return "", err
	}
	acp, err := net.Dial("unix", filepath.Join(spec.RunDir, sandbox.SocketACP))
	if err != nil {
		return "", err
	}
	f.specs = append(f.specs, spec)
	f.living++
	end := make(chan sandbox.Exit, 1)
	if f.ends == nil {
		f.ends = map[string]chan sandbox.Exit{}
	}
	f.ends[spec.Name] = end
	go f.guest(spec, ctl, acp, end)
	return spec.Name, nil
}

func (f *driver) guest(spec sandbox.Spec, ctl, acp net.Conn, end chan<- sandbox.Exit) {
	defer ctl.Close()
	defer acp.Close()
	stdout, stderr, code := f.says(spec)
	var line []byte
	for _, frame := range []guestwire.Frame{{Kind: guestwire.Hello, Version: guestwire.Version}, {Kind: guestwire.Started, PID: 2},
		{Kind: guestwire.Stderr, Data: []byte(stderr)}} {
		line, _ = guestwire.Append(line, frame)
	}
	_, _ = ctl.Write(line)
	_, _ = io.WriteString(acp, stdout)
	if f.hang {
		_, _ = acp.Read(make([]byte, 1)) // until the run directory is closed
		return
	}
	line, _ = guestwire.Append(nil, guestwire.Frame{Kind: guestwire.Exit, Code: code})
	_, _ = ctl.Write(line)
	end <- sandbox.Exit{Known: true, Code: code}
}

func (f *driver) Wait(ctx context.Context, id string) (sandbox.Exit, error) {
	f.mu.Lock()
	end := f.ends[id]
	f.mu.Unlock()
	select {
	case exit := <-end:
		return exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (f *driver) Remove(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.ends[id]; ok {
		f.living--
		delete(f.ends, id)
	}
	return nil
}

func (f *driver) Stop(context.Context, string, time.Duration) error { return nil }
func (f *driver) List(context.Context, map[string]string) ([]sandbox.Sandbox, error) {
	return nil, errors.New("not asked")
}
func (f *driver) Stats(context.Context, string) (sandbox.Stats, error) { return sandbox.Stats{}, nil }

func (f *driver) OpenFile(context.Context, string, string) (*os.File, error) {
	return nil, errors.New("no files here")
}
func (f *driver) CreateFile(context.Context, string, string) (*os.File, error) {
	return nil, errors.New("no files here")
}
func (f *driver) Glance(context.Context, string) (sandbox.Stats, error) { return sandbox.Stats{}, nil }
func (f *driver) Info(context.Context) (sandbox.Info, error)            { return sandbox.Info{}, nil }

// A room is a Builder over fakes.
type room struct {
	*Builder
	images *images
	driver *driver
	log    string // where the mmdebstrap of the test writes its arguments
	events []Event
}

// newRoom makes a Builder whose mmdebstrap is script, a shell script that finds its arguments in "$@". addonDir and
// harnessDir are the person's, "" for none.
func newRoom(t *testing.T, script, addonDir string, options ...func(*Options)) *room {
	t.Helper()
	dir := t.TempDir()
	r := &room{images: newImages(), log: filepath.Join(dir, "calls")}
	r.driver = &driver{says: func(sandbox.Spec) (string, string, int) { return "fine\n", "", 0 }}
	program := filepath.Join(dir, "mmdebstrap")
	text := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>" + r.log + "\n" + script
	for name, data := range map[string]string{program: text, filepath.Join(dir, "keys"): "k", filepath.Join(dir, "agent"): "binary"} {
		if err := os.WriteFile(name, []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run, err := os.MkdirTemp("", "h") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	o := Options{
		Images: r.images, Driver: r.driver, Guest: "/guest", RunRoot: run, StateDir: filepath.Join(dir, "state"),
		Addons:       func() (*addons.Registry, error) { return addons.Load(addonDir) },
		Harnesses:    func() (*harness.Registry, error) { return harness.Load("") },
		HarnessFiles: map[string]map[string]string{"demo": {"handler-demo-agent": filepath.Join(dir, "agent")}},
		TempDir:      dir, CABundles: []string{}, MMDebstrap: program, Keyring: filepath.Join(dir, "keys"), AptDir: dir,
	}
	for _, option := range options {
		option(&o)
	}
	r.Builder, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(dir, "handler-build-*"))
		runs, _ := os.ReadDir(run)
		if len(left) > 0 || len(runs) > 0 || r.driver.living != 0 {
			t.Errorf("left behind: %v, %v, %d sandboxes", left, runs, r.driver.living)
		}
	})
	return r
}

func (r *room) event(e Event) { r.events = append(r.events, e) }

// calls are the command lines that mmdebstrap was started with.
func (r *room) calls(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(r.log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(bytes.TrimSpace(data)), "\n")
}

// steps are the names of the steps, each checked to begin and end once, in order.
func (r *room) steps(t *testing.T) []string {
	t.Helper()
	var names []string
	open := ""
	for _, e := range r.events {
		switch {
		case e.Begin && open == "":
			open = e.Step
			names = append(names, e.Step)
		case e.End && e.Step == open:
			open = ""
		case e.Begin || e.End || e.Step != open:
			t.Errorf("event out of order: %+v in step %q", e, open)
		}
	}
	if open != "" {
		t.Errorf("step %q has no end", open)
	}
	return names
}
