package scopes

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

// Bounds of a look at a scope. The start of a run waits for it.
const (
	ProtectDepth = 3      // folders below the scope in which protected paths are looked for
	SocketDepth  = 6      // folders below the scope in which sockets are looked for
	MaxEntries   = 20_000 // entries looked at
	MaxMounts    = 200    // mounts over one scope
	maxNamed     = 20     // paths that one notice names
	maxMarked    = 200    // entries of a protected folder that are watched for changes
)

// A View is what a look at a scope found.
type View struct {
	// Mounts lie over the scope, in order: protected paths, read-only; before them the folders they need to stay
	// where they are, and after them what stays writable.
	Mounts []sandbox.Mount
	// Sockets are the paths of the sockets in the scope. Whoever answers on one is reached past network none.
	Sockets []string
	// Notices say what could not be protected, or only in part.
	Notices []string
	// Complete is false if the scope has more entries than were looked at.
	Complete bool

	marks map[string]mark // protected paths that exist, absolute
}

// A mark tells one state of a file from another. The change time cannot be set by who changes the file.
type mark struct {
	mode         fs.FileMode
	dev, ino     uint64
	size         int64
	mtime, ctime int64
	link         string
	entries      [sha256.Size]byte // of a folder: of the first maxMarked of what lies in it
}

// Look walks a scope, which Check has resolved: breadth first, no symlink followed, node_modules passed over, at most
// MaxEntries. Protected paths are found in the scope itself and in every folder down to ProtectDepth. The error is
// the file system's, about the scope itself; folders in it that cannot be read are named in Notices.
func (c Config) Look(scope string) (*View, error) { return c.look(scope, MaxEntries) }

func (c Config) look(scope string, most int) (*View, error) {
	w := &walk{view: &View{Complete: true, marks: map[string]mark{}}, rules: c.rules(), scope: scope, most: most, left: most}
	f, err := openFolder(scope)
	if err == nil {
		_, err = f.Readdirnames(1)
		f.Close()
	}
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("look at the scope %s: %w", scope, err)
	}
	w.queue = []place{{dir: scope}}
	for len(w.queue) > 0 && w.left > 0 {
		next := w.queue[0]
		w.queue = w.queue[1:]
		w.visit(next)
	}
	for _, p := range w.queue {
		w.view.Complete = false
		w.lost = w.lost || p.depth <= ProtectDepth
	}
	w.finish()
	return w.view, nil
}

// A place is a folder to visit.
type place struct {
	dir   string
	depth int
	git   bool // inside a .git: only sockets and the git folders of submodules are of interest
}

type walk struct {
	view  *View
	rules rules
	scope string
	queue []place
	most  int
	left  int

	links, unread, over, odd []string
	lost                     bool // protection, not only the search for sockets, was cut short
}

func (w *walk) visit(p place) {
	entries, cut, err := w.read(p.dir)
	if err != nil {
		if p.depth <= ProtectDepth && !errors.Is(err, fs.ErrNotExist) {
			w.unread = append(w.unread, p.dir)
		}
		return
	}
	names := make(map[string]fs.FileMode, len(entries))
	for _, e := range entries {
		names[e.Name()] = e.Type()
		full := filepath.Join(p.dir, e.Name())
		switch {
		case e.Type()&fs.ModeSocket != 0:
			w.view.Sockets = append(w.view.Sockets, full)
		case e.IsDir() && e.Name() != "node_modules" && p.depth < SocketDepth && !(p.git && e.Name() == "objects"):
			if !utf8.ValidString(e.Name()) {
				w.odd = append(w.odd, full) // its sockets are not known either
				w.view.Complete = false
				continue
			}
			w.queue = append(w.queue, place{full, p.depth + 1, p.git || e.Name() == ".git"})
		}
	}
	if cut {
		w.view.Complete = false
		w.lost = w.lost || p.depth <= ProtectDepth
		w.ask(p.dir, names)
	}
	if p.depth <= ProtectDepth || p.git {
		w.protect(p, names)
	}
}

// openFolder opens a folder that no symbolic link leads to. An agent may exchange it for something else at any moment:
// a pipe without a writer would hold up who opens it for ever.
func openFolder(dir string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, dir, &how)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), dir), nil
		case unix.EINTR, unix.EAGAIN:
		default:
			return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
		}
	}
}

// read gives at most what is left of the entries; cut tells that there may be more.
func (w *walk) read(dir string) (entries []fs.DirEntry, cut bool, err error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	entries, err = f.ReadDir(w.left)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	w.left -= len(entries)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, w.left <= 0, nil
}

// ask adds the names that the rules begin with, where a folder was too large to be read.
func (w *walk) ask(dir string, names map[string]fs.FileMode) {
	for _, rule := range w.rules.protected {
		if info, err := os.Lstat(filepath.Join(dir, rule[0])); err == nil {
			names[rule[0]] = info.Mode().Type()
		}
	}
}

// repositoryOrders are the files of a repository's own folder that say what git runs, or where it finds what says so.
var repositoryOrders = []string{"config", "config.worktree", "commondir", "gitdir", "hooks"}

// protect finds the protected paths of one folder.
func (w *walk) protect(p place, names map[string]fs.FileMode) {
	// A bare repository, or the git folder of a submodule or worktree: as a whole what .git is elsewhere.
	if repositoryFolder(names) && (filepath.Base(p.dir) != ".git" || p.depth == 0) {
		for _, name := range repositoryOrders {
			w.cover(p.dir, w.pins(p), []string{name})
		}
	}
	if p.git {
		return
	}
	if mode, ok := names[".git"]; ok && !mode.IsDir() {
		w.cover(p.dir, nil, []string{".git"})
	}
	for _, rule := range w.rules.protected {
		if _, ok := names[rule[0]]; ok {
			w.cover(p.dir, nil, rule)
		}
	}
}

// pins are the folders that must stay where they are for a repository's own folder to stay: itself and, in a .git,
// all above it up to that.
func (w *walk) pins(p place) []string {
	var all []string
	for dir := p.dir; dir != w.scope && within(dir, w.scope); dir = filepath.Dir(dir) {
		all = append(all, dir)
		if !p.git || filepath.Base(dir) == ".git" {
			break
		}
	}
	slices.Reverse(all)
	return all
}

// repositoryFolder tells a folder that git takes for a repository's own. Git follows links to objects and refs, and a
// "commondir" stands for both.
func repositoryFolder(names map[string]fs.FileMode) bool {
	_, head := names["HEAD"]
	_, common := names["commondir"]
	folder := func(name string) bool { return names[name]&(fs.ModeDir|fs.ModeSymlink) != 0 }
	return head && (common || folder("objects") && folder("refs"))
}

// cover mounts dir/rule read-only if it is there and no component of it is a symlink. The folders between dir and it
// are mounted on themselves, and so are pins, so that they cannot be renamed away with what lies on them.
func (w *walk) cover(dir string, pins, rule []string) {
	full := dir
	for i, part := range rule {
		full = filepath.Join(full, part)
		info, err := os.Lstat(full)
		if err != nil {
			return
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			w.view.marks[full] = markOf(full, info)
			w.links = append(w.links, full)
			return
		}
		if i == len(rule)-1 {
			w.view.marks[full] = w.markOfAll(full, rule, info)
			if !info.IsDir() && !info.Mode().IsRegular() {
				return
			}
		} else if info.IsDir() {
			pins = append(pins, full)
		} else {
			return
		}
	}
	w.mount(pins, full, w.exceptions(dir, rule))
}

// exceptions are the paths below dir/rule that stay writable, where they exist as plain files or folders.
func (w *walk) exceptions(dir string, rule []string) []string {
	var all []string
	for _, a := range w.rules.allowed {
		if len(a) <= len(rule) || !slices.Equal(a[:len(rule)], rule) {
			continue
		}
		full, plain := filepath.Join(append([]string{dir}, rule...)...), true
		for _, part := range a[len(rule):] {
			full = filepath.Join(full, part)
			info, err := os.Lstat(full)
			plain = plain && err == nil && (info.IsDir() || info.Mode().IsRegular())
		}
		if plain && utf8.ValidString(full) {
			all = append(all, full)
		}
	}
	return all
}

func (w *walk) mount(pins []string, full string, writable []string) {
	// What carries a mount to the kernel writes U+FFFD for bytes that are not UTF-8, and so would mount another path.
	if !utf8.ValidString(full) {
		w.odd = append(w.odd, full)
		return
	}
	if len(w.view.Mounts)+len(pins)+1+len(writable) > MaxMounts {
		w.over = append(w.over, full)
		return
	}
	for _, pin := range pins {
		w.add(pin, false)
	}
	w.add(full, true)
	for _, path := range writable {
		w.add(path, false)
	}
}

// add adds a mount, or makes one that is there read-only.
func (w *walk) add(path string, readOnly bool) {
	for i := range w.view.Mounts {
		if m := &w.view.Mounts[i]; m.Target == path {
			m.ReadOnly = m.ReadOnly || readOnly
			return
		}
	}
	w.view.Mounts = append(w.view.Mounts, sandbox.Mount{Source: path, Target: path, ReadOnly: readOnly})
}

// finish puts the mounts into an order in which no mount hides another, and says what is missing.
func (w *walk) finish() {
	v := w.view
	slices.SortStableFunc(v.Mounts, func(a, b sandbox.Mount) int {
		return strings.Compare(a.Target+"/", b.Target+"/") // a folder comes before what lies in it
	})
	slices.Sort(v.Sockets)
	for _, n := range []struct {
		what  string
		paths []string
	}{
		{"are symlinks, and so are not protected from the agent", w.links},
		{"have names that are not UTF-8, and what is in them is not protected from the agent", w.odd},
		{"cannot be read, and what is in them is not protected from the agent", w.unread},
		{fmt.Sprintf("are not protected from the agent: a scope has at most %d mounts", MaxMounts), w.over},
	} {
		if len(n.paths) > 0 {
			v.Notices = append(v.Notices, fmt.Sprintf("in the scope %s these %s: %s", w.scope, n.what, list(n.paths)))
		}
	}
	if w.lost {
		v.Notices = append(v.Notices, fmt.Sprintf("the scope %s has more than %d entries: files that your tools run are not protected beyond those looked at", w.scope, w.most))
	}
}

// list names paths, at most maxNamed. Agents chose the names: one that would not show as it is, is quoted.
func list(paths []string) string {
	var named []string
	for _, p := range paths[:min(len(paths), maxNamed)] {
		if q := strconv.Quote(p); q != `"`+p+`"` {
			p = q
		}
		named = append(named, p)
	}
	if len(paths) <= maxNamed {
		return strings.Join(named, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(named, ", "), len(paths)-maxNamed)
}

// markOfAll is markOf, for a folder with a mark of what lies in it: a hook that is changed in place changes nothing of
// the folder of hooks. The entries that an exception to the rule lies in are left out, as the agent may write there.
func (w *walk) markOfAll(path string, rule []string, info fs.FileInfo) mark {
	m := markOf(path, info)
	if !info.IsDir() {
		return m
	}
	f, err := openFolder(path)
	if err != nil {
		return m
	}
	defer f.Close()
	names, err := f.Readdirnames(maxMarked)
	if err != nil {
		return m // empty, or nothing that a mark could be made of
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		if slices.ContainsFunc(w.rules.allowed, func(a []string) bool {
			return len(a) > len(rule) && slices.Equal(a[:len(rule)], rule) && a[len(rule)] == name
		}) {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			fmt.Fprintf(sum, "%q %d %d %d %d\n", name, st.Mode, st.Ino, st.Size, st.Ctim.Nano())
		}
	}
	sum.Sum(m.entries[:0])
	return m
}

func markOf(path string, info fs.FileInfo) mark {
	m := mark{mode: info.Mode(), size: info.Size(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		m.dev, m.ino, m.ctime = uint64(st.Dev), st.Ino, st.Ctim.Nano()
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		m.link, _ = os.Readlink(path) // a link that is gone meanwhile differs anyway
	}
	return m
}

// Appeared gives the protected paths that a scope holds after a run and did not hold before it, and those that are
// not the same any more: replaced, changed, gone, or in a folder that was moved. Sorted. They were not written through a
// read-only mount, so either the agent found a way around one (a parent renamed, a path that did not exist) or the
// person changed them meanwhile.
func Appeared(before, after *View) []string {
	var all []string
	for path, m := range after.marks {
		if old, ok := before.marks[path]; !ok || old != m {
			all = append(all, path)
		}
	}
	for path := range before.marks {
		if _, ok := after.marks[path]; !ok && after.Complete { // else it may be where nobody looked
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all
}
