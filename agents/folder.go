package agents

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/handlerd/handler/configfile"
)

// A NotFoundError says that no agent has this name: neither a saved one nor a harness's own.
type NotFoundError struct {
	Name string
	Near string // a name that differs by a slip of the finger; "" for none
}

func (e *NotFoundError) Error() string {
	if e.Near != "" {
		return fmt.Sprintf("no agent %q — did you mean %s", configfile.Clip(e.Name), e.Near)
	}
	return fmt.Sprintf("no agent %q", configfile.Clip(e.Name))
}

// An ExistsError says that Save would have written over an agent.
type ExistsError struct{ Name, File string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("there is an agent %s already (%s)", e.Name, e.File)
}

// file gives where an agent is saved; the name is checked first, since it becomes a path.
func file(dir, name string) (string, error) {
	if err := ValidName(name); err != nil {
		return "", err
	}
	return filepath.Join(dir, name+".toml"), nil
}

// Load reads the agent called name from dir (~/.config/handler/agents). A missing one is a *NotFoundError.
func Load(dir, name string) (*Agent, error) {
	path, data, err := load(dir, name)
	if err != nil {
		return nil, err
	}
	return Parse(name, path, data)
}

// load gives an agent's file and what is in it.
func load(dir, name string) (path string, data []byte, err error) {
	if path, err = file(dir, name); err != nil {
		return "", nil, err
	}
	data, err = read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, &NotFoundError{Name: name, Near: near(name, names(dir))}
	}
	if err != nil {
		return "", nil, fmt.Errorf("agent %s: %w", name, err)
	}
	return path, data, nil
}

// Find is Load, with the harnesses' own names as agents without settings (Builtin). A saved agent that has a
// harness's name must use that harness, since it stands in its place.
func Find(dir, name string, harnesses []string) (*Agent, error) {
	own := false
	for _, h := range harnesses {
		own = own || h == name
	}
	a, err := Load(dir, name)
	var missing *NotFoundError
	switch {
	case errors.As(err, &missing) && own:
		return Builtin(name), nil
	case errors.As(err, &missing):
		return nil, &NotFoundError{Name: name, Near: near(name, append(names(dir), harnesses...))}
	case err != nil:
		return nil, err
	case own && a.Harness != name:
		return nil, configfile.Errorf(a.File, "has the name of the harness %s and uses %s: rename the file", name, a.Harness)
	}
	return a, nil
}

// read reads a regular file of at most configfile.MaxBytes. A pipe in its place must not hold up who opens it.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, configfile.Errorf(path, "is not a regular file")
	}
	return io.ReadAll(io.LimitReader(f, configfile.MaxBytes+1))
}

// An Entry is one saved agent of List. One of Agent and Err is set.
type Entry struct {
	Name  string
	Agent *Agent
	Err   error // why this file is no agent
}

// List returns the saved agents of dir, sorted by name, those with a faulty file too: a person who lists them wants
// to see what is wrong. A missing dir holds none. Hidden files and files that are not TOML are passed over.
func List(dir string) ([]Entry, error) {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read your agents: %w", err)
	}
	var all []Entry
	for _, e := range found {
		name, toml := strings.CutSuffix(e.Name(), ".toml")
		if !toml || strings.HasPrefix(name, ".") || e.IsDir() {
			continue
		}
		a, err := Load(dir, name)
		all = append(all, Entry{Name: name, Agent: a, Err: err})
	}
	return all, nil
}

// names lists what dir holds, for hints only: what cannot be read gives none.
func names(dir string) []string {
	entries, err := List(dir)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name)
	}
	return all
}

// Save checks an agent and writes it to dir/NAME.toml: whole or not at all, 0600 in a folder of 0700 that it makes
// where it is missing. Unless replace is true an agent that is there is kept, and the error is an *ExistsError.
// It sets a.File.
func Save(dir string, a *Agent, replace bool) error {
	path, err := file(dir, a.Name)
	if err != nil {
		return err
	}
	if err := a.Validate(); err != nil {
		return fmt.Errorf("agent %s: %w", a.Name, err)
	}
	data := Format(a)
	if _, err := Parse(a.Name, path, data); err != nil { // bounds of the whole file
		return err
	}
	return saveAt(dir, path, a, data, replace)
}

// write puts data at path by way of a temporary file beside it: linked there, which fails where something is, or
// renamed over it.
func write(dir, path string, data []byte, replace bool) error {
	f, err := os.CreateTemp(dir, ".agent-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after a rename it is gone already
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if replace {
		return os.Rename(f.Name(), path)
	}
	return os.Link(f.Name(), path)
}

// Remove deletes a saved agent. A missing one is a *NotFoundError. Its state and transcripts stay.
func Remove(dir, name string) error {
	path, err := file(dir, name)
	if err != nil {
		return err
	}
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &NotFoundError{Name: name, Near: near(name, names(dir))}
	}
	return err
}

// near gives the one of candidates that is at most two edits away, the nearest first; "" for none.
func near(name string, candidates []string) string {
	best, least := "", 3
	for _, c := range candidates {
		if d := distance(name, c); d < least && d < len(c) {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of bytes to insert, delete or replace between two names of at most 64 bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
