package podman

import (
	"path/filepath"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
)

// submounts are the file systems of the host that lie below what a Spec mounts, and would show through.
//
// A bind mount that is not recursive does not take them along. But the kernel refuses one whose source has other
// file systems below it when those come from a mount namespace of more rights, as all of the host's do for rootless
// podman. So they come along, and each is covered.
type submounts struct {
	recursive map[string]bool // targets whose bind mount must be recursive
	covered   []covered
}

// A covered target is hidden under an empty folder, or an empty file.
type covered struct {
	target, source string
	file           bool
}

// findSubmounts reads mountinfo, the content of /proc/self/mountinfo.
func findSubmounts(all []place, mountinfo string) submounts {
	found := submounts{recursive: make(map[string]bool)}
	taken := make(map[string]bool)
	for _, p := range all {
		taken[p.target] = true
	}
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescapeMount(fields[4])
		for _, p := range all {
			if p.source == "" || !below(point, p.source) {
				continue
			}
			found.recursive[p.target] = true
			if target := filepath.Join(p.target, strings.TrimPrefix(point, p.source)); !taken[target] {
				taken[target] = true
				found.covered = append(found.covered, covered{target: target, source: point})
			}
		}
	}
	// What lies below something covered is hidden with it, unless a place of the Spec is mounted between.
	found.covered = slices.DeleteFunc(found.covered, func(c covered) bool {
		return slices.ContainsFunc(found.covered, func(o covered) bool {
			return below(c.target, o.target) && !slices.ContainsFunc(all, func(p place) bool {
				return p.source != "" && (p.target == c.target || below(c.target, p.target)) && below(p.target, o.target)
			})
		})
	})
	return found
}

// unescapeMount undoes the octal escapes of /proc/self/mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mount is what hides it. It is read-only, but runc makes it so last, when the points of what is mounted below are
// there.
func (c covered) mount(l layout) oci.Mount {
	if c.file {
		return bind(l.emptyFile(), c.target, true)
	}
	return oci.Mount{Type: "tmpfs", Source: "tmpfs", Destination: c.target,
		Options: []string{"ro", "nosuid", "nodev", "noexec", "notmpcopyup", "private", "size=65536", "mode=0555"}}
}
