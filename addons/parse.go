package addons

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/handlerd/handler/configfile"
)

// Bounds of a manifest: more than any addon needs.
const (
	maxList = 64   // entries of any list or table
	maxText = 1000 // bytes of a description, an advice or a word of a command
)

var (
	namePattern    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	commandPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	keyPattern     = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	hostPattern    = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)
)

// ValidName says whether name can be an addon's: lower-case letters, digits and "-", at most 64, and none of what
// a path could mean by it (C02 in the list of pitfalls: "..", slashes, NUL).
func ValidName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is not a name: use lower-case letters, digits and \"-\", beginning with a letter or digit, at most 64", configfile.Clip(name))
	}
	return nil
}

// Fold gives what agents make of a name: case and every run of characters outside [a-z0-9] are lost (B.5). Two
// addons of one fold would overwrite each other without a word.
func Fold(name string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), "_")
}

// Parse decodes and checks data, an addon.toml named file. Unknown keys, wrong types and values that make no addon
// are errors (*configfile.Error) that name the file, and line and column where TOML gives them. The default
// placement of an MCP server is "sandbox".
func Parse(file string, data []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := configfile.Decode(file, data, m); err != nil {
		return nil, err
	}
	if m.MCP != nil && m.MCP.Placement == "" {
		m.MCP.Placement = PlacementSandbox
	}
	if err := m.check(); err != nil {
		return nil, configfile.Errorf(file, "%s", err)
	}
	return m, nil
}

// check is everything about a manifest that its text alone can get wrong.
func (m *Manifest) check() error {
	if m.Name == "" {
		return errors.New("name is missing")
	}
	if err := ValidName(m.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	for _, t := range []struct{ what, text string }{{"version", m.Version}, {"description", m.Description}} {
		if err := oneLine(t.what, t.text); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		what string
		n    int
	}{{"commands", len(m.Commands)}, {"skills", len(m.Skills)}, {"hosts", len(m.Hosts)}, {"settings", len(m.Settings)}, {"secrets", len(m.Secrets)}} {
		if l.n > maxList {
			return fmt.Errorf("%s has %d entries; at most %d are possible", l.what, l.n, maxList)
		}
	}
	for _, step := range []func() error{m.checkCommands, m.checkHosts, m.checkValues, m.checkBuild, m.checkCheck, m.checkMCP} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manifest) checkCommands() error {
	for i, name := range m.Commands {
		if !commandPattern.MatchString(name) {
			return fmt.Errorf("commands[%d] %q is not a plain name of a file in the addon's bin folder", i, configfile.Clip(name))
		}
		if slices.Index(m.Commands, name) != i {
			return fmt.Errorf("commands: %q is there twice", name)
		}
	}
	for i, dir := range m.Skills {
		if err := below(fmt.Sprintf("skills[%d]", i), dir); err != nil {
			return err
		}
		if slices.Index(m.Skills, dir) != i {
			return fmt.Errorf("skills: %q is there twice", dir)
		}
	}
	return nil
}

// checkHosts is about the outside of a network rule; package policy reads what it means.
func (m *Manifest) checkHosts() error {
	for i, host := range m.Hosts {
		name := host
		if before, port, ok := strings.Cut(host, ":"); ok {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return fmt.Errorf("hosts[%d] %q has no port from 1 to 65535 after the colon", i, configfile.Clip(host))
			}
			name = before
		}
		if len(name) > 253 || !hostPattern.MatchString(name) {
			return fmt.Errorf("hosts[%d] %q is not a host, *.suffix or host:port", i, configfile.Clip(host))
		}
	}
	return nil
}

func (m *Manifest) checkValues() error {
	for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
		s := m.Settings[name]
		what := "settings." + name
		if !keyPattern.MatchString(name) {
			return fmt.Errorf("settings: %q is not a name: use a-z, 0-9 and \"_\", beginning with a letter", configfile.Clip(name))
		}
		if err := oneLine(what+".description", s.Description); err != nil {
			return err
		}
		if len(s.Values) > maxList {
			return fmt.Errorf("%s.values has %d entries; at most %d are possible", what, len(s.Values), maxList)
		}
		for _, value := range append([]string{s.Default}, s.Values...) {
			if err := oneLine(what, value); err != nil {
				return err
			}
		}
		if len(s.Values) > 0 && !slices.Contains(s.Values, s.Default) {
			return fmt.Errorf("%s.default %q is not one of its values: %s", what, configfile.Clip(s.Default), strings.Join(s.Values, ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Secrets)) {
		if !keyPattern.MatchString(name) {
			return fmt.Errorf("secrets: %q is not a name: use a-z, 0-9 and \"_\", beginning with a letter", configfile.Clip(name))
		}
		if err := oneLine("secrets."+name+".description", m.Secrets[name].Description); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manifest) checkBuild() error {
	if m.Build == nil {
		if len(m.Commands) > 0 {
			return errors.New("commands need a [build] whose containerfile puts them into /opt/handler/addons/" + m.Name + "/bin")
		}
		return nil
	}
	return below("build.containerfile", m.Build.Containerfile)
}

func (m *Manifest) checkCheck() error {
	if m.Check == nil {
		return nil
	}
	if err := m.argv("check.command", m.Check.Command); err != nil {
		return err
	}
	if len(m.Check.Advice) > maxList {
		return fmt.Errorf("check.advice has %d entries; at most %d are possible", len(m.Check.Advice), maxList)
	}
	for i, a := range m.Check.Advice {
		if a.Match == "" || a.Text == "" {
			return fmt.Errorf("check.advice[%d] needs both match and text", i)
		}
		if err := oneLine(fmt.Sprintf("check.advice[%d].text", i), a.Text); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manifest) checkMCP() error {
	if m.MCP == nil {
		return nil
	}
	if m.MCP.Placement != PlacementSandbox && m.MCP.Placement != PlacementHosted {
		return fmt.Errorf("mcp.placement = %q must be %q or %q", configfile.Clip(m.MCP.Placement), PlacementSandbox, PlacementHosted)
	}
	return m.argv("mcp.command", m.MCP.Command)
}

// argv checks a command line whose first word is one of the addon's commands.
func (m *Manifest) argv(what string, words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("%s is missing: one of the addon's commands and its arguments", what)
	}
	if len(words) > maxList {
		return fmt.Errorf("%s has %d words; at most %d are possible", what, len(words), maxList)
	}
	if !slices.Contains(m.Commands, words[0]) {
		return fmt.Errorf("%s begins with %q, which is not one of the addon's commands: %s", what, configfile.Clip(words[0]), strings.Join(m.Commands, ", "))
	}
	for _, word := range words {
		if len(word) > maxText || !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return fmt.Errorf("%s: a word is longer than %d bytes, not UTF-8 or has a NUL", what, maxText)
		}
	}
	return nil
}

// below refuses every path that is not plainly inside the addon's folder.
func below(what, p string) error {
	if p == "" || p == "." || p == ".." || path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "../") ||
		strings.Contains(p, `\`) || strings.IndexFunc(p, unicode.IsControl) >= 0 {
		return fmt.Errorf("%s %q must be a plain path below the addon's folder", what, configfile.Clip(p))
	}
	return nil
}

func oneLine(what, text string) error {
	if len(text) > maxText || !utf8.ValidString(text) || strings.IndexFunc(text, unicode.IsControl) >= 0 {
		return fmt.Errorf("%s must be one line of at most %d bytes", what, maxText)
	}
	return nil
}
