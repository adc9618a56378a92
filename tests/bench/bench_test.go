package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 3, 2, 4}
	for part, want := range map[float64]float64{0: 1, 0.25: 2, 0.5: 3, 0.625: 3.5, 1: 5} {
		if got := quantile(values, part); got != want {
			t.Errorf("quantile %v is %v, want %v", part, got, want)
		}
	}
	if values[0] != 5 {
		t.Error("the values were sorted in place")
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
	if got := ratio([]float64{2, 30, 6}, []float64{1, 10, 3}); got != 2 {
		t.Errorf("ratio %v", got)
	}
	if got := minus([]float64{2, 30, 6}, []float64{1, 10, 3}); got != 3 {
		t.Errorf("minus %v", got)
	}
}

func TestTurns(t *testing.T) {
	var order strings.Builder
	one := func(name string, v float64) contender {
		return contender{func(context.Context) (float64, error) { order.WriteString(name); return v, nil }}
	}
	values, err := turns(t.Context(), 2, one("a", 1), one("b", 2))
	if err != nil || order.String() != "abbaab" || len(values[0]) != 2 || values[0][1] != 1 || values[1][0] != 2 {
		t.Errorf("%v %v %s", values, err, order.String())
	}
	broken := errors.New("broken")
	if _, err := turns(t.Context(), 1, contender{func(context.Context) (float64, error) { return 0, broken }}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns(ctx, 1, one("a", 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		target target
		figure float64
		want   string
	}{
		{atMost(1.3), 1.3, "met"}, {atMost(1.3), 1.31, "missed"}, {atLeast(0.6), 0.6, "met"}, {atLeast(0.6), 0.59, "missed"},
		{target{}, 7, ""}, {atMost(100), math.NaN(), "missed"}, {atLeast(0.6), math.NaN(), "missed"},
	} {
		var r report
		r.add(row{Figure: c.figure, Target: c.target})
		if got := r.Rows[0].Verdict; got != c.want {
			t.Errorf("%v of %+v: %q, want %q", c.figure, c.target, got, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for want, n := range map[string]number{
		"1.3 ×": {Value: 1.3, Unit: "×"}, "1.25 ×": {Value: 1.254, Unit: "×"}, "12.3 ms": {Value: 12.34, Unit: "ms"}, "200 ms": {Value: 200.4, Unit: "ms"},
		"9": {Value: 9}, "0 MB": {Unit: "MB"}, "100 µs": {Value: 100, Unit: "µs"}, "-0.5 MB": {Value: -0.5, Unit: "MB"},
	} {
		if got := n.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var r report
	r.add(row{What: "a ×", Figure: 2, Unit: "s", Target: atMost(20), Numbers: []number{{"slowest", 3, "s"}}})
	r.add(row{What: "b", Figure: 12, Unit: "ms"})
	want := "| what | target | measured | verdict | made of     |\n" +
		"|------|--------|----------|---------|-------------|\n" +
		"| a ×  | ≤ 20 s | 2 s      | met     | slowest 3 s |\n" +
		"| b    | none   | 12 ms    | –       |             |\n"
	if got := r.table(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestReplaceResults(t *testing.T) {
	page := "before\n" + pageBegin + "old\n" + pageEnd + "after\n"
	got, err := replaceResults([]byte(page), "new")
	if want := "before\n" + pageBegin + "\nnew\n" + pageEnd + "after\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"", pageBegin, pageEnd + pageBegin} {
		if _, err := replaceResults([]byte(bad), "new"); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// TestLines: the agent reads what the client writes, and answers have one length.
func TestLines(t *testing.T) {
	line := requestLine("session/prompt", "1000001", "picture", 3, bytes.Repeat([]byte("x"), 9000))
	if id, kind, count := readRequest(line); id != "1000001" || kind != "picture" || count != 3 {
		t.Errorf("%q %q %d", id, kind, count)
	}
	for _, kind := range []string{"picture", "source"} {
		if n := len(updateLine(kind)); n < lineBytes || n > lineBytes+1024 {
			t.Errorf("a line of %d bytes", n)
		}
	}
}

// TestSourceText: the text has as many escapes as its comment says.
func TestSourceText(t *testing.T) {
	line := string(longText("source"))
	if each := len(line) / strings.Count(line, `\`); each < 10 || each > 14 {
		t.Errorf("an escape every %d bytes", each)
	}
	if !json.Valid([]byte(`"` + line + `"`)) {
		t.Error("not the inside of a JSON string")
	}
}

func TestFirstByte(t *testing.T) {
	frames := "\x02\x00\x00\x00\x00\x00\x00\x03err" + "\x01\x00\x00\x00\x00\x00\x00\x01{"
	if err := firstByte(bufio.NewReader(strings.NewReader(frames))); err != nil {
		t.Error(err)
	}
	if err := firstByte(bufio.NewReader(strings.NewReader(frames[:11]))); err == nil || !strings.Contains(err.Error(), "err") {
		t.Errorf("got %v", err)
	}
}

func TestKilobytes(t *testing.T) {
	text := "Rss:  12 kB\nPss:   3 kB\nPss_Anon: 1 kB\n"
	if n, err := kilobytes(text, "Pss:"); err != nil || n != 3<<10 {
		t.Errorf("%d %v", n, err)
	}
	if _, err := kilobytes(text, "Private:"); err == nil {
		t.Error("no error for what is not there")
	}
}
