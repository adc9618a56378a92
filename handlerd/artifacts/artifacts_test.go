package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

const owner = "user:1000"

// png is the beginning of a picture.
const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

func open(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func add(t *testing.T, s *Store, m Meta, content string) Artifact {
	t.Helper()
	if m.Owner == "" {
		m.Owner = owner
	}
	a, err := s.Add(t.Context(), m, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// files lists what lies in the store besides its index, its lock, its room and the view.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "runs" {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(d.Name(), "index.db") && d.Name() != "lock" && d.Name() != "room" {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAddAndGet(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	a := add(t, s, Meta{Run: "k3f9", Session: "s1", Agent: "web", Name: "../../etc/shot.png", Source: "browser_take_screenshot"}, png)
	if a.Name != "shot.png" || a.Type != "image/png" || a.Bytes != int64(len(png)) || len(a.ID) != idLength {
		t.Errorf("got %+v", a)
	}
	for _, id := range []string{a.ID, a.ID[:8]} {
		got, f, err := s.Open(t.Context(), owner, id)
		if err != nil || got != a {
			t.Fatalf("%+v, %v", got, err)
		}
		content, err := io.ReadAll(f)
		f.Close()
		if err != nil || string(content) != png {
			t.Errorf("%q, %v", content, err)
		}
	}
	// Another's is not told from none, and neither is a name that could be a pattern or a path.
	for _, test := range []struct{ owner, id string }{{"user:1001", a.ID}, {owner, "zzzz"}, {owner, a.ID[:3]}, {owner, ""}, {owner, "%%%%"}, {owner, "../x"}, {owner, strings.ToUpper(a.ID)}} {
		var none *NotFoundError
		if _, err := s.Get(t.Context(), test.owner, test.id); !errors.As(err, &none) {
			t.Errorf("%q of %s: %v", test.id, test.owner, err)
		}
	}
	info, err := os.Stat(files(t, dir)[0])
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("content is open to others: %v, %v", info.Mode(), err)
	}
}

// TestReopened: what was acknowledged is there after a restart, and what nobody names is not.
func TestReopened(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	a := add(t, s, Meta{Run: "r1", Name: "a.txt"}, "one")
	s.Close()
	for _, left := range []string{"tmp/in-123", "content/ab/abcd"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(left)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, left), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, Options{})
	if got, err := s.Get(t.Context(), owner, a.ID); err != nil || got != a {
		t.Errorf("%+v, %v", got, err)
	}
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("files: %q", left)
	}
}

// TestSameContent is kept once, and as long as one entry names it.
func TestSameContent(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	a, b := add(t, s, Meta{Run: "r1", Name: "a"}, "same"), add(t, s, Meta{Owner: "user:1001", Run: "r1", Name: "b"}, "same")
	if n := len(files(t, dir)); n != 1 {
		t.Errorf("%d files", n)
	}
	if _, err := s.Remove(t.Context(), owner, a.ID); err != nil {
		t.Fatal(err)
	}
	_, f, err := s.Open(t.Context(), "user:1001", b.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := s.Remove(t.Context(), owner, b.ID); err == nil {
		t.Error("another's was removed")
	}
	if n, err := s.RemoveRun(t.Context(), "user:1001", "r1"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if content, err := io.ReadAll(f); err != nil || string(content) != "same" {
		t.Errorf("an open file: %q, %v", content, err)
	}
}

func TestQuotas(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Total: 3 << 20, PerRun: 3})
	for i := range 3 {
		add(t, s, Meta{Run: "many", Agent: "web", Name: "x"}, fmt.Sprint(i))
	}
	_, err := s.Add(t.Context(), Meta{Owner: owner, Run: "many", Name: "x"}, strings.NewReader("4"))
	var full *QuotaError
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "3 artifacts of run many") {
		t.Errorf("got %v", err)
	}
	add(t, s, Meta{Run: "big", Agent: "web", Name: "x"}, strings.Repeat("b", 2<<20))
	_, err = s.Add(t.Context(), Meta{Owner: owner, Run: "last", Name: "x"}, strings.NewReader(strings.Repeat("c", 1<<20)))
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "run big of web has 1 with 2.0 MiB") ||
		!strings.Contains(err.Error(), "handler artifacts rm --run big") {
		t.Errorf("got %v", err)
	}
	if n := len(files(t, dir)); n != 4 {
		t.Errorf("what was refused is left: %d files", n)
	}
	// Another owner's share is their own.
	add(t, s, Meta{Owner: "user:1001", Run: "last", Name: "x"}, strings.Repeat("c", 1<<20))
	u, err := s.Usage(t.Context(), owner)
	if err != nil || u.Count != 4 || u.Bytes != 2<<20+3 || len(u.Largest) != 2 || u.Largest[0].Run != "big" {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestTooLarge(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	var large *TooLargeError
	_, err := s.Add(t.Context(), Meta{Owner: owner, Name: "endless"}, zeros{})
	if !errors.As(err, &large) {
		t.Errorf("got %v", err)
	}
	broken := errors.New("the page went away")
	if _, err = s.Add(t.Context(), Meta{Owner: owner, Name: "cut"}, iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestTogether: many at once neither pass a quota nor lose content that another still names.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{PerRun: 10})
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			a, err := s.Add(t.Context(), Meta{Owner: owner, Run: "r", Name: "n"}, strings.NewReader(fmt.Sprint("content ", i%3)))
			var full *QuotaError
			if err != nil && !errors.As(err, &full) {
				t.Error(err)
			}
			if err == nil && i%2 == 0 {
				if _, err := s.Remove(t.Context(), owner, a.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all, err := s.List(t.Context(), owner, Filter{Run: "r"})
	if err != nil || len(all) > 10 {
		t.Fatalf("%d, %v", len(all), err)
	}
	for _, a := range all {
		if _, f, err := s.Open(t.Context(), owner, a.ID); err != nil {
			t.Error(err)
		} else {
			f.Close()
		}
	}
}

func TestList(t *testing.T) {
	now := time.Unix(0, 0)
	s := open(t, t.TempDir(), Options{Now: func() time.Time { now = now.Add(time.Second); return now }})
	a := add(t, s, Meta{Run: "r1", Session: "s1", Agent: "web", Name: "a"}, "a")
	b := add(t, s, Meta{Run: "r2", Session: "s1", Agent: "web", Name: "b"}, "b")
	c := add(t, s, Meta{Run: "r2", Session: "s2", Agent: "docs", Name: "c"}, "c")
	add(t, s, Meta{Owner: "user:1001", Run: "r2", Name: "d"}, "d")
	for _, test := range []struct {
		f    Filter
		want []Artifact
	}{{Filter{}, []Artifact{a, b, c}}, {Filter{Run: "r2"}, []Artifact{b, c}}, {Filter{Session: "s1", Agent: "web"}, []Artifact{a, b}}, {Filter{Run: "none"}, nil}} {
		got, err := s.List(t.Context(), owner, test.f)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%+v: %v, %v", test.f, got, err)
		}
	}
	if n, err := s.RemoveSession(t.Context(), owner, "web", "s1"); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestCleanName(t *testing.T) {
	for in, want := range map[string]string{
		"a.png": "a.png", "/etc/passwd": "passwd", `C:\x\y.txt`: "y.txt", "..": "artifact", ".bashrc": "bashrc", "": "artifact",
		"a\x00b\x1b[31m.txt": "ab[31m.txt", "gpj.\u202eexe": "gpj.exe", "\xff\xfe": "artifact", " x . ": "x", "a/": "artifact",
		"ü 漢.pdf": "ü 漢.pdf", strings.Repeat("x", 300) + ".png": strings.Repeat("x", 196) + ".png",
		strings.Repeat("漢", 100): strings.Repeat("漢", 66),
	} {
		if got := cleanName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzCleanName(f *testing.F) {
	f.Add("a/../b\\c.png")
	f.Add(strings.Repeat("漢", 100) + ".\u202e")
	f.Fuzz(func(t *testing.T, in string) {
		name := cleanName(in)
		if name == "" || len(name) > MaxName || strings.ContainsAny(name, "/\\\x00\n") || name[0] == '.' || cleanName(name) != name {
			t.Errorf("%q gave %q, and that %q", in, name, cleanName(name))
		}
	})
}

// TestSave is the whole table of where a copy goes and where it does not.
func TestSave(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	a := add(t, s, Meta{Run: "r", Name: "a.txt"}, "content")
	scope := t.TempDir()
	outside := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(scope, "sub/deep"), 0o700), os.Symlink(outside, filepath.Join(scope, "link")),
		os.WriteFile(filepath.Join(scope, "taken.txt"), []byte("mine"), 0o600),
		os.Symlink(filepath.Join(outside, "target"), filepath.Join(scope, "dangling")),
		os.Mkdir(filepath.Join(scope, "folder"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		req  SaveRequest
		want string // the path below the scope, or "!" and a part of the error
	}{
		{SaveRequest{}, "a.txt"},
		{SaveRequest{}, "!a file of this name"},
		{SaveRequest{Conflict: ConflictRename}, "a (2).txt"},
		{SaveRequest{Conflict: ConflictRename}, "a (3).txt"},
		{SaveRequest{Conflict: ConflictReplace, Name: "taken.txt"}, "taken.txt"},
		{SaveRequest{Folder: "sub/deep", Name: "b"}, "sub/deep/b"},
		{SaveRequest{Folder: "missing"}, "!does not exist"},
		{SaveRequest{Folder: "link"}, "!symlink"},
		{SaveRequest{Folder: "../x"}, "!below the scope"},
		{SaveRequest{Folder: "/etc"}, "!below the scope"},
		{SaveRequest{Name: "../x"}, "!plain file name"},
		{SaveRequest{Name: ".bashrc"}, "!plain file name"},
		{SaveRequest{Name: "x", Conflict: "overwrite"}, "!error, rename or replace"},
		{SaveRequest{Name: "dangling"}, "!a file of this name"},
		{SaveRequest{Name: "dangling", Conflict: ConflictReplace}, "!no regular file"},
		{SaveRequest{Name: "folder", Conflict: ConflictReplace}, "!no regular file"},
		{SaveRequest{Name: "dangling", Conflict: ConflictRename}, "dangling (2)"},
	} {
		test.req.Scope = scope
		path, err := s.Save(t.Context(), owner, a.ID, test.req)
		if part, fails := strings.CutPrefix(test.want, "!"); fails {
			var save *SaveError
			if !errors.As(err, &save) || !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %q, %v", test.req, path, err)
			}
			continue
		}
		content, readErr := os.ReadFile(path)
		if err != nil || path != filepath.Join(scope, test.want) || string(content) != "content" {
			t.Errorf("%+v: %q, %v, %q, %v", test.req, path, err, content, readErr)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("outside: %v", entries)
	}
	_ = filepath.WalkDir(scope, func(path string, d fs.DirEntry, err error) error {
		if strings.Contains(path, "handler-save") {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if _, err := s.Save(t.Context(), "user:1001", a.ID, SaveRequest{Scope: scope, Name: "z"}); err == nil {
		t.Error("another's was saved")
	}
}

// TestSaveCrash: what a killed daemon was saving is taken away at the next start, and nothing else.
func TestSaveCrash(t *testing.T) {
	dir, scope := t.TempDir(), t.TempDir()
	s := open(t, dir, Options{})
	if _, err := s.journal(t.Context(), scope, ".handler-save-half"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.journal(t.Context(), filepath.Join(scope, "gone"), ".handler-save-gone"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".handler-save-half", ".handler-save-other", "whole"} {
		if err := os.WriteFile(filepath.Join(scope, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, dir, Options{})
	entries, err := os.ReadDir(scope)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	var n int
	if err := s.db.QueryRow("SELECT count(*) FROM saves").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d journal entries, %v", n, err)
	}
}

// TestSaveRace: an agent that swaps the folder for a symlink again and again gets nothing saved outside.
func TestSaveRace(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	a := add(t, s, Meta{Run: "r", Name: "a.txt"}, "content")
	scope, outside := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	swap := filepath.Join(scope, "swap")
	wg.Go(func() {
		for ctx.Err() == nil {
			os.RemoveAll(swap)
			os.Symlink(outside, swap)
			os.RemoveAll(swap)
			os.Mkdir(swap, 0o700)
		}
	})
	for range 200 {
		_, _ = s.Save(t.Context(), owner, a.ID, SaveRequest{Scope: scope, Folder: "swap", Conflict: ConflictReplace}) // it may fail
	}
	cancel()
	wg.Wait()
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("outside: %v", entries)
	}
}
