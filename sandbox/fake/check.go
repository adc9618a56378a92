package fake

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// check refuses what no driver can start. Its errors are *sandbox.SpecError and *sandbox.UnenforcedError.
func check(s sandbox.Spec) error {
	bad := func(field, format string, args ...any) error {
		return &sandbox.SpecError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	if !regexp.MustCompile(`^[a-z0-9-]{1,63}$`).MatchString(s.Name) {
		return bad("name", "%q is not 1 to 63 of a-z, 0-9 and -", s.Name)
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		return bad("command", "there is none")
	}
	if s.Dir != "" && !filepath.IsAbs(s.Dir) {
		return bad("working directory", "%s is not absolute", s.Dir)
	}
	if s.Guest == "" && (s.RunDir != "" || len(s.Files) > 0) {
		return bad("guest", "a run directory or files need the guest, and there is none")
	}
	if err := guestwire.CheckFiles(s.Files); err != nil {
		return err
	}
	if err := checkTargets(s); err != nil {
		return err
	}
	for name, l := range map[string]sandbox.Limit{"memory": s.Limits.Memory, "CPU": s.Limits.CPU, "process": s.Limits.Processes} {
		if l.Asked && l.Value != 0 && !l.Watched {
			return &sandbox.UnenforcedError{Limit: name, Reason: "the fake driver enforces none"}
		}
	}
	if s.Display != nil {
		return checkDisplay(*s.Display)
	}
	return nil
}

func checkTargets(s sandbox.Spec) error {
	seen := map[string]bool{}
	one := func(field, source, target string) error {
		if !filepath.IsAbs(target) || filepath.Clean(target) != target || target == "/" {
			return &sandbox.SpecError{Field: field, Reason: target + " is not an absolute, clean path"}
		}
		if source != "" && (!filepath.IsAbs(source) || filepath.Clean(source) != source) {
			return &sandbox.SpecError{Field: field, Reason: source + " is not an absolute, clean path"}
		}
		if seen[target] {
			return &sandbox.SpecError{Field: field, Reason: target + " is the target of two mounts"}
		}
		seen[target] = true
		return nil
	}
	var errs []error
	for _, m := range s.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			errs = append(errs, &sandbox.SpecError{Field: "mount", Reason: err.Error()})
		}
		errs = append(errs, one("mount", m.Source, m.Target))
	}
	for _, v := range s.Volumes {
		errs = append(errs, one("volume", v.Source, v.Target))
	}
	for _, i := range s.Images {
		errs = append(errs, one("image mount", "", i.Target))
	}
	for _, t := range s.Tmpfs {
		errs = append(errs, one("tmpfs", "", t.Target))
	}
	return errors.Join(errs...)
}

// checkDisplay wants a socket at which someone listens, or a size (A.6).
func checkDisplay(d sandbox.Display) error {
	bad := func(reason string) error { return &sandbox.SpecError{Field: "display", Reason: reason} }
	if d.Mode == sandbox.DisplayVNC {
		return d.CheckScreen()
	}
	if d.Mode != sandbox.DisplayWayland {
		return bad("unknown mode " + d.Mode)
	}
	info, err := os.Lstat(d.Socket)
	if err != nil {
		return bad(err.Error())
	}
	if info.Mode().Type() != os.ModeSocket {
		return bad(d.Socket + " is not a socket")
	}
	c, err := net.Dial("unix", d.Socket)
	if err != nil {
		return bad("nobody listens: " + err.Error())
	}
	return c.Close()
}
