// Package rawjson reads JSON without decoding it: it checks the grammar, says where in the bytes a value lies, and
// replaces byte ranges. What is not replaced keeps its bytes, so unknown fields, key order, number spellings and
// escapes survive (design §3).
//
// It is stricter than encoding/json where two readers could see two things: keys match exactly, an object that a
// caller reads by [ParseObject] has no key twice and no key that differs from a known one only by case, invalid
// UTF-8 and lone surrogates are errors, and nesting is bounded.
package rawjson

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may lie in one another.
const MaxDepth = 1024

// A Span is a range of bytes: from Start up to, but not with, End. The zero Span is "not there".
type Span struct{ Start, End int }

// Present tells a value that is there from one that is not: no JSON value is empty.
func (s Span) Present() bool { return s.End > s.Start }

// Of gives the bytes that s means in b. They are b's own, not a copy.
func (s Span) Of(b []byte) []byte { return b[s.Start:s.End] }

// Shift moves s by n bytes; "not there" stays that.
func (s Span) Shift(n int) Span {
	if !s.Present() {
		return s
	}
	return Span{s.Start + n, s.End + n}
}

// A SyntaxError says why bytes are not JSON, or not the JSON a caller takes.
type SyntaxError struct {
	Offset int
	Reason string // lower case, safe to show: it quotes nothing of the input but a key
	UTF8   bool   // the bytes are not UTF-8
}

// Error gives the reason and the offset.
func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset) }

func fail(at int, format string, args ...any) error {
	return &SyntaxError{Offset: at, Reason: fmt.Sprintf(format, args...)}
}

// Space gives the first position from i on that holds no JSON white space.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// Whole gives the span of the one value that b holds, white space around it left out.
func Whole(b []byte) (Span, error) {
	start := Space(b, 0)
	end, err := Skip(b, start)
	if err != nil {
		return Span{}, err
	}
	if rest := Space(b, end); rest != len(b) {
		return Span{}, fail(rest, "something follows the JSON value")
	}
	return Span{start, end}, nil
}

// Skip checks the value that begins at i, where white space may come first, and gives where it ends.
func Skip(b []byte, i int) (int, error) {
	var objects [MaxDepth / 64]uint64 // bit d: what is open at depth d is an object
	depth := 0
	for {
		i = Space(b, i)
		if i >= len(b) {
			return i, fail(i, "the JSON ends too early")
		}
		var err error
		switch c := b[i]; c {
		case '{', '[':
			if depth == MaxDepth {
				return i, fail(i, "more than %d levels of nesting", MaxDepth)
			}
			closing := c + 2 // '}' and ']' lie two after their opening
			next := Space(b, i+1)
			if next < len(b) && b[next] == closing {
				i = next + 1
				break
			}
			if c == '{' {
				objects[depth/64] |= 1 << (depth % 64)
				if next, err = key(b, next); err != nil {
					return next, err
				}
			} else {
				objects[depth/64] &^= 1 << (depth % 64)
			}
			depth++
			i = next
			continue
		case '"':
			i, err = skipString(b, i)
		default:
			i, err = scalar(b, i)
		}
		if err != nil {
			return i, err
		}
		if i, depth, err = after(b, i, depth, &objects); err != nil || depth == 0 {
			return i, err
		}
	}
}

// after goes on behind a value: over the ends of what it closes, to where the next value begins.
func after(b []byte, i, depth int, objects *[MaxDepth / 64]uint64) (int, int, error) {
	for depth > 0 {
		at := Space(b, i)
		if at >= len(b) {
			return at, depth, fail(at, "the JSON ends too early")
		}
		object := objects[(depth-1)/64]>>((depth-1)%64)&1 == 1
		switch c := b[at]; {
		case c == ',' && object:
			next, err := key(b, Space(b, at+1))
			return next, depth, err
		case c == ',':
			return at + 1, depth, nil
		case c == '}' && object, c == ']' && !object:
			depth--
			i = at + 1
		default:
			return at, depth, fail(at, "a comma or the end of an array or object is missing")
		}
	}
	return i, 0, nil
}

// key checks a key and the colon behind it, and gives where the value may begin.
func key(b []byte, i int) (int, error) {
	if i >= len(b) || b[i] != '"' {
		return i, fail(i, "a key is missing")
	}
	i, err := skipString(b, i)
	if err != nil {
		return i, err
	}
	i = Space(b, i)
	if i >= len(b) || b[i] != ':' {
		return i, fail(i, "a colon is missing")
	}
	return i + 1, nil
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080

	slashes = '\\' * ones
	quotes  = '"' * ones
)

// skipString checks the string whose opening quote is at i and gives where it ends.
func skipString(b []byte, i int) (int, error) {
	start := i
	ascii := true
	for i++; ; {
		if i = plainRun(b, i); i >= len(b) {
			return i, fail(i, "a string does not end")
		}
		switch c := b[i]; {
		case c == '"':
			if !ascii && !utf8.Valid(b[start+1:i]) {
				return i, &SyntaxError{Offset: start, Reason: "not UTF-8 in the string", UTF8: true}
			}
			return i + 1, nil
		case c == '\\':
			n := escape(b[i:])
			if n == 0 {
				return i, fail(i, "an escape that JSON does not have")
			}
			i += n
		case c < 0x20:
			return i, fail(i, "a control character in a string")
		default:
			ascii = false
			for i++; i < len(b) && b[i] >= 0x80; i++ {
			}
		}
	}
}

// plainRun gives the first position from i on whose byte is not an ASCII character that stands for itself. It goes by
// eight and sixteen bytes, since what makes lines long (pictures, files) stands in strings, and over escapes of two
// bytes, since source text is full of them.
func plainRun(b []byte, i int) int {
	for i+8 <= len(b) {
		hit := special(binary.LittleEndian.Uint64(b[i:]))
		if hit == 0 {
			i = longRun(b, i+8)
			continue
		}
		i += bits.TrailingZeros64(hit) / 8
		if b[i] != '\\' || i+1 >= len(b) || !shortEscape(b[i+1]) {
			return i
		}
		i = escapedRun(b, i+2)
	}
	for i < len(b) && b[i] >= 0x20 && b[i] < 0x80 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// longRun is the part of plainRun for long runs: it gives a position that is less than 32 bytes before the end of one.
func longRun(b []byte, i int) int {
	for ; i+32 <= len(b); i += 32 {
		v := b[i : i+32 : i+32]
		w0, w1 := binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:])
		w2, w3 := binary.LittleEndian.Uint64(v[16:]), binary.LittleEndian.Uint64(v[24:])
		if (marks(w0)|marks(w1)|marks(w2)|marks(w3))&highs != 0 {
			break
		}
	}
	return i
}

// escapedRun is the part of plainRun for text that is full of escapes: a processor cannot foresee where they stand, so
// that a branch for each costs more than to work out for all bytes of a word whether they are escaped. It knows the
// usual escapes, and gives a position from which on something else may follow, or no escape for a while.
func escapedRun(b []byte, i int) int {
	carry := uint64(0) // the first byte's high bit where the byte before the word escapes it
	for seen, n := uint64(0), 1; i+8 <= len(b); i, n = i+8, n+1 {
		w := binary.LittleEndian.Uint64(b[i:])
		slash := equal(w, slashes) & highs
		escaped := slash<<8 | carry
		quote := equal(w, quotes)
		usual := quote | equal(w, 'n'*ones) | equal(w, 't'*ones) | equal(w, 'r'*ones)
		bad := (w - 0x20*ones) | w // control characters, and what is not ASCII
		bad |= quote&^escaped | escaped&^usual
		if bad&highs != 0 {
			break
		}
		carry = slash >> 56
		seen |= slash
		if n%64 == 0 {
			if seen == 0 {
				break // such as a picture: longRun is faster
			}
			seen = 0
		}
	}
	return i - int(carry>>7) // to the backslash whose escape is not looked at yet
}

// equal marks the bytes of a word of ASCII that are the one which c repeats, by their high bits. The other bits mean
// nothing.
func equal(w, c uint64) uint64 { return ^((w ^ c) + 0x7f*ones) }

// special marks the bytes of a word that are a quote, a backslash, a control character or not ASCII, by their high
// bits. Only the lowest mark counts: a carry can put wrong ones above it.
func special(w uint64) uint64 { return marks(w) & highs }

// marks is special with other bits set too. A byte below 0x80 minus what it must at least be has the high bit only if it
// is less. Quotes (0x22) and control characters (below 0x20) are one test: with the bit 0x02 turned over they are what
// is less than 0x21.
func marks(w uint64) uint64 {
	return ((w ^ 0x02*ones) - 0x21*ones) | ((w ^ slashes) - ones) | w
}

// shortEscape tells the second byte of an escape of two. It does not branch on which one it is: that is as hard to
// foresee as text is.
func shortEscape(c byte) bool {
	const low, high = 1<<'"' | 1<<'/', 1<<('\\'-64) | 1<<('b'-64) | 1<<('f'-64) | 1<<('n'-64) | 1<<('r'-64) | 1<<('t'-64)
	return (uint64(low)>>c|uint64(high)>>(c-64))&1 != 0
}

// escape gives the length of the escape sequence that b begins with, 0 for none that JSON has.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if shortEscape(b[1]) {
		return 2
	}
	if b[1] == 'u' {
		if _, ok := hex4(b); ok {
			return 6
		}
	}
	return 0
}

// hex4 reads the four digits of an escape \uXXXX.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// scalar checks a number or one of the three words.
func scalar(b []byte, i int) (int, error) {
	for _, word := range [...]string{"true", "false", "null"} {
		if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
			return i + len(word), nil
		}
	}
	if end := number(b, i); end > i {
		return end, nil
	}
	return i, fail(i, "not a JSON value")
}

// number gives where the number at i ends, i for none.
func number(b []byte, start int) int {
	i := start
	digits := func() bool {
		from := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return start
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return start
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return start
		}
	}
	return i
}
