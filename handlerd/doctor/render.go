package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Render writes findings for a person: a line each with a mark, below it what Handler does about it and the commands
// that mend it, and a last line that counts. Colour only repeats what the marks say.
func Render(w io.Writer, findings []Finding, color bool) error {
	marks := map[string]struct{ sign, paint string }{OK: {"✓", "32"}, Remark: {"!", "33"}, Problem: {"✗", "31"}}
	var b bytes.Buffer
	for _, f := range findings {
		sign := marks[f.Level].sign
		if color {
			sign = "\x1b[" + marks[f.Level].paint + "m" + sign + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s %s\n", sign, f.Title)
		if f.Detail != "" {
			fmt.Fprintf(&b, "    %s\n", f.Detail)
		}
		for _, line := range f.Remedy {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	fmt.Fprintln(&b, Summary(findings))
	_, err := w.Write(b.Bytes())
	return err
}

// RenderJSON writes findings as one JSON array, never null.
func RenderJSON(w io.Writer, findings []Finding) error {
	if findings == nil {
		findings = []Finding{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(findings)
}

// Summary counts: "1 problem, 1 remark", "no problems".
func Summary(findings []Finding) string {
	problems, remarks := Count(findings)
	switch {
	case remarks == 0 && problems == 0:
		return "no problems"
	case remarks == 0:
		return plural(problems, "problem")
	case problems == 0:
		return "no problems, " + plural(remarks, "remark")
	}
	return plural(problems, "problem") + ", " + plural(remarks, "remark")
}

// Count gives how many findings are problems, and how many remarks.
func Count(findings []Finding) (problems, remarks int) {
	for _, f := range findings {
		switch f.Level {
		case Problem:
			problems++
		case Remark:
			remarks++
		}
	}
	return problems, remarks
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
