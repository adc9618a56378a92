package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// A cond is one condition on a JSON value. Scripts write it as
//
//	PATH=VALUE    the value at PATH is VALUE: a string's text, or JSON byte for byte (so 1 is not 1.0)
//	PATH~REGEXP   its text, or its JSON, fits REGEXP
//	PATH%N        it is an array or object of N elements (a script takes what follows "#" for a comment)
//	PATH          it is there
//	!COND         the condition does not hold
//	NAME:=PATH    it is there, and its text or JSON becomes the variable NAME; of NAME:=PATH~REGEXP it is what the first
//	              group of REGEXP holds
//
// PATH is keys and indexes with dots between; "*" stands for any one of an array or object; "." is the whole value.
type cond struct {
	text string
	not  bool
	name string
	path []string
	op   byte // '=', '~', '%' or 0
	want string
	re   *regexp.Regexp
}

type condList []cond

var condForm = regexp.MustCompile(`(?s)^(!?)(?:([A-Z][A-Z0-9_]*):=)?([^=~%]+?)(?:([=~%])(.*))?$`)

func parseCond(text string) (cond, error) {
	m := condForm.FindStringSubmatch(text)
	if m == nil {
		return cond{}, fmt.Errorf("%q is no condition", text)
	}
	c := cond{text: text, not: m[1] != "", name: m[2], want: m[5]}
	if m[3] != "." {
		c.path = strings.Split(m[3], ".")
	}
	if m[4] != "" {
		c.op = m[4][0]
	}
	var err error
	if c.op == '~' {
		c.re, err = regexp.Compile("(?s)" + c.want)
	}
	return c, err
}

func parseCondList(words []string) (condList, error) {
	var list condList
	for _, w := range words {
		c, err := parseCond(w)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

func parseConds(ts *testscript.TestScript, words []string) condList {
	list, err := parseCondList(words)
	ts.Check(err)
	return list
}

// match tells whether data, a JSON value, meets all conditions, and gives what they capture.
func (l condList) match(data []byte) (map[string]string, error) {
	vars := map[string]string{}
	for _, c := range l {
		found := c.holds(at(json.RawMessage(data), c.path))
		if (found != nil) == c.not {
			return nil, fmt.Errorf("%s does not hold", c.text)
		}
		if c.name != "" {
			vars[c.name] = textOf(found)
			if c.op == '~' && c.re.NumSubexp() > 0 {
				vars[c.name] = c.re.FindStringSubmatch(textOf(found))[1]
			}
		}
	}
	return vars, nil
}

// holds gives the first value that meets the condition, nil for none.
func (c cond) holds(values []json.RawMessage) json.RawMessage {
	for _, v := range values {
		ok := true
		switch c.op {
		case '=':
			ok = string(v) == c.want || isString(v) && textOf(v) == c.want
		case '~':
			ok = c.re.MatchString(textOf(v))
		case '%':
			ok = strconv.Itoa(len(children(v))) == c.want
		}
		if ok {
			return v
		}
	}
	return nil
}

// at gives the values at a path.
func at(v json.RawMessage, path []string) []json.RawMessage {
	v = bytes.TrimSpace(v)
	if len(path) == 0 {
		return []json.RawMessage{v}
	}
	var found []json.RawMessage
	for key, child := range children(v) {
		if path[0] == "*" || path[0] == key {
			found = append(found, at(child, path[1:])...)
		}
	}
	return found
}

// children gives the elements of an object or array by key or index; nil for anything else.
func children(v json.RawMessage) map[string]json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(v, &object) == nil {
		return object
	}
	var array []json.RawMessage
	if json.Unmarshal(v, &array) != nil {
		return nil
	}
	object = map[string]json.RawMessage{}
	for i, e := range array {
		object[strconv.Itoa(i)] = e
	}
	return object
}

func isString(v json.RawMessage) bool { return len(v) > 0 && v[0] == '"' }

// textOf is a string's text, or the JSON as it is.
func textOf(v json.RawMessage) string {
	var s string
	if isString(v) && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// clip shortens what is only for showing.
func clip(b []byte) string {
	if len(b) > 2000 {
		return fmt.Sprintf("%s… (%d bytes)", bytes.ToValidUTF8(b[:2000], nil), len(b))
	}
	return string(b)
}

// splitWords splits a line as testscript does: blanks, and single quotes that keep them.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quoted := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'' && quoted && i+1 < len(line) && line[i+1] == '\'':
			word.WriteByte('\'')
			i++
		case c == '\'':
			quoted, in = !quoted, true
		case !quoted && (c == ' ' || c == '\t'):
			if in {
				words = append(words, word.String())
				word.Reset()
			}
			in = false
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}

func TestCond(t *testing.T) {
	const value = `{"id": 7, "text": "a b", "list": [{"n": 1.0}, {"n": "x"}], "none": null}`
	for _, c := range []struct {
		cond string
		want bool
	}{
		{"id=7", true}, {"id=7.0", false}, {"text=a b", true}, {`text="a b"`, true}, {"text~^a", true}, {"text~^b", false},
		{"list.0.n=1.0", true}, {"list.0.n=1", false}, {"list.*.n=x", true}, {"list.*.n=y", false}, {"list%2", true}, {"list%3", false},
		{"none=null", true}, {"none", true}, {"gone", false}, {"!gone", true}, {"!id=7", false}, {"!list.*.n=y", true}, {".~null", true}, {".%4", true},
	} {
		l, err := parseCondList([]string{c.cond})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.match([]byte(value)); (err == nil) != c.want {
			t.Errorf("%s: %v, want %v", c.cond, err, c.want)
		}
	}
	l, err := parseCondList([]string{"SID:=text", "N:=list.0.n", "B:=text~ (.)$"})
	if err != nil {
		t.Fatal(err)
	}
	vars, err := l.match([]byte(value))
	if err != nil || vars["SID"] != "a b" || vars["N"] != "1.0" || vars["B"] != "b" {
		t.Errorf("captured %v, %v", vars, err)
	}
}

func TestSplitWords(t *testing.T) {
	got, err := splitWords(`a 'b c' d''e 'it''s' ''`)
	if want := []string{"a", "b c", "de", "it's", ""}; err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if _, err := splitWords("a 'b"); err == nil {
		t.Error("an open quote is no error")
	}
}
