// Package fault is how the engine says that something went wrong in words that a person may see: a safe text, what
// to do next, and the cause apart from both. Kinds map to exit codes on the command line and to status codes of the
// API, so that both agree.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// A Kind says whose turn it is after a fault.
type Kind int

const (
	Failed   Kind = iota // something did not work: exit code 1
	Usage                // what was asked for cannot be: exit code 2
	Refused              // the policy refused: exit code 3
	NotFound             // there is no such thing: exit code 1
	Conflict             // it is not as whoever asks takes it to be: exit code 1
)

// A Fault is an error with a text that is safe to show: it holds no secret and no path that the person did not name.
type Fault struct {
	Kind Kind
	Text string // what happened, to what and why; lower case, no full stop
	Hint string // what to do next: a command where there is one; "" for none
	Err  error  // the cause, for errors.Is and the log; may be nil
}

// Error is the text and the hint, as a person reads them.
func (f *Fault) Error() string {
	if f.Hint == "" {
		return f.Text
	}
	return f.Text + "\n  " + f.Hint
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Err }

// New makes a fault of a kind with a hint; the text is a format.
func New(kind Kind, hint, format string, args ...any) *Fault {
	return &Fault{Kind: kind, Hint: hint, Text: fmt.Sprintf(format, args...)}
}

// Wrap makes a fault whose cause is err and whose text ends with err's.
// A cause that is a Fault of its own gives its text alone, and its hint where there is no other: nothing is said twice.
func Wrap(kind Kind, err error, hint, format string, args ...any) *Fault {
	text := err.Error()
	if inner := (*Fault)(nil); errors.As(err, &inner) && inner.Hint != "" {
		text = strings.TrimSuffix(text, "\n  "+inner.Hint)
		if hint == "" {
			hint = inner.Hint
		}
	}
	return &Fault{Kind: kind, Hint: hint, Text: fmt.Sprintf(format, args...) + ": " + text, Err: err}
}

// Of gives err as a Fault: the one in its chain, or a Failed one with err's text.
func Of(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Kind: Failed, Text: err.Error(), Err: err}
}

// ExitCode is the command line's exit code for a kind.
func (k Kind) ExitCode() int {
	switch k {
	case Usage:
		return 2
	case Refused:
		return 3
	default:
		return 1
	}
}
