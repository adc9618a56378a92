package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The units are what the daemon needs of systemd, whatever the daemon's path is.
func TestUnits(t *testing.T) {
	for exe, want := range map[string]string{
		"/usr/bin/handlerd":          "ExecStart=/usr/bin/handlerd\n",
		"/home/a b/bin/handlerd":     "ExecStart=\"/home/a b/bin/handlerd\"\n",
		`/home/100%/$x"y\/handlerd`:  `ExecStart="/home/100%%/$$x\"y\\/handlerd"` + "\n",
		"/home/o'neill/bin/handlerd": "ExecStart=\"/home/o'neill/bin/handlerd\"\n",
	} {
		units, err := Units(exe)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(units[Service], want) || strings.Contains(units[Service], "@PREFIX@") {
			t.Errorf("%s: no %q in\n%s", exe, want, units[Service])
		}
		for _, line := range []string{"Type=notify\n", "WatchdogSec=60\n", "Requires=handlerd.socket\n", "KillMode=mixed\n"} {
			if !strings.Contains(units[Service], line) {
				t.Errorf("handlerd.service lacks %q", line)
			}
		}
		for _, line := range []string{"ListenStream=%t/handler/handlerd.sock\n", "SocketMode=0600\n", "DirectoryMode=0700\n", "WantedBy=sockets.target\n"} {
			if !strings.Contains(units[Socket], line) {
				t.Errorf("handlerd.socket lacks %q", line)
			}
		}
		// A daemon started before the compositor would never be started again.
		if strings.Contains(units[Service]+units[Socket], "\nCondition") {
			t.Error("a unit has a condition")
		}
	}
	for _, exe := range []string{"", "bin/handlerd", "/x\n[Service]", "/x\x00"} {
		if _, err := Units(exe); err == nil {
			t.Errorf("%q: no error", exe)
		}
	}
}

// Systemd itself finds nothing wrong with them.
func TestVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: hack/prepare test installs it")
	}
	dir := t.TempDir()
	exe := filepath.Join(dir, "a b", "handlerd")
	if err := os.MkdirAll(filepath.Dir(exe), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	units, err := Units(exe)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--user", "--man=no", "verify"}
	for name, text := range units {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	cmd := exec.Command(analyze, args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "handlerd.") { // what it says of the machine's other units is not ours
			t.Errorf("%s", line)
		}
	}
	if err != nil && strings.Contains(string(out), "handlerd") {
		t.Errorf("%v\n%s", err, out)
	}
}
