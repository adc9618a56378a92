package agents

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/handlerd/handler/configfile"
)

// Text gives the file of a saved agent as it is, faulty or not. A missing one is a *NotFoundError.
func Text(dir, name string) (path string, data []byte, err error) { return load(dir, name) }

// FromJSON makes an agent of a JSON object with the keys of its file. Errors are *configfile.Error; their places mean
// nothing to a person.
func FromJSON(name string, settings []byte) (*Agent, error) {
	data, err := configfile.FromJSON(settings)
	if err != nil {
		return nil, configfile.Errorf(name, "%v", err)
	}
	return Parse(name, name, data)
}

// ToJSON gives an agent's settings as a JSON object with the keys of its file.
func ToJSON(a *Agent) ([]byte, error) { return configfile.ToJSON(a.Name, Format(a)) }

// SaveText checks the text of an agent's file and writes it as it is, comments too, the way Save does.
func SaveText(dir, name string, text []byte, replace bool) (*Agent, error) {
	path, err := file(dir, name)
	if err != nil {
		return nil, err
	}
	a, err := Parse(name, path, text)
	if err != nil {
		return nil, err
	}
	return a, saveAt(dir, path, a, text, replace)
}

// saveAt makes the folder and writes an agent's file.
func saveAt(dir, path string, a *Agent, data []byte, replace bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("save agent %s: %w", a.Name, err)
	}
	if err := write(dir, path, data, replace); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return &ExistsError{Name: a.Name, File: path}
		}
		return fmt.Errorf("save agent %s: %w", a.Name, err)
	}
	a.File = path
	return nil
}

// Edited gives the text of an agent's file after an edit: that of before with only its network rules changed, where
// that says the same, else a new one. It tells whether comments of before may be lost.
func Edited(name string, before []byte, after *Agent) (text []byte, lost bool) {
	old, err := Parse(name, name, before)
	if err == nil {
		was := *after
		was.Name, was.File = name, name
		if patched, err := patch(before, old, &was); err == nil {
			return patched, false
		}
	}
	return Format(after), hasComments(before)
}

// hasComments tells whether a file may have some. A "#" in a value is taken for one.
func hasComments(data []byte) bool {
	for _, c := range data {
		if c == '#' {
			return true
		}
	}
	return false
}
