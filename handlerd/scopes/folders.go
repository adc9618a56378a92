package scopes

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MaxFolders bounds the folders of one Listing.
const MaxFolders = 1000

// maxEntries bounds what is looked at for one.
const maxEntries = 100_000

// A Listing is the folders of one folder.
type Listing struct {
	Path    string
	Refused string // why Path cannot be a scope; "" where it can
	Folders []Listed
	Cut     bool // there are more
}

// A Listed is one of them.
type Listed struct {
	Path    string
	Refused string
}

// Folders lists the folders in one that is the home folder or lies below it, sorted, without hidden ones and without
// symlinks, and says of each whether it can be a scope. Nothing on the way to it may be a symlink either.
func (c Config) Folders(path string) (Listing, error) {
	home := filepath.Clean(c.Home)
	rel, err := filepath.Rel(home, path)
	if err != nil || !filepath.IsAbs(path) || !filepath.IsLocal(rel) {
		return Listing{}, errors.New("lies outside your home folder")
	}
	for part := range strings.SplitSeq(rel, "/") {
		if rel != "." && strings.HasPrefix(part, ".") {
			return Listing{}, errors.New("is hidden")
		}
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return Listing{}, err
	}
	defer root.Close()
	for at, next := ".", rel; next != "."; { // os.Root keeps links inside; here there are to be none
		name, rest, more := strings.Cut(next, "/")
		at = filepath.Join(at, name)
		info, err := root.Lstat(at)
		if err != nil {
			return Listing{}, errors.New(cause(err))
		}
		if !info.IsDir() {
			return Listing{}, errors.New("is not a folder")
		}
		if !more {
			break
		}
		next = rest
	}
	dir, err := root.Open(rel)
	if err != nil {
		return Listing{}, errors.New(cause(err))
	}
	defer dir.Close()
	list := Listing{Path: filepath.Join(home, rel)}
	list.Refused = c.refused(list.Path)
	entries, err := dir.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return Listing{}, errors.New(cause(err))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	list.Cut = len(entries) == maxEntries
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if len(list.Folders) == MaxFolders {
			list.Cut = true
			break
		}
		path := filepath.Join(list.Path, e.Name())
		list.Folders = append(list.Folders, Listed{Path: path, Refused: c.refused(path)})
	}
	return list, nil
}

// refused gives why a folder cannot be a scope; "" where it can.
func (c Config) refused(path string) string {
	var bad *Error
	if _, err := c.Check(path); errors.As(err, &bad) {
		return bad.Reason
	}
	return ""
}

// Missing tells whether there is nothing at a path.
func Missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
