package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/handlerd/handler/handlerd/display"
	"github.com/handlerd/handler/handlerd/fault"
)

func checkSystemd(_ context.Context, m *machine) []Finding {
	const id = "systemd"
	if !m.systemd() {
		return remark(id, "no systemd", "the command line starts the daemon when it is needed, and podman makes the control groups itself")
	}
	dir := m.RuntimeDir
	if dir == "" {
		dir = fmt.Sprintf("/run/user/%d", m.User.UID)
	}
	if !m.exists(dir + "/systemd") {
		return remark(id, "systemd has no user session for you", "the command line starts the daemon; for a session at all times:",
			"sudo loginctl enable-linger "+m.User.Name)
	}
	if m.exists("/var/lib/systemd/linger/" + m.User.Name) {
		return ok(id, "systemd user session, which outlives logins")
	}
	return ok(id, "systemd user session; logging out ends runs (they go on after: loginctl enable-linger)")
}

// Space below which something is said: a toolbox is some 1.9 GB, twice with its id-mapped copy, and building one
// needs as much again.
const (
	wantStorage = 8 << 30
	leastSpace  = 1 << 30
)

func checkSpace(_ context.Context, m *machine) []Finding {
	var found []Finding
	for _, place := range []struct {
		id, name, path string
		want           int64
	}{
		{"space-storage", "images", m.DataDir, wantStorage}, {"space-state", "Handler's own files", m.StateDir, leastSpace},
	} {
		free, err := m.Free(place.path)
		switch {
		case err != nil:
			found = append(found, remark(place.id, fmt.Sprintf("the space for %s at %s is unknown: %v", place.name, place.path, err), "Handler goes on until the disk is full")...)
		case free < leastSpace:
			found = append(found, problem(place.id, fmt.Sprintf("%s free for %s at %s", size(free), place.name, place.path),
				"builds and runs will fail; make room, or remove toolboxes that you do not use", "handler toolbox list")...)
		case free < place.want:
			found = append(found, remark(place.id, fmt.Sprintf("%s free for %s at %s", size(free), place.name, place.path),
				fmt.Sprintf("building a toolbox may need up to %s; what is built works", size(place.want)))...)
		default:
			found = append(found, ok(place.id, fmt.Sprintf("%s free for %s", size(free), place.name))...)
		}
	}
	return found
}

// size gives bytes as a person reads them.
func size(bytes int64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	default:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
}

// checkClock: a machine whose clock is years off can trust no certificate.
func checkClock(_ context.Context, m *machine) []Finding {
	now := m.Now()
	// Handler is younger than the first and will be forgotten by the second.
	if now.Before(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)) || now.After(time.Date(2075, 1, 1, 0, 0, 0, 0, time.UTC)) {
		return problem("clock", "the clock says "+now.Format("2 January 2006"), "no certificate can be checked with it", "sudo date -s 'YYYY-MM-DD HH:MM'")
	}
	return ok("clock", "clock")
}

// checkToolboxTools: only a build without a registry needs them.
func checkToolboxTools(_ context.Context, m *machine) []Finding {
	const id = "toolbox-tools"
	if _, err := m.LookPath("mmdebstrap"); err != nil {
		return remark(id, "mmdebstrap is missing", "a toolbox can only be built from a registry's image", m.install("mmdebstrap"))
	}
	for _, ring := range []string{"debian-archive-keyring.gpg", "debian-archive-keyring.pgp"} {
		if m.exists("/usr/share/keyrings/" + ring) {
			return ok(id, "mmdebstrap and Debian's keyring")
		}
	}
	return remark(id, "Debian's keyring is missing", "a toolbox can only be built from a registry's image", m.install("debian-archive-keyring"))
}

func checkDisplay(ctx context.Context, m *machine) []Finding {
	const id = "display"
	if m.Display == nil {
		return nil
	}
	socket, restricted, compositor, err := m.Display(ctx)
	var none *display.NotFoundError
	switch {
	case errors.As(err, &none):
		return remark(id, "no Wayland display", "browsers run without a window; runs with --display, or of agents with display = true, do not start")
	case err != nil:
		f := fault.Of(err)
		found := remark(id, f.Text, "runs with --display, or of agents with display = true, do not start")
		if f.Hint != "" {
			found[0].Remedy = []string{f.Hint}
		}
		return found
	}
	title := "Wayland display " + socket
	if restricted {
		title += ", through security-context-v1"
	}
	if notice := compositor.Notice(); notice != "" {
		return remark(id, title, "only runs with a display get it; "+notice,
			"handler agent edit NAME --display-strict")
	}
	return ok(id, title)
}
