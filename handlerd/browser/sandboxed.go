package browser

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
	"github.com/handlerd/handler/sandbox/rundir"
)

// Times of a worker's end.
const (
	workerSettle   = 2 * time.Second // for the guest to tell how its command ended
	workerTeardown = time.Minute     // for the engine to remove what is left
)

// A worker is a [Worker] in a sandbox of its own.
type worker struct {
	l    *SandboxLauncher
	spec WorkerSpec
	name string
	log  *slog.Logger

	ctx    context.Context // done when it must end; its cause says why
	cancel context.CancelCauseFunc

	// Set by start, in this order, and not changed after; end takes apart what is there.
	egress *egress.Server
	dir    *rundir.Dir
	id     string // the engine's
	limits sandbox.Limits
	wire   *wire
	client *client.Client

	work sync.WaitGroup // what runs beside, until ctx is done
	once sync.Once      // of end
	done chan struct{}
	err  error // read after done
	left error // what could not be taken apart; read after done
}

// Done is closed when nothing of the worker is left.
func (w *worker) Done() <-chan struct{} { return w.done }

// Err says why it is gone.
func (w *worker) Err() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}

// Close ends the worker.
func (w *worker) Close() error {
	w.end(ErrWorkerClosed)
	return w.left
}

// CutNetwork ends what is open to the network, and refuses the rest.
func (w *worker) CutNetwork() { w.egress.Pause(cutOff()) }

// RecheckNetwork cuts what the rules refuse by now.
func (w *worker) RecheckNetwork() { w.egress.Recheck() }

// AllowNetwork takes CutNetwork back.
func (w *worker) AllowNetwork() { w.egress.Resume() }

// watch ends the worker when anything of it does.
func (w *worker) watch() {
	go func() {
		var why error
		select {
		case <-w.ctx.Done():
			why = context.Cause(w.ctx)
		case <-w.dir.Done():
			why = w.howItEnded()
		case <-w.wire.done:
			why = w.howItEnded()
		}
		w.end(why)
	}()
}

// atLimit ends it at a limit: whatever eats the machine is killed at once.
func (w *worker) atLimit(met error) {
	w.cancel(fmt.Errorf("it was ended at a limit: %w", met))
	ctx, cancel := context.WithTimeout(context.Background(), workerTeardown)
	defer cancel()
	if err := w.l.o.Driver.Stop(ctx, w.id, 0); err != nil {
		w.log.Error("a browser at its limit was not stopped", "sandbox", w.name, "error", err)
	}
}

// end takes the worker apart, in the reverse order of its making, and returns when nothing of it is left. The first
// cause counts, and one that the worker's own context has before all.
func (w *worker) end(cause error) {
	w.once.Do(func() {
		defer close(w.done)
		if first := context.Cause(w.ctx); first != nil {
			cause = first
		}
		w.cancel(cause)
		ctx, cancel := context.WithTimeout(context.Background(), workerTeardown)
		defer cancel()
		if w.wire != nil {
			w.wire.Close()
		}
		var left []error
		if w.id != "" {
			left = append(left, w.l.o.Driver.Stop(ctx, w.id, WorkerStopGrace))
			if err := w.l.o.Driver.Remove(ctx, w.id); err != nil {
				left = append(left, err)
				w.l.o.Owed(w.id, err)
			}
		}
		if w.egress != nil {
			left = append(left, w.egress.Close())
		}
		if w.dir != nil {
			left = append(left, w.dir.Close())
		}
		w.work.Wait()
		w.err, w.left = cause, errors.Join(left...)
		w.log.Info("a browser ended", "sandbox", w.name, "reason", cause)
	})
	<-w.done
}

// howItEnded says how playwright-mcp or its sandbox ended, in a person's words.
func (w *worker) howItEnded() error {
	var ours *wireError
	if w.wire != nil && errors.As(w.wire.why(), &ours) {
		return ours
	}
	timer := time.NewTimer(workerSettle)
	defer timer.Stop()
	select {
	case <-w.dir.Done():
	case <-w.ctx.Done():
	case <-timer.C:
	}
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	if w.outOfMemory() {
		return fmt.Errorf("out of memory: it had %s", sizeText(w.limits.Memory.Value))
	}
	res := w.dir.Result()
	said := w.lastWords()
	switch {
	case res.Failed != "":
		return fmt.Errorf("playwright-mcp could not be started: %s", shorten(res.Failed, 300))
	case isolationFailed(said):
		return &IsolationError{said}
	case res.Exited && res.Signal != "":
		return fmt.Errorf("playwright-mcp was ended by signal %s%s", shorten(res.Signal, 20), behind(said))
	case res.Exited:
		return fmt.Errorf("playwright-mcp ended with exit code %d%s", res.Code, behind(said))
	}
	return fmt.Errorf("its sandbox was killed%s", behind(said))
}

// outOfMemory tells whether the kernel ended the sandbox for memory.
func (w *worker) outOfMemory() bool {
	if w.id == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), workerSettle)
	defer cancel()
	exit, err := w.l.o.Driver.Wait(ctx, w.id)
	return err == nil && exit.OutOfMemory
}

// lastWords is the end of what playwright-mcp wrote to its standard error: a line.
func (w *worker) lastWords() string {
	text, _ := w.dir.Stderr()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(text), "·")), "\n")
	return shorten(strings.Join(lines[max(0, len(lines)-3):], " / "), 500)
}

func behind(said string) string {
	if said == "" {
		return ""
	}
	return "; it said last: " + strconv.Quote(said) // a page may be its author
}

// Call uses a tool of playwright-mcp.
func (w *worker) Call(ctx context.Context, tool string, args any) (*mcp.CallToolResult, error) {
	if err := w.gone(); err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, WorkerCallTime)
	defer cancel()
	encoded, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("the arguments of %s: %w", tool, err)
	}
	if string(encoded) == "null" { // which upstream does not take
		encoded = []byte("{}")
	}
	req := mcp.CallToolRequest{}
	req.Params.Name, req.Params.Arguments = tool, json.RawMessage(encoded)
	result, err := w.client.CallTool(call, req)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, context.Cause(ctx)
	case err != nil && call.Err() != nil:
		w.cancel(fmt.Errorf("playwright-mcp did not answer %s within %v", tool, WorkerCallTime))
		return nil, w.gone()
	case err != nil:
		if gone := w.goneBy(ctx, err); gone != nil {
			return nil, gone
		}
		return nil, fmt.Errorf("%s of playwright-mcp: %w", tool, err)
	}
	if said := isolationSaid(result); said != "" {
		w.cancel(&IsolationError{said})
		return nil, w.gone()
	}
	return result, nil
}

// gone is a *GoneError where the worker is ending or has ended; nil if it lives.
func (w *worker) gone() error {
	if cause := context.Cause(w.ctx); cause != nil {
		return &GoneError{cause}
	}
	return nil
}

// goneBy waits, where a call failed because its connection ended, until it is known why that was.
func (w *worker) goneBy(ctx context.Context, failed error) error {
	select {
	case <-w.wire.done:
	default:
		return w.gone()
	}
	select {
	case <-w.ctx.Done():
		return w.gone()
	case <-ctx.Done():
		return errors.Join(failed, context.Cause(ctx))
	}
}

// isolationMarks are what Chromium says when it cannot isolate its processes.
var isolationMarks = []string{"No usable sandbox", "Zygote process exited prematurely", "Failed to receive hello message from zygote", "Running as root without --no-sandbox"}

func isolationFailed(text string) bool {
	for _, mark := range isolationMarks {
		if strings.Contains(text, mark) {
			return true
		}
	}
	return false
}

// isolationSaid gives what Chromium said where a result tells of failed isolation. A page that says the same in an error
// ends its own browser.
func isolationSaid(r *mcp.CallToolResult) string {
	if !r.IsError {
		return ""
	}
	for _, part := range r.Content {
		text, ok := part.(mcp.TextContent)
		if !ok || !isolationFailed(section(text.Text, "Error")) {
			continue
		}
		for line := range strings.Lines(text.Text) {
			if isolationFailed(line) {
				return shorten(strings.TrimSpace(line), 300)
			}
		}
	}
	return ""
}

// ReadFile gives a file of the worker's.
func (w *worker) ReadFile(ctx context.Context, name string, most int64) ([]byte, error) {
	at, err := inFiles(name)
	if err != nil {
		return nil, err
	}
	if err := w.gone(); err != nil {
		return nil, err
	}
	f, err := w.l.o.Driver.OpenFile(ctx, w.id, at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, &FileTooLargeError{path.Base(at), most}
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1)) // it may grow meanwhile
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, &FileTooLargeError{path.Base(at), most}
	}
	return data, nil
}

// WriteFile puts a file where an upload may come from.
func (w *worker) WriteFile(ctx context.Context, name string, content io.Reader) (string, error) {
	if name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%q is no plain file name", shorten(name, 200))
	}
	if err := w.gone(); err != nil {
		return "", err
	}
	at := workerIn + "/" + strings.ToLower(rand.Text()) + "/" + name
	f, err := w.l.o.Driver.CreateFile(ctx, w.id, at)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, &ctxReader{ctx, content})
	if err != nil {
		_ = f.Truncate(0) // what came of it takes room
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("the file %s into the browser: %w", shorten(name, 200), err)
	}
	return at, nil
}

// A ctxReader stops when its context does.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Run runs a program of the toolbox.
func (w *worker) Run(ctx context.Context, argv []string, most int64) ([]byte, error) {
	ask := guestwire.ShellRequest{Argv: argv}
	if err := ask.Check(); err != nil {
		return nil, err
	}
	if len(argv) == 0 {
		return nil, errors.New("no program is named")
	}
	if err := w.gone(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, WorkerRunTime, fmt.Errorf("%s did not end within %v", argv[0], WorkerRunTime))
	defer cancel()
	out, err := w.run(ctx, ask, most)
	switch {
	case err == nil:
		return out, nil
	case context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	case w.gone() != nil:
		return nil, w.gone()
	}
	return nil, fmt.Errorf("%s in the browser's sandbox: %w", argv[0], err)
}

func (w *worker) run(ctx context.Context, ask guestwire.ShellRequest, most int64) ([]byte, error) {
	conn, err := w.dir.OpenShell(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close() // the guest ends the program when it sees this
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	to := guestwire.NewShellWriter(conn)
	conn.SetWriteDeadline(time.Now().Add(wireWrite))
	for _, f := range []guestwire.ShellFrame{{Kind: guestwire.ShellOpen, Open: ask}, {Kind: guestwire.ShellInputEnd}} {
		if err := to.Write(f); err != nil {
			return nil, err
		}
	}
	var out []byte
	var said bytes.Buffer
	from := guestwire.NewShellReader(conn)
	for {
		f, err := from.Next()
		if err != nil {
			return nil, err
		}
		switch f.Kind {
		case guestwire.ShellStarted, guestwire.ShellTaken:
		case guestwire.ShellOutput:
			if int64(len(out)+len(f.Data)) > most {
				return nil, fmt.Errorf("it writes more than %s", sizeText(most))
			}
			out = append(out, f.Data...)
		case guestwire.ShellErrors:
			said.Write(f.Data[:min(len(f.Data), max(0, WorkerErrors-said.Len()))])
		case guestwire.ShellFailed:
			return nil, errors.New(shorten(f.Text, 300))
		case guestwire.ShellExit:
			if f.Code == 0 && f.Signal == "" {
				return out, nil
			}
			lines := strings.TrimSpace(strings.ToValidUTF8(said.String(), "·"))
			return nil, fmt.Errorf("it ended with status %d%s", f.Code, behind(shorten(lines[max(0, len(lines)-300):], 300)))
		default:
			return nil, errors.New("the guest speaks out of order")
		}
	}
}
