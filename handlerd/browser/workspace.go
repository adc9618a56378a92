package browser

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/beneath"
)

// OpenBeneath opens a regular file for reading that lies beneath one of the scopes, which are absolute folders, by its
// absolute path (package beneath): what a sandbox does not see of a scope, such as what is mounted in it on the host, is
// not opened either.
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
	f, err := beneath.Open(dir, rel)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%q leads through a symlink", shorten(path, 200))
	case errors.Is(err, unix.EXDEV):
		return nil, fmt.Errorf("%q lies on another file system than its workspace", shorten(path, 200))
	case errors.Is(err, beneath.ErrNotRegular):
		return nil, fmt.Errorf("%q is no regular file", shorten(path, 200))
	case err != nil:
		return nil, fmt.Errorf("%q: %w", shorten(path, 200), errors.Unwrap(err))
	}
	return f, nil
}
