// Package policy is contract C: a message or a destination in, a verdict out. It is pure: no file, no socket, no
// clock; what it must know of the world comes in as a function. Rules P1 to P9 are over ACP messages; the network
// rules (D.4) are over destinations.
package policy

import "fmt"

// An Action is what becomes of what was judged.
type Action int

const (
	Allow  Action = iota // goes on, byte for byte
	Edit                 // goes on with the bytes of Verdict.Edits replaced
	Refuse               // is answered with an error, or dropped where nothing can be answered
	Ask                  // waits for a person's answer; refused where nobody can be asked (network rules only)
)

// A Verdict is the answer to every question put to this package.
type Verdict struct {
	Action Action
	Rule   string // "P1" … "P9", "D.2" … ; "" for a plain allow
	Reason string // what was refused or changed and why: safe to show to a person and an agent
	Hint   string // what to do about it: a command where there is one; "" for none
}

// String is the one wording of a refusal, the same on the command line, the page and towards agents
// (docs/handlers/policy.md).
func (v Verdict) String() string {
	if v.Action != Refuse {
		return v.Reason
	}
	s := fmt.Sprintf("refused by %s: %s", v.Rule, v.Reason)
	if v.Hint != "" {
		s += " — " + v.Hint
	}
	return s
}
