package toolbox

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/addons"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// Bounds of a sandbox that tries an image.
const (
	tryTime   = 5 * time.Minute // of an addon's check; emulated machines are slow
	warmTime  = 30 * time.Minute
	endGrace  = 5 * time.Second
	checkTail = 60 // lines of a check that an error may quote
)

// smoke says what every toolbox must be able to do, the named ones too: a Containerfile of the person's may have
// broken it.
const smoke = `set -eu
/usr/lib/chromium/chromium --version
test -f /etc/chromium/policies/managed/handler.json
echo "node $(node --version)"
echo "node22 $(/opt/node22/bin/node --version)"
python3 --version
git --version
rg --version | head -n 1
for tool in curl jq unzip ssh make cc npm ps; do command -v "$tool" >/dev/null || { echo "$tool is missing" >&2; exit 1; }; done
for dir in /run/handler /run/handler-display /run/handler-secrets /run/handler-user /home/agent /opt/handler/guest /opt/handler/harness /opt/handler/addons
do test -d "$dir" || { echo "$dir is missing" >&2; exit 1; }; done
test "$(id -u)" != 0
`

// Warm makes the id-mapped copy of a toolbox, "" for the default one, by starting it once, and tries its tools. The
// first start after a build takes half a minute; later ones do not.
func (b *Builder) Warm(ctx context.Context, name string, progress func(Event)) error {
	if name == "" {
		name = DefaultName
	}
	r := newReporter("toolbox "+name, progress)
	defer r.end()
	if err := b.try(ctx, name, r); err != nil {
		return r.fail(err)
	}
	return nil
}

func (b *Builder) try(ctx context.Context, name string, r *reporter) error {
	image, err := b.toolbox(ctx, name)
	if err != nil {
		return err
	}
	r.begin("trying its tools")
	spec := sandbox.Spec{Image: image.ID, Command: []string{"/bin/sh", "-c", smoke}, Dir: "/"}
	lines, err := b.run(ctx, spec, warmTime, r)
	if err != nil {
		return &CheckError{Subject: "toolbox " + name, Lines: lines, Err: err,
			Hint: "build it again: handler " + command(sandbox.KindToolbox, "build", name) + " --no-cache"}
	}
	return nil
}

// CheckToolbox tries a toolbox, "" for the default one, and runs the check of every addon that is built over it. The
// first failure is returned, a *CheckError.
func (b *Builder) CheckToolbox(ctx context.Context, name string, progress func(Event)) error {
	if name == "" {
		name = DefaultName
	}
	r := newReporter("toolbox "+name, progress)
	defer r.end()
	if err := b.try(ctx, name, r); err != nil {
		return r.fail(err)
	}
	return b.checkAll(ctx, name, r)
}

// CheckAddon runs an addon's check in a strict sandbox with no network, over the toolbox, "" for the default one. The
// error is a *CheckError with the manifest's advice, or a *NotBuiltError.
func (b *Builder) CheckAddon(ctx context.Context, name, toolbox string, progress func(Event)) error {
	if toolbox == "" {
		toolbox = DefaultName
	}
	r := newReporter("addon "+name, progress)
	defer r.end()
	registry, err := b.opts.Addons()
	if err != nil {
		return err
	}
	m, err := registry.Get(name)
	if err != nil {
		return err
	}
	return b.check(ctx, m, toolbox, r)
}

// checkAll runs the check of every addon that is built. All of them run; the failures are joined.
func (b *Builder) checkAll(ctx context.Context, toolbox string, r *reporter) error {
	registry, err := b.opts.Addons()
	if err != nil {
		return err
	}
	var failed []error
	for _, m := range registry.List() {
		if m.Check == nil {
			continue
		}
		err := b.check(ctx, m, toolbox, r)
		if errors.As(err, new(*NotBuiltError)) {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (b *Builder) check(ctx context.Context, m *addons.Manifest, toolbox string, r *reporter) error {
	under, err := b.toolbox(ctx, toolbox)
	if err != nil {
		return err
	}
	image, err := b.opts.Images.Inspect(ctx, sandbox.AddonImage(m.Name))
	if errors.As(err, new(*sandbox.ImageNotFoundError)) {
		return &NotBuiltError{Subject: "addon " + m.Name, Hint: "handler " + command(sandbox.KindAddon, "build", m.Name)}
	}
	if err != nil {
		return err
	}
	if m.Check == nil {
		return nil
	}
	r.begin("checking addon " + m.Name)
	dir := sandbox.AddonsTarget + "/" + m.Name
	argv := append([]string{dir + "/bin/" + m.Check.Command[0]}, m.Check.Command[1:]...)
	env := map[string]string{}
	for name, s := range m.Settings {
		env["HANDLER_SETTING_"+strings.ToUpper(name)] = s.Default
	}
	lines, err := b.run(ctx, sandbox.Spec{Image: under.ID, Command: argv, Env: env, Dir: sandbox.HomeTarget,
		Images: []sandbox.ImageMount{{Image: image.ID, Target: dir}}}, tryTime, r)
	if err == nil {
		return nil
	}
	failed := &CheckError{Subject: "addon " + m.Name, Lines: lines[max(0, len(lines)-keepLines):], Err: err}
	all := strings.Join(lines, "\n")
	for _, a := range m.Check.Advice {
		if strings.Contains(all, a.Match) {
			failed.Hint = a.Text
			break
		}
	}
	return failed
}

// run starts spec in a strict sandbox with no network, reports what it prints, and gives its last lines. The error
// says how it ended, if not with 0 within limit. Nothing of it is left.
func (b *Builder) run(ctx context.Context, spec sandbox.Spec, limit time.Duration, r *reporter) (lines []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not end within %s", limit))
	defer cancel()
	name := "check-" + random()
	out := &output{r: r}
	dir, err := rundir.New(b.opts.RunRoot, name, rundir.Options{Logger: b.log, StderrLine: out.line})
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	spec.Name = "handler-" + name
	spec.Labels = map[string]string{sandbox.LabelRun: name}
	spec.RunDir, spec.Guest = dir.Path(), b.opts.Guest
	id, err := b.opts.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer func() {
		// Also when ctx is done: what was started goes.
		clean, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer done()
		_ = b.opts.Driver.Stop(clean, id, endGrace)
		if gone := b.opts.Driver.Remove(clean, id); gone != nil {
			err = errors.Join(err, gone)
		}
	}()
	stdout := make(chan struct{})
	go func() {
		defer close(stdout)
		out.copy(ctx, dir)
	}()
	exit, err := b.opts.Driver.Wait(ctx, id)
	if err != nil {
		cancel()
		<-stdout
		return out.lines(), errors.Join(context.Cause(ctx), nonContext(err))
	}
	// What was written before the end arrives now. A guest that never came has nothing to wait for.
	defer time.AfterFunc(endGrace, cancel).Stop()
	<-stdout
	select {
	case <-dir.Done():
	case <-ctx.Done():
	}
	return out.lines(), ending(exit, dir.Result())
}

func ending(exit sandbox.Exit, told rundir.Result) error {
	switch {
	case told.Failed != "":
		return fmt.Errorf("it could not be started: %s", told.Failed)
	case !exit.Known:
		return errors.New("it ended and nobody knows how")
	case exit.OutOfMemory:
		return errors.New("it was killed for want of memory")
	case exit.Code != 0:
		return fmt.Errorf("it ended with code %d", exit.Code)
	}
	return nil
}

// nonContext drops an error that only repeats the context's.
func nonContext(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// output gathers what a tried sandbox prints, on both streams.
type output struct {
	r *reporter

	mu   sync.Mutex
	last []string
}

func (o *output) line(line []byte) {
	text := strings.ToValidUTF8(string(line), "�")
	_, _ = o.r.Write([]byte(text + "\n"))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, text)
	if len(o.last) > checkTail {
		o.last = o.last[1:]
	}
}

func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.last...)
}

// copy reads the command's standard output until it ends, ctx is done or dir is closed.
func (o *output) copy(ctx context.Context, dir *rundir.Dir) {
	conn, err := dir.ACP(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in := bufio.NewReaderSize(conn, 64<<10)
	for {
		line, _, err := in.ReadLine() // a line longer than the buffer comes in pieces
		if err != nil {
			return
		}
		o.line(line)
	}
}

func random() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
