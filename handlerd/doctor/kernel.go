package doctor

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/handlerd/handler/sandbox"
)

func copyBounded(w io.Writer, r io.Reader) (int64, error) {
	return io.Copy(w, io.LimitReader(r, maxRead))
}

func checkUserNamespaces(_ context.Context, m *machine) []Finding {
	const id = "user-namespaces"
	for _, sysctl := range []struct{ path, name, set string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone", "1"},
		{"/proc/sys/user/max_user_namespaces", "user.max_user_namespaces", "15000"},
	} {
		if value, found := m.read(sysctl.path); found && value == "0" {
			line := sysctl.name + "=" + sysctl.set
			return problem(id, "user namespaces are switched off ("+sysctl.name+" is 0)",
				"rootless podman and Chromium's own sandbox are made of them",
				"echo "+line+" | sudo tee /etc/sysctl.d/60-user-namespaces.conf", "sudo sysctl --system")
		}
	}
	if !m.exists("/proc/self/ns/user") {
		return problem(id, "this kernel has no user namespaces", "rootless podman is made of them; boot a kernel with CONFIG_USER_NS")
	}
	return ok(id, "user namespaces")
}

// checkAppArmor: Ubuntu lets only programs with a profile that says so make user namespaces. The restriction protects
// the rest of the machine and is never told to be switched off; podman gets a profile instead.
func checkAppArmor(_ context.Context, m *machine) []Finding {
	const id = "apparmor"
	if value, _ := m.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); value != "1" {
		return nil
	}
	podman := "/usr/bin/podman"
	if path, err := m.LookPath("podman"); err == nil {
		podman = path
	}
	for _, profile := range []string{"/etc/apparmor.d/podman", "/etc/apparmor.d/usr.bin.podman", "/etc/apparmor.d/local-podman"} {
		if text, found := m.read(profile); found && strings.Contains(text, "userns") && strings.Contains(text, podman) {
			return ok(id, "AppArmor restricts user namespaces, and lets podman make them ("+profile+")")
		}
	}
	text := `abi <abi/4.0>,\ninclude <tunables/global>\nprofile local-podman ` + podman + ` flags=(unconfined) {\n  userns,\n}\n`
	return problem(id, "AppArmor does not let "+podman+" make user namespaces",
		"give podman a profile; the restriction itself protects the rest of the machine and stays on",
		"printf '"+text+"' | sudo tee /etc/apparmor.d/local-podman", "sudo apparmor_parser -r /etc/apparmor.d/local-podman")
}

func checkSELinux(_ context.Context, m *machine) []Finding {
	if value, _ := m.read("/sys/fs/selinux/enforce"); value != "1" {
		return nil
	}
	return remark("selinux", "SELinux is enforcing",
		"its rules keep a container from connecting to a socket of the host, so sandboxes run without an SELinux label; all else of the strict set stays")
}

func checkSeccomp(_ context.Context, m *machine) []Finding {
	if m.exists("/proc/sys/kernel/seccomp/actions_avail") {
		return ok("seccomp", "seccomp filters")
	}
	return problem("seccomp", "this kernel has no seccomp filters",
		"every sandbox runs under one, and none starts without; boot a kernel with CONFIG_SECCOMP_FILTER")
}

func checkOpenFiles(_ context.Context, m *machine) []Finding {
	const id = "open-files"
	hard, err := m.OpenFile()
	switch {
	case err != nil:
		return remark(id, fmt.Sprintf("the limit on open files cannot be read: %v", err), "Handler takes what the system gives")
	case hard < 1024:
		return problem(id, fmt.Sprintf("at most %d open files for you", hard), "a browser alone needs more; raise the hard limit and log in again",
			"echo '"+m.User.Name+" hard nofile 524288' | sudo tee /etc/security/limits.d/handler.conf")
	case hard < sandbox.DefaultOpenFiles:
		return remark(id, fmt.Sprintf("at most %d open files for you, of the %d a sandbox gets", hard, sandbox.DefaultOpenFiles),
			fmt.Sprintf("sandboxes get %d", hard),
			"echo '"+m.User.Name+" hard nofile 524288' | sudo tee /etc/security/limits.d/handler.conf")
	}
	return ok(id, fmt.Sprintf("open files: %d a sandbox (your hard limit is %d)", sandbox.DefaultOpenFiles, hard))
}

// checkRootMount: podman warns where / is a private mount.
func checkRootMount(_ context.Context, m *machine) []Finding {
	const id = "root-mount"
	text, found := m.read("/proc/self/mountinfo")
	if !found {
		return nil
	}
	shared := false
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 7 || fields[4] != "/" {
			continue
		}
		shared = false // a later mount lies over an earlier one
		for _, f := range fields[6:] {
			if f == "-" {
				break
			}
			shared = shared || strings.HasPrefix(f, "shared:")
		}
	}
	if shared {
		return ok(id, "/ is a shared mount")
	}
	return remark(id, "/ is a private mount", "podman warns of it; nothing of Handler's depends on it", "sudo mount --make-rshared /")
}

func checkMemory(_ context.Context, m *machine) []Finding {
	const id = "memory"
	text, _ := m.read("/proc/meminfo")
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			break
		}
		total := kib << 10
		if total < sandbox.DefaultMemory {
			return remark(id, fmt.Sprintf("%s of memory, less than the %s that one run may use", size(total), size(sandbox.DefaultMemory)),
				"several runs with browsers at once may bring the machine down")
		}
		return ok(id, size(total)+" of memory")
	}
	return remark(id, "the size of memory is unknown", "Handler does not need to know it")
}
