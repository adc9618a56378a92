package artifacts

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// cleanName makes a plain file name of what an agent or a page calls a file: the part behind the last slash or
// backslash, valid UTF-8, without control characters and characters that change the direction of text, no leading
// dot, at most MaxName bytes with its extension kept. What is nothing then is "artifact".
func cleanName(name string) string {
	name = strings.ToValidUTF8(name, "")
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = printable(name)
	name = strings.TrimRight(strings.TrimLeft(strings.TrimSpace(name), ". "), ". ")
	if name == "" {
		return "artifact"
	}
	if len(name) <= MaxName {
		return name
	}
	ext := path.Ext(name)
	if len(ext) > 20 {
		ext = ""
	}
	return strings.TrimRight(cut(name, MaxName-len(ext)), ". ") + ext
}

// printable leaves of what an agent wrote what can be shown on one line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError || !unicode.IsPrint(r) && r != ' ' {
			return -1
		}
		return r
	}, s)
}

// cut gives at most n bytes, at a character's border.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// numbered is the n-th name to try where name is taken: "a (2).png".
func numbered(name string, n int) string {
	ext := path.Ext(name)
	return fmt.Sprintf("%s (%d)%s", strings.TrimSuffix(name, ext), n, ext)
}
