package artifacts

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
)

// The view is for people with a file manager: runs/RUN/NAME-ID.EXT is a second name of an artifact's content, read-only.
// The index is what counts: the view is made anew from it at every start, and nothing reads it.

// viewID is how much of an id a file's name in the view has, which is enough to type.
const viewID = 8

func (s *Store) viewDir() string { return filepath.Join(s.dir, "runs") }

// viewName gives an artifact's place below the view.
func viewName(a Artifact) string {
	run := cleanName(a.Run)
	if a.Run == "" {
		run = "none"
	}
	ext := path.Ext(a.Name)
	return filepath.Join(run, strings.TrimSuffix(a.Name, ext)+"-"+a.ID[:viewID]+ext)
}

// Path gives a file with an artifact's content that a person can open: the one in the view, or where there is none the
// content itself. It must not be written to.
func (s *Store) Path(a Artifact) string {
	view := filepath.Join(s.viewDir(), viewName(a))
	if info, err := os.Lstat(view); err == nil && info.Mode().IsRegular() {
		return view
	}
	return s.content(a.SHA256)
}

// show gives an artifact its place in the view. A file system that has no second names has no view.
func (s *Store) show(a Artifact) {
	view := filepath.Join(s.viewDir(), viewName(a))
	err := os.MkdirAll(filepath.Dir(view), 0o700)
	if err == nil {
		err = os.Link(s.content(a.SHA256), view)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		s.log.Debug("an artifact has no place in the view", "error", err)
	}
}

// hide takes it out of the view.
func (s *Store) hide(a Artifact) {
	view := filepath.Join(s.viewDir(), viewName(a))
	_ = os.Remove(view)               // a person may have
	_ = os.Remove(filepath.Dir(view)) // the run's last one
}

// sweepView makes the view what the index says: names are those that it has to have.
func (s *Store) sweepView(all []Artifact) error {
	want := make(map[string]Artifact, len(all))
	for _, a := range all {
		want[viewName(a)] = a
	}
	runs, err := os.ReadDir(s.viewDir())
	if err != nil {
		return err
	}
	for _, run := range runs {
		dir := filepath.Join(s.viewDir(), run.Name())
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // none of ours
		}
		for _, e := range entries {
			name := filepath.Join(run.Name(), e.Name())
			if _, ok := want[name]; ok {
				delete(want, name)
			} else if e.Type().IsRegular() {
				_ = os.Remove(filepath.Join(dir, e.Name()))
			}
		}
		_ = os.Remove(dir) // only if nothing is in it
	}
	for _, a := range want {
		s.show(a)
	}
	return nil
}

// Describe gives an artifact as the API tells of it.
func (s *Store) Describe(a Artifact) types.Artifact {
	return types.Artifact{
		ID: a.ID, Run: a.Run, Session: a.Session, Agent: a.Agent, Name: a.Name, Source: a.Source, Type: a.Type,
		Bytes: a.Bytes, SHA256: a.SHA256, Created: a.Created, Path: s.Path(a),
	}
}
