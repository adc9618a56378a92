// Package dirs says where Handler keeps its files (contract K.3), for the command line and the daemon alike. It is
// the only reader of the variables that move them.
package dirs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Dirs are Handler's folders, all absolute. None need exist yet but Home and the parent of Run.
type Dirs struct {
	Home   string // the person's home folder
	Config string // ~/.config/handler: TOML
	State  string // ~/.local/state/handler: audit, artifacts, logs, agents' state
	Data   string // ~/.local/share/handler: the podman storage
	Cache  string // ~/.cache/handler: what can be lost
	Run    string // $XDG_RUNTIME_DIR/handler: sockets, runs
	XDGRun string // $XDG_RUNTIME_DIR
}

// Socket is the path of the daemon's API socket.
func (d Dirs) Socket() string { return filepath.Join(d.Run, "handlerd.sock") }

// Audit is the path of the audit log.
func (d Dirs) Audit() string { return filepath.Join(d.State, "audit", "audit.jsonl") }

// Artifacts is the folder of the files that agents made for the person.
func (d Dirs) Artifacts() string { return filepath.Join(d.State, "artifacts") }

// Sessions is the file of the sessions that are kept, with their events.
func (d Dirs) Sessions() string { return filepath.Join(d.State, "sessions.db") }

// Log is the path of the log of a daemon that the command line started.
func (d Dirs) Log() string { return filepath.Join(d.State, "handlerd.log") }

// Web is the file of the browsers that are logged in to the page.
func (d Dirs) Web() string { return filepath.Join(d.State, "web.json") }

// WebOpened is the file that says on which port the person has the page open; it does not outlive a reboot.
func (d Dirs) WebOpened() string { return filepath.Join(d.Run, "web.port") }

// OldLog is behind the name of the log before the present one.
const OldLog = ".1"

// ErrRoot is why nothing of Handler runs as root (A.3).
var ErrRoot = errors.New("as root a sandbox would be weaker than what Handler promises, so Handler runs rootless only")

// Find reads the environment. It refuses root with ErrRoot and a runtime folder that is not there, not ours or
// open to others; the errors say what to do.
func Find(getenv func(string) string) (Dirs, error) {
	if os.Geteuid() == 0 {
		return Dirs{}, ErrRoot
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return Dirs{}, errors.New("HOME is not set to an absolute path; set it to your home folder")
	}
	run, err := runtimeDir(getenv("XDG_RUNTIME_DIR"))
	if err != nil {
		return Dirs{}, err
	}
	base := func(name, fallback string) string {
		if dir := getenv(name); filepath.IsAbs(dir) {
			return filepath.Join(dir, "handler")
		}
		return filepath.Join(home, fallback, "handler")
	}
	return Dirs{
		Home:   home,
		Config: base("XDG_CONFIG_HOME", ".config"),
		State:  base("XDG_STATE_HOME", ".local/state"),
		Data:   base("XDG_DATA_HOME", ".local/share"),
		Cache:  base("XDG_CACHE_HOME", ".cache"),
		Run:    filepath.Join(run, "handler"),
		XDGRun: run,
	}, nil
}

// runtimeDir is dir, or systemd's usual place for this user, when it is ours alone.
func runtimeDir(dir string) (string, error) {
	uid := os.Getuid()
	if dir == "" {
		dir = fmt.Sprintf("/run/user/%d", uid)
	}
	make := fmt.Sprintf("sudo install -d -m 0700 -o %d %s && export XDG_RUNTIME_DIR=%s", uid, dir, dir)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("the runtime folder %s (XDG_RUNTIME_DIR) does not exist; log in with a session, or make it: %s", dir, make)
	case err != nil:
		return "", fmt.Errorf("the runtime folder %s (XDG_RUNTIME_DIR): %w", dir, err)
	case !info.IsDir():
		return "", fmt.Errorf("XDG_RUNTIME_DIR names %s, which is no folder", dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != uid {
		return "", fmt.Errorf("the runtime folder %s (XDG_RUNTIME_DIR) belongs to another user; unset XDG_RUNTIME_DIR, or: %s", dir, make)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("the runtime folder %s (XDG_RUNTIME_DIR) is open to other users; close it: chmod 700 %s", dir, dir)
	}
	if n := len(dir + longestSocket); n > maxSocketPath {
		return "", fmt.Errorf("the path of the runtime folder %s (XDG_RUNTIME_DIR) is too long: a socket in it would have %d bytes, and %d is the end; set XDG_RUNTIME_DIR to a shorter path", dir, n, maxSocketPath)
	}
	return dir, nil
}

// A unix socket's path has an end (sun_path), and a run's socket has the longest.
const (
	longestSocket = "/handler/runs/xxxx/egress.sock"
	maxSocketPath = 107
)
