package browser

import (
	"encoding/json"
	"regexp"
	"strings"
)

// A node is one line of a snapshot that has a reference.
type node struct {
	ref  string
	role string // as the accessibility tree says: "button"
	name string // "" for none
}

// maxNodes bounds the references of one snapshot.
const maxNodes = 20000

// refPattern is a reference as upstream makes them: e12, or f1e3 in a document that is not the first.
var refPattern = regexp.MustCompile(`^(?:f[0-9]{1,6})?e[0-9]{1,8}$`)

// attributes are what stands behind role and name: ` [active] [ref=e3]`.
var attributes = regexp.MustCompile(`^(?: \[[a-z-]+(?:=[^\]]*)?\])*`)

var refAttribute = regexp.MustCompile(`\[ref=((?:f[0-9]{1,6})?e[0-9]{1,8})\]`)

var rolePattern = regexp.MustCompile(`^[a-z]{1,40}`)

// parseNodes finds the references of a snapshot. What looks odd has none, and of a reference that stands twice neither
// does: then nothing can act on it.
func parseNodes(snapshot string) map[string]node {
	nodes, twice := map[string]node{}, map[string]bool{}
	for line := range strings.Lines(snapshot) {
		n, ok := parseNode(line)
		if !ok || len(nodes) >= maxNodes {
			continue
		}
		if _, there := nodes[n.ref]; there {
			twice[n.ref] = true
			continue
		}
		nodes[n.ref] = n
	}
	for ref := range twice {
		delete(nodes, ref)
	}
	return nodes
}

// parseNode reads a line such as `- button "Press me" [active] [ref=e3] [cursor=pointer]: value`, whose key YAML puts
// in single quotes where it must. A name is in double quotes, and what it holds in brackets is a part of it.
func parseNode(line string) (node, bool) {
	key, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "- ")
	if !ok {
		return node{}, false
	}
	if quoted, is := strings.CutPrefix(key, "'"); is {
		if key, ok = singleQuoted(quoted); !ok {
			return node{}, false
		}
	}
	role := rolePattern.FindString(key)
	rest := key[len(role):]
	name := ""
	if quoted, is := strings.CutPrefix(rest, ` "`); is {
		if name, rest, ok = doubleQuoted(quoted); !ok {
			return node{}, false
		}
	}
	ref := refAttribute.FindStringSubmatch(attributes.FindString(rest))
	if role == "" || ref == nil {
		return node{}, false
	}
	return node{ref: ref[1], role: role, name: name}, true
}

// singleQuoted gives what stands before the closing quote; a doubled one is one of the text.
func singleQuoted(s string) (text string, ok bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "'")
		b.WriteString(before)
		if !found {
			return "", false
		}
		if !strings.HasPrefix(after, "'") {
			return b.String(), true
		}
		b.WriteByte('\'')
		s = after[1:]
	}
}

// doubleQuoted gives a JSON string, whose opening quote is off already, and what follows it.
func doubleQuoted(s string) (text, rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			if err := json.Unmarshal([]byte(`"`+s[:i+1]), &text); err != nil {
				return "", "", false
			}
			return text, s[i+1:], true
		}
	}
	return "", "", false
}

// section gives the text below "### NAME" of a result of upstream's, up to the next section: of the first one of that
// name, since what comes later in a result is what pages write.
func section(text, name string) string {
	var out strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		title, is := strings.CutPrefix(line, "### ")
		switch {
		case is && inside:
			return strings.TrimRight(out.String(), "\n")
		case is:
			inside = strings.TrimSpace(title) == name
		case inside:
			out.WriteString(line)
		}
	}
	return strings.TrimRight(out.String(), "\n")
}
