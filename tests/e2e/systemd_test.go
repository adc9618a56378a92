package e2e

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
)

// TestSocketActivation plays systemd to the daemon: it hands over the socket, and hears READY, signs of life within the
// watchdog's time, and STOPPING; and the command line takes that daemon for what it is.
func TestSocketActivation(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts the built daemon; run: make test")
	}
	handler := filepath.Join(the.bin, "handler")
	if out, err := the.command(commandLimit, handler, "daemon", "stop"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	socket := filepath.Join(the.runtime, "handler/handlerd.sock")
	_ = os.Remove(socket) // what a daemon of before may have left
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$0"`, filepath.Join(the.bin, "handlerd"))
	cmd.Env = append(the.env(), "LISTEN_FDS=1", "WATCHDOG_USEC=600000", "NOTIFY_SOCKET="+notify.LocalAddr().String())
	cmd.ExtraFiles = []*os.File{fd}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	hears := func(want string) {
		t.Helper()
		buf := make([]byte, 1024)
		for {
			_ = notify.SetReadDeadline(time.Now().Add(30 * time.Second))
			n, err := notify.Read(buf)
			if err != nil {
				t.Fatalf("no %s: %v", want, err)
			}
			if strings.Contains(string(buf[:n]), want) {
				return
			}
		}
	}
	hears("READY=1")
	hears("WATCHDOG=1")
	hears("WATCHDOG=1")
	out, err := the.command(commandLimit, handler, "daemon", "status", "--json")
	var v struct {
		types.Version
		Running, Current bool
	}
	if err != nil || json.Unmarshal([]byte(out), &v) != nil || !v.Running || !v.Current || v.StartedBy != types.BySystemd || v.PID != cmd.Process.Pid {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := the.command(commandLimit, handler, "daemon", "status"); err != nil || !strings.Contains(out, "by systemd") {
		t.Errorf("%v\n%s", err, out)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hears("STOPPING=1")
	ended = true
	if err := cmd.Wait(); err != nil {
		t.Errorf("the daemon's end: %v", err)
	}
	l.Close()
	_ = os.Remove(socket)
}
