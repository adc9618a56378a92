package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Bounds of a folder, which is a build's context.
const (
	MaxFolderFiles = 2000
	MaxFolderBytes = 64 << 20
)

// Folder is a directory of the host as a file system that no symbolic link leads out of (pitfall C02). Each use opens it
// anew, so that a Registry holds no descriptors.
type Folder string

// Open opens the file name, following links only as long as they stay inside.
func (f Folder) Open(name string) (fs.File, error) {
	return in(f, "open", name, (*os.Root).Open)
}

// Stat describes the file name, a link's target for a link.
func (f Folder) Stat(name string) (fs.FileInfo, error) {
	return in(f, "stat", name, (*os.Root).Stat)
}

func in[T any](f Folder, op, name string, do func(*os.Root, string) (T, error)) (result T, err error) {
	if !fs.ValidPath(name) {
		return result, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return result, err
	}
	defer root.Close()
	return do(root, name)
}

// Regular gives an error unless name is a regular file of source, or a link to one in it. It opens nothing: a FIFO would
// block. The error is fs.ErrNotExist's where there is none.
func Regular(source fs.FS, name string) error {
	info, err := fs.Stat(source, name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%q is not a regular file", name)
	}
	return nil
}

// Digest is the SHA-256, in hexadecimal, over the names and contents of every file of folder, as written a link's target:
// the recipe that an image's label (sandbox.LabelRecipe) is compared with. Modes and times do not count: what is shipped
// has none. nil gives the digest of nothing. Folders of more than MaxFolderFiles or MaxFolderBytes, files that are not
// regular, and links that leave the folder are errors.
func Digest(folder fs.FS) (string, error) {
	sum := sha256.New()
	if folder == nil {
		return hex.EncodeToString(sum.Sum(nil)), nil
	}
	files, left := 0, int64(MaxFolderBytes)
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if files++; files > MaxFolderFiles {
			return fmt.Errorf("more than %d files", MaxFolderFiles)
		}
		if err := Regular(folder, name); err != nil {
			return err
		}
		n, err := hashFile(sum, folder, name, left)
		left -= n
		return err
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// hashFile adds a file's name, length and digest, each fenced, so that no two folders look alike.
func hashFile(w io.Writer, source fs.FS, name string, left int64) (int64, error) {
	f, err := source.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	one := sha256.New()
	n, err := io.Copy(one, io.LimitReader(f, left+1))
	if err != nil {
		return 0, err
	}
	if n > left {
		return 0, fmt.Errorf("more than %d MiB", MaxFolderBytes>>20)
	}
	_, err = fmt.Fprintf(w, "%q %d %x\n", name, n, one.Sum(nil))
	return n, err
}
