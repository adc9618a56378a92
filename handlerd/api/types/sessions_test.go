package types

import (
	"strings"
	"testing"
)

func TestQuestionID(t *testing.T) {
	long := `"` + strings.Repeat("x", 100) + `"`
	for id, want := range map[string]string{`0`: "k3f9/0", `"a b"`: `k3f9/"a b"`, `null`: "k3f9/null"} {
		if got := QuestionID("k3f9", []byte(id)); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
	a, b := QuestionID("k3f9", []byte(long)), QuestionID("k3f9", []byte(long[:50]+"y"+long[51:]))
	if a == b || len(a) > MaxQuestionID {
		t.Errorf("long ids: %q and %q", a, b)
	}
}
