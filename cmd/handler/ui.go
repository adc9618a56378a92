package main

// The rules of the command line's output:
//
//   - Results go to stdout, everything else to stderr behind "handler: ", without a capital at the beginning and
//     without a full stop at the end.
//   - --json prints one JSON value (or a line each for what streams) on stdout and nothing else there.
//   - Colour only on a terminal, never with NO_COLOR, and never alone as the carrier of meaning.
//   - An error says what happened, to what and why; a hint below it says what to type.
//   - Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by policy; and as of any program that a signal ends,
//     130 for an interrupt (Ctrl-C). handler shell ends as its command does.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/handlerd/handler/cmd/handler/internal/runner"
	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/handlerd/fault"
)

// A ui is the person's side of a command.
type ui struct {
	in     *os.File
	out    *os.File
	errout *os.File
	getenv func(string) string
	json   bool
}

func newUI(in, out, errout *os.File, getenv func(string) string) *ui {
	return &ui{in: in, out: out, errout: errout, getenv: getenv}
}

// terminal tells whether f is one.
func terminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// color tells whether f may get colour.
func (u *ui) color(f *os.File) bool {
	return terminal(f) && u.getenv("NO_COLOR") == "" && u.getenv("TERM") != "dumb"
}

// say writes a remark to stderr.
func (u *ui) say(format string, args ...any) {
	fmt.Fprintf(u.errout, "handler: %s\n", runner.Text(fmt.Sprintf(format, args...)))
}

// exitInterrupted is the exit code of a command that Ctrl-C ended before it was done.
const exitInterrupted = 130

// errReported is an error whose words the person has seen already; it only carries the exit code.
type errReported struct{ code int }

func (e errReported) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// exit reports err and gives the exit code.
func (u *ui) exit(err error) int {
	if err == nil {
		return 0
	}
	var reported errReported
	if errors.As(err, &reported) {
		return reported.code
	}
	var bad *configfile.Error
	f := fault.Of(err)
	kind := f.Kind
	if errors.As(err, &bad) {
		kind = fault.Usage
	}
	if u.json {
		_ = json.NewEncoder(u.out).Encode(map[string]any{"error": map[string]any{
			"message": f.Text, "hint": f.Hint, "exitCode": kind.ExitCode(),
		}})
	}
	u.say("%s", strings.ReplaceAll(f.Text, "\n", "\n  "))
	if f.Hint != "" {
		fmt.Fprintf(u.errout, "  %s\n", runner.Text(strings.ReplaceAll(f.Hint, "\n", "\n  ")))
	}
	return kind.ExitCode()
}

// result prints v as JSON, or calls text.
func (u *ui) result(v any, text func(io.Writer) error) error {
	if !u.json {
		return text(u.out)
	}
	enc := json.NewEncoder(u.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table prints rows in columns; the first row is the head.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = strings.NewReplacer("\n", " ", "\t", " ").Replace(runner.Text(row[i]))
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// bytesText writes a size as people do: "312 MB".
func bytesText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%d MB", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%d kB", n/1e3)
	default:
		return fmt.Sprintf("%d B", n)
	}
}

// ago writes a time as people do while it is young.
func ago(t time.Time) string {
	switch d := time.Since(t); {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return t.Format("2006-01-02 15:04")
	}
}

// plain makes one line of text, from an agent or with a path of its making in it, safe to print.
func plain(s string) string { return runner.Line(s) }

func writeJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
