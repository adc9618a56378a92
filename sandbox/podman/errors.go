package podman

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/containers/podman/v5/pkg/errorhandling"

	"github.com/handlerd/handler/sandbox"
)

// What a *sandbox.EngineError of this package may wrap. Its Hint is the command, or the sentence, that mends it.
var (
	ErrRoot          = errors.New("podman must not be run by root: Handler is rootless only (A.3)")
	ErrPodmanMissing = errors.New("podman is not installed")
	ErrPodmanOld     = errors.New("podman is too old, Handler needs 4.3 or newer")
	ErrUIDMapMissing = errors.New("newuidmap and newgidmap are not installed")
	ErrNoSubIDs      = errors.New("this user has no subordinate user and group ids")
	ErrNoRuntime     = errors.New("no OCI runtime that works with this machine's cgroups is installed")
	ErrFolder        = errors.New("a folder of Handler's cannot be used")
	ErrDiskFull      = errors.New("the disk is full")
	ErrBusy          = errors.New("another daemon uses this run folder")
	ErrSocket        = errors.New("the podman service cannot be reached")
	ErrClosed        = errors.New("the driver is closed")
	ErrServiceFailed = errors.New("podman's service did not start")
)

func setupError(err error, hint string) error {
	return &sandbox.EngineError{Op: "set-up", Err: err, Hint: hint}
}

// folderError tells a full disk from the other reasons why a folder cannot be used.
func folderError(path string, err error) error {
	if isDiskFull(err) {
		return setupError(fmt.Errorf("%w: %s", ErrDiskFull, path), diskHint(path))
	}
	return setupError(fmt.Errorf("%w: %s: %w", ErrFolder, path, err),
		"the folder must be yours and writable: ls -ld "+path)
}

func diskHint(path string) string {
	return "free some space (df -h " + path + "), or remove images that are not needed: handler toolbox list"
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		err != nil && (strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "disk quota exceeded"))
}

// engineError makes of what the service answered an error for a person. err must not be nil.
func (d *Driver) engineError(op string, err error) error {
	var known *sandbox.EngineError
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("sandbox engine: %s: %w", op, err)
	}
	e := &sandbox.EngineError{Op: op, Err: err}
	text := err.Error()
	switch {
	case isDiskFull(err):
		e.Err, e.Hint = fmt.Errorf("%w: %s", ErrDiskFull, text), diskHint(d.opts.StateDir)
	case strings.Contains(text, "Resource temporarily unavailable") || strings.Contains(text, "EAGAIN"):
		e.Hint = "this user is out of processes; end some, or raise the limit (ulimit -u)"
	case strings.Contains(text, "too many open files"):
		e.Hint = "raise the limit of open files (ulimit -n)"
	case strings.Contains(text, "AppArmor") || strings.Contains(text, "apparmor") || strings.Contains(text, "uid_map: operation not permitted"):
		e.Hint = "the system forbids user namespaces to podman: look at sysctl kernel.apparmor_restrict_unprivileged_userns and user.max_user_namespaces"
	case strings.Contains(text, "cgroups in hybrid mode not supported"):
		e.Hint = "the runtime does not know this cgroup layout; install runc and leave engine.runtime unset"
	}
	return e
}

// statusCode is the HTTP status of an answer of the service, or 0 when err is none.
func statusCode(err error) int {
	var m *errorhandling.ErrorModel
	if errors.As(err, &m) {
		return m.ResponseCode
	}
	return 0
}

// isGone says that the container or image that was asked about is not there.
func isGone(err error) bool {
	if statusCode(err) == http.StatusNotFound {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "no such container") || strings.Contains(text, "no container with name or ID")
}

// isHalfGone says that podman's books have the container and its storage does not: its service ended between removing
// the one and the other. It cannot be looked at then, but it can be removed.
func isHalfGone(err error) bool { return strings.Contains(err.Error(), "container not known") }

// isUnreachable says that the service did not answer at all: it is gone, or was never there.
func isUnreachable(err error) bool {
	return statusCode(err) == 0 && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(err.Error(), "EOF") ||
		strings.Contains(err.Error(), "with Body length 0")) // what the bindings make of a lost request that they send again
}

// socketError says which of the three things is wrong with a service that is not ours (pitfalls P10).
func socketError(path string, err error) error {
	var why, hint string
	switch {
	case errors.Is(err, os.ErrNotExist):
		why, hint = "there is no socket", "start it: systemctl --user start podman.socket; or unset engine.socket, and Handler runs its own"
	case errors.Is(err, os.ErrPermission):
		why, hint = "it belongs to another user", "name a socket of your own in engine.socket, or unset it, and Handler runs its own"
	case errors.Is(err, syscall.ECONNREFUSED):
		why, hint = "nothing listens there", "start it: systemctl --user restart podman.socket; or unset engine.socket, and Handler runs its own"
	default:
		why, hint = err.Error(), "unset engine.socket, and Handler runs its own"
	}
	return setupError(fmt.Errorf("%w: %s: %s", ErrSocket, path, why), hint)
}
