package sessions

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestOpenScoped: regular files beneath the innermost scope, through no symlink.
func TestOpenScoped(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "sub"), 0o700), os.WriteFile(filepath.Join(dir, "sub/a"), []byte("a"), 0o600),
		os.WriteFile(filepath.Join(outside, "b"), []byte("b"), 0o600), os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink(filepath.Join(outside, "b"), filepath.Join(dir, "file")), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := openScoped([]openScope{{path: outside + "x"}, {path: dir}, {path: dir + "/sub"}}, dir+"/./sub/../sub/a")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, bad := range []string{dir, dir + "/sub", dir + "/link/b", dir + "/file", dir + "/fifo", outside + "/b", dir + "/../" + filepath.Base(outside) + "/b", "sub/a", "", dir + "/none", dir + "/sub/a\x00"} {
		if f, err := openScoped([]openScope{{path: dir}}, bad); err == nil {
			f.Close()
			t.Errorf("%q was opened", bad)
		}
	}
}
