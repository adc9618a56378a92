package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
)

// A digest is a SHA-256.
type digest [sha256.Size]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

// parseDigest reads 64 hex digits, lower case.
func parseDigest(text []byte) (d digest, ok bool) {
	if len(text) != hex.EncodedLen(len(d)) || bytes.ContainsAny(text, "ABCDEF") {
		return d, false
	}
	_, err := hex.Decode(d[:], text)
	return d, err == nil
}

// A link is a line's place in the chain: its number and its own digest. The zero link stands before the first line.
type link struct {
	n   int64
	sum digest
}

// linkHead is how every chained line begins; its number and the digest of the line before it follow.
const (
	linkHead = `{"v":2,"n":`
	linkPrev = `,"prev":"`
	bodyHead = `{"v":2,` // as encode writes it
)

// chained gives a line of encode its place behind prev; anew is for one that begins a chain, whose prev is "". It
// gives the link of the line too.
func chained(body []byte, prev link, anew bool) ([]byte, link) {
	line := make([]byte, 0, len(body)+maxLink)
	line = append(line, linkHead...)
	line = strconv.AppendInt(line, prev.n+1, 10)
	line = append(line, linkPrev...)
	if !anew {
		line = hex.AppendEncode(line, prev.sum[:])
	}
	line = append(line, `",`...)
	line = append(line, body[len(bodyHead):]...)
	return line, link{prev.n + 1, sha256.Sum256(line)}
}

// A place in the chain as a line tells it.
type told struct {
	n     int64
	prev  digest
	begin bool // prev is "": a chain begins
}

// parseLink reads the beginning of a chained line. It wants it spelled as chained spells it, so that a line that was
// written anew by something else is none.
func parseLink(line []byte) (t told, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(linkHead))
	if !ok {
		return t, false
	}
	number, rest, ok := bytes.Cut(rest, []byte(linkPrev))
	if !ok || len(number) == 0 || len(number) > 18 || number[0] == '0' {
		return t, false
	}
	for _, c := range number {
		if c < '0' || c > '9' {
			return t, false
		}
		t.n = t.n*10 + int64(c-'0')
	}
	prev, _, ok := bytes.Cut(rest, []byte(`",`))
	if !ok {
		return t, false
	}
	if len(prev) == 0 {
		t.begin = true
		return t, true
	}
	t.prev, ok = parseDigest(prev)
	return t, ok
}

// whole tells whether a line, its newline included, is a whole record of the chain and gives its place.
func whole(line []byte) (t told, ok bool) {
	if t, ok = parseLink(line); !ok || !bytes.HasSuffix(line, []byte("}\n")) {
		return t, false
	}
	return t, json.Valid(line)
}
