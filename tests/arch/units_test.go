package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A unit is a systemd unit file: section, key, and the values in order.
type unit map[string]map[string][]string

// parseUnit reads a unit file as strictly as a lint needs to: a line that is no comment, section or key is an error.
func parseUnit(t *testing.T, text string) unit {
	t.Helper()
	u := make(unit)
	section := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[' && line[len(line)-1] == ']':
			section = line[1 : len(line)-1]
			u[section] = make(map[string][]string)
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || section == "" {
				t.Errorf("line %d is no section and no key: %q", i+1, line)
				continue
			}
			u[section][key] = append(u[section][key], value)
		}
	}
	return u
}

func (u unit) get(section, key string) string {
	return strings.Join(u[section][key], "\n")
}

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "packaging/systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	return parseUnit(t, string(text))
}

func wantKeys(t *testing.T, name string, u unit, keys map[string]string) {
	t.Helper()
	for path, want := range keys {
		section, key, _ := strings.Cut(path, "/")
		if got := u.get(section, key); got != want {
			t.Errorf("%s: %s of [%s] is %q, want %q", name, key, section, got, want)
		}
	}
}

// TestSocketUnit: the socket is the person's alone from the moment it exists (K.1, pitfall S08).
func TestSocketUnit(t *testing.T) {
	wantKeys(t, "handlerd.socket", readUnit(t, "handlerd.socket"), map[string]string{
		"Socket/ListenStream":  "%t/handler/handlerd.sock",
		"Socket/SocketMode":    "0600",
		"Socket/DirectoryMode": "0700",
		"Install/WantedBy":     "sockets.target",
	})
}

// TestServiceUnit: READY is told and watched (K.4, S01), the display is looked for at each run and never a condition
// of the daemon (W09, W10), and podman may make cgroups of its own below the service.
func TestServiceUnit(t *testing.T) {
	u := readUnit(t, "handlerd.service")
	wantKeys(t, "handlerd.service", u, map[string]string{
		"Service/Type":         "notify",
		"Service/NotifyAccess": "main",
		"Service/ExecStart":    "@PREFIX@/bin/handlerd",
		"Service/KillMode":     "mixed",
		"Service/Delegate":     "yes",
		"Unit/Requires":        "handlerd.socket",
	})
	if u.get("Service", "WatchdogSec") == "" {
		t.Error("handlerd.service has no WatchdogSec")
	}
	for section, keys := range u {
		for key, values := range keys {
			text := key + "=" + strings.Join(values, " ")
			switch {
			case key == "ConditionEnvironment" || strings.Contains(text, "DISPLAY"):
				t.Errorf("handlerd.service: %s: the display is found at each run, not when the daemon starts", text)
			case section == "Service" && (key == "NoNewPrivileges" || key == "RestrictNamespaces" || key == "PrivateUsers" ||
				strings.HasPrefix(key, "Protect") || key == "RestrictSUIDSGID" || key == "MemoryDenyWriteExecute"):
				t.Errorf("handlerd.service: %s would keep rootless podman from newuidmap and namespaces", text)
			}
		}
	}
}

func TestParseUnit(t *testing.T) {
	u := parseUnit(t, "# c\n[Unit]\nAfter=a\nAfter=b\n\n[Service]\nExecStart=/x a=b\n")
	if got := u.get("Unit", "After"); got != "a\nb" {
		t.Errorf("After is %q", got)
	}
	if got := u.get("Service", "ExecStart"); got != "/x a=b" {
		t.Errorf("ExecStart is %q", got)
	}
}
