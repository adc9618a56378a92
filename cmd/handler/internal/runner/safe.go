package runner

import (
	"fmt"
	"strings"
	"unicode"
)

// Text makes untrusted text safe to print to a terminal: control and escape characters, and characters that reorder
// or hide what is shown, become visible signs. Newlines and tabs stay; carriage returns go.
func Text(s string) string {
	return clean(s, func(r rune) (string, bool) {
		switch r {
		case '\n', '\t':
			return "", false
		case '\r':
			return "", true
		}
		return visible(r)
	})
}

// Line makes untrusted text safe to print within one line. Nothing that changes the meaning of a command is lost: a
// newline becomes ⏎, a carriage return ␍; other runs of space become one.
func Line(s string) string {
	s = clean(strings.ReplaceAll(strings.Trim(s, " \t\r\n"), "\r\n", "\n"), func(r rune) (string, bool) {
		switch r {
		case '\n', '\u2028', '\u2029':
			return " ⏎ ", true
		case '\t':
			return " ", true
		}
		return visible(r)
	})
	return strings.Join(strings.Fields(s), " ")
}

// clean replaces runes; most text needs no copy.
func clean(s string, replace func(rune) (string, bool)) string {
	var b strings.Builder
	from := 0
	for i, r := range s {
		if with, changed := replace(r); changed {
			b.WriteString(s[from:i])
			b.WriteString(with)
			from = i + len(string(r))
			if r == unicode.ReplacementChar { // an invalid byte is one byte long
				from = i + 1
				if strings.HasPrefix(s[i:], "\uFFFD") {
					from = i + 3
				}
			}
		}
	}
	if from == 0 {
		return s
	}
	b.WriteString(s[from:])
	return b.String()
}

// visible gives the sign for a rune that a terminal must not get.
func visible(r rune) (string, bool) {
	switch {
	case r < 0x20:
		return string(0x2400 + r), true // the control pictures: ␛ for ESC
	case r == 0x7f:
		return "␡", true
	case r == unicode.ReplacementChar:
		return "\uFFFD", true // an invalid byte becomes a valid sign
	case hidden(r):
		return fmt.Sprintf("<U+%04X>", r), true
	}
	return "", false
}

// hidden says whether r is a C1 control, reorders text, or shows nothing at all while it carries meaning. The joiners are
// how emoji and some scripts are written.
func hidden(r rune) bool {
	return r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || unicode.Is(unicode.Cf, r) && r != 0x200c && r != 0x200d
}

// Fit cuts a line to a width in terminal columns and ends it with … where it was cut.
func Fit(s string, width int) string {
	if columns(s) <= width {
		return s
	}
	used, end := 0, 0
	for i, r := range s {
		if used += runeColumns(r); used > width-1 {
			break
		}
		end = i + len(string(r))
	}
	return strings.TrimRight(s[:end], " ") + "…"
}

func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// wide are the ranges that terminals show two columns wide, as far as they matter for cutting lines.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0x303e, Stride: 1}, {Lo: 0x3041, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1}, {Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, {Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1}, {Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1},
		{Lo: 0x1fa70, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1},
	},
}

func runeColumns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wide, r):
		return 2
	default:
		return 1
	}
}
