package sandboxtest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/handlerd/handler/sandbox"
)

// planted is where the probe puts its files: a tmpfs of their own.
const planted = "/var/files"

func (s *suite) plant(t *testing.T, command string) *run {
	r := s.prepare(t, command, planted)
	r.spec.Tmpfs = []sandbox.Tmpfs{{Target: planted, Bytes: 4 << 20}}
	return r.start().ready()
}

// read gives what OpenFile lets be read.
func (r *run) read(path string) (string, error) {
	r.t.Helper()
	ctx, cancel := r.s.ctx(r.t)
	defer cancel()
	f, err := r.s.Driver.OpenFile(ctx, r.id, path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(b), err
}

// write makes a file by CreateFile.
func (r *run) write(path, text string) error {
	r.t.Helper()
	ctx, cancel := r.s.ctx(r.t)
	defer cancel()
	f, err := r.s.Driver.CreateFile(ctx, r.id, path)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}

// Regular files on a tmpfs go out and in by their paths. Nothing that a process inside can put there leads elsewhere, is
// anything else, or is waited for.
func (s *suite) filesOutAndIn(t *testing.T) {
	r := s.plant(t, "plant")
	for path, want := range map[string]string{"plain": "plain", "hard": "plain", "sub/deep/file": "deep"} {
		if text, err := r.read(planted + "/" + path); err != nil || text != want {
			t.Errorf("%s: %q %v, want %q", path, text, err, want)
		}
	}
	for _, path := range []string{
		planted + "/link", planted + "/dirlink/deep/file", planted + "/root/etc/hostname", planted + "/magic/etc/hostname",
		planted + "/pipe", planted + "/socket", planted + "/sub", planted, planted + "/", planted + "/../files/plain", planted + "//plain",
		planted + "/leased", "/etc/hostname", "/etc/passwd", "/proc/1/environ", "/proc/self/environ", "/dev/null", probePath, "/",
		sandbox.RunDirTarget + "/" + sandbox.SocketACP, "plain", "", "../../etc/passwd",
	} {
		if text, err := r.read(path); err == nil && path != planted+"/leased" { // not every kernel has leases on it
			t.Errorf("%q was opened: %q", path, text)
		}
	}
	if _, err := r.read(planted + "/gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := r.write(planted+"/in/to/new file", "from outside"); err != nil {
		t.Error(err)
	}
	if text, err := r.read(planted + "/in/to/new file"); err != nil || text != "from outside" {
		t.Errorf("%q %v", text, err)
	}
	for _, path := range []string{"plain", "link", "sub", "dirlink/new", "root/tmp/new", "pipe/x", "../new", "in"} {
		if err := r.write(planted+"/"+path, "x"); err == nil {
			t.Errorf("%s was made", path)
		}
	}
	if err := r.write("/tmp/elsewhere/x", "x"); err != nil {
		t.Errorf("on another tmpfs: %v", err)
	}
	if s.Strict {
		if err := r.write(planted+"/large", strings.Repeat("x", 5<<20)); err == nil {
			t.Error("more was written than the tmpfs has")
		}
	}
	f, err := s.Driver.OpenFile(t.Context(), r.id, planted+"/plain")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.remove()
	for _, path := range []string{planted + "/plain", "/tmp/elsewhere/x"} {
		if _, err := r.read(path); err == nil {
			t.Errorf("%s was opened in what is gone", path)
		}
	}
	if err := r.write(planted+"/late", "x"); err == nil {
		t.Error("a file was made in what is gone")
	}
	s.openOutlives(t, f)
}

// openOutlives holds that a file that is open stays readable, and keeps nothing from being removed.
func (s *suite) openOutlives(t *testing.T, f *os.File) {
	b := make([]byte, 16)
	if n, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) || n > 0 && string(b[:n]) != "plain" {
		t.Errorf("an open file of what is gone: %q %v", b[:n], err)
	}
}

// A folder that changes places with a symbolic link all the time is never left.
func (s *suite) filesRace(t *testing.T) {
	r := s.plant(t, "juggle")
	defer r.remove()
	seen := 0
	for range 500 {
		if text, err := r.read(planted + "/sub/passwd"); err == nil {
			if seen++; text != "plain" {
				t.Fatalf("read %q", text)
			}
		}
	}
	if seen == 0 {
		t.Error("it was never opened")
	}
}
