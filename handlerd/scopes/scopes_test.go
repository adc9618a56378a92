package scopes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folders makes folders below dir; a name that ends with "=x" is a symlink to x, one with "!" a file.
func folders(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		var err error
		link, to, isLink := strings.Cut(name, "=")
		file, isFile := strings.CutSuffix(name, "!")
		full := filepath.Join(dir, file)
		switch {
		case isLink:
			full = filepath.Join(dir, link)
			if err = os.MkdirAll(filepath.Dir(full), 0o755); err == nil {
				err = os.Symlink(to, full)
			}
		case isFile:
			if err = os.MkdirAll(filepath.Dir(full), 0o755); err == nil {
				err = os.WriteFile(full, nil, 0o644)
			}
		default:
			err = os.MkdirAll(full, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheck(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "home", "ana")
	folders(t, root, "home/ana/src/shop", "home/ana/src/v1", "home/ana/src/current=v1", "home/ana/src/out=/etc", "home/ana/src/away=../../../disk/shop",
		"home/ana/src/keys=../.ssh", "home/ana/src/dead=nowhere", "home/ana/src/loop=loop", "home/ana/src/file!", "home/ana/src/tofile=file",
		"home/ana/.ssh/x", "home/ana/.config/nvim", "home/ana/.config/handler", "home/ana/.local/state/handler/artifacts",
		"home/ana/.local/share/containers", "disk/shop", "disk/backup/.gnupg/private", "moved=home", "run/user/1000/x", "home/bob", "podman/storage")
	c := Config{Home: home, Runtime: filepath.Join(root, "run/user/1000"),
		Handler: []string{filepath.Join(home, ".config/handler"), filepath.Join(home, ".local/state/handler")},
		Engine:  []string{filepath.Join(root, "podman")}}
	in := func(p string) string { return filepath.Join(root, p) }
	for _, tt := range []struct{ path, resolved, want string }{
		{in("home/ana/src/shop"), in("home/ana/src/shop"), ""},
		{in("home/ana/.config/nvim"), in("home/ana/.config/nvim"), ""},
		{in("disk/shop"), in("disk/shop"), ""},
		{in("moved/ana/src/shop"), in("home/ana/src/shop"), ""}, // a symlink higher up
		{in("home/ana/src/current"), in("home/ana/src/v1"), ""}, // one to a sibling
		{in("home/ana/src/out"), "", "leads out, to /etc"},
		{in("home/ana/src/away"), "", "name it: " + in("disk/shop")},
		{in("home/ana/src/keys"), "", "leads out"},
		{in("home/ana/src/dead"), "", "leads nowhere"},
		{in("home/ana/src/loop"), "", "leads nowhere"},
		{in("home/ana/src/file"), "", "not a folder"},
		{in("home/ana/src/tofile"), "", "not a folder"},
		{in("home/ana/src/none"), "", "mkdir -p " + in("home/ana/src/none")},
		{in("home/ana/src/file/x"), "", "cannot be looked at"},
		{home, "", "is your home folder"},
		{in("moved/ana"), "", "is your home folder"},
		{in("home"), "", "holds your home folder"},
		{in("moved"), "", "holds your home folder"},
		{root, "", "holds your home folder"},
		{"/", "", "the whole file system"},
		{in("home/ana/.ssh"), "", "~/.ssh"},
		{in("home/ana/.ssh/x"), "", "~/.ssh"},
		{in("home/ana/.config"), "", "holds the folder ~/.config/"},
		{in("home/ana/.local"), "", "holds"},
		{in("home/ana/.local/share/containers"), "", "containers"},
		{in("home/ana/.config/handler"), "", "Handler's own folder"},
		{in("home/ana/.local/state/handler/artifacts"), "", "Handler's own folder"},
		{in("podman"), "", "podman's own folder"},
		{in("podman/storage"), "", "podman's own folder"},
		{in("run/user/1000"), "", "runtime folder"},
		{in("run/user/1000/x"), "", "runtime folder"},
		{in("run"), "", "runtime folder"},
		{in("disk/backup/.gnupg/private"), "", "folder of keys, .gnupg"},
		{"src", "", "absolute"},
		{home + "/src/../.ssh", "", "absolute"},
		{home + "/src/", "", "absolute"},
		{home + "/a\nb", "", "absolute"},
		{home + "/\xff", "", "absolute"},
		{"", "", "absolute"},
		{"/etc", "", "/etc"}, {"/etc/ssl", "", "/etc"}, {"/proc/self", "", "/proc"}, {"/sys", "", "/sys"}, {"/dev/shm", "", "/dev"},
		{"/boot", "", "/boot"}, {"/run", "", "/run"}, {"/var/tmp", "", "folder of the system"}, {"/usr", "", "folder of the system"},
		{"/var/lib/x", "", "/var/lib"}, {"/opt", "", "folder of the system"}, {"/opt/handler/addons", "", "/opt/handler"},
		{"/bin", "", "/bin"}, {"/home", "", "/home"}, {"/home/agent", "", "hide the sandbox's own"},
	} {
		got, err := c.Check(tt.path)
		if tt.want == "" {
			if err != nil || got.Path != tt.resolved {
				t.Errorf("%q: %+v, %v", tt.path, got, err)
			}
			continue
		}
		var refused *Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) || refused.Remedy == "" {
			t.Errorf("%q: got %v, want it to say %q", tt.path, err, tt.want)
		}
	}
	if s, err := c.Check(in("home/ana/src/current")); err != nil || !strings.Contains(s.Note, in("home/ana/src/v1")) {
		t.Errorf("a followed symlink is not said: %+v, %v", s, err)
	}
	if s, _ := c.Check(in("disk/shop")); s.Note != "" {
		t.Errorf("a note about nothing: %q", s.Note)
	}
}

func TestCheckOfUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root reads everything; the sandbox suite runs as a user")
		return
	}
	dir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(dir, 0o300); err != nil {
		t.Fatal(err)
	}
	if _, err := (Config{}).Check(dir); err == nil || !strings.Contains(err.Error(), "not readable") {
		t.Error(err)
	}
}

// A service's home lies in a folder of the system; what is in it is its own.
func TestHomeInASystemFolder(t *testing.T) {
	c := Config{Home: "/var/lib/ci"}
	if reason := c.forbidden("/var/lib/ci/jobs/shop"); reason != "" {
		t.Error(reason)
	}
	for _, path := range []string{"/var/lib", "/var/lib/ci", "/var/lib/other", "/var/lib/ci/.ssh"} {
		if c.forbidden(path) == "" {
			t.Errorf("%s may be a scope", path)
		}
	}
	if reason := c.forbidden("/run/media/ana/disk"); reason != "" {
		t.Error(reason)
	}
}

func TestResolve(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folders(t, dir, "a/b", "a/file!", "in=a/b", "out=/etc", "dead=nowhere", "loop=loop", "deaddir=nowhere/x")
	for path, want := range map[string]string{
		"a/b": "a/b", "in": "a/b", "in/new": "a/b/new", "a/new": "a/new", "a/file": "a/file", "out/passwd": "/etc/passwd", "out/new": "/etc/new",
		"in/../file": "a/file", "a/./b": "a/b", "a//b": "a/b", "in/..": "a", "a/b/": "a/b",
		"dead": "", "loop": "", "dead/x": "", "none/x": "", "a/file/x": "", "a/none/..": "", "deaddir": "", "a/file/..": "",
	} {
		got, err := Resolve(dir + "/" + path)
		if want != "" && !filepath.IsAbs(want) {
			want = filepath.Join(dir, want)
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "a", "./a", "~/a", "/a\x00b"} {
		if got, err := Resolve(path); err == nil {
			t.Errorf("%q gives %q", path, got)
		}
	}
}
