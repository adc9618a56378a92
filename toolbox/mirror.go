package toolbox

import (
	"bufio"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Where Debian is when the machine itself is not one.
const (
	debianMirror   = "http://deb.debian.org/debian"
	debianSecurity = "http://deb.debian.org/debian-security"
)

// suite is the release that every toolbox has, whatever the machine runs.
const suite = "trixie"

// A mirror is where Debian's packages come from.
type mirror struct{ main, security string }

// sources gives the apt lines for suites, which may lack what the mirror does not have.
func (m mirror) sources(keyring string, suites []string) []string {
	var lines []string
	for _, s := range suites {
		at := m.main
		if strings.HasSuffix(s, "-security") {
			at = m.security
		}
		lines = append(lines, fmt.Sprintf("deb [signed-by=%s] %s %s main", keyring, at, s))
	}
	return lines
}

// suites are what is asked for; all but the first may be missing on a mirror.
func suites() []string { return []string{suite, suite + "-updates", suite + "-security"} }

// givenMirror checks the address a person gave.
func givenMirror(text string) (mirror, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.ContainsAny(text, " \t\n\"'[]") {
		return mirror{}, fmt.Errorf("%q is no Debian mirror: give an http or https address, such as %s", text, debianMirror)
	}
	base := strings.TrimSuffix(text, "/")
	if rest, ok := strings.CutSuffix(base, "/debian"); ok {
		return mirror{base, rest + "/debian-security"}, nil
	}
	return mirror{base, debianSecurity}, nil
}

var debianSuite = regexp.MustCompile(`^(buster|bullseye|bookworm|trixie|forky|sid|stable|oldstable|testing|unstable)(-updates|-security|/updates)?$`)

// machineMirror reads the machine's own apt sources below etc (the content of /etc/apt) for a Debian mirror. Files it
// cannot read, other distributions' and third parties' archives are passed over.
func machineMirror(etc fs.FS) mirror {
	found := mirror{debianMirror, debianSecurity}
	var main, security bool
	note := func(address, suite string) {
		secure := strings.Contains(suite, "security") || strings.HasSuffix(suite, "/updates")
		if !debianSuite.MatchString(suite) {
			return
		}
		m, err := givenMirror(address)
		switch {
		case err != nil:
		case secure && !security:
			found.security, security = m.main, true
		case !secure && !main:
			found.main, main = m.main, true
		}
	}
	names := []string{"sources.list"}
	entries, _ := fs.ReadDir(etc, "sources.list.d") // missing: none
	for _, e := range entries {
		names = append(names, path.Join("sources.list.d", e.Name()))
	}
	for _, name := range names {
		data, err := fs.ReadFile(etc, name)
		if err != nil {
			continue
		}
		if strings.HasSuffix(name, ".sources") {
			deb822(string(data), note)
		} else if strings.HasSuffix(name, ".list") {
			oneLine(string(data), note)
		}
	}
	return found
}

// oneLine reads "deb [options] URI SUITE main …".
func oneLine(text string, note func(address, suite string)) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			_, rest, _ = strings.Cut(rest, "]")
		}
		if f := strings.Fields(rest); len(f) >= 3 && slices.Contains(f[2:], "main") {
			note(f[0], f[1])
		}
	}
}

// deb822 reads stanzas of Types, URIs, Suites and Components.
func deb822(text string, note func(address, suite string)) {
	fields := map[string][]string{}
	flush := func() {
		enabled := len(fields["enabled"]) == 0 || !slices.Contains([]string{"no", "false"}, strings.ToLower(fields["enabled"][0]))
		if enabled && slices.Contains(fields["types"], "deb") && slices.Contains(fields["components"], "main") && len(fields["uris"]) > 0 {
			for _, s := range fields["suites"] {
				note(fields["uris"][0], s)
			}
		}
		clear(fields)
	}
	key := ""
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.TrimSpace(line) == "":
			flush()
			key = ""
		case strings.HasPrefix(line, "#"):
		case line[0] == ' ' || line[0] == '\t':
			fields[key] = append(fields[key], strings.Fields(line)...)
		default:
			name, value, _ := strings.Cut(line, ":")
			key = strings.ToLower(name)
			fields[key] = strings.Fields(value)
		}
	}
	flush()
}
