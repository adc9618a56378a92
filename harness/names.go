package harness

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/handlerd/handler/configfile"
)

var (
	nameRE   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	secretRE = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	envRE    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// ValidName checks the name of a harness, an agent, an addon or a toolbox: 1 to 64 of a-z, 0-9 and "-", not
// beginning with "-". Such a name is safe as a file name, a folder and part of an image tag.
func ValidName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%q is not a name: names are 1 to 64 of a-z, 0-9 and \"-\", and do not begin with \"-\"", configfile.Clip(name))
	}
	return nil
}

// ValidKey checks the name of a setting or a secret: 1 to 64 of a-z, 0-9 and "_", beginning with a letter (the rule
// of an addon's manifest too), so that its upper case is the name of an environment variable.
func ValidKey(name string) error {
	if !secretRE.MatchString(name) {
		return fmt.Errorf("%q is not a name for a setting or a secret: 1 to 64 of a-z, 0-9 and \"_\", beginning with a letter", configfile.Clip(name))
	}
	return nil
}

// reservedEnv are the variables that Handler itself sets in a sandbox: someone else's value would undo what a
// contract promises (the way out, the display, the program search).
var reservedEnv = map[string]string{
	"HOME":            "the sandbox's home is fixed",
	"PATH":            "it is made from the toolbox, the harness and the addons",
	"HTTP_PROXY":      "the way out is the run's proxy",
	"HTTPS_PROXY":     "the way out is the run's proxy",
	"ALL_PROXY":       "the way out is the run's proxy",
	"FTP_PROXY":       "the way out is the run's proxy",
	"NO_PROXY":        "the way out is the run's proxy",
	"DISPLAY":         "windows go through Wayland only",
	"WAYLAND_DISPLAY": "it comes from display = true",
	"XDG_RUNTIME_DIR": "the sandbox has a private one",
}

// ValidEnv checks one variable that a harness or an agent sets: a name of letters, digits and "_", a value
// without NUL of at most 64 KiB, and none that Handler sets itself or that changes how programs are loaded
// (LD_*, HANDLER_*). Case is ignored for the reserved names, since http_proxy is the same switch.
func ValidEnv(name, value string) error {
	if !envRE.MatchString(name) {
		return fmt.Errorf("%q is not the name of an environment variable", configfile.Clip(name))
	}
	upper := strings.ToUpper(name)
	if why, ok := reservedEnv[upper]; ok {
		return fmt.Errorf("the variable %s cannot be set: %s", name, why)
	}
	if strings.HasPrefix(upper, "LD_") || strings.HasPrefix(upper, "HANDLER_") {
		return fmt.Errorf("the variable %s cannot be set: LD_* and HANDLER_* are Handler's own", name)
	}
	return validValue("the variable "+name, value)
}

// validValue checks a text that becomes an argument, a variable or a file's content.
func validValue(what, value string) error {
	switch {
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("%s contains a NUL byte", what)
	case len(value) > 64<<10:
		return fmt.Errorf("%s is %d bytes; at most %d are possible", what, len(value), 64<<10)
	}
	return nil
}

// validPath checks a path inside the sandbox: "~/…" below its home, or absolute; clean; without "..".
func validPath(what, p string) error {
	rest := p
	if strings.HasPrefix(p, "~/") {
		rest = p[1:]
	}
	switch {
	case p == "":
		return fmt.Errorf("%s is missing", what)
	case len(p) > 512 || strings.IndexFunc(p, isControl) >= 0:
		return fmt.Errorf("%s is too long or has control characters", what)
	case !strings.HasPrefix(rest, "/"):
		return fmt.Errorf("%s %q must be absolute or begin with \"~/\"", what, p)
	case rest == "/" || path.Clean(rest) != rest:
		return fmt.Errorf("%s %q must be a plain path: no \"..\", no \"//\", no \"/\" at the end", what, p)
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// within tells whether p is dir or lies below it; both are clean.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
