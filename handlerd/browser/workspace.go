package browser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenBeneath opens a regular file for reading that lies beneath one of the scopes, which are absolute folders, by its
// absolute path. Nothing on the way may be a symlink, and the file is opened from its scope's descriptor, so that
// nobody can put something else in its place in between.
func OpenBeneath(scopes []string, path string) (*os.File, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("%q is no absolute path", shorten(path, 200))
	}
	clean := filepath.Clean(path)
	for _, scope := range scopes {
		rel, err := filepath.Rel(scope, clean)
		if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		return openBeneath(scope, rel, clean)
	}
	return nil, fmt.Errorf("%q is not in the workspace: %s", shorten(path, 200), strings.Join(scopes, ", "))
}

func openBeneath(scope, rel, path string) (*os.File, error) {
	dir, err := unix.Open(scope, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", shorten(path, 200), err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, rel, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, // a FIFO would block
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%q leads through a symlink", shorten(path, 200))
	case err != nil:
		return nil, fmt.Errorf("%q: %w", shorten(path, 200), err)
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil && info.Mode()&fs.ModeType != 0 {
		err = fmt.Errorf("%q is no regular file", shorten(path, 200))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
