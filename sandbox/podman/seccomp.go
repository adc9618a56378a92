package podman

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containers/common/pkg/seccomp"
	"golang.org/x/sys/unix"
)

// seccompSources are podman's installed default profiles, the administrator's first.
var seccompSources = []string{"/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json"}

const maxSeccomp = 1 << 20

// findSeccomp derives our profile from podman's installed default, or from the one that the library carries.
func findSeccomp() ([]byte, error) {
	for _, path := range seccompSources {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, folderError(path, err)
		}
		data, err := io.ReadAll(io.LimitReader(f, maxSeccomp+1))
		f.Close()
		if err != nil {
			return nil, folderError(path, err)
		}
		if len(data) > maxSeccomp {
			return nil, setupError(fmt.Errorf("the seccomp profile %s has more than %d bytes", path, maxSeccomp), "")
		}
		derived, err := deriveSeccomp(data)
		if err != nil {
			return nil, setupError(fmt.Errorf("the seccomp profile %s: %w", path, err), "reinstall the package that it comes from (golang-github-containers-common or containers-common)")
		}
		return derived, nil
	}
	data, err := json.Marshal(seccomp.DefaultProfile())
	if err != nil {
		return nil, setupError(fmt.Errorf("the built-in seccomp profile: %w", err), "")
	}
	return deriveSeccomp(data)
}

// deniedCalls are calls that podman's default may allow and a sandbox has no use for, each with a history of holes in
// the kernel. They answer EPERM, whatever the default says.
var deniedCalls = []string{"io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "userfaultfd", "perf_event_open"}

// boundCalls would loosen what bounds a sandbox: sched_setaffinity its whole processors (affinity.go). It answers EPERM.
var boundCalls = []string{"sched_setaffinity"}

// maxSysV is the largest segment of System V shared memory. A segment that nobody has attached is shown by nothing that
// the memory limit's watch can see; with the kernel's bound of 4096 of them, 256 MiB is what they can hide.
const maxSysV = 64 << 10

// ownCalls are the calls whose rules are ours alone. socketcall is among them because its arguments lie in memory,
// where a filter cannot see the address family.
var ownCalls = append(append([]string{"chroot", "socket", "socketcall", "shmget"}, deniedCalls...), boundCalls...)

// netlinkProtocols are what programs ask netlink for: addresses and routes, socket lists, device events, and the
// generic families. NETLINK_AUDIT is not among them, as in podman's default.
var netlinkProtocols = []uint64{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_KOBJECT_UEVENT, unix.NETLINK_GENERIC}

// deriveSeccomp makes our profile of podman's default (A.3): chroot allowed, which Chromium's own sandbox needs
// (A.7) and which takes a capability inside the caller's user namespace anyway; deniedCalls taken out; sockets of
// the families unix, inet, inet6 and netlink only, so none of AF_VSOCK, which would reach the hypervisor past every
// network namespace; and native system calls only.
//
// The last two belong together. On a filter that knows a 32-bit architecture too, a 64-bit program reaches that
// architecture's socketcall, and libseccomp turns a rule for socket into one for socketcall that cannot look at the
// family. A profile without subordinate architectures has that door shut: a 32-bit program does not run.
//
// It is a pure function: the same bytes in give the same bytes out.
func deriveSeccomp(profile []byte) ([]byte, error) {
	var p seccomp.Seccomp
	if err := json.Unmarshal(profile, &p); err != nil {
		return nil, err
	}
	switch p.DefaultAction {
	case seccomp.ActErrno, seccomp.ActKill, seccomp.ActKillProcess, seccomp.ActKillThread:
	default:
		return nil, fmt.Errorf("its default action is %q, so it is no list of allowed calls", p.DefaultAction)
	}
	p.Architectures = nil
	for i := range p.ArchMap {
		p.ArchMap[i].SubArches = []seccomp.Arch{}
	}
	p.ListenerPath, p.ListenerMetadata = "", ""
	kept := make([]*seccomp.Syscall, 0, len(p.Syscalls))
	for _, rule := range p.Syscalls {
		if rule == nil {
			return nil, errors.New("it has a rule that is null")
		}
		if rule.Action == seccomp.ActNotify || rule.Action == seccomp.ActTrace {
			continue // there is no one here who would answer; without the rule the call has the default action
		}
		if rule.Name != "" {
			rule.Names, rule.Name = append(rule.Names, rule.Name), ""
		}
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(ownCalls, name) })
		if len(rule.Names) > 0 {
			kept = append(kept, rule)
		}
	}
	p.Syscalls = append(kept, ownRules()...)
	return json.MarshalIndent(p, "", "\t")
}

// ownRules are the rules for ownCalls. socketcall has none, so the default action meets it.
func ownRules() []*seccomp.Syscall {
	perm := uint(unix.EPERM)
	deny := func(names []string, args ...*seccomp.Arg) *seccomp.Syscall {
		return &seccomp.Syscall{Names: names, Action: seccomp.ActErrno, ErrnoRet: &perm, Errno: "EPERM", Args: args}
	}
	allow := func(names []string, args ...*seccomp.Arg) *seccomp.Syscall {
		return &seccomp.Syscall{Names: names, Action: seccomp.ActAllow, Args: args}
	}
	socket := []string{"socket"}
	rules := []*seccomp.Syscall{
		allow([]string{"chroot"}),
		deny(slices.Clone(deniedCalls)),
		deny(slices.Clone(boundCalls)),
		allow([]string{"shmget"}, &seccomp.Arg{Index: 1, Value: maxSysV, Op: seccomp.OpLessEqual}),
		deny([]string{"shmget"}, &seccomp.Arg{Index: 1, Value: maxSysV, Op: seccomp.OpGreaterThan}),
		deny(socket, low32(0, unix.AF_VSOCK)),
	}
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		rules = append(rules, allow(socket, low32(0, family)))
	}
	for _, protocol := range netlinkProtocols {
		rules = append(rules, allow(socket, low32(0, unix.AF_NETLINK), low32(2, protocol)))
	}
	return rules
}

// low32 compares the lower half of an argument. The kernel takes an int there and ignores the upper half, which a
// plain comparison would not: 1<<32|AF_VSOCK is AF_VSOCK to the kernel and another number to the filter.
func low32(index uint, value uint64) *seccomp.Arg {
	return &seccomp.Arg{Index: index, Value: 0xffffffff, ValueTwo: value, Op: seccomp.OpMaskedEqual}
}
