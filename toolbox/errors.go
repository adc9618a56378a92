package toolbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/handlerd/handler/sandbox"
)

// A BuildError says which step of which build failed, with the end of its output and what a person can do.
type BuildError struct {
	Subject string   // "addon playwright"
	Step    string   // "installing packages"
	Lines   []string // the end of the step's output
	Hint    string   // the remedy, or ""
	Err     error
}

// Error gives the failure and the last lines of output, one a line.
func (e *BuildError) Error() string {
	cause := e.Err.Error()
	if n := len(e.Lines); n > 0 && strings.Contains(cause, e.Lines[n-1]) {
		cause = "it failed" // an engine's error quotes the same lines, fewer of them
	}
	return strings.Join(append([]string{fmt.Sprintf("build %s: %s: %s", e.Subject, e.Step, cause)}, e.Lines...), "\n  ")
}

// Unwrap gives the cause.
func (e *BuildError) Unwrap() error { return e.Err }

// A CheckError says that a check ran and failed.
type CheckError struct {
	Subject string   // "addon playwright"
	Lines   []string // what the check printed
	Hint    string   // the manifest's advice, or ""
	Err     error    // how it ended
}

// Error gives the failure and the last lines of output, one a line.
func (e *CheckError) Error() string {
	text := fmt.Sprintf("check of %s: %v", e.Subject, e.Err)
	if len(e.Lines) > 0 {
		text += "\n  " + strings.Join(e.Lines, "\n  ")
	}
	return text
}

// Unwrap gives the cause.
func (e *CheckError) Unwrap() error { return e.Err }

// A NotBuiltError says that an image is missing, and Hint which command makes it.
type NotBuiltError struct{ Subject, Hint string }

func (e *NotBuiltError) Error() string { return e.Subject + " is not built" }

// fail makes the error of the reporter's step.
func (r *reporter) fail(err error) error {
	if errors.As(err, new(*BuildError)) || errors.As(err, new(*CheckError)) || errors.As(err, new(*NotBuiltError)) {
		return err
	}
	lines := slices.DeleteFunc(r.tail(), noise)
	r.mu.Lock()
	step := r.step
	r.mu.Unlock()
	return &BuildError{Subject: r.subject, Step: step, Lines: lines, Hint: remedy(err, lines), Err: err}
}

// noise is what mmdebstrap and npm say besides what went wrong: steps of the clean-up, stack traces.
func noise(line string) bool {
	return strings.HasPrefix(line, "I: ") || strings.HasPrefix(line, "npm ") && strings.Contains(line, "    at ")
}

// remedies maps what tools say to what a person can do; the first one that matches counts.
var remedies = []struct {
	says []string
	do   string
}{
	{[]string{"no space left on device", "ENOSPC", "not enough free space"},
		"the disk is full: make room where handler doctor says that images are kept and in /var/tmp (a toolbox wants 6 GB while it is built), then try again"},
	{[]string{"certificate", "SELF_SIGNED", "self-signed", "UNABLE_TO_GET_ISSUER", "UNABLE_TO_VERIFY"},
		"a server's certificate is not trusted: give the authority's PEM file with --ca-cert FILE"},
	{[]string{"EINTEGRITY"},
		"the npm registry gave other bytes than the lock file names: use another one with --npm-registry URL"},
	{[]string{"code E404", "code E401", "code E403", "code ETARGET", "npm error 404", "npm ERR! 404"},
		"the npm registry does not have the package, or wants a login: name another one with --npm-registry URL"},
	{[]string{"does not have a Release file", "400  Bad Request", "403  Forbidden", "404  Not Found", "Unable to locate package", "has no installation candidate"},
		"the mirror lacks something of Debian trixie: name another one with --mirror http://deb.debian.org/debian"},
	{[]string{"NO_PUBKEY", "EXPKEYSIG", "is not signed", "signatures couldn't be verified", "couldn’t be verified"},
		"the mirror's signature cannot be verified: bring Debian's keys up to date with: sudo apt-get install debian-archive-keyring"},
	{[]string{"Could not resolve", "Temporary failure resolving", "EAI_AGAIN", "ENOTFOUND", "ENETUNREACH", "ECONNREFUSED", "ETIMEDOUT",
		"Network is unreachable", "Could not connect", "Connection refused", "Connection timed out", "no such host", "Failed to fetch"},
		"the network does not answer: check the connection and proxy variables, or name servers that can be reached with --mirror URL and --npm-registry URL"},
	{[]string{"newuidmap", "subuid", "subgid", "unshare"},
		"rootless building needs subordinate ids and user namespaces: handler doctor says what is missing and the command that mends it"},
	{[]string{"short-name", "pulling image", "initializing source docker://", "docker.io"},
		"the base image could not be fetched: use --base mmdebstrap, after: sudo apt-get install mmdebstrap debian-archive-keyring"},
}

func remedy(err error, lines []string) string {
	if errors.Is(err, syscall.ENOSPC) {
		return remedies[0].do
	}
	text := err.Error() + "\n" + strings.Join(lines, "\n")
	for _, r := range remedies {
		for _, says := range r.says {
			if strings.Contains(text, says) {
				return r.do
			}
		}
	}
	var engine *sandbox.EngineError
	if errors.As(err, &engine) {
		return engine.Hint
	}
	return ""
}
