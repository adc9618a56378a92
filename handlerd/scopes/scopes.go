// Package scopes keeps what a scope cannot carry out (contract A.9): it says which host folders may be scopes
// (Check), which files in them are mounted read-only because the person's own tools would run them, and what of
// that kind a run left behind (Look, Appeared), and where a path really lies (Resolve, for P1 and P2).
//
// A scope is mounted at its resolved path. What an agent does inside a scope it may write to, other processes of the
// person see at once; so everything here is a look at a folder that somebody else may be changing, and nothing
// follows a symbolic link that lies in a scope.
package scopes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

// A Config says what may not be a scope, and what is protected in one. It does not change.
type Config struct {
	Home    string   // the person's home folder
	Handler []string // Handler's own folders: configuration, state, runtime
	Engine  []string // podman's folders, Handler's own podman and the person's: storage, configuration, runtime
	Runtime string   // XDG_RUNTIME_DIR; "" for none

	Protect []string // paths protected besides DefaultProtected
	Allow   []string // entries of DefaultProtected that are not, and paths below one that stay writable
}

// An Error says that a folder cannot be a scope. Its text names what to do instead.
type Error struct {
	Path   string // as it was asked for
	Reason string // "is your home folder"
	Remedy string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the scope %s %s — %s", e.Path, e.Reason, e.Remedy)
}

// A Scope is a folder that passed Check.
type Scope struct {
	Path string // symlinks resolved: where it is on the host and in the sandbox
	Note string // what a person should know of it, such as where its symlink led; "" for nothing
}

const smaller = "name a project folder instead: cd to it, or: handler run -C DIR AGENT …; for good: handler agent add NAME --scope DIR …"

// keyFolders, below the home, hold keys, logins or what the person's session starts. Neither they nor what lies in
// them nor their parents can be scopes.
var keyFolders = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".pki", ".mozilla", ".thunderbird",
	".minikube", ".terraform.d", ".local/share/keyrings", ".local/share/containers", ".config/gcloud", ".config/gh",
	".config/op", ".config/sops", ".config/containers", ".config/google-chrome", ".config/chromium",
	".config/BraveSoftware", ".config/systemd", ".config/autostart", ".local/share/systemd", ".local/bin",
}

// keyNames are folders of keys wherever they are, such as in a backup of a home.
var keyNames = []string{".ssh", ".gnupg", ".aws", ".kube", ".password-store"}

// systemFolders cannot be scopes themselves. Those of closedFolders cannot hold one either.
var (
	systemFolders = []string{"/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/usr", "/usr/local", "/usr/share",
		"/usr/src", "/var", "/var/cache", "/var/log", "/var/tmp", "/var/www", "/run/media"}
	closedFolders = []string{"/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt/handler", "/proc",
		"/run", "/sbin", "/sys", "/usr/bin", "/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/sbin",
		"/usr/local/bin", "/usr/local/lib", "/usr/local/sbin", "/var/lib", "/var/run", "/var/spool"}
	// sandboxFolders are where a sandbox has things of its own, which a scope over them would hide.
	sandboxFolders = []string{sandbox.HomeTarget, sandbox.RunDirTarget, sandbox.GuestTarget, sandbox.HarnessTarget,
		sandbox.AddonsTarget, sandbox.SecretsTarget, sandbox.RuntimeTarget}
)

// Check says whether a folder may be a scope, and where it really is. Path is absolute. A scope must be a folder
// that exists and that the person may read. A symlink is followed only to a sibling (a "current" beside its
// versions), which Note then says; one that leads elsewhere is refused, since it might be somebody else's choice. A
// symlink higher up (/home on another disk) is resolved without a word. The error is an *Error.
func (c Config) Check(path string) (Scope, error) {
	refuse := func(reason, remedy string) (Scope, error) { return Scope{}, &Error{path, reason, remedy} }
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || !utf8.ValidString(path) || len(path) > 4000 ||
		strings.IndexFunc(path, func(r rune) bool { return r < 0x20 || r == 0x7f }) >= 0 {
		return refuse("is not a plain absolute path", "write the whole path, in UTF-8, without \"..\" and control characters")
	}
	if reason := c.forbidden(path); reason != "" {
		return refuse(reason, smaller)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("does not exist", "make it: mkdir -p "+path)
	case err != nil:
		return refuse("cannot be looked at: "+cause(err), "name a folder that is yours")
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return refuse("is a symlink that leads nowhere", "name the folder itself")
	}
	s := Scope{Path: resolved}
	if info.Mode()&fs.ModeSymlink != 0 {
		beside, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil || filepath.Dir(resolved) != beside {
			return refuse("is a symlink that leads out, to "+resolved, "if that is the folder you mean, name it: "+resolved)
		}
		s.Note = fmt.Sprintf("the scope %s is a symlink: the sandbox has %s", path, resolved)
	}
	if reason := c.forbidden(resolved); reason != "" {
		if resolved != path {
			reason = "leads to " + resolved + ", which " + reason
		}
		return refuse(reason, smaller)
	}
	info, err = os.Stat(resolved)
	if err != nil || !info.IsDir() {
		return refuse("is not a folder", "name the folder that it is in")
	}
	if unix.Access(resolved, unix.R_OK|unix.X_OK) != nil {
		return refuse("is not readable by you", "name a folder that is yours")
	}
	return s, nil
}

// cause gives an error of the file system without the path, which the message has already.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// forbidden gives the reason why a path, whatever is there, cannot be a scope; "" for none. It is asked of the path
// as written and as resolved, and every folder it compares with is taken in both ways too.
func (c Config) forbidden(path string) string {
	if path == "/" {
		return "is the whole file system"
	}
	for _, home := range both(c.Home) {
		switch {
		case path == home:
			return "is your home folder"
		case within(home, path):
			return "holds your home folder"
		}
		for _, k := range keyFolders {
			if reason := overlaps(path, filepath.Join(home, k), "the folder ~/"+k+", which holds keys, logins or what your session starts"); reason != "" {
				return reason
			}
		}
	}
	for _, group := range []struct {
		dirs []string
		what string
	}{{c.Handler, "Handler's own folder"}, {c.Engine, "podman's own folder"}, {[]string{c.Runtime}, "your runtime folder"}} {
		for _, dir := range group.dirs {
			for _, d := range both(dir) {
				if reason := overlaps(path, d, group.what+" "+dir); reason != "" {
					return reason
				}
			}
		}
	}
	for _, part := range strings.Split(path, "/") {
		if slices.Contains(keyNames, part) {
			return "lies in a folder of keys, " + part
		}
	}
	return systemReason(path, within(path, filepath.Clean(c.Home)) && c.Home != "")
}

// systemReason is forbidden for what every machine has. A home may lie in a folder of the system (a service's in
// /var/lib); then what lies in it is the person's all the same.
func systemReason(path string, inHome bool) string {
	if slices.Contains(systemFolders, path) {
		return "is a folder of the system"
	}
	// A disk that the desktop mounted: /run/media/USER/DISK.
	if strings.HasPrefix(path, "/run/media/") && strings.Count(path, "/") >= 4 {
		return ""
	}
	for _, dir := range closedFolders {
		if within(path, dir) && !inHome {
			return "lies in a folder of the system, " + dir
		}
	}
	for _, dir := range sandboxFolders {
		if within(dir, path) {
			return "would hide the sandbox's own " + dir
		}
	}
	return ""
}

// overlaps says how path and dir, described by what, lie in each other; "" if they do not.
func overlaps(path, dir, what string) string {
	switch {
	case path == dir:
		return "is " + what
	case within(path, dir):
		return "lies in " + what
	case within(dir, path):
		return "holds " + what
	}
	return ""
}

// both gives a folder as named and, where that differs, resolved; nothing for "".
func both(dir string) []string {
	if dir == "" {
		return nil
	}
	dir = filepath.Clean(dir)
	if resolved, err := filepath.EvalSymlinks(dir); err == nil && resolved != dir {
		return []string{dir, resolved}
	}
	return []string{dir}
}

// within tells whether path is dir or lies below it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Resolve gives a path with every symlink in it followed, for P1 and P2 (policy.Config.Resolve). The last element
// need not exist: then the folder is resolved and the element stays. Relative paths, dangling links, loops and
// missing folders are errors. The answer is true of the moment only: who can write to a folder on the way can change
// it.
func Resolve(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", errors.New("the path is not absolute")
	}
	if strings.HasSuffix(path, "/..") || strings.HasSuffix(path, "/.") {
		path += "/" // the last element is a folder then, and must exist
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolved, nil
	}
	if _, lerr := os.Lstat(strings.TrimRight(path, "/")); !errors.Is(lerr, fs.ErrNotExist) || !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the path cannot be resolved: %s", cause(err)) // a dangling link is there itself
	}
	dir, last := filepath.Split(strings.TrimRight(path, "/"))
	if last == "" || last == "." || last == ".." {
		return "", errors.New("the path does not exist")
	}
	parent, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("the path's folder cannot be resolved: %s", cause(err))
	}
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return "", errors.New("the path's folder is not a folder")
	}
	return filepath.Join(parent, last), nil
}
