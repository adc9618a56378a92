package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/handlerd/handler/policy/rawjson"
)

// seeds are inputs that have been trouble to JSON readers.
func seeds() []string {
	long := strings.Repeat("a", 40)
	return []string{
		`{}`, `[]`, `""`, `0`, `-0`, `-`, `01`, `1.`, `1e`, `1e+5`, `-1.5E-3`, `tru`, `true`, `null `, ` null`, `nulll`,
		`{"a":1}`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a" : [1 , 2 , {"b":null}]}`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1]`, `[1}`,
		`"\u00e9"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00"`, `"\ud83d\u0041"`, `"\x"`, `"\u12"`, `"` + "\x01" + `"`, `"` + "\xff" + `"`,
		`"` + "\xed\xa0\x80" + `"`, `"é"`, `"\`, `"`, `"` + long + `"`, `"` + long + `\n` + long + `"`, `"` + long + "\x1f" + long + `"`,
		`"` + long + "é" + long + `"`, `{"a":1}{"b":2}`, "\ufeff{}", `[[[[[[[[]]]]]]]]`, `{"a":{"a":{"a":[{}]}}}`,
		`{"k\u0065y":"\"\\\/\b\f\n\r\t"}`, `"` + long[:15] + `"`, `"` + long[:16] + `"`, `"` + long[:14] + `\"` + `"`, `"func f() {\n\treturn \"x\"\n}\n"`,
		`"` + long[:7] + "\x7f" + `"`, `"` + long[:6] + "\x80" + `"`, `"!!!!!!!!!!!!!!!!!!!!!!!"`, `"]]]]]]]]]]]]]]]]]]]]]]]]]]]"`,
	}
}

// FuzzSkip: what is JSON, in UTF-8 and not nested too deep, is exactly what encoding/json takes.
func FuzzSkip(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		span, err := rawjson.Whole(b)
		want := json.Valid(b) && utf8.Valid(b)
		if want && strings.Count(string(b), "[")+strings.Count(string(b), "{") > rawjson.MaxDepth {
			return
		}
		if (err == nil) != want {
			t.Fatalf("Whole says %v, encoding/json %v: %q", err, want, b)
		}
		if err == nil && string(span.Of(b)) != strings.Trim(string(b), " \t\r\n") {
			t.Fatalf("the value is %q of %q", span.Of(b), b)
		}
	})
}

// FuzzMembers: the members of an object are those that encoding/json's tokens give, in order, and each value's bytes
// are a value of their own.
func FuzzMembers(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(s))
		f.Add([]byte(`{"x":` + s + `,"y":` + s + `}`))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		span, err := rawjson.Whole(b)
		if err != nil || b[span.Start] != '{' {
			return
		}
		var got []string
		err = rawjson.Members(b, span, func(m rawjson.Member) error {
			got = append(got, m.Name)
			if _, err := rawjson.Whole(m.Value.Of(b)); err != nil {
				t.Fatalf("the value of %q is %q", m.Name, m.Value.Of(b))
			}
			if at := rawjson.Lookup(b, span.Start, m.Name); at < 0 || at > m.Value.Start {
				t.Fatalf("Lookup of %q gives %d", m.Name, at)
			}
			return nil
		})
		if err != nil {
			if !strings.Contains(err.Error(), "surrogate") {
				t.Fatal(err)
			}
			return
		}
		if want := names(t, b); strings.Join(got, "\x00") != strings.Join(want, "\x00") {
			t.Fatalf("keys %q, want %q", got, want)
		}
	})
}

// names gives an object's keys by encoding/json.
func names(t *testing.T, b []byte) []string {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var keys []string
	var isKey []bool // for each open container: nil-like false for arrays; true when a key comes next
	var object []bool
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return keys
		}
		if err != nil {
			t.Fatal(err)
		}
		n := len(object)
		if delim, ok := tok.(json.Delim); ok && (delim == '{' || delim == '[') {
			if n > 0 && object[n-1] {
				isKey[n-1] = true
			}
			object, isKey = append(object, delim == '{'), append(isKey, delim == '{')
			continue
		} else if ok {
			object, isKey = object[:n-1], isKey[:n-1]
			continue
		}
		if n > 0 && object[n-1] {
			if isKey[n-1] && n == 1 {
				keys = append(keys, tok.(string))
			}
			isKey[n-1] = !isKey[n-1]
		}
	}
}

// FuzzString: a string means what encoding/json says, but for lone surrogates, which have no meaning.
func FuzzString(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		span, err := rawjson.Whole(b)
		if err != nil || b[span.Start] != '"' {
			return
		}
		got, err := rawjson.String(b, span)
		var want string
		if jsonErr := json.Unmarshal(b, &want); jsonErr != nil {
			t.Fatal(jsonErr)
		}
		if err != nil {
			if !strings.Contains(want, "\ufffd") {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		if got != want {
			t.Fatalf("%q is %q, want %q", b, got, want)
		}
		again := rawjson.AppendString(nil, got)
		if back, err := rawjson.String(again, rawjson.Span{End: len(again)}); err != nil || back != got {
			t.Fatalf("%q written is %q", got, again)
		}
	})
}

// FuzzSplice: the result of replacing values by values parses, and every byte outside of them is the same.
func FuzzSplice(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(`{"a":`+s+`,"b":[`+s+`]}`), []byte(`{"new":[1,2]}`), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b, put []byte, mask uint8) {
		span, err := rawjson.Whole(b)
		if _, bad := rawjson.Whole(put); err != nil || bad != nil || b[span.Start] != '{' {
			return
		}
		var edits []rawjson.Edit
		var kept []byte
		at, n := 0, 0
		err = rawjson.Members(b, span, func(m rawjson.Member) error {
			if mask>>(n%8)&1 == 1 {
				edits = append(edits, rawjson.Edit{Span: m.Value, New: put})
				kept = append(append(kept, b[at:m.Value.Start]...), put...)
				at = m.Value.End
			}
			n++
			return nil
		})
		if err != nil {
			return
		}
		got, err := rawjson.Splice(b, edits)
		if err != nil {
			t.Fatal(err)
		}
		if want := append(kept, b[at:]...); !bytes.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		if cap(got) <= len(got) {
			t.Fatal("no room for a newline")
		}
		if _, err := rawjson.Whole(got); err != nil && !strings.Contains(err.Error(), "nesting") {
			t.Fatalf("%q does not parse: %v", got, err)
		}
	})
}
