package sessions

import (
	"fmt"
	"strings"
	"unicode"
)

// Bounds of what a run tells the person. The names in it are the agent's to choose.
const (
	maxNotice     = 4 << 10
	maxNotices    = 50 // of a run
	maxNamed      = 20 // paths in one notice
	maxNamedBytes = 200
)

// cut gives text as valid UTF-8 of at most limit bytes; what was cut ends in "…".
func cut(text string, limit int) string {
	const more = "…"
	short := text
	if len(text) > limit {
		short = text[:limit-len(more)]
	}
	short = strings.ToValidUTF8(short, "")
	if len(text) > limit {
		short += more
	}
	return short
}

// printable cuts text and replaces what a terminal would obey or hide: control characters, and those that turn the
// direction of writing or have no width.
func printable(text string, limit int) string {
	return cut(strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return ' '
		case unicode.IsControl(c), unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp):
			return '·'
		}
		return c
	}, cut(text, limit)), limit) // again, since a replacement may be longer than what it replaces
}

// named lists paths, as many as a person would read.
func named(paths []string) string {
	var list []string
	for _, p := range paths[:min(maxNamed, len(paths))] {
		list = append(list, cut(p, maxNamedBytes))
	}
	text := strings.Join(list, ", ")
	if n := len(paths) - len(list); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
