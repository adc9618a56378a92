package history

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/handlerd/handler/policy/rawjson"
)

// ArtifactMark stands in an event for the bytes of a picture or a file that are not kept in it: what an agent shows is an
// artifact of the session's, with the tool call it belongs to (types.EventArtifact).
const ArtifactMark = "artifact:"

// maxData is how many bytes of a picture or a file stay in an event.
const maxData = 4 << 10

// Shorten gives JSON of at most limit bytes that says what raw, which is valid JSON, says: the data of pictures and
// files and long strings are cut, and say so. What is short enough is given back as it is.
func Shorten(raw []byte, limit int) []byte {
	if len(raw) <= maxData {
		return raw
	}
	for most := limit * 3 / 4; most >= 64; most /= 4 {
		w := shortener{in: raw, out: make([]byte, 0, min(len(raw), limit)+64), strings: most, limit: limit}
		if end, ok := w.value(rawjson.Space(raw, 0), 0); ok && end <= len(raw) {
			if !w.cut {
				return raw
			}
			return w.out
		}
	}
	return []byte(`{"cut":` + strconv.Itoa(len(raw)) + `}`)
}

// A shortener copies one value. Of JSON that is not valid it makes nothing.
type shortener struct {
	in, out []byte
	strings int // bytes of a string that stay
	limit   int
	cut     bool
	name    string // of the member that is copied
}

// value copies the value at i and gives its end; false where it does not fit.
func (w *shortener) value(i, depth int) (int, bool) {
	if len(w.out) > w.limit || depth > rawjson.MaxDepth || i >= len(w.in) {
		return i, false
	}
	switch w.in[i] {
	case '{', '[':
		return w.group(i, depth)
	case '"':
		return w.text(i)
	}
	end := rawjson.End(w.in, i)
	w.out = append(w.out, w.in[i:end]...)
	return end, len(w.out) <= w.limit
}

// group copies an object or an array.
func (w *shortener) group(i, depth int) (int, bool) {
	object := w.in[i] == '{'
	closing := w.in[i] + 2
	w.out = append(w.out, w.in[i])
	for i = rawjson.Space(w.in, i+1); i < len(w.in) && w.in[i] != closing; {
		if w.in[i] == ',' {
			w.out = append(w.out, ',')
			i = rawjson.Space(w.in, i+1)
		}
		name := w.name
		if object {
			end := rawjson.End(w.in, i)
			name = string(w.in[i:end])
			w.out = append(append(w.out, w.in[i:end]...), ':')
			i = rawjson.Space(w.in, end)
			if i >= len(w.in) || w.in[i] != ':' {
				return i, false
			}
			i = rawjson.Space(w.in, i+1)
		}
		outer := w.name
		w.name = name
		end, ok := w.value(i, depth+1)
		w.name = outer
		if !ok {
			return end, false
		}
		i = rawjson.Space(w.in, end)
	}
	if i >= len(w.in) {
		return i, false
	}
	w.out = append(w.out, closing)
	return i + 1, len(w.out) <= w.limit
}

// text copies a string, or its beginning.
func (w *shortener) text(i int) (int, bool) {
	end := rawjson.End(w.in, i)
	n := end - i - 2
	switch {
	case (w.name == `"data"` || w.name == `"blob"`) && n > maxData && plainBase64(w.in[i+1:end-1]):
		w.out = append(w.out, '"')
		w.out = append(append(w.out, ArtifactMark...), '"')
		w.cut = true
	case n > w.strings:
		w.out = append(w.out, w.in[i:whole(w.in, i+1, i+1+w.strings)]...)
		w.out = append(w.out, " … ("+strconv.Itoa(n)+" bytes, cut)\""...)
		w.cut = true
	default:
		w.out = append(w.out, w.in[i:end]...)
	}
	return end, len(w.out) <= w.limit
}

// plainBase64 looks at the beginning of a string only: text that is none goes the way of long text.
func plainBase64(b []byte) bool {
	for _, c := range b[:min(len(b), 256)] {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '+', c == '/', c == '=', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// whole gives the last position up to most at which the string that begins at start can end: not within an escape, a
// surrogate pair or a character.
func whole(b []byte, start, most int) int {
	at := start
	for i := start; i < most; {
		n := 1
		switch {
		case b[i] == '\\' && b[i+1] == 'u':
			if n = 6; (b[i+2]|0x20) == 'd' && b[i+3] >= '8' && (b[i+3] <= '9' || (b[i+3]|0x20) <= 'b') {
				n = 12 // both halves of a pair
			}
		case b[i] == '\\':
			n = 2
		case b[i] >= utf8.RuneSelf:
			_, n = utf8.DecodeRune(b[i:])
		}
		if i+n > most {
			break
		}
		i += n
		at = i
	}
	return at
}

// cut shortens a text to at most n bytes, at a character's end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// said gives what an agent said of itself, unless it is too long.
func said(raw json.RawMessage) json.RawMessage {
	if len(raw) > maxSaid {
		return nil
	}
	return raw
}
