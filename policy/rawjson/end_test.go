package rawjson

import "testing"

// TestEnd: where Skip says that a value ends, End does, too.
func TestEnd(t *testing.T) {
	for _, text := range []string{
		`1`, `-1.5e3 `, `true,`, `null]`, `"a"`, `"\""x`, `"\\"x`, `"\\\"\\"`, `""`, ` {"a":[1,{"b":"}]\"]"}],"c":{}} `, `[]`, `[[["]"]]]]`, `{"\\":"\\"}`,
	} {
		want, err := Skip([]byte(text), 0)
		if err != nil {
			t.Fatal(text, err)
		}
		if got := End([]byte(text), 0); got != want {
			t.Errorf("%s ends at %d, not %d", text, want, got)
		}
	}
}

// FuzzEnd: of JSON it says what Skip says, and of anything else it gives a position.
func FuzzEnd(f *testing.F) {
	f.Add([]byte(`{"a":["\\\"",1,{"b":null}]}x`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := End(b, 0)
		if got < 0 || got > len(b) {
			t.Fatalf("%q: %d", b, got)
		}
		if s, err := Whole(b); err == nil && got != s.End {
			t.Errorf("%q: %d, not %d", b, got, s.End)
		}
	})
}
