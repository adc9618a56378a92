package podman

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containers/common/pkg/seccomp"
	"github.com/google/go-cmp/cmp"
)

// profiles are podman's defaults that are at hand: the library's and the installed ones.
func profiles(t testing.TB) map[string][]byte {
	t.Helper()
	builtIn, err := json.Marshal(seccomp.DefaultProfile())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{"built-in": builtIn}
	for _, path := range seccompSources {
		if data, err := os.ReadFile(path); err == nil {
			all[path] = data
		}
	}
	return all
}

// verdict says what a derived profile does with a call for a process without capabilities on amd64: every action that
// some rule without arguments gives, and "args" when a rule looks at arguments.
func verdict(p seccomp.Seccomp, call string) []string {
	var found []string
	for _, rule := range p.Syscalls {
		if !slices.Contains(rule.Names, call) || len(rule.Includes.Caps) > 0 ||
			len(rule.Includes.Arches) > 0 && !slices.Contains(rule.Includes.Arches, "amd64") {
			continue
		}
		if len(rule.Args) > 0 {
			found = append(found, "args")
		} else {
			found = append(found, string(rule.Action))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Whatever podman's default is, the calls of A.3 are decided by us, once, and the rest stays as it was.
func TestSeccompProperties(t *testing.T) {
	for name, data := range profiles(t) {
		var before, after seccomp.Seccomp
		if err := json.Unmarshal(data, &before); err != nil {
			t.Fatal(err)
		}
		derived, err := deriveSeccomp(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := json.Unmarshal(derived, &after); err != nil {
			t.Fatal(err)
		}
		want := map[string][]string{"chroot": {"SCMP_ACT_ALLOW"}, "socket": {"args"}, "socketcall": nil}
		for _, call := range deniedCalls {
			want[call] = []string{"SCMP_ACT_ERRNO"}
		}
		for call, w := range want {
			if d := cmp.Diff(w, verdict(after, call)); d != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, call, d)
			}
		}
		for _, rule := range before.Syscalls {
			for _, call := range append(slices.Clone(rule.Names), rule.Name) {
				if call != "" && !slices.Contains(ownCalls, call) && !cmp.Equal(verdict(before, call), verdict(after, call)) {
					t.Errorf("%s: %s changed from %v to %v", name, call, verdict(before, call), verdict(after, call))
				}
			}
		}
		for _, arch := range after.ArchMap {
			if len(arch.SubArches) > 0 {
				t.Errorf("%s: %s has %v", name, arch.Arch, arch.SubArches)
			}
		}
		again, err := deriveSeccomp(derived)
		if err != nil || !cmp.Equal(again, derived) {
			t.Errorf("%s: deriving from the derived changes it, or fails: %v", name, err)
		}
	}
}

// The four families and no other pass the rules for socket, whatever the upper half of a register holds.
func TestSocketRules(t *testing.T) {
	allowed := func(args [3]uint64) bool {
		for _, rule := range ownRules() {
			if !slices.Contains(rule.Names, "socket") || rule.Action != seccomp.ActAllow {
				continue
			}
			matches := true
			for _, a := range rule.Args {
				matches = matches && a.Op == seccomp.OpMaskedEqual && args[a.Index]&a.Value == a.ValueTwo
			}
			if matches {
				return true
			}
		}
		return false
	}
	for family := range uint64(64) {
		want := slices.Contains([]uint64{1, 2, 10}, family)
		for _, high := range []uint64{0, 1 << 32, 0xffffffff << 32} {
			if got := allowed([3]uint64{high | family, 1, 9}); got != want {
				t.Errorf("family %d with upper half %x: allowed %v", family, high, got)
			}
		}
	}
	if !allowed([3]uint64{16, 3, 0}) || allowed([3]uint64{16, 3, 9}) || allowed([3]uint64{16, 3, 1<<32 | 9}) {
		t.Error("netlink: route must pass and audit must not")
	}
}

func TestSeccompRefuses(t *testing.T) {
	for _, bad := range []string{``, `[]`, `{}`, `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[]}`,
		`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[null]}`, `{"defaultAction":"SCMP_ACT_LOG"}`} {
		if out, err := deriveSeccomp([]byte(bad)); err == nil {
			t.Errorf("%s gives %s", bad, out)
		}
	}
}

// Rules that hand a call to someone who would answer are dropped: no one listens.
func TestSeccompDropsListeners(t *testing.T) {
	out, err := deriveSeccomp([]byte(`{"defaultAction":"SCMP_ACT_ERRNO","listenerPath":"/run/x","syscalls":[
		{"name":"mount","action":"SCMP_ACT_NOTIFY"},{"names":["read","bpf"],"action":"SCMP_ACT_ALLOW"}]}`))
	if err != nil || strings.Contains(string(out), "NOTIFY") || strings.Contains(string(out), "/run/x") || !strings.Contains(string(out), `"read"`) {
		t.Errorf("%s %v", out, err)
	}
}

// FuzzDeriveSeccompNeverAllowsDenied: what is derived from any input either fails or denies what must be denied.
func FuzzDeriveSeccompNeverAllowsDenied(f *testing.F) {
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["bpf","read"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"op":"SCMP_CMP_EQ"}]}]}`))
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_KILL","syscalls":[{"name":"socketcall","action":"SCMP_ACT_ALLOW"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := deriveSeccomp(data)
		if err != nil {
			return
		}
		var p seccomp.Seccomp
		if err := json.Unmarshal(out, &p); err != nil {
			t.Fatal(err)
		}
		for _, rule := range p.Syscalls {
			for _, call := range append(slices.Clone(deniedCalls), "socketcall") {
				if (rule.Name == call || slices.Contains(rule.Names, call)) && rule.Action != seccomp.ActErrno {
					t.Errorf("%s: %s", call, rule.Action)
				}
			}
		}
	})
}
