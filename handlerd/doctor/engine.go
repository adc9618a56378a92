package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/sandbox"
)

// The oldest podman that Handler is tried with.
const oldestMajor, oldestMinor = 4, 3

func checkPodman(ctx context.Context, m *machine) []Finding {
	const id = "podman"
	path, err := m.LookPath("podman")
	if err != nil {
		return problem(id, "podman is missing", "every sandbox is one of podman's", m.install("podman"))
	}
	out, err := m.Output(ctx, path, "--version")
	version := lastField(string(out))
	if err != nil {
		return problem(id, fmt.Sprintf("%s --version fails: %v", path, err), "", m.install("podman"))
	}
	if !atLeast(version, oldestMajor, oldestMinor) {
		return problem(id, fmt.Sprintf("podman %s is too old", version),
			fmt.Sprintf("Handler needs %d.%d or later; Debian 12, Ubuntu 24.04 and later have it", oldestMajor, oldestMinor), m.install("podman"))
	}
	return ok(id, "podman "+version+", with a service and storage of Handler's own")
}

// checkRuntime mirrors what the podman driver takes: crun where it works, else runc.
func checkRuntime(ctx context.Context, m *machine) []Finding {
	const id = "runtime"
	if m.Runtime != "" {
		if _, err := m.LookPath(m.Runtime); err != nil {
			return problem(id, "the runtime "+m.Runtime+" of your settings is missing", "install it, or take engine.runtime out of handler.toml", m.install(m.Runtime))
		}
		return ok(id, "runtime "+m.Runtime+", by your settings")
	}
	crun, runc := m.version(ctx, "crun"), m.version(ctx, "runc")
	old := m.cgroups() != cgroupV2
	switch {
	case crun != "" && (!old || atLeast(crun, 1, 14)):
		return ok(id, "runtime crun "+crun)
	case runc != "" && crun != "":
		return ok(id, fmt.Sprintf("runtime runc %s, since crun %s refuses cgroup v1", runc, crun))
	case runc != "":
		return ok(id, "runtime runc "+runc)
	case crun != "":
		return problem(id, "crun "+crun+" refuses cgroup v1, and there is no runc", "podman cannot start a sandbox with it", m.install("runc"))
	case old:
		return problem(id, "neither crun nor runc is there", "podman starts sandboxes through one of them", m.install("runc"))
	}
	return problem(id, "neither crun nor runc is there", "podman starts sandboxes through one of them", m.install("crun"))
}

// version gives the version of an installed program, or "".
func (m *machine) version(ctx context.Context, program string) string {
	path, err := m.LookPath(program)
	if err != nil {
		return ""
	}
	out, err := m.Output(ctx, path, "--version")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n") // "crun version 1.14.1", "runc version 1.1.5+ds1"
	return lastField(first)
}

func lastField(text string) string {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return ""
	}
	return fields[len(fields)-1]
}

// atLeast compares the first two numbers of a version. What cannot be read is too old.
func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		rest = rest[:end]
	}
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(rest)
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// checkEngine asks the engine itself: that it answers, who keeps the limits, and how images are stored.
func checkEngine(ctx context.Context, m *machine) []Finding {
	if m.Engine == nil {
		return nil
	}
	info, err := m.Engine(ctx)
	if err != nil {
		f := problem("engine", "podman does not answer: "+err.Error(), "no sandbox starts until it does")
		var engine *sandbox.EngineError
		if errors.As(err, &engine) && engine.Hint != "" {
			f[0].Remedy = []string{engine.Hint}
		}
		return f
	}
	if !info.Rootless {
		return problem("engine", "the podman service is root's", "Handler is rootless; take engine.socket out of handler.toml, or name a service of your own")
	}
	return append(append(ok("engine", "podman answers"), m.limits(info)...), storage(info)...)
}

// limits says who keeps them (A.4).
func (m *machine) limits(info sandbox.Info) []Finding {
	const id = "limits"
	var kept, lost, how []string
	for _, l := range []struct {
		name  string
		kept  bool
		other string
	}{
		{"memory", info.Enforced.Memory, "handlerd measures memory and ends a run at its limit"},
		{"CPU", info.Enforced.CPU, "a CPU limit is kept as whole processors"},
		{"process", info.Enforced.Processes, "handlerd counts processes and ends a run at its limit"},
	} {
		if l.kept {
			kept = append(kept, l.name)
			continue
		}
		lost = append(lost, l.name)
		if l.name == "CPU" && !info.Enforced.WholeCPUs {
			l.other = "a run that asks for a CPU limit is refused"
		}
		how = append(how, l.other)
	}
	if len(lost) == 0 {
		return ok(id, fmt.Sprintf("cgroup v%d: the kernel enforces %s limits", info.CgroupVersion, list(kept)))
	}
	detail := strings.Join(how, "; ")
	what := fmt.Sprintf("the kernel does not enforce %s limits for you", list(lost))
	if info.CgroupVersion < 2 {
		layout := "cgroup v1"
		if m.cgroups() == cgroupHybrid {
			layout = "cgroup v1 (hybrid)"
		}
		return remark(id, layout+": "+what, detail+"; to have the kernel do it, boot with systemd.unified_cgroup_hierarchy=1")
	}
	if !m.systemd() {
		return remark(id, "cgroup v2 without systemd: "+what, detail+"; to have the kernel do it, log in to a systemd user session")
	}
	return remark(id, "cgroup v2: "+what, detail+"; to have the kernel do it, let systemd delegate the controllers and log in again",
		"sudo mkdir -p /etc/systemd/system/user@.service.d",
		`printf '[Service]\nDelegate=cpu cpuset io memory pids\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf`,
		"sudo systemctl daemon-reload")
}

// list joins names: "a", "a and b", "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

func storage(info sandbox.Info) []Finding {
	const id = "storage"
	switch {
	case info.Storage == "":
		return nil
	case strings.HasPrefix(info.Storage, "overlay") && strings.Contains(info.Storage, "native"):
		return ok(id, "storage "+info.Storage)
	case strings.HasPrefix(info.Storage, "overlay"):
		return remark(id, "storage "+info.Storage, "sandboxes work and start slower; a kernel from 5.13 on has rootless overlay of its own")
	default:
		return remark(id, "storage "+info.Storage+", not overlay", "every sandbox copies its image, which is some ten times slower and needs as much space again")
	}
}

func checkImages(ctx context.Context, m *machine) []Finding {
	if m.Images == nil {
		return nil
	}
	images, err := m.Images(ctx)
	if err != nil {
		return problem("images", "the images cannot be listed: "+err.Error(), "no run starts until they can")
	}
	var found []Finding
	fresh := make(map[string]int)
	for _, im := range images {
		name := im.Kind + " " + im.Name
		id := im.Kind + "/" + im.Name
		switch {
		case im.State == "fresh":
			fresh[im.Kind]++
		case im.State == "stale":
			found = append(found, remark(id, "the "+name+" is stale"+because(im.Reason), "runs go on with the old one until it is built again", remedy(im)...)...)
		case im.Kind == types.KindToolbox:
			found = append(found, problem(id, "the "+name+" is not built"+because(im.Reason), "every sandbox is made of one", remedy(im)...)...)
		default:
			found = append(found, remark(id, "the "+name+" is not built"+because(im.Reason), "agents that use it do not start", remedy(im)...)...)
		}
	}
	var built []string
	for _, k := range []struct{ kind, one, many string }{
		{types.KindToolbox, "toolbox", "toolboxes"}, {types.KindHarness, "harness", "harnesses"}, {types.KindAddon, "addon", "addons"},
	} {
		switch n := fresh[k.kind]; {
		case n == 1:
			built = append(built, "1 "+k.one)
		case n > 1:
			built = append(built, fmt.Sprintf("%d %s", n, k.many))
		}
	}
	if len(built) > 0 {
		found = append(ok("images", "built: "+list(built)), found...)
	}
	return found
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func remedy(im types.Image) []string {
	if im.Remedy == "" {
		return nil
	}
	return []string{im.Remedy}
}
