package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// errShape says that a file spells a list in a way that these edits do not know.
var errShape = errors.New("the file spells it in a way that cannot be edited without rewriting it")

// AddToList gives data, a TOML file, with value added at the end of the list of strings called key in [table]. A list
// or a table that is not there is made. Everything else stays byte for byte, comments too. Whoever calls it reads the
// result back and compares: a file may say the same in more ways than this knows (dotted keys, inline tables).
func AddToList(data []byte, table, key, value string) ([]byte, error) {
	d, err := find(data, table, key)
	if err != nil {
		return nil, err
	}
	text := Quote(value)
	switch {
	case d.list == nil && d.header < 0:
		head := ""
		if len(data) > 0 && data[len(data)-1] != '\n' {
			head = "\n"
		}
		if len(data) > 0 {
			head += "\n"
		}
		return splice(data, len(data), len(data), fmt.Sprintf("%s[%s]\n%s = [%s]\n", head, table, key, text)), nil
	case d.list == nil:
		line := fmt.Sprintf("%s = [%s]\n", key, text)
		if d.header == len(data) && data[len(data)-1] != '\n' {
			line = "\n" + line
		}
		return splice(data, d.header, d.header, line), nil
	case len(d.list.items) == 0:
		if len(bytes.TrimSpace(data[d.list.open+1:d.list.end])) > 0 {
			return nil, errShape // a comment
		}
		return splice(data, d.list.open+1, d.list.end, text), nil
	}
	last := d.list.items[len(d.list.items)-1]
	start := bytes.LastIndexByte(data[:d.list.end], '\n') + 1 // of the closing bracket's line
	if start <= last.end || len(bytes.TrimSpace(data[start:d.list.end])) > 0 {
		return splice(data, last.end, last.end, ", "+text), nil
	}
	// One a line: the new one gets a line of its own, before the bracket's.
	first := bytes.LastIndexByte(data[:last.start], '\n') + 1
	indent := string(data[first : first+len(data[first:])-len(bytes.TrimLeft(data[first:], " \t"))])
	data = splice(data, start, start, indent+text+",\n")
	if !d.list.comma {
		data = splice(data, last.end, last.end, ",")
	}
	return data, nil
}

// RemoveFromList gives data without value in the list of strings called key in [table]; with it goes the rest of its
// line if it stands alone on one.
func RemoveFromList(data []byte, table, key, value string) ([]byte, error) {
	d, err := find(data, table, key)
	if err != nil {
		return nil, err
	}
	if d.list == nil {
		return nil, errShape
	}
	for i, item := range d.list.items {
		if item.value != value {
			continue
		}
		lineStart := bytes.LastIndexByte(data[:item.start], '\n') + 1
		lineEnd := len(data)
		if n := bytes.IndexByte(data[item.end:], '\n'); n >= 0 {
			lineEnd = item.end + n + 1
		}
		after := strings.TrimLeft(strings.TrimLeft(string(data[item.end:lineEnd]), ", \t\r\n"), ", \t\r\n")
		alone := len(bytes.TrimSpace(data[lineStart:item.start])) == 0 && (after == "" || strings.HasPrefix(after, "#"))
		switch {
		case alone:
			return splice(data, lineStart, lineEnd, ""), nil
		case i+1 < len(d.list.items):
			return splice(data, item.start, d.list.items[i+1].start, ""), nil
		case i > 0:
			return splice(data, d.list.items[i-1].end, item.end, ""), nil
		}
		return splice(data, item.start, item.end, ""), nil
	}
	return nil, errShape
}

func splice(data []byte, from, to int, text string) []byte {
	out := make([]byte, 0, len(data)+len(text))
	out = append(out, data[:from]...)
	out = append(out, text...)
	return append(out, data[to:]...)
}

// A place is where a table and a list of it are in a file.
type place struct {
	header int   // behind the line of the table's header; -1 if there is none
	list   *list // nil if the table has no such key
}

type list struct {
	open, end int  // of its brackets
	comma     bool // the last item has one behind it
	items     []item
}

type item struct {
	start, end int
	value      string
}

// find looks for [table] and key in it.
func find(data []byte, table, key string) (place, error) {
	found := place{header: -1}
	var p unstable.Parser
	p.KeepComments = false
	p.Reset(data)
	inside := false
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			name, end := keyOf(e)
			inside = e.Kind == unstable.Table && name == table
			if inside {
				found.header = len(data)
				if n := bytes.IndexByte(data[end:], '\n'); n >= 0 {
					found.header = end + n + 1
				}
			}
		case unstable.KeyValue:
			name, end := keyOf(e)
			if !inside || name != key {
				continue
			}
			l, err := readList(data, e.Value(), end)
			if err != nil {
				return place{}, err
			}
			found.list = l
		}
	}
	return found, p.Error()
}

// keyOf gives a key's name, dotted, and where it ends in the file.
func keyOf(e *unstable.Node) (name string, end int) {
	var parts []string
	for it := e.Key(); it.Next(); {
		parts = append(parts, string(it.Node().Data))
		end = int(it.Node().Raw.Offset + it.Node().Raw.Length)
	}
	return strings.Join(parts, "."), end
}

// readList finds the brackets and the strings of the array that is the value of a key, which ends at end.
func readList(data []byte, value *unstable.Node, end int) (*list, error) {
	if value.Kind != unstable.Array {
		return nil, errShape
	}
	n := bytes.IndexByte(data[end:], '[')
	if n < 0 {
		return nil, errShape
	}
	l := &list{open: end + n}
	at := l.open + 1
	for it := value.Children(); it.Next(); {
		v := it.Node()
		if v.Kind != unstable.String || v.Raw.Length == 0 {
			return nil, errShape
		}
		at = int(v.Raw.Offset + v.Raw.Length)
		l.items = append(l.items, item{start: int(v.Raw.Offset), end: at, value: string(v.Data)})
	}
	for ; at < len(data); at++ {
		switch data[at] {
		case ']':
			l.end = at
			return l, nil
		case ',':
			l.comma = true
		case '#':
			n := bytes.IndexByte(data[at:], '\n')
			if n < 0 {
				return nil, errShape
			}
			at += n
		}
	}
	return nil, errShape
}

// Quote writes a basic string of TOML: Go's quoting has escapes that TOML does not know.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
