// Package configfile reads Handler's TOML files strictly: an unknown key, a wrong type or a syntax error is an
// error that names file, line and column. Every TOML file of Handler goes through Decode, so that an addon's
// manifest, a harness and an agent are all refused in the same words.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// MaxBytes bounds a configuration file: larger ones are refused before they are parsed.
const MaxBytes = 1 << 20

// An Error says what is wrong with a configuration file and where. Line and Column count from 1; they are 0
// where the whole file is meant.
type Error struct {
	File         string // as given to Decode
	Line, Column int
	Message      string // one sentence, lower case, no full stop
}

// Error gives file:line:column: message, as compilers do, so that editors can jump to it.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errorf makes an Error that means the whole file.
func Errorf(file, format string, args ...any) error {
	return &Error{File: file, Message: fmt.Sprintf(format, args...)}
}

// Read reads the file at path and decodes it into v as Decode does. Errors of the file system are returned as
// they are, so that errors.Is(err, fs.ErrNotExist) works.
func Read(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return Decode(path, data, v)
}

// Decode parses data, the content of file, into v, a pointer to a struct. It returns an *Error for anything
// that is not exactly what v describes; the first fault of the file is the one reported.
func Decode(file string, data []byte, v any) error {
	if len(data) > MaxBytes {
		return Errorf(file, "is %d bytes; at most %d are read", len(data), MaxBytes)
	}
	dec := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().EnableUnmarshalerInterface()
	err := dec.Decode(v)
	if err == nil {
		return nil
	}
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		first := strict.Errors[0]
		line, column := first.Position()
		return &Error{file, line, column, fmt.Sprintf("unknown key %q", strings.Join(first.Key(), "."))}
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		line, column := decode.Position()
		return &Error{file, line, column, strings.TrimPrefix(decode.Error(), "toml: ")}
	}
	return Errorf(file, "%s", strings.TrimPrefix(err.Error(), "toml: "))
}

// ValueError is what an UnmarshalTOML method returns for a value that it does not take: raw is what it was given, so that
// the error of Decode says where that stands. Clip what text repeats of it.
func ValueError(raw []byte, text string) error { return unstable.NewParserError(raw, "%s", text) }

// Clip bounds what an error repeats of an input.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
