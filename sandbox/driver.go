package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// A Driver starts and ends sandboxes (A.2). All its methods may be called concurrently. Errors that a caller can
// act on are of the types of this package; what a person should do is in their text.
type Driver interface {
	// Start creates and starts a sandbox and returns the engine's id of it. When it fails nothing is left:
	// whatever was made is removed again (A.5). Errors: *ImageNotFoundError, *UnenforcedError, *SpecError,
	// *EngineError.
	Start(ctx context.Context, spec Spec) (id string, err error)
	// Wait blocks until the sandbox's first process has ended and says how. A sandbox that is already gone gives
	// Exit{Known: false}.
	Wait(ctx context.Context, id string) (Exit, error)
	// Stop sends TERM to every process, waits at most grace for them to end, sends KILL and returns when none is
	// left. Stopping what has ended, or is gone, is no error.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Remove removes a sandbox without a trace, killing it first if it lives. It is idempotent.
	Remove(ctx context.Context, id string) error
	// List returns the sandboxes that carry all of labels, ended ones too.
	List(ctx context.Context, labels map[string]string) ([]Sandbox, error)
	// Stats measures a running sandbox as exactly as the kernel tells. It costs milliseconds for each hundred
	// megabytes; see Glance.
	Stats(ctx context.Context, id string) (Stats, error)
	// Glance measures a running sandbox in a fraction of the time of Stats. Its MemoryBytes count what several
	// processes share once for each of them: not less than those of Stats, but for what no process has mapped.
	Glance(ctx context.Context, id string) (Stats, error)
	// OpenFile opens a regular file of a running sandbox for reading, by its absolute path inside, which lies on one
	// of the sandbox's tmpfs; nothing else is opened. No symbolic link is followed and nothing is waited for, whatever
	// processes inside do meanwhile. They may go on changing it: read it once, and bounded. fs.ErrNotExist is among
	// the errors' causes where there is no such file.
	OpenFile(ctx context.Context, id, path string) (*os.File, error)
	// CreateFile makes a file of a running sandbox, 0600, with the folders on its way, by its absolute path inside,
	// which lies on one of the sandbox's tmpfs, and opens it for writing. What is there already is an error, and so is
	// a symbolic link on the way.
	CreateFile(ctx context.Context, id, path string) (*os.File, error)
	// Info says what the engine is and what it can keep. It may be slow; keep it off the way to a start.
	Info(ctx context.Context) (Info, error)
}

// Images holds and builds the images that sandboxes are made of.
type Images interface {
	// Build builds an image from a Containerfile. Progress receives the builder's output, a line a Write.
	Build(ctx context.Context, b Build, progress io.Writer) (id string, err error)
	// Import makes an image of one layer from a tar stream of a root file system.
	Import(ctx context.Context, rootfs io.Reader, tag string, labels map[string]string) (id string, err error)
	// Inspect returns one local image, or an *ImageNotFoundError.
	Inspect(ctx context.Context, ref string) (Image, error)
	// List returns the local images that carry all of labels.
	List(ctx context.Context, labels map[string]string) ([]Image, error)
	// Remove removes an image and its dangling parents. Removing what is gone is no error.
	Remove(ctx context.Context, ref string) error
}

// A Build is one image to build. No registry is asked for a base image that is local already.
type Build struct {
	Tag           string            // such as "localhost/handler/toolbox:default"
	Context       string            // host folder sent as the build context
	Containerfile string            // path below Context
	Args          map[string]string // build arguments
	Labels        map[string]string
	Mounts        []Mount           // read-only host files the steps see (CA certificates); the rest of the host is not visible
	Env           map[string]string // for the steps, not kept in the image
	Network       bool              // whether the steps reach the host's network (package registries)
	NoCache       bool
	Pull          bool // whether a missing base image may be fetched from its registry
}

// An Image is a local image.
type Image struct {
	ID      string
	Tags    []string
	Labels  map[string]string
	Created time.Time
	Bytes   int64
}

// A Sandbox is one entry of Driver.List.
type Sandbox struct {
	ID      string
	Name    string
	Labels  map[string]string
	Running bool
	Started time.Time
}

// An Exit says how a sandbox's first process ended.
type Exit struct {
	Known       bool // false when the sandbox was gone before it could be asked
	Code        int  // 128 + signal number when a signal ended it
	OutOfMemory bool // the kernel killed for memory
}

// Stats is one measurement of a sandbox.
type Stats struct {
	MemoryBytes int64
	CPUTime     time.Duration
	Processes   int
}

// Info describes an engine.
type Info struct {
	Engine        string // "podman"
	Version       string
	Runtime       string // "runc 1.1.5"
	CgroupVersion int
	Storage       string // "overlay (native)"
	Rootless      bool
	Enforced      Enforced
}

// Enforced says which limits the kernel keeps for this user on this machine. What it does not keep is shown to
// the person, and refused where it was asked for and nobody else keeps it. WholeCPUs says that the kernel keeps a CPU
// limit that is a whole number of processors, by giving the sandbox that many and no other; it is for machines where
// CPU is false.
type Enforced struct{ Memory, CPU, Processes, WholeCPUs bool }

// An ImageNotFoundError says that no local image has this reference.
type ImageNotFoundError struct{ Ref string }

func (e *ImageNotFoundError) Error() string { return fmt.Sprintf("no local image %s", e.Ref) }

// An UnenforcedError says that a limit was asked for that the kernel will not enforce here (A.4).
type UnenforcedError struct {
	Limit  string // "memory", "CPU" or "process"
	Reason string // such as "rootless podman on cgroup v1"
	Remedy string // what to ask for instead, such as "cpus = 1 or cpus = 2"; "" for nothing
}

func (e *UnenforcedError) Error() string {
	return fmt.Sprintf("the %s limit that was asked for cannot be enforced here: %s", e.Limit, e.Reason)
}

// A SpecError says that a Spec cannot be: a field and why.
type SpecError struct{ Field, Reason string }

func (e *SpecError) Error() string { return fmt.Sprintf("sandbox %s: %s", e.Field, e.Reason) }

// An EngineError is a failure of the engine itself. Hint says what the person can do, or is "".
type EngineError struct {
	Op   string // such as "start"
	Err  error
	Hint string
}

func (e *EngineError) Error() string { return fmt.Sprintf("sandbox engine: %s: %v", e.Op, e.Err) }

// Unwrap gives the cause.
func (e *EngineError) Unwrap() error { return e.Err }
