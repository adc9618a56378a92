package artifacts

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/beneath"
)

// What Save does where the name is taken.
const (
	ConflictError   = "error"
	ConflictRename  = "rename"
	ConflictReplace = "replace"
)

// A SaveRequest says where an artifact is copied to. There is no other source than the artifact.
type SaveRequest struct {
	Scope    string // absolute, resolved, and writable to the agent: the caller has checked it
	Folder   string // below Scope, slashes, no ".."; "" for Scope itself. It exists, and no part of it is a symlink
	Name     string // a plain file name; "" for the artifact's own
	Conflict string // one of the three; "" for ConflictError
	// Refuse says why nothing may be saved under a path, such as that of a file that the person's own tools run; nil
	// lets all. It is asked of the whole path.
	Refuse func(path string) error
}

// A SaveError says why nothing was saved.
type SaveError struct {
	Path   string
	Reason string
	Hint   string // "" for none
	Exists bool   // the name is taken and Conflict says error
	Usage  bool   // what was asked for can never be
	Err    error  // the cause; may be nil
}

func (e *SaveError) Error() string {
	text := "not saved to " + e.Path + ": " + e.Reason
	if e.Hint != "" {
		text += " — " + e.Hint
	}
	return text
}

// Unwrap gives the cause.
func (e *SaveError) Unwrap() error { return e.Err }

// maxNumbered bounds the names that ConflictRename tries.
const maxNumbered = 1000

// Save copies an artifact into a scope and gives the path of the file. A file of that name is there whole or not at
// all, whatever happens: the copy gets its name when it is on the disk. Nothing follows a symlink, since an agent may
// be at work in the scope. Errors: *NotFoundError, *SaveError.
func (s *Store) Save(ctx context.Context, owner, id string, req SaveRequest) (string, error) {
	a, f, err := s.Open(ctx, owner, id)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if req.Name == "" {
		req.Name = a.Name
	}
	path := filepath.Join(req.Scope, filepath.FromSlash(req.Folder), req.Name)
	if err := req.check(); err != nil {
		return "", &SaveError{Path: path, Reason: err.Error(), Usage: true}
	}
	if req.Refuse != nil {
		if err := req.Refuse(path); err != nil {
			return "", err
		}
	}
	dir, err := openBeneath(req.Scope, req.Folder)
	if err != nil {
		return "", folderError(path, err)
	}
	defer dir.Close()
	name, err := s.saveIn(ctx, int(dir.Fd()), req, f)
	if err != nil {
		var known *SaveError
		if errors.As(err, &known) {
			known.Path = path
			return "", known
		}
		return "", &SaveError{Path: path, Reason: err.Error(), Err: err}
	}
	return filepath.Join(filepath.Dir(path), name), nil
}

func (r *SaveRequest) check() error {
	switch r.Conflict {
	case "":
		r.Conflict = ConflictError
	case ConflictError, ConflictRename, ConflictReplace:
	default:
		return fmt.Errorf("conflict %q must be error, rename or replace", r.Conflict)
	}
	if cleanName(r.Name) != r.Name {
		return fmt.Errorf("%q is not a plain file name", r.Name)
	}
	if r.Folder != "" && !filepath.IsLocal(r.Folder) {
		return errors.New("the folder must lie below the scope")
	}
	if !filepath.IsAbs(r.Scope) {
		return errors.New("the scope is not absolute")
	}
	return nil
}

// openBeneath opens a folder below scope (package beneath); "" is the scope itself.
func openBeneath(scope, folder string) (*os.File, error) {
	root, err := beneath.Root(scope)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return beneath.OpenDir(int(root.Fd()), filepath.ToSlash(filepath.Clean(folder)))
}

func folderError(path string, err error) *SaveError {
	e := &SaveError{Path: path, Reason: "its folder cannot be opened: " + err.Error(), Err: err}
	switch {
	case errors.Is(err, unix.ELOOP):
		e.Reason = "a part of its folder is a symlink"
		e.Hint = "name the folder itself"
	case errors.Is(err, unix.EXDEV):
		e.Reason = "its folder lies out of the scope, or on another file system than the scope"
		e.Hint = "name a folder of the scope's own"
	case errors.Is(err, fs.ErrNotExist):
		e.Reason = "its folder does not exist"
		e.Hint = "mkdir -p " + filepath.Dir(path)
	}
	return e
}

// saveIn copies content into the folder dir under a temporary name, and gives it its own. The journal remembers the
// temporary name until it is gone, so that the sweep after a crash finds it.
func (s *Store) saveIn(ctx context.Context, dir int, req SaveRequest, content io.Reader) (name string, err error) {
	temp := ".handler-save-" + strings.ToLower(rand.Text()[:12])
	entry, err := s.journal(ctx, filepath.Join(req.Scope, filepath.FromSlash(req.Folder)), temp)
	if err != nil {
		return "", err
	}
	defer func() {
		// After success it has another name, or was linked; both are fine.
		if e := unix.Unlinkat(dir, temp, 0); e != nil && e != unix.ENOENT {
			return // the sweep tries again
		}
		if _, e := s.db.ExecContext(context.WithoutCancel(ctx), "DELETE FROM saves WHERE id = ?", entry); e != nil {
			s.log.Warn("a save stays in the journal", "error", e)
		}
	}()
	s.step("journalled")
	fd, err := unix.Openat(dir, temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), temp)
	s.step("created")
	_, err = io.Copy(f, content)
	s.step("copied")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	s.step("synced")
	if name, err = giveName(dir, temp, req); err != nil {
		return "", err
	}
	s.step("named")
	return name, unix.Fsync(dir)
}

func (s *Store) journal(ctx context.Context, folder, temp string) (int64, error) {
	var id int64
	err := s.db.Do(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "INSERT INTO saves (folder, temp) VALUES (?, ?)", folder, temp)
		if err != nil {
			return err
		}
		id, err = result.LastInsertId()
		return err
	})
	return id, err
}

// giveName makes temp the file that was asked for.
func giveName(dir int, temp string, req SaveRequest) (string, error) {
	if req.Conflict == ConflictReplace {
		var st unix.Stat_t
		err := unix.Fstatat(dir, req.Name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			return "", &SaveError{Reason: "what has this name is no regular file", Hint: "choose another name"}
		}
		return req.Name, unix.Renameat(dir, temp, dir, req.Name)
	}
	for n := 1; n <= maxNumbered; n++ {
		name := req.Name
		if n > 1 {
			name = numbered(req.Name, n)
		}
		err := moveNew(dir, temp, name)
		switch {
		case err == nil:
			return name, nil
		case !errors.Is(err, unix.EEXIST):
			return "", err
		case req.Conflict == ConflictError:
			return "", &SaveError{Reason: "there is a file of this name", Exists: true, Err: fs.ErrExist,
				Hint: "say --conflict rename or --conflict replace, or another name"}
		}
	}
	return "", &SaveError{Reason: fmt.Sprintf("%d files of this name are there", maxNumbered), Hint: "choose another name"}
}

// moveNew renames, and fails with EEXIST where the name is taken. Some file systems know no such rename: there a
// second link does the same.
func moveNew(dir int, temp, name string) error {
	err := unix.Renameat2(dir, temp, dir, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return unix.Linkat(dir, temp, dir, name, 0)
	}
	return err
}
