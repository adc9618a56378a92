package artifacts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/store"
)

// TestView: a person finds the files under names that say what they are, and what is done there does no harm.
func TestView(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	a := add(t, s, Meta{Run: "k3f9", Name: "shot.png"}, png)
	b := add(t, s, Meta{Run: "k3f9", Name: "shot.png"}, png)
	none := add(t, s, Meta{Name: "page.txt"}, "text")
	for _, test := range []struct {
		a    Artifact
		want string
	}{{a, "k3f9/shot-" + a.ID[:8] + ".png"}, {b, "k3f9/shot-" + b.ID[:8] + ".png"}, {none, "none/page-" + none.ID[:8] + ".txt"}} {
		if got := s.Path(test.a); got != filepath.Join(dir, "runs", test.want) {
			t.Errorf("%s lies at %s", test.a.Name, got)
		}
	}
	content, err := os.ReadFile(s.Path(a))
	if err != nil || string(content) != png {
		t.Errorf("%q, %v", content, err)
	}
	info, err := os.Stat(s.Path(a))
	if err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the file is %v: whoever saves over it would change what its digest names", info.Mode())
	}
	// A person takes one away, and puts things there; a folder where a file would be is no reason to fail.
	if err := os.Remove(s.Path(a)); err != nil {
		t.Fatal(err)
	}
	if got := s.Path(a); got != s.content(a.SHA256) {
		t.Errorf("without its name it lies at %s", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "runs/k3f9/note"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "runs/stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir, Options{})
	if got := s.Path(a); got != filepath.Join(dir, "runs", "k3f9", "shot-"+a.ID[:8]+".png") {
		t.Errorf("after a start it lies at %s", got)
	}
	if n, err := s.RemoveRun(t.Context(), owner, "k3f9"); n != 2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs/k3f9")); !os.IsNotExist(err) {
		t.Errorf("the run's folder is left: %v", err)
	}
	if _, f, err := s.Open(t.Context(), owner, none.ID); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

// TestNames: names and runs that would leave the view do not, and are files that a person may open.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for _, name := range []string{"../../x", strings.Repeat("n", 300) + ".png", ".hidden", "a/b/c.", "-rf"} {
		a := add(t, s, Meta{Run: "../../up", Name: name, Source: "\x1b[31mred\n", Session: strings.Repeat("s", 5000)}, "x")
		path := s.Path(a)
		if filepath.Dir(path) != filepath.Join(dir, "runs", "up") || a.Source != "[31mred" || len(a.Session) > maxField {
			t.Errorf("%q: %s, %+v", name, path, a)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	// A session of any length is found again.
	if n, err := s.RemoveSession(t.Context(), owner, "", strings.Repeat("s", 5000)); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestBroken: an index that cannot be used is an error with a remedy, changes nothing, and is looked at anew each time.
func TestBroken(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
	}{
		{"gone", func(t *testing.T, dir string) { mustRemove(t, dir, "index.db") }},
		{"emptied", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "index.db"), 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"another file", func(t *testing.T, dir string) { overwrite(t, dir, 0, strings.Repeat("no database. ", 1000)) }},
		{"a page", func(t *testing.T, dir string) { overwrite(t, dir, 4096, strings.Repeat("x", 4096)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, Options{})
			a := add(t, s, Meta{Run: "k3f9", Name: "a.txt"}, "precious")
			path := s.Path(a)
			s.Close()
			before := files(t, dir)
			test.spoil(t, dir)
			s = New(dir, Options{})
			defer s.Close()
			for range 2 {
				_, err := s.List(t.Context(), owner, Filter{})
				bad := findIndexError(err)
				if bad == nil || !strings.Contains(bad.Hint(), "mv "+dir) {
					t.Fatalf("got %v", err)
				}
			}
			if content, err := os.ReadFile(path); err != nil || string(content) != "precious" || len(files(t, dir)) != len(before) {
				t.Errorf("%q, %v: %v", content, err, files(t, dir))
			}
			// The remedy works without a new start.
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			add(t, s, Meta{Run: "r", Name: "new"}, "new")
			if _, err := os.Stat(filepath.Join(dir+".old", "runs", "k3f9", filepath.Base(path))); err != nil {
				t.Error(err)
			}
		})
	}
}

func findIndexError(err error) *IndexError {
	var bad *IndexError
	errors.As(err, &bad)
	return bad
}

func mustRemove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, dir string, at int64, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "index.db"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), at); err != nil {
		t.Fatal(err)
	}
}

// TestModes: the store's folders are the person's alone, and theirs to use, whatever they were.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	for _, mode := range []os.FileMode{0o600, 0o755} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir, Options{})
		s.Close()
		for _, name := range []string{".", "content", "runs", "tmp"} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
}

// TestNewer: what a newer Handler wrote is left alone.
func TestNewer(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "index.db"), append(migrations, "CREATE TABLE future (n INTEGER)"))
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	s := New(dir, Options{})
	defer s.Close()
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "install a newer one") {
		t.Errorf("got %v", err)
	}
}

// TestTwo: a second process, here a second store, sweeps nothing of the first's away.
func TestTwo(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, Options{})
	second := New(dir, Options{})
	defer second.Close()
	if err := second.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "another process uses "+dir) {
		t.Errorf("got %v", err)
	}
	add(t, first, Meta{Name: "a"}, "a")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if all, err := second.List(t.Context(), owner, Filter{}); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := first.List(t.Context(), owner, Filter{}); err == nil {
		t.Error("a closed store answers")
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
}

// TestChanged: whoever is told of changes hears of each once, in order, and of nothing that failed.
func TestChanged(t *testing.T) {
	var told []string
	s := open(t, t.TempDir(), Options{PerRun: 2, Changed: func(a Artifact, removed bool) {
		told = append(told, map[bool]string{false: "+", true: "-"}[removed]+a.Name)
	}})
	a := add(t, s, Meta{Run: "r", Session: "s", Name: "a"}, "a")
	add(t, s, Meta{Run: "r", Session: "s", Name: "b"}, "b")
	if _, err := s.Add(t.Context(), Meta{Owner: owner, Run: "r", Name: "c"}, strings.NewReader("c")); err == nil {
		t.Error("the quota is not kept")
	}
	if _, err := s.Remove(t.Context(), owner, a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Remove(t.Context(), owner, a.ID); err == nil {
		t.Error("removed twice")
	}
	if _, err := s.RemoveSession(t.Context(), owner, "", "s"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(told, " "); got != "+a +b -a -b" {
		t.Errorf("told %s", got)
	}
}
