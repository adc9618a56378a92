package podman

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/handlerd/handler/sandbox"
)

// Options say where a Driver keeps its things and which programs it uses. Nothing is read from the environment of
// the process.
type Options struct {
	// StateDir is Handler's folder on a disk: images, podman's configuration and home. It is made, 0700. Absolute.
	StateDir string
	// RunDir is Handler's folder for what ends with the login, on a tmpfs where there is one: the service's socket,
	// podman's runtime folder. It is made, 0700. Absolute and at most MaxRunDir bytes, since sockets lie in it.
	RunDir string
	// Owner is the value of sandbox.LabelOwner on everything that this Driver makes, and the only one it lists,
	// stops or sweeps. Required; letters, digits, '.', '_' and '-', at most 64.
	Owner string
	// Socket is the absolute path of a podman service that is already there ("engine.socket"); "" for our own.
	Socket string
	// Podman is the podman program; "" for the one in Path.
	Podman string
	// Runtime is the OCI runtime, crun or runc or a path; "" for one that works with this machine's cgroups.
	Runtime string
	// Path is the search path for podman and its helpers; "" for DefaultPath.
	Path string
	// Env is added to the environment of podman: proxy and certificate variables, CONTAINERS_REGISTRIES_CONF and
	// REGISTRY_AUTH_FILE for builds. No sandbox ever sees it. A variable that decides where podman keeps its things
	// is refused.
	Env []string
	// SessionBus is the address of the person's D-Bus ("unix:path=/run/user/1000/bus"), where there is a systemd
	// user session; with it, on cgroup v2, systemd makes the sandboxes' cgroups and the kernel keeps their limits.
	SessionBus string
	// Logger receives what podman says and what the Driver mends by itself; nil for none.
	Logger *slog.Logger
}

// DefaultPath is where podman and its helpers are looked for.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// MaxRunDir bounds Options.RunDir, so that the paths of sockets below it stay within the 107 bytes of a socket
// address.
const MaxRunDir = 80

// A Driver is a sandbox.Driver over one podman service; Images gives the sandbox.Images over the same.
type Driver struct {
	opts    Options
	log     *slog.Logger
	service *service // nil with Options.Socket

	closing  chan struct{} // closed when Close begins
	once     sync.Once
	building sync.Mutex // held while images are made and removed
	// creating holds a token while a container is created. Podman looks the user's subordinate ids up in a library that
	// is not safe for that from several threads: of forty creates at once one finds none and fails.
	creating chan struct{}
	views    views

	mu      sync.Mutex // protects what follows
	conn    *connection
	machine *machine
	closed  bool
	// halfDone says that a service was started, whose predecessor may have left something half done.
	halfDone bool
}

var (
	_ sandbox.Driver = (*Driver)(nil)
	_ sandbox.Images = (*Images)(nil)
)

var ownerPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// New checks options and makes a Driver. It starts nothing and touches no file: the first use does. Its errors are
// *sandbox.EngineError; errors.Is(err, ErrRoot) when the process is root's.
func New(opts Options) (*Driver, error) {
	if os.Geteuid() == 0 {
		return nil, setupError(ErrRoot, "run Handler as an ordinary user, such as: runuser -u NAME -- handler …")
	}
	if err := opts.check(); err != nil {
		return nil, &sandbox.EngineError{Op: "set-up", Err: err}
	}
	if opts.Path == "" {
		opts.Path = DefaultPath
	}
	log := newLog(opts.Logger)
	d := &Driver{opts: opts, log: log, closing: make(chan struct{}), creating: make(chan struct{}, 1)}
	if opts.Socket == "" {
		d.service = newService(opts, log)
	}
	return d, nil
}

func newLog(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}

func (o Options) check() error {
	for _, p := range []struct{ name, path string }{{"StateDir", o.StateDir}, {"RunDir", o.RunDir}} {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path || !printable(p.path) {
			return fmt.Errorf("%s %q is not an absolute, clean path", p.name, p.path)
		}
	}
	if len(o.RunDir) > MaxRunDir {
		return fmt.Errorf("the run folder %s has %d bytes, and a socket below it allows %d; set a shorter XDG_RUNTIME_DIR",
			o.RunDir, len(o.RunDir), MaxRunDir)
	}
	if o.Socket != "" && (!filepath.IsAbs(o.Socket) || len(o.Socket) > 107) {
		// A service on another machine could mount none of this one's folders (pitfalls P38).
		return fmt.Errorf("engine.socket %q is not the absolute path of a unix socket on this machine", o.Socket)
	}
	if !ownerPattern.MatchString(o.Owner) {
		return errors.New("the owner label is empty, too long or has other characters than letters, digits, '.', '_' and '-'")
	}
	for _, kv := range o.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("environment entry %q is not NAME=value", name)
		}
		if reservedEnv[name] {
			return fmt.Errorf("environment variable %s decides where podman keeps its things and cannot be given", name)
		}
	}
	return nil
}

// printable says whether s can stand in podman's configuration.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// reservedEnv are the variables that environ sets itself, or that would lead podman to other people's things.
var reservedEnv = map[string]bool{
	"PATH": true, "HOME": true, "TMPDIR": true, "XDG_RUNTIME_DIR": true, "XDG_CONFIG_HOME": true,
	"XDG_DATA_HOME": true, "XDG_CACHE_HOME": true, "CONTAINERS_CONF": true, "CONTAINERS_CONF_OVERRIDE": true,
	"CONTAINERS_STORAGE_CONF": true, "CONTAINER_HOST": true, "CONTAINER_CONNECTION": true, "STORAGE_DRIVER": true,
	"STORAGE_OPTS": true, "DBUS_SESSION_BUS_ADDRESS": true, "NOTIFY_SOCKET": true, "LISTEN_FDS": true,
	"LISTEN_PID": true, "LISTEN_FDNAMES": true, "container": true,
}
