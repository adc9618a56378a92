package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// An Edit puts New where Span was. A Span whose ends are equal inserts.
type Edit struct {
	Span
	New []byte
}

// Splice gives a copy of b with the edits made, and room for one byte more, so that a newline can follow without a
// second copy. Edits come in order and do not overlap; anything else is an error, since it would be a mistake of the
// rule that made them. Bytes outside of edits are the same.
func Splice(b []byte, edits []Edit) ([]byte, error) {
	size, at := len(b), 0
	for _, e := range edits {
		if e.Start < at || e.End < e.Start || e.End > len(b) {
			return nil, fmt.Errorf("rawjson: edit of bytes %d to %d out of order or out of range", e.Start, e.End)
		}
		size += len(e.New) - (e.End - e.Start)
		at = e.End
	}
	out := make([]byte, 0, size+1)
	at = 0
	for _, e := range edits {
		out = append(append(out, b[at:e.Start]...), e.New...)
		at = e.End
	}
	return append(out, b[at:]...), nil
}

// AppendString writes s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(to []byte, s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return append(to, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

// Join writes parts between open and closing, with commas.
func Join(open, closing byte, parts [][]byte) []byte {
	return append(append([]byte{open}, bytes.Join(parts, []byte(","))...), closing)
}
