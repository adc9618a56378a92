package units

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

// bus starts a D-Bus of the test's own and gives its address.
func bus(t *testing.T) string {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed: hack/prepare test installs it")
	}
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	conf := filepath.Join(dir, "conf")
	text := fmt.Sprintf(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=%s/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`, dir)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon, "--config-file="+conf, "--nofork", "--nopidfile", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// A fakeSystemd is what systemd's manager answers, as far as it is asked. Its fields are set before it is served.
type fakeSystemd struct {
	conn   *godbus.Conn
	failed string // the unit whose jobs fail
	absent bool   // it knows no unit

	mu    sync.Mutex
	calls []string // protected by mu
	jobs  int      // protected by mu
}

const managerName = "org.freedesktop.systemd1.Manager"

func (f *fakeSystemd) serve(t *testing.T, address string) {
	t.Helper()
	conn, err := dial(t.Context(), address, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f.conn = conn
	const path = "/org/freedesktop/systemd1"
	if err := conn.Export(f, path, managerName); err != nil {
		t.Fatal(err)
	}
	if _, err := prop.Export(conn, path, prop.Map{managerName: {"Version": {Value: "252"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := prop.Export(conn, path+"/unit/handlerd_2esocket", prop.Map{"org.freedesktop.systemd1.Unit": {"ActiveState": {Value: "active"}}}); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName("org.freedesktop.systemd1", godbus.NameFlagDoNotQueue); err != nil || reply != godbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
}

func (f *fakeSystemd) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

func (f *fakeSystemd) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// job answers as systemd does: with the job's path at once, and its end as a signal.
func (f *fakeSystemd) job(unit string) (godbus.ObjectPath, *godbus.Error) {
	if f.absent {
		return "", godbus.NewError("org.freedesktop.systemd1.NoSuchUnit", []any{"Unit " + unit + " not loaded."})
	}
	f.mu.Lock()
	f.jobs++
	id := uint32(f.jobs)
	f.mu.Unlock()
	path := godbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", id))
	result := "done"
	if unit == f.failed {
		result = "failed"
	}
	go func() {
		_ = f.conn.Emit("/org/freedesktop/systemd1", managerName+".JobRemoved", id, path, unit, result)
	}()
	return path, nil
}

func (f *fakeSystemd) Reload() *godbus.Error { f.note("reload"); return nil }

func (f *fakeSystemd) StartUnit(name, _ string) (godbus.ObjectPath, *godbus.Error) {
	f.note("start " + name)
	return f.job(name)
}

func (f *fakeSystemd) StopUnit(name, _ string) (godbus.ObjectPath, *godbus.Error) {
	f.note("stop " + name)
	return f.job(name)
}

type change struct{ Kind, Link, Target string }

func (f *fakeSystemd) EnableUnitFiles(names []string, _, _ bool) (bool, []change, *godbus.Error) {
	f.note("enable " + strings.Join(names, " "))
	return true, []change{}, nil
}

func (f *fakeSystemd) DisableUnitFiles(names []string, _ bool) ([]change, *godbus.Error) {
	f.note("disable " + strings.Join(names, " "))
	return []change{}, nil
}

func connect(t *testing.T, address string) (*Manager, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	m, err := Connect(ctx, address, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, ctx
}

func TestInstallAndUninstall(t *testing.T) {
	f := &fakeSystemd{}
	address := bus(t)
	f.serve(t, address)
	m, ctx := connect(t, address)
	dir := filepath.Join(t.TempDir(), "systemd/user")
	for range 2 { // again is as good
		paths, err := m.Install(ctx, dir, "/opt/handler/bin/handlerd")
		if err != nil || len(paths) != 2 {
			t.Fatal(paths, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "handlerd.service"))
		if err != nil || !strings.Contains(string(text), "\nExecStart=/opt/handler/bin/handlerd\n") {
			t.Errorf("%v\n%s", err, text)
		}
		if got, want := f.took(), []string{"reload", "enable handlerd.socket", "start handlerd.socket"}; !slices.Equal(got, want) {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
	paths, err := m.Uninstall(ctx, dir)
	if err != nil || len(paths) != 2 {
		t.Error(paths, err)
	}
	if got, want := f.took(), []string{"stop handlerd.socket", "stop handlerd.service", "disable handlerd.socket", "reload"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A start that fails is told with where to look, and leaves no unit.
func TestInstallFails(t *testing.T) {
	f := &fakeSystemd{failed: "handlerd.socket"}
	address := bus(t)
	f.serve(t, address)
	m, ctx := connect(t, address)
	dir := t.TempDir()
	if _, err := m.Install(ctx, dir, "/x/handlerd"); err == nil || !strings.Contains(err.Error(), "journalctl --user -u handlerd.socket") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What was never installed is uninstalled without an error.
func TestUninstallNothing(t *testing.T) {
	f := &fakeSystemd{absent: true}
	address := bus(t)
	f.serve(t, address)
	m, ctx := connect(t, address)
	if paths, err := m.Uninstall(ctx, t.TempDir()); err != nil || len(paths) != 0 {
		t.Error(paths, err)
	}
}

// No bus, a dead one, and one without systemd are all the same: there is none.
func TestNoSystemd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for name, address := range map[string]string{"none": "", "dead": "unix:path=" + t.TempDir() + "/none", "empty": bus(t)} {
		if _, err := Connect(ctx, address, t.TempDir()); !errors.Is(err, ErrNoSystemd) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
