package podman

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// Bounds of a Spec. They are far above what a plan has and below what podman, the kernel or a request would choke on.
const (
	maxMounts   = 512
	maxWords    = 4096
	maxText     = 1 << 20 // of the command, of the environment, of the labels
	minMemory   = 16 << 20
	minProcs    = 16 // the guest alone has a dozen threads
	maxTmpfs    = 1 << 40
	minTmpfs    = 4096
	maxLabelLen = 4096
)

var (
	namePattern  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	envPattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	// imagePattern is a reference or an id, never a path (pitfalls P23).
	imagePattern = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._:@/-]{0,255}$`)
)

func specError(field, format string, args ...any) error {
	return &sandbox.SpecError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// validate says whether a Spec can be, without looking at the machine. Its error is a *sandbox.SpecError.
func validate(s sandbox.Spec) error {
	for _, check := range []func(sandbox.Spec) error{checkWords, checkEnv, checkLabels, checkPlaces, checkLimits, checkGuest} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func checkWords(s sandbox.Spec) error {
	if !namePattern.MatchString(s.Name) {
		return specError("name", "%q is not 1 to 63 of a-z, 0-9 and '-', beginning with a letter or digit", s.Name)
	}
	if err := checkImage("image", s.Image); err != nil {
		return err
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		return specError("command", "it is empty")
	}
	total := 0
	for _, word := range s.Command {
		total += len(word) + 1
		if !writable(word) {
			return specError("command", "a word has a zero byte or is not UTF-8")
		}
	}
	if len(s.Command) > maxWords || total > maxText {
		return specError("command", "it has more than %d words or %d bytes", maxWords, maxText)
	}
	if s.Dir != "" {
		return checkPath("working directory", s.Dir)
	}
	return nil
}

func checkImage(field, ref string) error {
	if !imagePattern.MatchString(ref) || strings.Contains(ref, "..") || strings.Contains(ref, "//") {
		return specError(field, "%q is not a reference or id of an image", ref)
	}
	return nil
}

// writable tells what reaches the runtime as it is. JSON, which podman and the runtime are spoken to in, turns bytes
// that are not UTF-8 into U+FFFD: a path with such bytes would name something else there, of the agent's choice.
func writable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func checkPath(field, p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || !writable(p) {
		return specError(field, "%q is not an absolute, clean path in UTF-8", p)
	}
	if len(p) > 4095 {
		return specError(field, "the path has more than 4095 bytes")
	}
	return nil
}

// checkEnv also keeps the variables that the driver sets: a display that was not asked for must not be claimed (A.6).
func checkEnv(s sandbox.Spec) error {
	total := 0
	fixed := driverEnv(s)
	for name, value := range s.Env {
		total += len(name) + len(value) + 2
		if !envPattern.MatchString(name) || !writable(value) {
			return specError("environment", "%q is not a variable's name, or its value has a zero byte or is not UTF-8", name)
		}
		if want, ours := fixed[name]; ours && value != want {
			return specError("environment", "%s is set by the sandbox and cannot be given", name)
		}
		if name == "DISPLAY" || name == "WAYLAND_DISPLAY" && fixed[name] == "" || name == "WAYLAND_SOCKET" {
			return specError("environment", "%s names a display, and only the sandbox's display setting gives one", name)
		}
	}
	if len(s.Env) > maxWords || total > maxText {
		return specError("environment", "it has more than %d variables or %d bytes", maxWords, maxText)
	}
	return nil
}

func checkLabels(s sandbox.Spec) error {
	for _, own := range []string{labelNonce, sandbox.LabelOwner} {
		if _, given := s.Labels[own]; given {
			return specError("label", "%s is the driver's own", own)
		}
	}
	return checkLabelSyntax(s.Labels)
}

// checkLabelSyntax bounds labels, of sandboxes and of images, to what can be written down and searched for.
func checkLabelSyntax(labels map[string]string) error {
	total := 0
	for name, value := range labels {
		total += len(name) + len(value)
		if !labelPattern.MatchString(name) || len(value) > maxLabelLen || !writable(value) {
			return specError("label", "%q has a name or value that cannot be written down", name)
		}
	}
	if total > maxText {
		return specError("label", "all labels together have more than %d bytes", maxText)
	}
	return nil
}

// A place is something mounted at a target: what for, where, and from where on the host, if from there.
type place struct {
	field, target, source string
	readOnly              bool
}

// places lists everything that a Spec mounts, in the order of the Spec.
func places(s sandbox.Spec) []place {
	var all []place
	for _, m := range s.Mounts {
		all = append(all, place{"mount", m.Target, m.Source, m.ReadOnly})
	}
	for _, v := range s.Volumes {
		all = append(all, place{"volume", v.Target, v.Source, false})
	}
	for _, i := range s.Images {
		all = append(all, place{"image mount", i.Target, "", true})
	}
	for _, t := range s.Tmpfs {
		all = append(all, place{"tmpfs", t.Target, "", false})
	}
	return all
}

// Targets that a Spec may not cover, and those below which it may mount nothing.
var (
	closedTargets = []string{"/proc", "/sys", "/dev", sandbox.RunDirTarget, sandbox.GuestTarget, sandbox.SecretsTarget,
		sandbox.RuntimeTarget, path.Dir(sandbox.DisplayTarget)}
	keptTargets = []string{"/", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/usr", "/usr/bin", "/usr/sbin", "/usr/lib",
		"/etc", "/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group", "/var", "/run", "/opt", "/opt/handler", "/home",
		"/tmp", sandbox.HomeTarget}
)

func checkPlaces(s sandbox.Spec) error {
	all := places(s)
	if len(all) > maxMounts {
		return specError("mount", "%d mounts, at most %d are possible", len(all), maxMounts)
	}
	for i, p := range all {
		if err := checkPlace(p); err != nil {
			return err
		}
		for _, earlier := range all[:i] {
			if earlier.target == p.target {
				return specError(p.field, "%s is mounted twice", p.target)
			}
			// podman mounts parents first, whatever the order; a later parent would have to hide the earlier one.
			if p.field == earlier.field && below(earlier.target, p.target) {
				return specError(p.field, "%s would hide %s, which comes before it; name the parent first", p.target, earlier.target)
			}
		}
	}
	for _, i := range s.Images {
		if err := checkImage("image mount", i.Image); err != nil {
			return err
		}
	}
	for _, t := range s.Tmpfs {
		if t.Bytes < minTmpfs || t.Bytes > maxTmpfs {
			return specError("tmpfs", "%s has a size of %d bytes, %d to %d are possible", t.Target, t.Bytes, minTmpfs, int64(maxTmpfs))
		}
	}
	return nil
}

func checkPlace(p place) error {
	if err := checkPath(p.field, p.target); err != nil {
		return err
	}
	if slices.Contains(keptTargets, p.target) {
		return specError(p.field, "%s cannot be covered", p.target)
	}
	for _, closed := range closedTargets {
		if p.target == closed || below(p.target, closed) || below(closed, p.target) {
			return specError(p.field, "%s lies where the sandbox keeps %s", p.target, closed)
		}
	}
	if p.field == "mount" || p.field == "volume" {
		if !filepath.IsAbs(p.source) || filepath.Clean(p.source) != p.source || p.source == "/" || !writable(p.source) {
			return specError(p.field, "source %q is not an absolute, clean path in UTF-8 below /", p.source)
		}
	}
	return nil
}

// below says whether p lies in dir. Both are clean and absolute.
func below(p, dir string) bool {
	return dir == "/" && p != "/" || strings.HasPrefix(p, dir+"/")
}

func checkLimits(s sandbox.Spec) error {
	l := s.Limits
	for _, b := range []struct {
		field    string
		value    int64
		min, max int64
	}{
		{"memory limit", l.Memory.Value, minMemory, math.MaxInt64},
		{"CPU limit", l.CPU.Value, 10, 1 << 20},
		{"process limit", l.Processes.Value, minProcs, 1 << 22},
		{"size of /tmp", l.TmpBytes, minTmpfs, maxTmpfs},
		{"size of the home folder", l.HomeBytes, minTmpfs, maxTmpfs},
		{"size of /dev/shm", l.ShmBytes, minTmpfs, maxTmpfs},
		{"limit of open files", l.OpenFiles, 64, 1 << 30},
	} {
		if b.value != 0 && (b.value < b.min || b.value > b.max) {
			return specError(b.field, "%d is not in %d to %d", b.value, b.min, b.max)
		}
	}
	return nil
}

func checkGuest(s sandbox.Spec) error {
	if s.Guest == "" && (s.RunDir != "" || len(s.Files) > 0) {
		return specError("guest", "it is needed for the run directory and for files")
	}
	for _, p := range []struct{ field, path string }{{"guest", s.Guest}, {"run directory", s.RunDir}} {
		if p.path != "" {
			if err := checkPath(p.field, p.path); err != nil {
				return err
			}
		}
	}
	if err := checkDisplay(s); err != nil {
		return err
	}
	if err := guestwire.CheckFiles(s.Files); err != nil {
		return err
	}
	return checkFilePlaces(s)
}

func checkDisplay(s sandbox.Spec) error {
	switch {
	case s.Display == nil:
		return nil
	case s.Display.Mode == sandbox.DisplayVNC && s.RunDir == "":
		return specError("display", "one of the sandbox's own needs the run directory and the guest")
	case s.Display.Mode == sandbox.DisplayVNC:
		return s.Display.CheckScreen()
	case s.Display.Mode != sandbox.DisplayWayland:
		return specError("display", "mode %q is not known", s.Display.Mode)
	}
	return checkPath("display", s.Display.Socket)
}

// checkFilePlaces keeps the content of files off every disk: each lies on a tmpfs, and no scope, volume or image is
// mounted between (A.1).
func checkFilePlaces(s sandbox.Spec) error {
	memory := []string{"/tmp", sandbox.HomeTarget, sandbox.SecretsTarget, sandbox.RuntimeTarget}
	var others []string
	for _, p := range places(s) {
		if p.field == "tmpfs" {
			memory = append(memory, p.target)
		} else {
			others = append(others, p.target)
		}
	}
	deepest := func(file string, dirs []string) int {
		n := -1
		for _, dir := range dirs {
			if file == dir || below(file, dir) {
				n = max(n, len(dir))
			}
		}
		return n
	}
	for _, f := range s.Files {
		if !writable(f.Path) {
			return specError("file", "%q is not UTF-8", f.Path)
		}
		if deepest(f.Path, memory) <= deepest(f.Path, others) {
			return specError("file", "%s does not lie on a tmpfs of the sandbox", f.Path)
		}
	}
	return nil
}
