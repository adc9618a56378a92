package browser

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// A worker is a [Worker] in a box.
type worker struct {
	*mcpbox.Box
	driver sandbox.Driver
}

// CutNetwork ends what is open to the network, and refuses the rest.
func (w *worker) CutNetwork() { w.Box.CutNetwork(cutOff()) }

// Call uses a tool of playwright-mcp.
func (w *worker) Call(ctx context.Context, tool string, args any) (*mcp.CallToolResult, error) {
	result, err := w.Box.Call(ctx, mcpbox.Call{Tool: tool, Args: args})
	if gone := w.gone(); err != nil && gone != nil && errors.Is(err, w.Gone()) {
		return nil, gone
	}
	if err != nil {
		return nil, err
	}
	if said := isolationSaid(result); said != "" {
		_ = w.Fail(&IsolationError{said})
		return nil, w.gone()
	}
	return result, nil
}

// gone is a *GoneError where the worker is ending or has ended; nil if it lives.
func (w *worker) gone() error {
	if cause := w.Gone(); cause != nil {
		return &GoneError{cause}
	}
	return nil
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
	f, err := w.driver.OpenFile(ctx, w.ID(), at)
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
	f, err := w.driver.CreateFile(ctx, w.ID(), at)
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

// shellWrite is what the guest gets to take a command.
const shellWrite = 10 * time.Second

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
	conn, err := w.OpenShell(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close() // the guest ends the program when it sees this
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	to := guestwire.NewShellWriter(conn)
	conn.SetWriteDeadline(time.Now().Add(shellWrite))
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
			return nil, fmt.Errorf("it ended with status %d%s", f.Code, mcpbox.Behind(shorten(lines[max(0, len(lines)-300):], 300)))
		default:
			return nil, errors.New("the guest speaks out of order")
		}
	}
}
