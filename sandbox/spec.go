package sandbox

import (
	"fmt"
	"io/fs"
)

// A Spec says all of one sandbox (A.1). Zero fields mean none. A Spec is data: nothing in it is read, checked
// or resolved before a Driver starts it.
type Spec struct {
	Name    string            // unique among the driver's sandboxes; [a-z0-9-], at most 63 bytes
	Labels  map[string]string // found again by Driver.List; never secrets
	Image   string            // reference or id of a local image: a toolbox (A.8)
	Command []string          // run by the guest; an argv, no shell
	Env     map[string]string // never secrets
	Dir     string            // working directory inside, absolute

	Mounts  []Mount      // scopes and protected paths, in order: later ones lie over earlier ones
	Images  []ImageMount // the harness and the addons
	Volumes []Volume     // state that outlives the run (B.10)
	Tmpfs   []Tmpfs      // besides /tmp, HomeTarget, SecretsTarget and RuntimeTarget, which are always there
	Files   []File       // written by the guest before Command starts

	RunDir  string   // host directory, mounted read-only at RunDirTarget; "" for none
	Guest   string   // host path of the static handler-guest binary; required when RunDir or Files are set
	Display *Display // nil for none
	Limits  Limits
}

// A Mount is a folder or file of the host, at Target inside. Submounts are not followed; nosuid, nodev.
type Mount struct {
	Source   string // absolute, symlinks resolved by the caller
	Target   string // absolute
	ReadOnly bool
}

// An ImageMount is an image whose root appears at Target, read-only.
type ImageMount struct {
	Image  string // reference or id of a local image
	Target string
}

// A Volume is a host folder that Handler owns, made 0700 by the driver if it is not there, writable inside.
type Volume struct {
	Source string
	Target string
}

// A Tmpfs is memory, nosuid and nodev; noexec unless Exec.
type Tmpfs struct {
	Target string
	Bytes  int64
	Exec   bool
}

// A File appears in the sandbox with this mode and content, owned by its user. Its Path lies on one of the
// sandbox's tmpfs, so that its content is never on a disk, in argv, environment, labels or an image (A.1).
type File struct {
	Path    string
	Mode    fs.FileMode // permission bits only
	Content []byte
}

// Modes of a Display.
const (
	DisplayWayland = "wayland" // the person's own
	DisplayVNC     = "vnc"     // one that the sandbox has to itself
)

// A Display is contract A.6. With DisplayWayland, Socket is the host's socket: it alone is mounted, at
// DisplayTarget. A missing, stale or wrong socket fails Start.
//
// With DisplayVNC the guest starts a compositor of the image's (sway, without a screen) before the command, with one
// output of Width by Height pixels; its socket is ScreenTarget. One that does not come up ends the guest with a Failed
// frame, and the command never runs. What it shows is reached through the guest (rundir.Dir.DialScreen), which starts the
// VNC server (wayvnc) when it is first asked, without pointer and keys; with those, there is another one
// (rundir.Dir.DialHands). It needs Guest and RunDir.
type Display struct {
	Mode          string
	Socket        string
	Width, Height int
}

// Bounds of a DisplayVNC, in pixels.
const (
	MinScreenWidth, MinScreenHeight = 320, 240
	MaxScreenWidth, MaxScreenHeight = 3840, 2160
)

// Target is where the display's Wayland socket lies inside.
func (d Display) Target() string {
	if d.Mode == DisplayVNC {
		return ScreenTarget
	}
	return DisplayTarget
}

// CheckScreen says what cannot be of a DisplayVNC. Its error is a *SpecError.
func (d Display) CheckScreen() error {
	switch {
	case d.Width < MinScreenWidth || d.Width > MaxScreenWidth || d.Height < MinScreenHeight || d.Height > MaxScreenHeight:
		return &SpecError{Field: "display", Reason: fmt.Sprintf("%dx%d pixels are not from %dx%d to %dx%d",
			d.Width, d.Height, MinScreenWidth, MinScreenHeight, MaxScreenWidth, MaxScreenHeight)}
	case d.Socket != "":
		return &SpecError{Field: "display", Reason: "a display of the sandbox's own has no socket of the host's"}
	}
	return nil
}

// GuestFlags are what the guest is told of a display; none for DisplayWayland.
func (d Display) GuestFlags() []string {
	if d.Mode != DisplayVNC {
		return nil
	}
	return []string{"--screen", fmt.Sprintf("%dx%d", d.Width, d.Height)}
}

// A Limit is a bound. Asked tells a bound that a person or a harness named from a default: one that was asked
// for and that nobody will keep fails Start with an *UnenforcedError (A.4). Watched says that the caller keeps it:
// it measures with Driver.Glance and Driver.Stats and stops the sandbox.
type Limit struct {
	Value   int64 // 0 for none
	Asked   bool
	Watched bool
}

// Limits bound a sandbox (A.4).
type Limits struct {
	Memory    Limit // bytes, over all processes, tmpfs included
	CPU       Limit // thousandths of a processor
	Processes Limit // processes and threads
	TmpBytes  int64 // size of /tmp; 0 for DefaultTmpBytes
	HomeBytes int64 // size of HomeTarget; 0 for DefaultHomeBytes
	ShmBytes  int64 // size of /dev/shm; 0 for DefaultShmBytes. Chromium needs 512 MiB (pitfalls P28)
	OpenFiles int64 // descriptors a process; 0 for DefaultOpenFiles; cut to the driver's own hard limit
}

// Defaults of Limits; docs/handlers/limits.md is held against them by a test.
const (
	DefaultMemory    = 4 << 30
	DefaultCPU       = 0 // none
	DefaultProcesses = 2048
	DefaultTmpBytes  = 2 << 30
	DefaultHomeBytes = 1 << 30
	DefaultShmBytes  = 512 << 20
	DefaultOpenFiles = 16384
)
