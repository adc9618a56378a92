package browser

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/policy"
)

// A Worker is one sandbox of its own with one playwright-mcp and its Chromium in it (F.1): no scope, no secret, no
// agent state. What it says comes from pages: it is never believed. Its methods may be called concurrently, but
// playwright-mcp does one call at a time, so a session queues its own.
type Worker interface {
	// Call uses an upstream tool (browser_click, browser_run_code_unsafe, …) by its upstream name and arguments,
	// which become a JSON object. The result is upstream's, at most mcpbox.MaxResult bytes. When ctx ends the call is
	// cancelled and Call returns ctx's cause, at the latest a second later. When the worker is gone the error is Err's.
	Call(ctx context.Context, tool string, args any) (*mcp.CallToolResult, error)
	// ReadFile gives a regular file below the worker's output folder (downloads, PDFs), by its path as upstream says
	// it. No symlink is followed, and nothing outside is opened; a file of more than max bytes is a *FileTooLargeError.
	ReadFile(ctx context.Context, path string, max int64) ([]byte, error)
	// WriteFile puts a file where upstream's browser_file_upload may read it, in a folder of its own so that name is
	// what the page sees, and gives its path inside. name is a plain file name.
	WriteFile(ctx context.Context, name string, content io.Reader) (path string, err error)
	// Run runs a program of the toolbox in the worker's sandbox (pdftotext, pdftoppm), until ctx ends, and gives its
	// output: more than max bytes are an error, and so is a status other than 0, with the end of its error output.
	Run(ctx context.Context, argv []string, max int64) ([]byte, error)
	// DialScreen connects to the VNC server of the worker's own display, where WorkerSpec.Window asked for one.
	DialScreen(ctx context.Context) (net.Conn, error)
	// DialHands is DialScreen with mouse and keys, for a person who has taken the browser over.
	DialHands(ctx context.Context) (net.Conn, error)
	// CutNetwork closes the worker's connections to the proxy and refuses new ones until AllowNetwork (F.2).
	CutNetwork()
	// AllowNetwork undoes CutNetwork. A worker starts allowed.
	AllowNetwork()
	// RecheckNetwork closes what is open to destinations that WorkerSpec.Network now refuses.
	RecheckNetwork()
	// Done is closed when it is gone, for whatever reason.
	Done() <-chan struct{}
	// Err says why it is gone: [ErrWorkerClosed] after Close, else what a person would call it ("out of memory: …").
	// nil while it lives.
	Err() error
	// Close ends it. Everything of it (sandbox, files, connections) is gone when it returns. It is idempotent.
	Close() error
}

// ErrWorkerClosed is [Worker.Err] after Close.
var ErrWorkerClosed = errors.New("the browser was closed")

// A GoneError is what a [Worker] answers when it is ending or has ended, and why: Done is closed by then, or soon.
type GoneError struct{ Err error }

func (e *GoneError) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
func (e *GoneError) Unwrap() error { return e.Err }

// A FileTooLargeError says that a file of a worker is larger than asked for.
type FileTooLargeError struct {
	Name  string
	Limit int64
}

func (e *FileTooLargeError) Error() string {
	return shorten(e.Name, 200) + " is larger than " + sizeText(e.Limit)
}

// An IsolationError says that Chromium could not isolate its own processes. That is never passed over (A.7): the worker
// ends, and so does every next one until the machine is mended.
type IsolationError struct{ Said string }

func (e *IsolationError) Error() string {
	return "Chromium's own sandbox does not work here, and a guarded browser never runs without it (A.7): handler doctor says what is missing; it said: " + e.Said
}

// A Launcher starts workers. The daemon's main makes one over the sandbox driver. How long a worker lives, and how many
// there are, is the Browser's to say; what one may use (memory, temporary storage, processes) is the launcher's.
type Launcher interface {
	// playwright-mcp must be so configured that nothing but browser_snapshot and our programs read a page (snapshot mode
	// none: a snapshot of its own would renew the references that were checked), without an echo of code (codegen none,
	// which would show what is typed), with absolute paths, and with a short settle time: the Browser settles by itself,
	// and would pay for it at each of its programs.
	//
	// Launch starts a worker and returns when it answers (initialize is done; Chromium starts at the first call).
	// When ctx ends before that, nothing of it is left. Failed isolation is an error, never a weaker worker.
	Launch(ctx context.Context, s WorkerSpec) (Worker, error)
}

// A WorkerSpec says for whom a worker is and what it may reach.
type WorkerSpec struct {
	// Run, Agent and Session are whose it is; they go into labels, the audit and the worker's name. Session may be "".
	Run, Agent, Session string
	// Network judges every destination, as of now: rules may change while the worker lives.
	Network func() policy.Network
	// Local gives what handlerd itself answers, by exact host in its canonical spelling: preview origins (F.6). nil, or
	// a nil result, is a host like any other.
	Local func(host string) http.Handler
	// Window gives the browser a window on a display of the worker's own, which a person can watch.
	Window bool
	// Limits are what it may use.
	Limits WorkerLimits
}

// WorkerLimits bound one worker (F.8); zero fields are the launcher's own defaults.
type WorkerLimits struct {
	Memory  int64 // bytes, over its whole process tree
	Storage int64 // bytes of its temporary files, downloads included
	Tmp     int64 // bytes of /tmp: the profile, and memory that pages share
	// Processes and threads.
	Processes int64
}

// over gives the limits with base in the place of what they leave out.
func (l WorkerLimits) over(base WorkerLimits) WorkerLimits {
	return WorkerLimits{Memory: cmp.Or(l.Memory, base.Memory), Storage: cmp.Or(l.Storage, base.Storage),
		Tmp: cmp.Or(l.Tmp, base.Tmp), Processes: cmp.Or(l.Processes, base.Processes)}
}
