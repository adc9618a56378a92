package podman

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// layout names every file and folder of a Driver. State lies on a disk and outlives the login, run does not.
type layout struct{ state, run string }

func (l layout) storage() string     { return filepath.Join(l.state, "storage") }
func (l layout) home() string        { return filepath.Join(l.state, "home") }
func (l layout) tmp() string         { return filepath.Join(l.state, "tmp") }
func (l layout) conf() string        { return filepath.Join(l.state, "containers.conf") }
func (l layout) storageConf() string { return filepath.Join(l.state, "storage.conf") }
func (l layout) seccomp() string     { return filepath.Join(l.state, "seccomp.json") }
func (l layout) hosts() string       { return filepath.Join(l.state, "hosts") }
func (l layout) resolv() string      { return filepath.Join(l.state, "resolv.conf") }
func (l layout) emptyFile() string   { return filepath.Join(l.state, "empty") }
func (l layout) lastRun() string     { return filepath.Join(l.state, "rundir") }
func (l layout) lock() string        { return filepath.Join(l.run, "lock") }
func (l layout) socket() string      { return filepath.Join(l.run, "p.sock") }
func (l layout) files() string       { return filepath.Join(l.run, "f") }
func (l layout) logs() string        { return filepath.Join(l.run, "l") }
func (l layout) xdg() string         { return filepath.Join(l.run, "x") }
func (l layout) podmanTmp() string   { return filepath.Join(l.xdg(), "libpod/tmp") }
func (l layout) locks() string       { return filepath.Join(l.podmanTmp(), "locks") }
func (l layout) pausePID() string    { return filepath.Join(l.podmanTmp(), "pause.pid") }

// log is where a sandbox's first process writes. Podman's own place for it belongs to a user inside the sandbox.
func (l layout) log(nonce string) string { return filepath.Join(l.logs(), filepath.Base(nonce)+".log") }

// filesOf is the run directory of a sandbox that is given files and has no run directory of its own. A short name, for
// the socket in it.
func (l layout) filesOf(nonce string) string {
	return filepath.Join(l.files(), filepath.Base(nonce[:min(len(nonce), 12)]))
}

// containersConf is the whole of podman's configuration (A.10): with CONTAINERS_CONF no other file is read.
// Locks are files of our own, since the usual ones in shared memory are one set for all podmans of a user.
//
// A monitor has a podman of its own clean up when its container has ended. With CONTAINER_HOST that podman takes itself
// for a remote one, which cannot, and ends at once: the service cleans up when it is told to remove the container, and
// must be the only one. Two count the uses of a mounted image down twice, so that it is unmounted under other
// sandboxes that are just being made, and one that ends may take the storage's own mount away under the other.
func containersConf(l layout, m *machine) string {
	manager := "cgroupfs"
	if m.systemd {
		manager = "systemd"
	}
	name := tomlString(filepath.Base(m.runtime))
	return fmt.Sprintf(`# Written by handlerd at each start. Changes are lost.
[containers]
env = [%s]
http_proxy = false
log_driver = "k8s-file"
log_size_max = %d
default_sysctls = []
umask = "0022"

[engine]
cgroup_manager = %q
conmon_env_vars = [%s, "CONTAINER_HOST=unix:///none"]
events_logger = "none"
lock_type = "file"
runtime = %s
static_dir = %s
tmp_dir = %s
image_copy_tmp_dir = %s

[engine.runtimes]
%s = [%s]
`, tomlString("PATH="+userPATH), logBytes, manager, tomlString("PATH="+DefaultPath), name, tomlString(filepath.Join(l.storage(), "libpod")),
		tomlString(l.podmanTmp()), tomlString(l.tmp()), name, tomlString(m.runtime))
}

// tomlString writes a basic string of TOML. Control characters must not be in s.
func tomlString(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// logBytes bounds what podman keeps of the output of a sandbox's first process.
const logBytes = 1 << 20

func storageConf(l layout) string {
	storage := tomlString(l.storage())
	return fmt.Sprintf(`# Written by handlerd at each start. Changes are lost.
[storage]
driver = "overlay"
graphroot = %s
rootless_storage_path = %s
runroot = %s
`, storage, storage, tomlString(filepath.Join(l.xdg(), "containers")))
}

// environ is the whole environment of podman. HOME is ours too, so that the person's podman configuration, mounts
// and caches stay theirs.
func environ(o Options, l layout, systemd bool) []string {
	env := slices.Clone(o.Env)
	env = append(env, "PATH="+o.Path, "HOME="+l.home(), "TMPDIR="+l.tmp(), "XDG_RUNTIME_DIR="+l.xdg())
	if o.Socket != "" {
		return env // a mere client of the person's service
	}
	env = append(env, "CONTAINERS_CONF="+l.conf(), "CONTAINERS_STORAGE_CONF="+l.storageConf())
	if systemd {
		env = append(env, "DBUS_SESSION_BUS_ADDRESS="+o.SessionBus)
	}
	return env
}

// What a sandbox reads of names: no resolver that answers (D.8), and nothing of the host's.
const (
	resolvConf = "# A sandbox has no network. HTTPS_PROXY resolves names.\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
	hostsFile  = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"
	// policyJSON is what distributions ship in /etc/containers/policy.json, for machines without one.
	policyJSON = `{"default":[{"type":"insecureAcceptAnything"}]}` + "\n"
)

// prepare makes the folders and writes the files of l. What is there already is replaced.
func prepare(o Options, l layout, m *machine) error {
	for _, dir := range []string{l.state, l.run, l.storage(), l.home(), l.tmp(), l.xdg(), l.files(), l.logs(),
		filepath.Join(l.home(), ".config/containers")} {
		if err := ownFolder(dir); err != nil {
			return err
		}
	}
	seccomp, err := findSeccomp()
	if err != nil {
		return err
	}
	files := map[string]string{
		l.seccomp():   string(seccomp),
		l.hosts():     hostsFile,
		l.resolv():    resolvConf,
		l.emptyFile(): "",
	}
	if o.Socket == "" {
		files[l.conf()] = containersConf(l, m)
		files[l.storageConf()] = storageConf(l)
		// The first mounts.conf that is there decides which host folders podman copies into every container: none.
		files[filepath.Join(l.home(), ".config/containers/mounts.conf")] = ""
		if _, err := os.Stat("/etc/containers/policy.json"); errors.Is(err, os.ErrNotExist) {
			files[filepath.Join(l.home(), ".config/containers/policy.json")] = policyJSON
		}
		if err := forgetMoved(l); err != nil {
			return err
		}
		files[l.lastRun()] = l.run + "\n"
	}
	for path, content := range files {
		// Sandboxes mount some of these, so a file that is right already keeps its inode.
		if old, err := os.ReadFile(path); err == nil && string(old) == content {
			continue
		}
		if err := writePrivate(path, content); err != nil {
			return folderError(path, err)
		}
	}
	return nil
}

// forgetMoved removes podman's database when the run folder is another than the last time, or when somebody else's
// podman made it: it holds absolute paths and the storage driver, and podman would go on using the old ones.
// Containers do not outlive a daemon, and images are not in it.
func forgetMoved(l layout) error {
	old, err := os.ReadFile(l.lastRun())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return folderError(l.lastRun(), err)
	}
	if strings.TrimSpace(string(old)) == l.run {
		return nil
	}
	for _, name := range []string{"libpod/bolt_state.db", "db.sql", "libpod/db.sql"} {
		if err := os.Remove(filepath.Join(l.storage(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return folderError(l.storage(), err)
		}
	}
	return nil
}

// writePrivate writes a file that only its owner may change, whole or not at all.
func writePrivate(path, content string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	// The three files that are mounted are read inside by the same user; others have no business here.
	err = errors.Join(err, f.Chmod(0o600), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// ownFolder makes dir, 0700, and refuses one that is another user's or open to others.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return folderError(dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return folderError(dir, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
		return setupError(fmt.Errorf("%w: %s belongs to another user", ErrFolder, dir),
			"sudo chown -R "+strconv.Itoa(os.Getuid())+" "+dir)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return setupError(fmt.Errorf("%w: %s may be written by others", ErrFolder, dir), "chmod go-w "+dir)
	}
	return nil
}
