package guestwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/handlerd/handler/sandbox"
)

// Bounds of one transfer of files.
const (
	MaxFiles      = 4096
	MaxFileBytes  = 32 << 20 // content of one file
	MaxFilesBytes = 64 << 20 // content of all
	maxPath       = 4095
)

// filesMagic begins a transfer. Then, big-endian: the count (uint32), and for each file the length of its path
// (uint16), the path, its mode (uint32), the length of its content (uint32) and the content.
const filesMagic = "handler-files 1\n"

// CheckFiles says whether files can be sent: bounded, paths absolute and clean and each once, modes of permission
// bits only. Its error is a *sandbox.SpecError.
func CheckFiles(files []sandbox.File) error {
	if len(files) > MaxFiles {
		return specError("%d files, at most %d are possible", len(files), MaxFiles)
	}
	seen := make(map[string]bool, len(files))
	total := 0
	for _, f := range files {
		if err := checkFile(f.Path, f.Mode, int64(len(f.Content))); err != nil {
			return specError("%s: %v", f.Path, err)
		}
		if seen[f.Path] {
			return specError("%s: named twice", f.Path)
		}
		seen[f.Path] = true
		if total += len(f.Content); total > MaxFilesBytes {
			return specError("more than %d MiB in all", MaxFilesBytes>>20)
		}
	}
	return nil
}

func specError(format string, args ...any) error {
	return &sandbox.SpecError{Field: "files", Reason: fmt.Sprintf(format, args...)}
}

func checkFile(name string, mode fs.FileMode, size int64) error {
	switch {
	case !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsRune(name, 0):
		return errors.New("the path is not absolute and clean")
	case len(name) > maxPath:
		return fmt.Errorf("the path has more than %d bytes", maxPath)
	case mode&^fs.ModePerm != 0:
		return errors.New("the mode has more than permission bits")
	case size > MaxFileBytes:
		return fmt.Errorf("more than %d MiB", MaxFileBytes>>20)
	}
	return nil
}

// WriteFiles sends files, after CheckFiles.
func WriteFiles(w io.Writer, files []sandbox.File) error {
	if err := CheckFiles(files); err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint32([]byte(filesMagic), uint32(len(files)))
	for _, f := range files {
		head = binary.BigEndian.AppendUint16(head, uint16(len(f.Path)))
		head = append(head, f.Path...)
		head = binary.BigEndian.AppendUint32(head, uint32(f.Mode))
		head = binary.BigEndian.AppendUint32(head, uint32(len(f.Content)))
		if len(f.Content) == 0 {
			continue // an empty write after the last byte could meet a peer that has all and is gone
		}
		if _, err := w.Write(head); err != nil {
			return err
		}
		if _, err := w.Write(f.Content); err != nil {
			return err
		}
		head = head[:0]
	}
	if len(head) == 0 {
		return nil
	}
	_, err := w.Write(head)
	return err
}

// ReadFiles reads what WriteFiles sent, as strictly as CheckFiles, and calls each for every file with a reader of
// exactly size bytes; what each leaves unread is skipped. It stops at the first error.
func ReadFiles(r io.Reader, each func(name string, mode fs.FileMode, size int64, content io.Reader) error) error {
	head := make([]byte, len(filesMagic)+4)
	if err := fill(r, head); err != nil {
		return err
	}
	if string(head[:len(filesMagic)]) != filesMagic {
		return errors.New("not a transfer of files, or of another version")
	}
	count := binary.BigEndian.Uint32(head[len(filesMagic):])
	if count > MaxFiles {
		return fmt.Errorf("%d files, at most %d are possible", count, MaxFiles)
	}
	seen := make(map[string]bool)
	var total int64
	for range count {
		name, mode, size, err := readHead(r)
		if err != nil {
			return err
		}
		if total += size; total > MaxFilesBytes || seen[name] {
			return fmt.Errorf("%s: named twice, or too much in all", name)
		}
		seen[name] = true
		content := &io.LimitedReader{R: r, N: size}
		if err := each(name, mode, size, content); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
		if content.N != 0 {
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}

func readHead(r io.Reader) (name string, mode fs.FileMode, size int64, err error) {
	var fixed [8]byte
	if err = fill(r, fixed[:2]); err != nil {
		return "", 0, 0, err
	}
	buf := make([]byte, binary.BigEndian.Uint16(fixed[:2]))
	if err = fill(r, buf); err != nil {
		return "", 0, 0, err
	}
	if err = fill(r, fixed[:]); err != nil {
		return "", 0, 0, err
	}
	name = string(buf)
	mode = fs.FileMode(binary.BigEndian.Uint32(fixed[:4]))
	size = int64(binary.BigEndian.Uint32(fixed[4:]))
	if err = checkFile(name, mode, size); err != nil {
		return "", 0, 0, fmt.Errorf("%q: %w", name, err)
	}
	return name, mode, size, nil
}

// fill is io.ReadFull in which an end is always unexpected.
func fill(r io.Reader, buf []byte) error {
	if _, err := io.ReadFull(r, buf); err == io.EOF {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	return nil
}
