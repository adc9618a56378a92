// Package audit is the log of what Handler decided: one line of JSON for every verdict but a plain allow (contract C),
// for the beginning and end of every run and of the daemon, for every answer of the person's and every use of a secret,
// appended to a file in the state folder that only the person can read.
//
// # What Append promises
//
// Append returns when the line is on the disk: a verdict is acknowledged only after an fsync that covers its line.
// Appends that come while one fsync runs share the next, so that a burst costs two and not one each; nothing waits on
// a timer. A caller whose Append fails has an unrecorded verdict and must not act on it as if it were recorded: it
// refuses.
//
// # The chain
//
// Every line is numbered and holds the SHA-256 of the line before it, over that line's exact bytes with its newline,
// also over the border of two files and of two lives of the daemon. A small file beside the log, its head, holds the
// number and digest of the last line; it is written after the line is on the disk, never before. So Verify finds a
// line that was edited, taken out, put in or moved, and an end that was cut off. What a crash cut short is a torn line,
// which the next life of the daemon ends and names, with its length and digest, in the chain itself. Nobody can be
// kept by this from writing the whole chain and its head anew: against that, keep a head elsewhere (Options.Head).
//
// Every line has "v": 2. Lines of version 1, which had no chain, are still read; a chain begins behind them.
// Readers ignore keys they do not know, so that later versions can add some.
package audit

import (
	"encoding/json"
	"errors"
	"regexp"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/handlerd/handler/policy"
)

// Bounds of the log.
const (
	// MaxLine is the longest line, its newline included; longer texts are cut to fit, and end in "…".
	MaxLine = 8 << 10
	// MaxFile is the size at which the file is put aside and a new one begun.
	MaxFile = 8 << 20
	// KeepFiles is how many files that were put aside are kept: audit.jsonl.1 is the youngest.
	KeepFiles = 4

	maxLink = 128     // bytes that a line's number and the digest of the one before it take, at most
	maxText = 2 << 10 // bytes of reason and subject; JSON may double them
	maxHint = 512     // bytes of a hint: a command
	maxName = 128     // bytes of every other text
)

// version of the format; version 1 had no chain.
const version = 2

// Kinds of a Record: what was judged, or what happened to a run.
const (
	KindMessage = "message" // an ACP message (P1 to P9)
	KindNetwork = "network" // a destination (D.2 to D.9)
	KindAnswer  = "answer"  // a question of the agent's, answered by rules or by the person (P5)
	KindScope   = "scope"   // what a run left in a scope that the person's own tools would run (A.9)
	KindStart   = "start"   // a run began; no verdict
	KindStop    = "stop"    // a run ended; no verdict

	KindApproval = "approval" // what a person was asked and answered, or did not (H)
	KindSecret   = "secret"   // a secret was read: its name and kind of source, never more
	KindRules    = "rules"    // the person changed an agent's rules
	KindLimit    = "limit"    // a run came near a limit of its own, or was stopped at it (A.4)
	KindShell    = "shell"    // the person opened a terminal in a run
	KindTakeover = "takeover" // the person took the guarded browser of a run over, or it was given back; no verdict
	KindForward  = "forward"  // the person opened a port of a run's sandbox on the host, or closed it
	KindTool     = "tool"     // a call of a tool that handlerd serves, by its name and a digest of its arguments (F)
	KindWeb      = "web"      // the page's door was opened or closed, a browser was logged in or out; no verdict
	KindDaemon   = "daemon"   // the daemon began or ended; no verdict
	KindChain    = "chain"    // the chain begins here, or goes on behind a torn line; written by the log itself
)

// Kinds gives every kind there is, in the order of the constants.
func Kinds() []string {
	return []string{KindMessage, KindNetwork, KindAnswer, KindScope, KindStart, KindStop, KindApproval, KindSecret, KindRules,
		KindLimit, KindShell, KindForward, KindTool, KindWeb, KindDaemon, KindChain}
}

// Verdicts of a Record.
const (
	Allowed = "allowed" // not a plain allow: by a rule or a person where the default is another
	Edited  = "edited"
	Refused = "refused"
	Asked   = "asked" // a person was asked; another record has the answer
)

// A Record is one line. Texts are cut to their bounds, control characters taken out, and user names, passwords and
// queries of addresses removed; what else could be a secret must not be put in.
type Record struct {
	Version int       `json:"v"`
	N       int64     `json:"n,omitempty"`    // the line's number in its chain, from 1; set by Append
	Prev    string    `json:"prev,omitempty"` // SHA-256 of the line before it, in hex; "" where a chain begins; set by Append
	Time    time.Time `json:"time"`           // set by Append if zero
	Run     string    `json:"run,omitempty"`
	Session string    `json:"session,omitempty"`
	Agent   string    `json:"agent,omitempty"`
	Kind    string    `json:"kind"`
	Rule    string    `json:"rule,omitempty"`
	Verdict string    `json:"verdict,omitempty"` // "" where nothing was judged
	Subject string    `json:"subject,omitempty"` // what was judged: a method, "host:port", a path, a tool's title
	Reason  string    `json:"reason,omitempty"`
	Hint    string    `json:"hint,omitempty"` // what a person does about it

	// Of KindChain: how many bytes before this line are no line, since a crash cut one short, and their SHA-256.
	Torn    int64  `json:"torn,omitempty"`
	TornSum string `json:"tornSum,omitempty"`
}

// Of begins a record with what a verdict of package policy says.
func Of(v policy.Verdict) Record {
	r := Record{Rule: v.Rule, Reason: v.Reason, Hint: v.Hint, Verdict: Allowed}
	switch v.Action {
	case policy.Edit:
		r.Verdict = Edited
	case policy.Refuse:
		r.Verdict = Refused
	case policy.Ask:
		r.Verdict = Asked
	}
	return r
}

// encode gives the line of a record, without its place in the chain: see chained.
func encode(r Record, now func() time.Time) ([]byte, error) {
	if r.Kind == "" {
		return nil, errors.New("a record without a kind")
	}
	r.Version, r.N, r.Prev = version, 0, ""
	if r.Time.IsZero() {
		r.Time = now()
	}
	r.Time = r.Time.UTC().Truncate(time.Millisecond)
	for _, name := range []*string{&r.Run, &r.Session, &r.Agent, &r.Kind, &r.Rule, &r.Verdict} {
		*name = clean(*name, maxName)
	}
	r.Subject, r.Reason, r.Hint = clean(r.Subject, maxText), clean(r.Reason, maxText), clean(r.Hint, maxHint)
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// JSON spells < as six bytes: texts made of such are cut again, until the line fits.
	for limit := maxText / 2; len(line)+1+maxLink > MaxLine; limit /= 2 {
		r.Subject, r.Reason = clean(r.Subject, limit), clean(r.Reason, limit)
		if line, err = json.Marshal(r); err != nil {
			return nil, err
		}
	}
	return append(line, '\n'), nil
}

// address finds what of an address may be a secret: what stands before "@", and what follows "?" or "#".
var address = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^/\s?#"']*@)?([^\s?#"']*)([?#][^\s"']*)?`)

// clean takes out control characters and the secret parts of addresses, and cuts text to limit bytes.
func clean(text string, limit int) string {
	text = cut(text, 4*limit) // bounds the work below
	text = address.ReplaceAllString(text, "$1$2")
	out := make([]rune, 0, len(text))
	for _, c := range text {
		if unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) && c != 0x200c && c != 0x200d {
			c = ' ' // a terminal would act on these, or hide them
		}
		out = append(out, c)
	}
	return cut(string(out), limit)
}

// cut gives at most limit bytes of text, at a character's border, ending in "…" where some were cut.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len("…")
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:max(end, 0)] + "…"
}
