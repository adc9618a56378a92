package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a rule about requests.
const (
	maxRuleText    = 300 // bytes, as it is written and as it is printed
	maxRuleMethods = 16
	maxMethod      = 32
)

// PlainPath gives the one reading of a path as a request line or a URL writes it, without its query: percent-decoded
// once, "/" for "". Whatever two programs might read differently is an error: dot segments (also with blanks or more
// dots), empty segments but the last, encoded or bare slashes, backslashes, dots, percent and question marks, "#" and
// ";" in the wrong place, control characters, and what is not UTF-8 after decoding. Case is kept.
func PlainPath(escaped string) (string, error) {
	path, err := decodePath(escaped)
	if err != nil {
		return "", err
	}
	segments := strings.Split(path[1:], "/")
	return path, checkSegments(segments, segments[:len(segments)-1])
}

// decodePath is PlainPath but for the segments.
func decodePath(escaped string) (string, error) {
	if escaped == "" {
		return "/", nil
	}
	if escaped[0] != '/' {
		return "", errors.New("the path does not begin with a slash")
	}
	path := make([]byte, 0, len(escaped))
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '%' {
			if i+2 >= len(escaped) || unhex(escaped[i+1]) < 0 || unhex(escaped[i+2]) < 0 {
				return "", errors.New("the path has a percent sign that encodes nothing")
			}
			c = byte(unhex(escaped[i+1])<<4 | unhex(escaped[i+2]))
			i += 2
			if c == '/' || c == '.' || c == '%' {
				return "", fmt.Errorf("the path has an encoded %q, which programs read differently", rune(c))
			}
		} else if c == ' ' {
			return "", errors.New("the path has a blank")
		}
		if c < ' ' || c == 0x7f || strings.IndexByte(`\?#;`, c) >= 0 {
			return "", fmt.Errorf("the path has %q, which programs read differently", rune(c))
		}
		path = append(path, c)
	}
	if !utf8.Valid(path) {
		return "", errors.New("the path is not UTF-8")
	}
	return string(path), nil
}

// checkSegments refuses segments of dots (and blanks, which some systems cut off), and empty ones of inner.
func checkSegments(all, inner []string) error {
	if slices.Contains(inner, "") {
		return errors.New("the path has an empty segment")
	}
	for _, s := range all {
		if s != "" && strings.Trim(s, ". ") == "" {
			return errors.New("the path has a segment of dots")
		}
	}
	return nil
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// parsePattern reads the path of a rule: plain, with "*" at its end for any rest.
func parsePattern(text string) (path string, rest bool, err error) {
	text, rest = strings.CutSuffix(text, "*")
	if strings.Contains(text, "*") {
		return "", false, errors.New(`"*" stands only at the end of a path; a star that is meant as one is %2A`)
	}
	if strings.Contains(text, "?") {
		return "", false, errors.New("a rule says nothing of a query: leave out the question mark and what follows")
	}
	if path, err = decodePath(text); err != nil {
		return "", false, err
	}
	segments := strings.Split(path[1:], "/")
	whole := segments
	if rest { // the last one goes on
		whole = segments[:len(segments)-1]
	}
	return path, rest, checkSegments(whole, segments[:len(segments)-1])
}

// printPattern writes a path as parsePattern reads it. Commas and quotes are encoded, so that a rule can stand in a
// list of them and between the quotes of a shell.
func printPattern(path string, rest bool) string {
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		alpha := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if alpha || strings.IndexByte("/-._~!$&()+:=@", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if rest {
		b.WriteByte('*')
	}
	return b.String()
}

// parseMethods reads "GET,HEAD": sorted, none twice, joined again by commas.
func parseMethods(text string) (string, error) {
	methods := strings.Split(text, ",")
	if len(methods) > maxRuleMethods {
		return "", fmt.Errorf("it names %d methods; at most %d are possible", len(methods), maxRuleMethods)
	}
	for _, m := range methods {
		switch {
		case m == "":
			return "", errors.New("a method is empty: write them as in GET,HEAD http://HOST/*")
		case len(m) > maxMethod || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "":
			return "", fmt.Errorf("%s is not a method in capitals, such as GET", quoteHost(m))
		case m == "CONNECT":
			return "", errors.New("CONNECT opens a tunnel, which is allowed and denied by naming the host")
		}
	}
	slices.Sort(methods)
	return strings.Join(slices.Compact(methods), ","), nil
}

// namesMethod says whether the rule speaks of a method. A deny rule does whatever its case, since some servers read
// methods so.
func (r *Rule) namesMethod(method string) bool {
	if r.Methods == "" {
		return true
	}
	for m := range strings.SplitSeq(r.Methods, ",") {
		if m == method || r.Kind == KindDeny && strings.EqualFold(m, method) {
			return true
		}
	}
	return false
}

// namesPath says whether the rule speaks of a plain path.
func (r *Rule) namesPath(path string) bool {
	if r.Rest {
		return strings.HasPrefix(path, r.Path)
	}
	return path == r.Path
}

// CoversPath says whether a pattern of an upstream ("/v1/messages*") serves all that another one serves.
func CoversPath(wide, narrow string) bool {
	prefix, rest := strings.CutSuffix(wide, "*")
	path, narrowRest := strings.CutSuffix(narrow, "*")
	if !rest {
		return !narrowRest && path == prefix
	}
	return strings.HasPrefix(path, prefix)
}
