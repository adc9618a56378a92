// Package preview is what the guarded browser shows of an agent's own work (contract F.6): files of its scopes, each
// folder under a random origin of its own, and the apps that a scope registers, which listen in the agent's sandbox.
// handlerd answers their hosts itself; none of it is reached from anywhere but one session's browser.
//
//	http://files.workspace.invalid/PATH          leads to the file, under its folder's origin
//	http://RANDOM.files.workspace.invalid/NAME   the folder of a file that was opened, and what is below it
//	http://NAME.workspace.invalid/               an app of .handler/public-apps.json
//
// A page of these is the agent's, and so is everything that it says. It may reach nothing but its like: the worker's
// network is every public host, and a page that the agent wrote must not be the agent's way around its own rules.
package preview

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/beneath"
)

// Bounds of one session's previews.
const (
	MaxOrigins   = 32        // folders; the one that was opened longest ago goes
	MaxFileBytes = 256 << 20 // of one file that is shown
	maxPath      = 4 << 10   // bytes of a path
	maxShown     = 200       // bytes of a path in a message
)

// Hosts of previews. Domain is the last part of all of them.
const (
	Domain    = "workspace.invalid"
	FilesHost = "files." + Domain
)

// Options are what a Session is made of.
type Options struct {
	// Scopes are the folders that the agent sees, absolute and with no symlink in them.
	Scopes []string
	// Dial connects to a port of the loopback in the agent's sandbox. Its errors are shown to the agent: they say what
	// to do. If nil, there are no apps.
	Dial func(ctx context.Context, port int) (net.Conn, error)
}

// A Session is what one browser session sees. Its methods may be called concurrently.
type Session struct {
	o      Options
	scopes []scope // longest path first, so that a scope within another is found before that
	ctx    context.Context
	cancel context.CancelFunc
	apps   *apps

	mu      sync.Mutex
	closed  bool              // protected by mu
	origins map[string]origin // by random name; protected by mu
	order   []string          // names, the one that was opened longest ago first; protected by mu
}

// A scope is a folder of the agent's, held by a descriptor.
type scope struct {
	path string
	dir  *os.File
}

// An origin is a folder under a name: by its path below the scope and not by a descriptor, since a build removes its
// output and makes it anew.
type origin struct {
	scope  int
	folder string // relative and clean; "." for the scope itself
}

// New opens the scopes. The caller closes the Session.
func New(o Options) (*Session, error) {
	s := &Session{o: o, origins: map[string]origin{}}
	paths := slices.Clone(o.Scopes)
	slices.SortStableFunc(paths, func(a, b string) int { return len(b) - len(a) })
	for _, p := range paths {
		dir, err := beneath.Root(p)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the scope: %w", err), s.closeScopes())
		}
		s.scopes = append(s.scopes, scope{p, dir})
	}
	// Nobody's request: it ends by Close.
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.apps = newApps(s)
	return s, nil
}

// Close ends the session: its origins are gone, and connections to its apps are closed. It is idempotent.
func (s *Session) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.origins = nil
	s.mu.Unlock()
	if !first {
		return nil
	}
	s.cancel()
	s.apps.close()
	return s.closeScopes()
}

func (s *Session) closeScopes() error {
	var errs []error
	for _, sc := range s.scopes {
		errs = append(errs, sc.dir.Close())
	}
	return errors.Join(errs...)
}

// Handler gives what answers a host in its canonical spelling: lower case, no port, no dot at the end. It is nil for
// hosts that are none of a preview's; one that is, but leads nowhere, is answered with what to do. Handlers may panic
// with http.ErrAbortHandler, as net/http's servers expect, and take over the connection of a WebSocket.
func (s *Session) Handler(host string) http.Handler {
	name, ours := strings.CutSuffix(host, "."+Domain)
	if !ours {
		if host != Domain {
			return nil
		}
		return refusal(http.StatusNotFound, "there is nothing at "+Domain+" itself. "+help)
	}
	if name == "files" {
		return http.HandlerFunc(s.serveEntry)
	}
	if folder, ok := strings.CutSuffix(name, ".files"); ok {
		return s.folderHandler(folder)
	}
	return s.apps.handler(name)
}

const help = "Files of the workspace are at http://" + FilesHost + "/PATH, apps that it registers at http://NAME." + Domain + "/"

// Open gives the address under which the browser shows a file, by its path in the workspace: absolute, or below one of
// the scopes. A path that ends in "/" is that folder's index.html. Errors say what to do.
func (s *Session) Open(name string) (address string, err error) {
	n, rel, err := s.find(name)
	if err != nil {
		return "", err
	}
	f, err := s.open(n, rel)
	if err != nil {
		return "", s.explain(n, rel, err)
	}
	_ = f.Close()
	random, err := s.originOf(origin{n, path.Dir(rel)})
	if err != nil {
		return "", err
	}
	base := path.Base(rel)
	if strings.HasSuffix(name, "/") {
		base = ""
	}
	return (&url.URL{Scheme: "http", Host: random + "." + FilesHost, Path: "/" + base}).String(), nil
}

// find gives the scope of a path, and the path of the file below it.
func (s *Session) find(name string) (n int, rel string, err error) {
	want := "/" + strings.TrimLeft(name, "/")
	if strings.HasSuffix(want, "/") {
		want += "index.html"
	}
	if err := checkPath(want[1:]); err != nil {
		return 0, "", err
	}
	for n, sc := range s.scopes {
		if rel, ok := strings.CutPrefix(want, strings.TrimSuffix(sc.path, "/")+"/"); ok {
			return n, rel, nil
		}
	}
	rel = want[1:]
	found := -1
	for n := range s.scopes {
		f, err := s.open(n, rel)
		if err != nil {
			continue
		}
		_ = f.Close()
		if found >= 0 {
			return 0, "", fmt.Errorf("%s is in more than one folder of the workspace: give the whole path, such as %s",
				shown(rel), shown(filepath.Join(s.scopes[found].path, rel)))
		}
		found = n
	}
	switch {
	case found >= 0:
		return found, rel, nil
	case len(s.scopes) == 1: // there is no doubt of which was meant, and what is wrong with it can be said
		return 0, rel, nil
	case len(s.scopes) == 0:
		return 0, "", errors.New("this run has no workspace")
	}
	return 0, "", fmt.Errorf("there is no file %s in the workspace, which is: %s", shown(rel), s.workspace())
}

func (s *Session) workspace() string {
	var paths []string
	for _, sc := range s.scopes {
		paths = append(paths, sc.path)
	}
	return strings.Join(paths, ", ")
}

// checkPath refuses what is no plain relative path, and every name that begins with a dot: those are configuration and
// secrets as often as not.
func checkPath(rel string) error {
	if len(rel) > maxPath || strings.ContainsRune(rel, 0) || !fs.ValidPath(rel) || rel == "." {
		return fmt.Errorf("%s is no plain path of a file: no empty part, no \"..\", at most %d bytes", shown(rel), maxPath)
	}
	for part := range strings.SplitSeq(rel, "/") {
		if strings.HasPrefix(part, ".") {
			return fmt.Errorf("%s is not shown: files and folders whose name begins with a dot never are", shown(rel))
		}
	}
	return nil
}

// errTooLarge says that a file is larger than what is shown.
var errTooLarge = fmt.Errorf("it is larger than %d MiB", MaxFileBytes>>20)

// open opens a file that checkPath has let through.
func (s *Session) open(n int, rel string) (*os.File, error) {
	f, err := s.openAny(n, rel)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > MaxFileBytes {
		err = errTooLarge
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openAny opens a regular file beneath a scope.
func (s *Session) openAny(n int, rel string) (*os.File, error) {
	raw, err := s.scopes[n].dir.SyscallConn()
	if err != nil {
		return nil, err
	}
	var f *os.File
	if raw.Control(func(fd uintptr) { f, err = beneath.Open(int(fd), rel) }) != nil {
		return nil, errGone // it is closed
	}
	return f, err
}

// explain says why a file is not shown, in words that a model can act on.
func (s *Session) explain(n int, rel string, err error) error {
	whole := shown(filepath.Join(s.scopes[n].path, rel))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("there is no file %s", whole)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%s leads through a symlink, and none is followed: give the path of the file itself", whole)
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s lies on another file system than its scope, and the sandbox does not have it either", whole)
	case errors.Is(err, beneath.ErrNotRegular):
		return fmt.Errorf("%s is a folder, a symlink or something else that is no file: folders are not listed and symlinks not followed; give the path of a file", whole)
	case errors.Is(err, errTooLarge):
		return fmt.Errorf("%s is not shown: %w", whole, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be read", whole)
	case errors.Is(err, errGone):
		return errGone
	}
	return fmt.Errorf("%s cannot be opened", whole)
}

var errGone = errors.New("this browser session is over; navigate to http://" + FilesHost + "/PATH again")

// originOf gives the folder's name, made where it has none.
func (s *Session) originOf(o origin) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", errGone
	}
	name := ""
	for known, of := range s.origins {
		if of == o {
			name = known
			s.order = slices.DeleteFunc(s.order, func(n string) bool { return n == known })
		}
	}
	if name == "" {
		if len(s.order) >= MaxOrigins {
			delete(s.origins, s.order[0])
			s.order = s.order[1:]
		}
		name = strings.ToLower(rand.Text())
		s.origins[name] = o
	}
	s.order = append(s.order, name)
	return name, nil
}

// shown makes a path fit for a message.
func shown(p string) string {
	if len(p) > maxShown {
		p = p[:maxShown] + "…"
	}
	return fmt.Sprintf("%q", p)
}
