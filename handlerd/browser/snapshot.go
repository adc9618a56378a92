package browser

import (
	"regexp"
	"strings"
)

// A node is one line of a snapshot that has a reference.
type node struct {
	ref  string
	role string // as the accessibility tree says: "button"
	name string // "" for none
}

// A page is what upstream says of the current page behind a tool's result.
type page struct {
	url, title string
	snapshot   string // YAML; "" where there is none
}

// maxNodes bounds the references of one snapshot.
const maxNodes = 20000

// refPattern is a reference as upstream makes them: e12, or f1e3 in the first frame.
var refPattern = regexp.MustCompile(`^(?:f[0-9]{1,6})?e[0-9]{1,8}$`)

// nodeLine is a line such as `- button "Press me" [active] [ref=e3] [cursor=pointer]: value`. Only the last ref= counts:
// a name is quoted, and what it holds in brackets is a part of it.
var nodeLine = regexp.MustCompile(`^\s*- '?([a-z]+)(?: ("(?:[^"\\]|\\.)*"))?((?: \[[a-z-]+(?:=[^\]]*)?\])*)`)

var refAttribute = regexp.MustCompile(`\[ref=((?:f[0-9]{1,6})?e[0-9]{1,8})\]`)

// parseNodes finds the references of a snapshot. What looks odd has none: then nothing can act on it.
func parseNodes(snapshot string) map[string]node {
	nodes := map[string]node{}
	for line := range strings.Lines(snapshot) {
		m := nodeLine.FindStringSubmatch(line)
		if m == nil || len(nodes) >= maxNodes {
			continue
		}
		ref := refAttribute.FindStringSubmatch(m[3])
		if ref == nil {
			continue
		}
		if _, twice := nodes[ref[1]]; twice {
			continue
		}
		nodes[ref[1]] = node{ref: ref[1], role: m[1], name: unquote(m[2])}
	}
	return nodes
}

// unquote reads the name as YAML's double quotes write it.
func unquote(s string) string {
	if len(s) < 2 {
		return ""
	}
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, " ", `\t`, " ").Replace(s[1 : len(s)-1])
}

// frame gives the frame of a reference: "f1" of "f1e3", "" for the page's own.
func frame(ref string) string {
	if i := strings.IndexByte(ref, 'e'); i > 0 {
		return ref[:i]
	}
	return ""
}

// section gives the text below "### NAME" of a result of upstream's, up to the next section.
func section(text, name string) string {
	var out []string
	inside := false
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(line, "### "); ok {
			inside = strings.TrimSpace(title) == name
			continue
		}
		if inside {
			out = append(out, line)
		}
	}
	return strings.TrimRight(strings.Join(out, ""), "\n")
}
