// Package beneath opens files below a folder while a hostile process may change what lies in it: no symbolic link is
// followed, no mount crossed, nothing but a regular file opened, and nothing waited for, whatever is renamed or put in
// the way meanwhile. The drivers open the files of their sandboxes with it, and handlerd what it reads and writes in a
// scope.
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// raceTries is how often a path is tried anew that is renamed while the kernel walks it.
const raceTries = 32

// maxParts bounds the folders of a path.
const maxParts = 64

// ErrNotRegular says that a path names something that is no regular file.
var ErrNotRegular = errors.New("it is no regular file")

// Root opens a folder by its absolute path, for the other functions; the caller closes it. No part of the path is a
// symbolic link: somebody who may write to a folder above it could exchange it. Errors are *fs.PathError.
func Root(dir string) (*os.File, error) {
	if !path.IsAbs(dir) {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: errors.New("it is no absolute path")}
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := retry(unix.AT_FDCWD, dir, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// Open opens a regular file for reading by its clean relative path below the folder that dir is a descriptor of. What
// may be read of it is still its owner's to change: read it once, and bounded. Errors are *fs.PathError.
func Open(dir int, name string) (*os.File, error) {
	if err := check(name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	// What it is is known before it is opened: opening a device or a pipe can have effects.
	at, err := openat2(dir, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(at)
	if err := regular(at); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	// The same file, by its descriptor. Without waiting: somebody inside may hold a lease on it.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), path.Base(name)), nil
}

// OpenDir opens a folder by its clean relative path below the folder that dir is a descriptor of; "." is that folder
// itself. Errors are *fs.PathError.
func OpenDir(dir int, name string) (*os.File, error) {
	err := error(nil)
	if name != "." {
		err = check(name)
	}
	fd := -1
	if err == nil {
		fd, err = openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), path.Base(name)), nil
}

// Create makes a file, 0600, and the folders on its way that are not there, 0700, by its clean relative path below the
// folder that dir is a descriptor of, and opens it for writing. What is there already is an error. Errors are
// *fs.PathError.
func Create(dir int, name string) (*os.File, error) {
	if err := check(name); err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	fd, err := create(dir, name)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), path.Base(name)), nil
}

func create(dir int, name string) (int, error) {
	parts := strings.Split(name, "/")
	at, err := openat2(dir, ".", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	for _, part := range parts[:len(parts)-1] {
		if err := unix.Mkdirat(at, part, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			unix.Close(at)
			return -1, err
		}
		next, err := openat2(at, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, parts[len(parts)-1], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	if err := regular(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func openat2(dir int, name string, flags uint64) (int, error) {
	return retry(dir, name, unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
}

func retry(dir int, name string, how unix.OpenHow) (int, error) {
	for try := 1; ; try++ {
		fd, err := unix.Openat2(dir, name, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) || try >= raceTries {
			return fd, err
		}
	}
}

func regular(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ErrNotRegular
	}
	return nil
}

// check wants a relative path of plain names.
func check(name string) error {
	switch {
	case name == "" || name == "." || !fs.ValidPath(name) || strings.ContainsRune(name, 0):
		return errors.New("it is no clean relative path")
	case strings.Count(name, "/") >= maxParts:
		return fmt.Errorf("it has more than %d folders", maxParts)
	}
	return nil
}
