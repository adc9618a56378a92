package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// A report is everything that one run of bench found.
type report struct {
	Machine machine `json:"machine"`
	Rows    []row   `json:"rows"`
}

// A row is one result: a figure, what it was made of, and what it should be.
type row struct {
	Group   string   `json:"group"`
	What    string   `json:"what"`
	Figure  float64  `json:"figure"`
	Unit    string   `json:"unit"` // "×", "ms", "µs", "MB" or "s"
	Target  target   `json:"target,omitzero"`
	Verdict string   `json:"verdict"` // "met", "missed", or "" where there is no target
	Numbers []number `json:"numbers"` // what the figure was made of
}

// A number is one median that was measured.
type number struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// A target is a bound on a figure, in the figure's unit.
type target struct {
	Bound   float64 `json:"bound"`
	AtLeast bool    `json:"atLeast"` // otherwise at most
}

func atMost(bound float64) target  { return target{Bound: bound} }
func atLeast(bound float64) target { return target{Bound: bound, AtLeast: true} }

// judge gives the verdict on a figure.
func (t target) judge(figure float64) string {
	switch {
	case t == target{}:
		return ""
	case t.AtLeast && figure >= t.Bound, !t.AtLeast && figure <= t.Bound:
		return "met"
	}
	return "missed"
}

// add keeps a result with its verdict.
func (r *report) add(w row) {
	w.Verdict = w.Target.judge(w.Figure)
	r.Rows = append(r.Rows, w)
}

func (r report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// cells gives a row as the table has it.
func (w row) cells() []string {
	goal, verdict := "none", "–"
	if w.Target != (target{}) {
		sign := "≤"
		if w.Target.AtLeast {
			sign = "≥"
		}
		goal, verdict = sign+" "+number{Value: w.Target.Bound, Unit: w.Unit}.String(), w.Verdict
	}
	var of []string
	for _, n := range w.Numbers {
		of = append(of, n.Name+" "+n.String())
	}
	return []string{w.What, goal, number{Value: w.Figure, Unit: w.Unit}.String(), verdict, strings.Join(of, ", ")}
}

// String writes a number with as many digits as mean something.
func (n number) String() string {
	digits := 0
	switch v := n.Value; {
	case v != 0 && v < 10 && v > -10:
		digits = 2
	case v < 100 && v > -100:
		digits = 1
	}
	text := fmt.Sprintf("%.*f", digits, n.Value)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if n.Unit == "" {
		return text
	}
	return text + " " + n.Unit
}

// table gives the rows in Markdown, its columns padded.
func (r report) table() string {
	rows := [][]string{{"what", "target", "measured", "verdict", "made of"}}
	for _, w := range r.Rows {
		rows = append(rows, w.cells())
	}
	width := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var out strings.Builder
	for i, cells := range rows {
		for j, c := range cells {
			out.WriteString("| " + c + strings.Repeat(" ", width[j]-utf8.RuneCountInString(c)) + " ")
		}
		out.WriteString("|\n")
		if i == 0 {
			for _, w := range width {
				out.WriteString("|" + strings.Repeat("-", w+2))
			}
			out.WriteString("|\n")
		}
	}
	return out.String()
}

// text is what a person sees.
func (r report) text() string { return r.Machine.String() + "\n\n" + r.table() }

// The marks of the part of the page that is written by --write.
const (
	pageBegin = "<!-- results: written by hack/bench --write -->\n"
	pageEnd   = "<!-- end of results -->\n"
)

// writePage puts the results between the page's marks.
func writePage(path string, r report) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page, err = replaceResults(page, r.text())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, page, 0o644)
}

func replaceResults(page []byte, text string) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(pageBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(pageEnd))
	if !ok || !ok2 {
		return nil, fmt.Errorf("the marks %q and %q are not there", strings.TrimSpace(pageBegin), strings.TrimSpace(pageEnd))
	}
	return fmt.Appendf(nil, "%s%s\n%s\n%s%s", before, pageBegin, text, pageEnd, after), nil
}
