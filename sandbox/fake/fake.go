// Package fake is a sandbox.Driver and a sandbox.Images with no engine and no isolation at all: commands run as plain
// processes of the host. It passes the part of sandboxtest that is not about isolation, so that it may stand in for
// podman in the tests of what is built on contract A. Nothing but tests may use it.
//
// A command runs through the real guest where the Spec names one, else directly. There is no other root, so paths
// inside are mapped to host paths, in the elements of Command (the whole, or what follows NAME=) and in the values of
// Env (each element of a colon list): the longest of these targets that begins a path is replaced,
//
//	RunDirTarget, DisplayTarget                  the Spec's RunDir, the display's socket
//	a Mount, Volume or ImageMount                its source; the image's unpacked root
//	/tmp, HomeTarget, SecretsTarget,             a folder of the sandbox's own
//	RuntimeTarget, every Tmpfs
//
// and any other path that the image has becomes the image's. Scopes are mounted at their own path and stay what they
// are. A program that is in none of these, such as one that a test has just built, runs from where it is. What a
// command makes of a constant in its own code is not mapped: use HOME, TMPDIR, XDG_RUNTIME_DIR and arguments. A target
// below a folder of the sandbox's own is also there as a symbolic link, so that $HOME/.state is found. Nothing is
// read-only, sizes are not bounded, and no limit is enforced; one that was asked for is refused.
//
// Commands have the variable HANDLER_FAKE_SANDBOX in their environment, by which their whole tree is found.
package fake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/handlerd/handler/sandbox"
)

// A Step is a moment at which Options.Fault can make a call fail.
type Step string

// The steps of Start, in order, and those that begin the other calls. When a step of Start fails, everything before
// it has been done and must be undone.
const (
	StepCheck   Step = "start:check"   // nothing done yet
	StepFolders Step = "start:folders" // the sandbox's own folders made
	StepVolumes Step = "start:volumes" // volumes made
	StepFiles   Step = "start:files"   // files.sock listens
	StepExec    Step = "start:exec"    // the process runs
	StepWritten Step = "start:written" // the guest has written the files
	StepWait    Step = "wait"
	StepStop    Step = "stop"
	StepRemove  Step = "remove"
	StepList    Step = "list"
	StepStats   Step = "stats"
	StepFile    Step = "file"
	StepInfo    Step = "info"
	StepBuild   Step = "build"
	StepImport  Step = "import"
)

// Options of New. The zero value works.
type Options struct {
	// Parent is the folder in which the driver makes its own; "" for the system's temporary folder.
	Parent string
	// Logger hears of starts and ends; nil for none.
	Logger *slog.Logger
	// Fault, if not nil, is asked at every step; an error that it returns makes the call fail with exactly that,
	// after what was done is undone. name is the sandbox's name, or the image's tag, or "". It may block, to hold
	// a call at that step, and must be safe for concurrent calls.
	Fault func(step Step, name string) error
	// Measure, if not nil, changes what Stats and Glance give of the sandbox called name. It must be safe for
	// concurrent calls.
	Measure func(name string, s sandbox.Stats) sandbox.Stats
}

// A Driver implements sandbox.Driver.
type Driver struct {
	dir     string
	log     *slog.Logger
	fault   func(Step, string) error
	measure func(string, sandbox.Stats) sandbox.Stats
	images  *Images
	wg      sync.WaitGroup

	mu     sync.Mutex
	boxes  map[string]*box // by id
	names  map[string]bool // taken, by those being started too
	closed bool
}

var (
	_ sandbox.Driver = (*Driver)(nil)
	_ sandbox.Images = (*Images)(nil)
)

// New makes a driver with a folder of its own. The caller closes it.
func New(o Options) (*Driver, error) {
	dir, err := os.MkdirTemp(o.Parent, "fake-sandbox")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	d := &Driver{dir: dir, log: o.Logger, fault: o.Fault, measure: o.Measure, boxes: map[string]*box{}, names: map[string]bool{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.fault == nil {
		d.fault = func(Step, string) error { return nil }
	}
	d.images = &Images{dir: filepath.Join(dir, "images"), fault: d.fault, byID: map[string]*image{}}
	return d, nil
}

// Images returns the driver's images.
func (d *Driver) Images() *Images { return d.images }

// Close removes all sandboxes and images and the driver's folder. It is idempotent.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	ids := slices.Collect(maps.Keys(d.boxes))
	d.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, d.remove(context.Background(), id))
	}
	d.wg.Wait()
	return errors.Join(append(errs, removeAll(d.dir))...)
}

// Info implements sandbox.Driver.
func (d *Driver) Info(context.Context) (sandbox.Info, error) {
	return sandbox.Info{Engine: "fake", Version: "1", Runtime: "host processes", Storage: "folders", Rootless: true},
		d.fault(StepInfo, "")
}

// List implements sandbox.Driver. The order is by name.
func (d *Driver) List(_ context.Context, labels map[string]string) ([]sandbox.Sandbox, error) {
	if err := d.fault(StepList, ""); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []sandbox.Sandbox
	for _, b := range d.boxes {
		if !carries(b.labels, labels) {
			continue
		}
		list = append(list, sandbox.Sandbox{ID: b.id, Name: b.name, Labels: maps.Clone(b.labels), Running: b.running(), Started: b.started})
	}
	slices.SortFunc(list, func(a, b sandbox.Sandbox) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// carries says whether have has all of want.
func carries(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// removeAll removes a tree of ours in which folders may have lost their write permission. It follows no symbolic
// link.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("fake sandbox: %w", err)
	}
	return nil
}
