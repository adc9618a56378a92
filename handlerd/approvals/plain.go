package approvals

import (
	"strings"
	"unicode"
)

// maxMarks is how many marks may stand on one character: more grow over the lines around it.
const maxMarks = 2

// Plain makes a text of somebody else's fit to be shown beside Handler's own: one line, of at most limit characters (the
// last one "…" where some were cut), without control characters, characters that reorder or hide others, and blanks that
// look like nothing.
func Plain(s string, limit int) string {
	out := make([]rune, 0, min(len(s), limit+1))
	marks, space := 0, false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r), unicode.Is(unicode.Cc, r), blank(r):
			space = len(out) > 0
			continue
		case unicode.In(r, unicode.Cf, unicode.Co, unicode.Variation_Selector) || r >= 0xe0000 && r <= 0xe0fff:
			continue // bidi marks, zero-width characters, tags, private use
		case unicode.Is(unicode.M, r):
			if marks++; marks > maxMarks || len(out) == 0 || space {
				continue
			}
		default:
			marks = 0
		}
		if space {
			out, space = append(out, ' '), false
		}
		if out = append(out, r); len(out) > limit {
			return strings.TrimRight(string(out[:limit-1]), " ") + "…"
		}
	}
	return string(out)
}

// blank says whether a character looks like a space and is none to Unicode: fillers, and the empty pattern of Braille.
func blank(r rune) bool {
	switch r {
	case 0x115f, 0x1160, 0x3164, 0xffa0, 0x2800, 0x180e, 0x034f:
		return true
	}
	return false
}

// quotes are what may be taken for the end of a quotation.
var quotes = strings.NewReplacer(`"`, "'", "“", "'", "”", "'", "„", "'", "‟", "'", "«", "'", "»", "'", "＂", "'", "″", "'", "ʺ", "'", "〃", "'", "〝", "'", "〞", "'", "״", "'")

// Quote puts a text of somebody else's, after Plain, into quotes that it cannot close.
func Quote(s string) string { return `"` + quotes.Replace(s) + `"` }
