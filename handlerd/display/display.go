// Package display finds the Wayland socket of the person's compositor for a run that wants windows on their screen
// (contract A.6), and says what a client of that compositor may do besides showing windows.
//
// It is asked at the start of each run and never when the daemon starts: a user service is often there before the
// compositor, and a compositor that is started again may have another socket.
package display

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/handlerd/handler/handlerd/fault"
)

// maxSocketPath is what sun_path holds, without its NUL.
const maxSocketPath = 107

// Env is what the environment of whoever asks for the run says of the display.
type Env struct {
	HandlerSocket  string // HANDLER_WAYLAND_SOCKET: absolute, or a name in RuntimeDir
	WaylandDisplay string // WAYLAND_DISPLAY: absolute, or a name in RuntimeDir
	RuntimeDir     string // XDG_RUNTIME_DIR: absolute
}

// A SocketError says that the socket that a variable names cannot be used. Another one is never taken in its place.
type SocketError struct {
	Variable string // "HANDLER_WAYLAND_SOCKET" or "WAYLAND_DISPLAY"
	Path     string
	Reason   string
	Err      error // the cause; may be nil
}

func (e *SocketError) Error() string {
	return fmt.Sprintf("%s names %s, which %s", e.Variable, e.Path, e.Reason)
}

// Unwrap gives the cause.
func (e *SocketError) Unwrap() error { return e.Err }

// A NotFoundError says that no variable names a socket and that none lives in the runtime folder.
type NotFoundError struct {
	Dir  string   // "" when XDG_RUNTIME_DIR is not set
	Dead []string // sockets there that nobody answers on
}

func (e *NotFoundError) Error() string {
	switch {
	case e.Dir == "":
		return "no Wayland socket: neither HANDLER_WAYLAND_SOCKET, WAYLAND_DISPLAY nor XDG_RUNTIME_DIR is set"
	case len(e.Dead) > 0:
		return fmt.Sprintf("no Wayland socket in %s: nobody answers on %s", e.Dir, strings.Join(e.Dead, ", "))
	default:
		return fmt.Sprintf("no Wayland socket in %s", e.Dir)
	}
}

// An AmbiguousError says that several sockets live in the runtime folder and that nothing says which one is meant.
type AmbiguousError struct {
	Sockets []string // absolute, sorted
}

func (e *AmbiguousError) Error() string {
	return "several Wayland sockets live: " + strings.Join(e.Sockets, ", ")
}

// Find gives the absolute path, symlinks resolved, of the Wayland socket that a run shall get: the one that
// HandlerSocket names, else WaylandDisplay, else the only live wayland-* socket of RuntimeDir, where lock files and
// sockets that nobody answers on are passed over. The socket has just answered as a Wayland compositor, so that
// neither a stale socket nor, say, podman's is ever mounted into a sandbox.
//
// Errors are *fault.Fault with a hint, around a *SocketError, *NotFoundError, *AmbiguousError or the context's error.
func Find(ctx context.Context, env Env) (string, error) {
	for _, named := range []struct{ variable, value string }{
		{"HANDLER_WAYLAND_SOCKET", env.HandlerSocket}, {"WAYLAND_DISPLAY", env.WaylandDisplay},
	} {
		if named.value != "" {
			return findNamed(ctx, env.RuntimeDir, named.variable, named.value)
		}
	}
	live, dead, err := scan(ctx, env.RuntimeDir)
	switch {
	case err != nil:
		return "", fault.Wrap(fault.Failed, err, "", "looking for a Wayland socket in %s", env.RuntimeDir)
	case len(live) == 1:
		return live[0], nil
	case len(live) > 1:
		return "", &fault.Fault{
			Kind: fault.Failed, Text: (&AmbiguousError{live}).Error(), Err: &AmbiguousError{live},
			Hint: "say which one is yours: export HANDLER_WAYLAND_SOCKET=" + live[0],
		}
	}
	cause := &NotFoundError{Dir: env.RuntimeDir, Dead: dead}
	return "", &fault.Fault{
		Kind: fault.Failed, Text: cause.Error(), Err: cause,
		Hint: "start this from a terminal of your Wayland session, or run without the display (display = false in the agent, no --display)",
	}
}

func findNamed(ctx context.Context, dir, variable, value string) (string, error) {
	path, cause := value, (*SocketError)(nil)
	if !filepath.IsAbs(path) {
		if !filepath.IsAbs(dir) {
			cause = &SocketError{variable, path, "is relative, and XDG_RUNTIME_DIR is not set to an absolute path", nil}
		}
		path = filepath.Join(dir, value)
	}
	if cause == nil {
		resolved, err := check(ctx, path)
		if err == nil {
			return resolved, nil
		}
		if ctx.Err() != nil {
			return "", fault.Wrap(fault.Failed, ctx.Err(), "", "asking the compositor on %s", path)
		}
		cause = &SocketError{variable, path, reason(err), err}
	}
	hint := "unset " + variable + ", or set it to the socket of a running compositor"
	// What lives beside it may be what the person means; it is named and never taken.
	if live, _, err := scan(ctx, dir); err == nil && len(live) > 0 {
		hint = "live here: " + strings.Join(live, ", ") + "; choose: export HANDLER_WAYLAND_SOCKET=" + live[0]
	}
	return "", &fault.Fault{Kind: fault.Failed, Text: cause.Error(), Hint: hint, Err: cause}
}

// Live gives the sockets in a runtime folder that answer as Wayland compositors, symlinks resolved, sorted. A folder that
// is not there, or "", has none.
func Live(ctx context.Context, dir string) ([]string, error) {
	live, _, err := scan(ctx, dir)
	return live, err
}

// scan gives the wayland-* sockets of dir that answer, symlinks resolved and each once, and the names of those that
// do not. A folder that is not there, or "", has none.
func scan(ctx context.Context, dir string) (live, dead []string, err error) {
	if dir == "" {
		return nil, nil, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	seen := make(map[string]bool)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "wayland-") || strings.HasSuffix(e.Name(), ".lock") {
			continue
		}
		resolved, err := check(ctx, filepath.Join(dir, e.Name()))
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case errors.Is(err, errNoSocket):
			continue
		case err != nil:
			dead = append(dead, e.Name())
		case !seen[resolved]:
			seen[resolved] = true
			live = append(live, resolved)
		}
	}
	sort.Strings(live)
	return live, dead, nil
}

var (
	errNoSocket = errors.New("is no socket")
	errTooLong  = fmt.Errorf("has a path of more than %d bytes, which no socket can have", maxSocketPath)
)

// check resolves path and asks the compositor behind it.
func check(ctx context.Context, path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(resolved)
	switch {
	case err != nil:
		return "", err
	case info.Mode().Type() != fs.ModeSocket:
		return "", errNoSocket
	case len(resolved) > maxSocketPath:
		return "", errTooLong
	}
	if _, err := Ask(ctx, resolved); err != nil {
		return "", err
	}
	return resolved, nil
}
