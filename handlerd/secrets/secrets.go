// Package secrets reads values that must not be seen: from files of the person's (the "file" provider), into a type
// that shows itself nowhere by mistake.
package secrets

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxBytes bounds a secret: a browser's storage state is the largest kind.
const MaxBytes = 1 << 20

const redacted = "[secret]"

// A Value is a secret. Printing, logging and marshalling it give "[secret]", whatever the verb or the encoder; only
// Reveal gives what it is. The zero Value is empty. It holds a pointer, since package fmt prints the unexported fields
// of other types without asking their methods: there it finds an address.
type Value struct{ text *string }

// New makes a Value of a text that is a secret already.
func New(text string) Value { return Value{&text} }

// Reveal gives the secret itself, for the one place that needs it.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// Empty tells whether there is nothing in it.
func (v Value) Empty() bool { return v.Reveal() == "" }

// TrimNewline takes one line ending off the end, such as an editor or echo leaves there.
func (v Value) TrimNewline() Value {
	return New(strings.TrimSuffix(strings.TrimSuffix(v.Reveal(), "\n"), "\r"))
}

// String, GoString, Format, LogValue, MarshalText and MarshalJSON all give "[secret]".
func (Value) String() string               { return redacted }
func (Value) GoString() string             { return redacted }
func (Value) Format(f fmt.State, _ rune)   { io.WriteString(f, redacted) }
func (Value) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// A FileError says why a file gives no secret, and what to do.
type FileError struct {
	Path   string
	Reason string // "can be read by others (mode 0644)"
	Remedy string // "chmod 600 /home/ana/key"
	Err    error  // the cause, for errors.Is; may be nil
}

func (e *FileError) Error() string {
	return fmt.Sprintf("the secret file %s %s — %s", e.Path, e.Reason, e.Remedy)
}

// Unwrap gives the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Read reads the secret in the file at path: a regular file, not a symlink, that belongs to the user this runs as,
// that nobody else may read or write (0600 or stricter), of 1 to MaxBytes bytes. What is checked is what is read: the
// open file, not its name. The content is given as it is; see TrimNewline. The error is a *FileError; it never
// holds a part of the content.
func Read(path string) (Value, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return Value{}, openError(path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Value{}, &FileError{path, "cannot be looked at: " + cause(err), "try again", err}
	}
	if e := check(path, info); e != nil {
		return Value{}, e
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	switch {
	case err != nil:
		return Value{}, &FileError{path, "cannot be read: " + cause(err), "try again", err}
	case len(data) == 0:
		return Value{}, &FileError{path, "is empty", "put the secret into it", nil}
	case len(data) > MaxBytes:
		return Value{}, tooLarge(path)
	}
	return New(string(data)), nil
}

// check gives why an open file is no secret's; nil if it is one.
func check(path string, info fs.FileInfo) *FileError {
	if !info.Mode().IsRegular() {
		return &FileError{path, "is not a regular file", "name the file that holds the secret", nil}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return &FileError{path, "does not belong to you", "copy it into a file of your own, mode 0600", nil}
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return &FileError{path, fmt.Sprintf("can be read or written by others (mode %04o)", mode), "chmod 600 " + path, nil}
	}
	if info.Size() > MaxBytes {
		return tooLarge(path)
	}
	return nil
}

func tooLarge(path string) *FileError {
	return &FileError{path, fmt.Sprintf("has more than %d MiB", MaxBytes>>20), "is it the right file?", nil}
}

// openError puts an error of open into words.
func openError(path string, err error) *FileError {
	e := &FileError{Path: path, Reason: "cannot be opened: " + cause(err), Remedy: "name the file that holds the secret", Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Reason, e.Remedy = "does not exist", "make it, mode 0600, or name another in the agent"
	case errors.Is(err, unix.ELOOP):
		e.Reason, e.Remedy = "is a symlink", "name the file that it leads to"
	case errors.Is(err, fs.ErrPermission):
		e.Reason, e.Remedy = "cannot be read by you", "chmod 600 "+path
	}
	return e
}

// cause gives an error of the file system without the path, which the message has already.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
