package peer

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := Own(here); err != nil || pid != os.Getpid() {
		t.Errorf("%d, %v; want our own %d", pid, err, os.Getpid())
	}
	here.Close()
	if _, err := Own(here); err == nil {
		t.Error("a closed connection has a peer")
	}
}
