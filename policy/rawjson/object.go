package rawjson

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// A Member is one key of an object and where it lies.
type Member struct {
	Name  string // decoded
	Pair  Span   // key, colon and value
	Value Span
}

// An Object is an object's members in their order, each name once.
type Object struct {
	Span    Span // the braces and what is between them
	Members []Member
}

// Get gives where the value of a key lies; not Present when there is none.
func (o Object) Get(name string) Span {
	for i := range o.Members {
		if o.Members[i].Name == name {
			return o.Members[i].Value
		}
	}
	return Span{}
}

// maxMembers bounds what ParseObject gathers; no object that a rule reads has a hundredth of it.
const maxMembers = 4096

// ParseObject reads the object at s of b. It refuses a key that stands twice, and a key that is not one of known but
// equal to one under Unicode case folding: a peer written in Go would take it for that one.
func ParseObject(b []byte, s Span, known ...string) (Object, error) {
	o := Object{Span: s}
	var seen map[string]struct{}
	err := Members(b, s, func(m Member) error {
		if len(o.Members) == maxMembers {
			return fail(m.Pair.Start, "an object of more than %d members", maxMembers)
		}
		if err := checkKey(m, known); err != nil {
			return err
		}
		twice := false
		if seen != nil {
			_, twice = seen[m.Name]
			seen[m.Name] = struct{}{}
		} else {
			twice = o.Get(m.Name).Present()
		}
		if twice {
			return fail(m.Pair.Start, "the key %s stands twice", quote(m.Name))
		}
		o.Members = append(o.Members, m)
		if len(o.Members) == 16 && seen == nil {
			seen = make(map[string]struct{}, 64)
			for _, m := range o.Members {
				seen[m.Name] = struct{}{}
			}
		}
		return nil
	})
	return o, err
}

// checkKey refuses a key that is a known one in another case.
func checkKey(m Member, known []string) error {
	for _, k := range known {
		if m.Name != k && strings.EqualFold(m.Name, k) {
			return fail(m.Pair.Start, "the key %s differs from %q only by case", quote(m.Name), k)
		}
	}
	return nil
}

// quote makes a key fit for a message: bounded, nothing but printable ASCII.
func quote(key string) string {
	if len(key) > 40 {
		key = key[:40] + "…"
	}
	return strconv.QuoteToASCII(key)
}

// Members calls f for each member of the object at s of b, in order, until f gives an error.
func Members(b []byte, s Span, f func(Member) error) error {
	_, err := Walk(b[:s.End], s.Start, f)
	return err
}

// Walk is [Members] for an object that begins at i and whose end is not known yet: it gives the end, and has checked
// all of the object when there is no error.
func Walk(b []byte, i int, f func(Member) error) (int, error) {
	if i >= len(b) || b[i] != '{' {
		return i, fail(i, "not an object")
	}
	i = Space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		start := i
		value, err := key(b, i)
		if err != nil {
			return i, err
		}
		name, err := String(b, Span{start, start + stringLen(b[start:value])})
		if err != nil {
			return i, err
		}
		value = Space(b, value)
		end, err := Skip(b, value)
		if err != nil {
			return i, err
		}
		if err := f(Member{name, Span{start, end}, Span{value, end}}); err != nil {
			return i, err
		}
		more, next, err := separator(b, end, '}')
		if err != nil || !more {
			return next, err
		}
		i = next
	}
}

// stringLen gives the length of the string that b begins with; b is what key has checked.
func stringLen(b []byte) int {
	n, _ := skipString(b, 0)
	return n
}

// separator reads a comma or the closing of an array or object.
func separator(b []byte, i int, closing byte) (more bool, next int, err error) {
	i = Space(b, i)
	switch {
	case i < len(b) && b[i] == ',':
		return true, Space(b, i+1), nil
	case i < len(b) && b[i] == closing:
		return false, i + 1, nil
	}
	return false, i, fail(i, "a comma or the end of an array or object is missing")
}

// ParseArray gives where the elements of the array at s of b lie, at most limit of them.
func ParseArray(b []byte, s Span, limit int) ([]Span, error) {
	if !s.Present() || b[s.Start] != '[' {
		return nil, fail(s.Start, "not an array")
	}
	b = b[:s.End]
	i := Space(b, s.Start+1)
	if i < len(b) && b[i] == ']' {
		return nil, nil
	}
	var elements []Span
	for {
		if len(elements) == limit {
			return nil, &BoundError{Limit: limit}
		}
		end, err := Skip(b, i)
		if err != nil {
			return nil, err
		}
		elements = append(elements, Span{i, end})
		more, next, err := separator(b, end, ']')
		if err != nil || !more {
			return elements, err
		}
		i = next
	}
}

// A BoundError is an array of more elements than the caller takes.
type BoundError struct{ Limit int }

// Error names the bound.
func (e *BoundError) Error() string {
	return "more than " + strconv.Itoa(e.Limit) + " elements in an array"
}

// String decodes the string at s of b. A lone surrogate is an error: two readers would see two strings.
func String(b []byte, s Span) (string, error) {
	raw := s.Of(b)
	if len(raw) < 2 || raw[0] != '"' {
		return "", fail(s.Start, "not a string")
	}
	raw = raw[1 : len(raw)-1]
	if !slices.Contains(raw, '\\') {
		return string(raw), nil
	}
	out, at := unescape(raw)
	if at >= 0 {
		return "", fail(s.Start+1+at, "half a surrogate pair in a string")
	}
	return out, nil
}

// unescape decodes what stands between the quotes; at is where a lone surrogate stands, -1 for nowhere.
func unescape(raw []byte) (out string, at int) {
	var to strings.Builder
	to.Grow(len(raw))
	for i := 0; i < len(raw); {
		switch n := bytes.IndexByte(raw[i:], '\\'); {
		case n < 0:
			to.Write(raw[i:])
			return to.String(), -1
		case n > 0:
			to.Write(raw[i : i+n])
			i += n
		}
		if raw[i+1] != 'u' {
			to.WriteByte(plain(raw[i+1]))
			i += 2
			continue
		}
		r, _ := hex4(raw[i:])
		from := i
		i += 6
		if r >= 0xd800 && r < 0xe000 {
			low, ok := rune(0), false
			if i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
				low, ok = hex4(raw[i:])
			}
			if r >= 0xdc00 || !ok || low < 0xdc00 || low > 0xdfff {
				return "", from
			}
			r = (r-0xd800)<<10 + (low - 0xdc00) + 0x10000
			i += 6
		}
		to.WriteRune(r)
	}
	return to.String(), -1
}

// plain gives what an escape of one letter stands for.
func plain(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// Lookup gives where a value begins that lies under a path of keys, from the object at i on; -1 when there is none. It
// stops at the first of each key and reads no further than it must: it is for looking on, never for a rule, which
// needs [ParseObject]. b is what [Skip] has checked.
func Lookup(b []byte, i int, path ...string) int {
	for _, name := range path {
		if i = lookup(b, i, name); i < 0 {
			return -1
		}
	}
	return i
}

func lookup(b []byte, i int, name string) int {
	if i < 0 || i >= len(b) || b[i] != '{' {
		return -1
	}
	for more := true; more; {
		start := Space(b, i+1)
		value, err := key(b, start)
		if err != nil {
			return -1 // the object is empty
		}
		at := Space(b, value)
		k := Span{start, start + stringLen(b[start:value])}
		if got, err := String(b, k); err == nil && got == name {
			return at
		}
		end, err := Skip(b, at)
		if err != nil {
			return -1
		}
		i = Space(b, end)
		more = i < len(b) && b[i] == ','
	}
	return -1
}

// IsNull tells the word null.
func IsNull(b []byte, s Span) bool { return string(s.Of(b)) == "null" }
