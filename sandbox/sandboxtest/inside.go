package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/sandboxtest/facts"
)

// hostDir returns a folder of the host with no symbolic link in its path, for scopes.
func hostDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// The command's standard input and output are acp.sock, byte for byte; its input's end is its end.
func (s *suite) stdio(t *testing.T) {
	r := s.prepare(t)
	r.spec.Command = []string{probePath, "echo"}
	r.start()
	defer r.remove()
	ctx, cancel := s.ctx(t)
	defer cancel()
	conn, err := r.dir.ACP(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(s.Patience))
	want := bytes.Repeat([]byte("{\"a\":\"\x00\xff\r\"}\n"), 1<<16)
	go func() { _, _ = conn.Write(want); _ = conn.(*net.UnixConn).CloseWrite() }()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(want), err)
	}
	if exit := r.wait(); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
}

// The environment is the Spec's and nothing of the host's; the folder is the Spec's.
func (s *suite) environment(t *testing.T) {
	t.Setenv("HANDLER_TEST_LEAK", "leak")
	dir := hostDir(t)
	r := s.prepare(t, "report")
	r.spec.Env = map[string]string{"A": "one two=three", "EMPTY": "", "UMLAUT": "äö\nü"}
	r.spec.Mounts = []sandbox.Mount{{Source: dir, Target: dir}}
	r.spec.Dir = dir
	var got facts.Report
	r.once(&got)
	for k, v := range r.spec.Env {
		if have, ok := got.Env[k]; !ok || have != v {
			t.Errorf("%s is %q, want %q", k, have, v)
		}
	}
	known := []string{"PATH", "HOME", "TERM", "HOSTNAME", "container", "TMPDIR", "XDG_RUNTIME_DIR", "USER", "LOGNAME", "HANDLER_FAKE_SANDBOX"}
	for k, v := range got.Env {
		if _, ours := r.spec.Env[k]; !ours && !slices.Contains(known, k) {
			t.Errorf("%s=%s is not of the Spec", k, v)
		}
	}
	if got.Dir != dir {
		t.Errorf("folder %s, want %s", got.Dir, dir)
	}
}

// Scopes are at their own path; what is written in a writable one is the person's; a later mount lies over an
// earlier one.
func (s *suite) scopes(t *testing.T) {
	dir := hostDir(t)
	write(t, dir+"/ro/in", "read me")
	write(t, dir+"/rw/.git/config", "protected")
	r := s.prepare(t)
	r.spec.Mounts = []sandbox.Mount{
		{Source: dir + "/ro", Target: dir + "/ro", ReadOnly: true},
		{Source: dir + "/rw", Target: dir + "/rw"},
		{Source: dir + "/rw/.git", Target: dir + "/rw/.git", ReadOnly: true},
	}
	refused := []string{"create=" + dir + "/ro/new", "write=" + dir + "/rw/.git/config,x", "create=" + dir + "/rw/.git/hook"}
	got := r.try(append([]string{"read=" + dir + "/ro/in", "create=" + dir + "/rw/new,hello", "read=" + dir + "/rw/.git/config"}, refused...)...)
	if o := got["read="+dir+"/rw/.git/config"]; o.Text != "protected" {
		t.Errorf("protected path: %+v", o)
	}
	if o := got["read="+dir+"/ro/in"]; o.Text != "read me" {
		t.Errorf("read-only scope: %+v", o)
	}
	if o := got["create="+dir+"/rw/new,hello"]; !o.OK {
		t.Errorf("writable scope: %+v", o)
	}
	info, err := os.Stat(dir + "/rw/new")
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Getuid() {
		t.Errorf("a new file belongs to %d on the host", st.Uid)
	}
	if !s.Strict {
		return
	}
	for _, op := range refused {
		if o := got[op]; o.Errno != "EROFS" {
			t.Errorf("%s: %+v, want EROFS", op, o)
		}
	}
}

// A volume is made 0700 and outlives its run, at a target below the home folder too.
func (s *suite) volumes(t *testing.T) {
	volume := filepath.Join(hostDir(t), "a", "volume")
	target := sandbox.HomeTarget + "/.state/deep"
	mounts := []sandbox.Volume{{Source: volume, Target: target}}
	r := s.prepare(t)
	r.spec.Volumes = mounts
	if o := r.try("create=" + target + "/kept,42")["create="+target+"/kept,42"]; !o.OK {
		t.Errorf("%+v", o)
	}
	info, err := os.Stat(volume)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 || int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
		t.Errorf("the volume's folder is %v of uid %d", info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
	}
	r = s.prepare(t)
	r.spec.Volumes = mounts
	if o := r.try("read=" + target + "/kept")["read="+target+"/kept"]; o.Text != "42" {
		t.Errorf("in the next run: %+v", o)
	}
}

// An image's root appears at its target, read-only.
func (s *suite) imageMounts(t *testing.T) {
	id := s.importImage(t, "localhost/handler-test/"+s.owner+":mount", rootfs(t, map[string][]byte{"/bin/data": []byte("of the image")}))
	target := sandbox.AddonsTarget + "/one"
	r := s.prepare(t)
	r.spec.Images = []sandbox.ImageMount{{Image: id, Target: target}, {Image: "localhost/handler-test/" + s.owner + ":mount", Target: sandbox.HarnessTarget}}
	reads := []string{"read=" + target + "/bin/data", "read=" + sandbox.HarnessTarget + "/bin/data"}
	writes := []string{"create=" + target + "/new", "write=" + target + "/bin/data,x"}
	if !s.Strict {
		writes = nil // a driver that cannot refuse them would let them spoil the image
	}
	got := r.try(append(reads, writes...)...)
	for _, op := range reads {
		if o := got[op]; o.Text != "of the image" {
			t.Errorf("%s: %+v", op, o)
		}
	}
	for _, op := range writes {
		if o := got[op]; o.Errno != "EROFS" && o.Errno != "EACCES" {
			t.Errorf("%s: %+v, want a refusal", op, o)
		}
	}
}

// Files are there with their mode and content before the command starts, private folders above them, on a tmpfs.
func (s *suite) files(t *testing.T) {
	paths := []string{sandbox.SecretsTarget + "/token", sandbox.HomeTarget + "/.config/tool/settings.json", "/tmp/large"}
	r := s.prepare(t, append([]string{"files", sandbox.SecretsTarget, sandbox.HomeTarget + "/.config"}, paths...)...)
	large := strings.Repeat("0123456789abcdef", 1<<15)
	r.spec.Files = []sandbox.File{
		{Path: paths[0], Mode: 0o400, Content: []byte("s3cret")},
		{Path: paths[1], Mode: 0o644, Content: []byte("{}\n")},
		{Path: paths[2], Mode: 0o600, Content: []byte(large)},
	}
	var got []facts.File
	r.once(&got)
	if len(got) != 5 {
		t.Fatalf("%+v", got)
	}
	for i, want := range r.spec.Files {
		f := got[i+2]
		if f.Err != "" || f.Mode != uint32(want.Mode) || f.Content != string(want.Content) || f.UID != os.Getuid() || s.Strict && !f.Tmpfs {
			f.Content = fmt.Sprintf("%d bytes", len(f.Content))
			t.Errorf("%s: %+v", want.Path, f)
		}
	}
	for _, f := range got[:2] {
		if f.Mode != 0o700 || s.Strict && !f.Tmpfs {
			t.Errorf("%+v, want 0700 on a tmpfs", f)
		}
	}
	if _, err := os.Lstat(filepath.Join(r.dir.Path(), sandbox.SocketFiles)); !os.IsNotExist(err) {
		t.Errorf("left: %s (%v)", sandbox.SocketFiles, err)
	}
}

// A file's content is in no command line, no environment, no label and nothing that the engine shows.
func (s *suite) filesHidden(t *testing.T) {
	secret := "secret-" + s.owner[:12] + "-content"
	r := s.prepare(t, "wait")
	r.spec.Files = []sandbox.File{{Path: sandbox.SecretsTarget + "/token", Mode: 0o400, Content: []byte(secret)}}
	r.start().ready()
	defer r.remove()
	for _, file := range []string{"cmdline", "environ"} {
		paths, err := filepath.Glob("/proc/[0-9]*/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			if b, _ := os.ReadFile(p); bytes.Contains(b, []byte(secret)) {
				t.Errorf("the secret is in %s", p)
			}
		}
	}
	ctx, cancel := s.ctx(t)
	defer cancel()
	list, err := s.Driver.List(ctx, map[string]string{ownerLabel: s.owner})
	if err != nil || len(list) != 1 || strings.Contains(fmt.Sprint(list), secret) {
		t.Errorf("%+v %v", list, err)
	}
	if s.Inspect != nil {
		if text, err := s.Inspect(ctx, r.id); err != nil || text == "" || strings.Contains(text, secret) {
			t.Errorf("the engine shows the secret, or nothing: %d bytes, %v", len(text), err)
		}
	}
}

// A socket of the run directory can be connected to, and again after its listener was bound anew. Nothing can be made
// in the directory.
func (s *suite) runDirectory(t *testing.T) {
	r := s.prepare(t, "redial", sandbox.RunDirTarget+"/again.sock", "2")
	l, err := r.dir.Listen("again.sock")
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	defer r.remove()
	for round := range 2 {
		timer := time.AfterFunc(s.Patience, func() { l.Close() })
		c, err := l.Accept()
		timer.Stop()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		_ = l.Close()
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if l, err = r.dir.Listen("again.sock"); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Close()
	var done int
	if r.result(&done); done != 2 {
		t.Errorf("connected %d times, want 2", done)
	}
	if !s.Strict {
		return
	}
	at := sandbox.RunDirTarget
	ops := []string{"create=" + at + "/new", "mkdir=" + at + "/dir", "symlink=" + at + "/link", "remove=" + at + "/" + reportSocket}
	got := s.prepare(t).try(ops...)
	for _, op := range ops {
		if o := got[op]; o.Errno != "EROFS" {
			t.Errorf("%s: %+v, want EROFS", op, o)
		}
	}
}

// Images are found by tag, by id and by all of their labels, and are gone after Remove.
func (s *suite) images(t *testing.T) {
	ctx, cancel := s.ctx(t)
	defer cancel()
	tag := "localhost/handler-test/" + s.owner + ":images"
	id, err := s.Images.Import(ctx, bytes.NewReader(rootfs(t, map[string][]byte{"/etc/x": []byte(s.owner)})), tag,
		map[string]string{ownerLabel: s.owner, sandbox.LabelKind: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{id, tag} {
		img, err := s.Images.Inspect(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		if img.ID != id || !slices.Contains(img.Tags, tag) || img.Labels[sandbox.LabelKind] != "test" || img.Bytes <= 0 || time.Since(img.Created).Abs() > time.Hour {
			t.Errorf("%s: %+v", ref, img)
		}
	}
	list, err := s.Images.List(ctx, map[string]string{ownerLabel: s.owner, sandbox.LabelKind: "test"})
	if err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("%+v %v", list, err)
	}
	for range 2 {
		if err := s.Images.Remove(ctx, tag); err != nil {
			t.Error(err)
		}
	}
	var notFound *sandbox.ImageNotFoundError
	if _, err := s.Images.Inspect(ctx, tag); !errors.As(err, &notFound) || notFound.Ref != tag {
		t.Errorf("%v, want *sandbox.ImageNotFoundError of %s", err, tag)
	}
}

// Build makes an image from a Containerfile and says what it does.
func (s *suite) buildImages(t *testing.T) {
	dir := hostDir(t)
	write(t, dir+"/data", "of the build")
	write(t, dir+"/Containerfile", "FROM scratch\nCOPY data /opt/data\n")
	write(t, dir+"/Bad", "FROM localhost/handler-test/no-such-base:"+s.owner+"\nCOPY data /opt/data\n")
	ctx, cancel := s.ctx(t)
	defer cancel()
	b := sandbox.Build{Tag: "localhost/handler-test/" + s.owner + ":build", Context: dir, Containerfile: "Containerfile",
		Labels: map[string]string{ownerLabel: s.owner, sandbox.LabelRecipe: "r1"}}
	var progress bytes.Buffer
	id, err := s.Images.Build(ctx, b, &progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
		defer cancel()
		if err := s.Images.Remove(ctx, id); err != nil {
			t.Error(err)
		}
	}()
	if !strings.Contains(progress.String(), "COPY") {
		t.Errorf("progress: %q", &progress)
	}
	if img, err := s.Images.Inspect(ctx, b.Tag); err != nil || img.ID != id || img.Labels[sandbox.LabelRecipe] != "r1" {
		t.Errorf("%+v %v", img, err)
	}
	r := s.prepare(t)
	r.spec.Images = []sandbox.ImageMount{{Image: id, Target: sandbox.HarnessTarget}}
	op := "read=" + sandbox.HarnessTarget + "/opt/data"
	if o := r.try(op)[op]; o.Text != "of the build" {
		t.Errorf("%+v", o)
	}
	b.Tag, b.Containerfile = "localhost/handler-test/"+s.owner+":bad", "Bad"
	if _, err := s.Images.Build(ctx, b, io.Discard); err == nil {
		t.Error("built over a base that is not there")
	}
}
