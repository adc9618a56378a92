// Package systemd holds the user units of handlerd (contract K.4), so that the command line can install the ones it was
// built with. `make install` installs the same files.
package systemd

import (
	_ "embed" // the units are files, so that packagers find them
	"errors"
	"strings"
)

// Names of the units.
const (
	Service = "handlerd.service"
	Socket  = "handlerd.socket"
)

//go:embed handlerd.service
var service string

//go:embed handlerd.socket
var socket string

// placeholder is what stands for the daemon's path in handlerd.service.
const placeholder = "@PREFIX@/bin/handlerd"

// Units gives the text of each unit by its name, for a handlerd at the absolute path exe. A path that systemd could not
// read back is an error.
func Units(exe string) (map[string]string, error) {
	if !strings.HasPrefix(exe, "/") || strings.ContainsFunc(exe, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, errors.New("the daemon's path is not absolute or has control characters in it")
	}
	// Quoted as systemd.service(5) has it: specifiers and variables are not for paths.
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(exe)
	if quoted != exe || strings.Contains(exe, " ") || strings.ContainsAny(exe, `'`) {
		quoted = `"` + quoted + `"`
	}
	return map[string]string{Service: strings.Replace(service, placeholder, quoted, 1), Socket: socket}, nil
}
