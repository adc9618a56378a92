package rawjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/handlerd/handler/policy/rawjson"
)

func whole(s string) ([]byte, rawjson.Span) { return []byte(s), rawjson.Span{End: len(s)} }

// TestParseObject: a key stands once, and in one case.
func TestParseObject(t *testing.T) {
	many := func(extra string) string {
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		return "{" + b.String() + extra + "}"
	}
	for in, want := range map[string]string{
		`{}`:                      "",
		`{"a":1,"b":2}`:           "",
		`{"a":1,"a":2}`:           `the key "a" stands twice`,
		`{"a":1,"\u0061":2}`:      `the key "a" stands twice`,
		`{"A":1}`:                 `the key "A" differs from "a" only by case`,
		`{"a":1,"A":1}`:           `the key "A" differs from "a" only by case`,
		`{"\u212aey":1}`:          `the key "\u212aey" differs from "key" only by case`,
		`{"B":1,"b":2}`:           "", // not a key that the caller knows
		`{"_meta":{"a":1,"a":2}}`: "", // nor an object that it reads
		`{"\ud800":1}`:            "half a surrogate pair",
		`[]`:                      "not an object",
		many(`"last":1`):          "",
		many(`"k3":1`):            `the key "k3" stands twice`,
		many(`"k39":1`):           `the key "k39" stands twice`,
		many(`"last":1,"last":2`): `the key "last" stands twice`,
		"{\"\x00\":1}":            "a control character in a string",
		`{"` + strings.Repeat("x", 99) + `":1,"` + strings.Repeat("x", 99) + `":2}`: `x\u2026" stands twice`,
	} {
		b, s := whole(in)
		_, err := rawjson.ParseObject(b, s, "a", "key")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80s: %v, want %q", in, err, want)
		}
	}
	if _, err := rawjson.ParseObject(nil, rawjson.Span{}); err == nil {
		t.Error("nothing is an object")
	}
}

func TestParseArray(t *testing.T) {
	b, s := whole(`[1, "two" ,[3,4],{"a":5}]`)
	got, err := rawjson.ParseArray(b, s, 4)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, e := range got {
		parts = append(parts, string(e.Of(b)))
	}
	if want := `1|"two"|[3,4]|{"a":5}`; strings.Join(parts, "|") != want {
		t.Errorf("%q", parts)
	}
	var bound *rawjson.BoundError
	if _, err := rawjson.ParseArray(b, s, 3); !errors.As(err, &bound) || bound.Limit != 3 {
		t.Errorf("four of three: %v", err)
	}
	if b, s := whole(`{}`); true {
		if _, err := rawjson.ParseArray(b, s, 3); err == nil {
			t.Error("an object is an array")
		}
	}
}

// TestDepth: nesting is bounded by MaxDepth exactly, and what lies deeper takes no stack.
func TestDepth(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2)) }
	if _, err := rawjson.Whole(nest(rawjson.MaxDepth)); err != nil {
		t.Error(err)
	}
	for _, n := range []int{rawjson.MaxDepth + 2, 10 << 20} {
		if _, err := rawjson.Whole(nest(n)); err == nil {
			t.Errorf("%d levels pass", n)
		}
	}
}

func TestLookup(t *testing.T) {
	b := []byte(` {"x":{"b":0},"a" : { "b":[1],"c":{} } ,"a":2}`)
	for path, want := range map[string]string{"a": "{", "a.b": "[", "a.c": "{", "x.b": "0", "b": "", "a.b.c": "", "a.c.d": "", "": ""} {
		at := rawjson.Lookup(b, 1, strings.Split(path, ".")...)
		if want == "" && at != -1 || want != "" && (at < 0 || string(b[at]) != want) {
			t.Errorf("%q: %d", path, at)
		}
	}
}

func TestSpliceRefuses(t *testing.T) {
	edit := func(from, to int) rawjson.Edit {
		return rawjson.Edit{Span: rawjson.Span{Start: from, End: to}, New: []byte("x")}
	}
	for name, edits := range map[string][]rawjson.Edit{
		"overlap": {edit(0, 2), edit(1, 3)}, "order": {edit(2, 3), edit(0, 1)}, "range": {edit(2, 9)}, "backwards": {edit(3, 2)},
	} {
		if got, err := rawjson.Splice([]byte("12345"), edits); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	got, err := rawjson.Splice([]byte("12345"), []rawjson.Edit{edit(0, 0), edit(1, 3), edit(3, 3), edit(5, 5)})
	if err != nil || string(got) != "x1xx45x" {
		t.Errorf("%s, %v", got, err)
	}
}

// TestEscapesInBlocks: long strings are looked at in blocks, and an escape may lie over the end of one. Strings of the
// characters that matter, mostly plain, are JSON exactly where encoding/json says so.
func TestEscapesInBlocks(t *testing.T) {
	pieces := []string{`\\`, `\n`, `\"`, `\\\\`, "aaaaaaaaaaaaa", "b", `\u00e9`, "]]]]]", "!", "\x7f"}
	faults := []string{`\`, `"`, `\x`, "\x1f", "\xff", "é", `\u00e`, "\x80", "\\\x80", "\\\x1f"}
	random := rand.New(rand.NewPCG(1, 2))
	good := 0
	for range 100_000 {
		var b strings.Builder
		b.WriteByte('"')
		for b.Len() < 60+random.IntN(160) {
			if random.IntN(400) == 0 {
				b.WriteString(faults[random.IntN(len(faults))])
			}
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		b.WriteByte('"')
		text := []byte(b.String())
		want := json.Valid(text) && utf8.Valid(text)
		if _, err := rawjson.Whole(text); (err == nil) != want {
			t.Fatalf("Whole says %v, encoding/json %v: %q", err, want, text)
		}
		if want {
			good++
		}
	}
	if good < 20_000 || good > 98_000 {
		t.Errorf("%d of 100000 strings were JSON: the test looks at one side only", good)
	}
}
