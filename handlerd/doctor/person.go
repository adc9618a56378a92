package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

func checkUser(_ context.Context, m *machine) []Finding {
	if m.root() {
		return problem("user", "started by root",
			"Handler is rootless: as root a sandbox would be weaker than what Handler promises, so nothing of it starts",
			"runuser -u NAME -- handler doctor")
	}
	return ok("user", fmt.Sprintf("ordinary user %s (%d)", m.User.Name, m.User.UID))
}

func (m *machine) root() bool { return m.User.EUID == 0 || m.User.UID == 0 }

func checkRuntimeDir(_ context.Context, m *machine) []Finding {
	const id = "runtime-dir"
	if m.root() {
		return nil // checkUser has said what matters
	}
	dir := m.RuntimeDir
	usual := fmt.Sprintf("/run/user/%d", m.User.UID)
	if dir == "" {
		dir = usual
	}
	mend := fmt.Sprintf("sudo install -d -m 0700 -o %d %s && export XDG_RUNTIME_DIR=%s", m.User.UID, dir, dir)
	info, err := fs.Stat(m.Root, rel(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return problem(id, "the runtime folder "+dir+" does not exist",
			"the daemon's socket and the runs live there; a login session makes it", mend)
	case err != nil:
		return problem(id, fmt.Sprintf("the runtime folder %s cannot be looked at: %v", dir, err), "", mend)
	case !info.IsDir():
		return problem(id, "XDG_RUNTIME_DIR names "+dir+", which is no folder", "", "export XDG_RUNTIME_DIR="+usual)
	}
	if st, isStat := info.Sys().(*syscall.Stat_t); isStat && int(st.Uid) != m.User.UID {
		return problem(id, "the runtime folder "+dir+" belongs to another user",
			"this happens after su or sudo; whoever owns it could take the daemon's place", "export XDG_RUNTIME_DIR="+usual)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return problem(id, "the runtime folder "+dir+" is open to other users",
			"Handler starts nothing there until it is closed", "chmod 700 "+dir)
	}
	if m.RuntimeDir == "" {
		return remark(id, "XDG_RUNTIME_DIR is not set", "Handler takes "+dir+", which is yours alone", "export XDG_RUNTIME_DIR="+dir)
	}
	return ok(id, "runtime folder "+dir)
}

// checkIDTools: podman gives a sandbox its ids through two programs that must be setuid root, or have the
// capability as files.
func checkIDTools(_ context.Context, m *machine) []Finding {
	const id = "id-tools"
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		path, err := m.LookPath(tool)
		if err != nil {
			return problem(id, tool+" is missing", "podman needs it to give a sandbox ids of its own", m.install("uidmap"))
		}
		info, err := fs.Stat(m.Root, rel(path))
		if err != nil {
			return problem(id, fmt.Sprintf("%s cannot be looked at: %v", path, err), "", m.install("uidmap"))
		}
		if info.Mode()&fs.ModeSetuid == 0 && !m.Caps(path) {
			return problem(id, path+" is neither setuid nor has it the capability",
				"podman cannot give a sandbox ids of its own; some images and backups lose the bit", "sudo chmod u+s "+path)
		}
	}
	return ok(id, "newuidmap and newgidmap")
}

// wantIDs is how many subordinate ids a sandbox needs: its images have owners up to 65535.
const wantIDs = 65536

func checkSubIDs(_ context.Context, m *machine) []Finding {
	const id = "subordinate-ids"
	if m.root() {
		return nil // checkUser has said what matters
	}
	if line := m.subIDService(); line != "" {
		return remark(id, "subordinate ids come from a name service ("+line+")", "podman asks it; Handler cannot look into it")
	}
	uids, gids := m.subIDs("/etc/subuid"), m.subIDs("/etc/subgid")
	if uids.mine >= wantIDs && gids.mine >= wantIDs {
		return ok(id, fmt.Sprintf("%d subordinate ids", min(uids.mine, gids.mine)))
	}
	title := fmt.Sprintf("no subordinate ids for %q", m.User.Name)
	if uids.mine > 0 && gids.mine > 0 {
		title = fmt.Sprintf("%d subordinate ids for %q, of %d needed", min(uids.mine, gids.mine), m.User.Name, wantIDs)
	}
	first := 0 // one range for both, where both lack
	for _, ids := range []subIDs{uids, gids} {
		if ids.mine < wantIDs {
			first = max(first, ids.free)
		}
	}
	mend := "sudo usermod"
	if uids.mine < wantIDs {
		mend += fmt.Sprintf(" --add-subuids %d-%d", first, first+wantIDs-1)
	}
	if gids.mine < wantIDs {
		mend += fmt.Sprintf(" --add-subgids %d-%d", first, first+wantIDs-1)
	}
	return problem(id, title, "podman needs them to give a sandbox ids of its own", mend+" "+m.User.Name)
}

// subIDService gives the line of nsswitch.conf that says that ids do not come from files, or "".
func (m *machine) subIDService() string {
	text, _ := m.read("/etc/nsswitch.conf")
	for _, line := range strings.Split(text, "\n") {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "subid:"); found && strings.TrimSpace(value) != "files" {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// subIDs is what a file says: how many ids this user has, and where a free range for one begins.
type subIDs struct{ mine, free int }

func (m *machine) subIDs(path string) subIDs {
	type span struct{ first, count int }
	var taken []span
	var ids subIDs
	text, _ := m.read(path)
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.Atoi(fields[1])
		count, err2 := strconv.Atoi(fields[2])
		if err1 != nil || err2 != nil || first < 0 || count <= 0 || count > 1<<32 {
			continue
		}
		taken = append(taken, span{first, count})
		if fields[0] == m.User.Name || fields[0] == strconv.Itoa(m.User.UID) {
			ids.mine += count
		}
	}
	sort.Slice(taken, func(i, j int) bool { return taken[i].first < taken[j].first })
	ids.free = 100000 // where useradd begins
	for _, s := range taken {
		if s.first < ids.free+wantIDs && s.first+s.count > ids.free {
			ids.free = s.first + s.count
		}
	}
	return ids
}
