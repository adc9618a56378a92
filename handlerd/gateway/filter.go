package gateway

import (
	"fmt"
	"path"
	"strings"
)

// A Filter says which tools of a server a binding lets through: those that Allow names, all where it is empty, but
// for those that Deny names. Names may hold "*" for any run of characters.
type Filter struct{ Allow, Deny []string }

// Check refuses patterns that name nothing.
func (f Filter) Check() error {
	for _, list := range [][]string{f.Allow, f.Deny} {
		for _, p := range list {
			if p == "" || len(p) > 128 || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.*") != "" {
				return fmt.Errorf("%s is no tool's name: letters, digits, \"_\", \"-\", \".\" and \"*\" for any characters", quote(p))
			}
		}
	}
	return nil
}

// Allows tells whether a tool passes, and if not, why.
func (f Filter) Allows(tool string) (ok bool, why string) {
	for _, p := range f.Deny {
		if matches(p, tool) {
			return false, "the binding denies " + p
		}
	}
	for _, p := range f.Allow {
		if matches(p, tool) {
			return true, ""
		}
	}
	if len(f.Allow) > 0 {
		return false, "the binding allows only " + strings.Join(f.Allow, ", ")
	}
	return true, ""
}

// matches: path.Match knows no other special character than Check lets through, and names hold no slash.
func matches(pattern, tool string) bool {
	ok, err := path.Match(pattern, tool)
	return ok && err == nil
}

// quote shows a name that somebody made up.
func quote(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return fmt.Sprintf("%q", s)
}
