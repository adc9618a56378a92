// Package audit is the log of what Handler decided: one line of JSON for every verdict but a plain allow (contract C),
// and for the beginning and end of every run, appended to a file in the state folder that only the person can read.
//
// Append returns when the line is on the disk: a verdict is acknowledged only after an fsync that covers its line.
// Appends that come while one fsync runs share the next, so that a burst costs two and not one each; nothing waits on
// a timer. A caller whose Append fails has an unrecorded verdict and must not act on it as if it were recorded.
//
// Every line has "v": 1. Readers ignore keys they do not know, so that later versions can add some, such as a chain of
// digests.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
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

	maxText = 2 << 10 // bytes of reason and subject; JSON may double them
	maxName = 128     // bytes of every other text
)

// version of the format.
const version = 1

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
	KindDaemon   = "daemon"   // the daemon began or ended; no verdict
)

// Verdicts of a Record.
const (
	Allowed = "allowed" // not a plain allow: by a rule or a person where the default is another
	Edited  = "edited"
	Refused = "refused"
)

// A Record is one line. Texts are cut to their bounds, control characters taken out, and user names, passwords and
// queries of addresses removed; what else could be a secret must not be put in.
type Record struct {
	Version int       `json:"v"`
	Time    time.Time `json:"time"` // set by Append if zero
	Run     string    `json:"run,omitempty"`
	Session string    `json:"session,omitempty"`
	Agent   string    `json:"agent,omitempty"`
	Kind    string    `json:"kind"`
	Rule    string    `json:"rule,omitempty"`
	Verdict string    `json:"verdict,omitempty"` // "" where nothing was judged
	Subject string    `json:"subject,omitempty"` // what was judged: a method, "host:port", a path, a tool's title
	Reason  string    `json:"reason,omitempty"`
}

// Of begins a record with what a verdict of package policy says.
func Of(v policy.Verdict) Record {
	r := Record{Rule: v.Rule, Reason: v.Reason, Verdict: Allowed}
	switch v.Action {
	case policy.Edit:
		r.Verdict = Edited
	case policy.Refuse:
		r.Verdict = Refused
	}
	return r
}

// A Log appends to one file. Its methods may be called concurrently.
type Log struct {
	path string
	max  int64 // MaxFile; smaller in tests
	now  func() time.Time

	mu      sync.Mutex // guards the fields below and the file's order of lines
	file    *os.File   // nil when closed
	size    int64
	torn    bool  // the last write failed in the middle of a line
	written int64 // lines written so far

	syncMu sync.Mutex // held during an fsync; taken before mu
	synced int64      // lines known to be on the disk; guarded by syncMu
}

// ErrClosed is returned by Append after Close.
var ErrClosed = errors.New("the audit log is closed")

// Open opens the log at path, made 0600 in a folder made 0700 if they are not there. A file that others can read is
// closed to them; one that is no regular file is refused. A line that a crash cut short is ended, and skipped by
// readers.
func Open(path string) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l := &Log{path: path, max: MaxFile, now: time.Now}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return l, nil
}

// open opens the file at l.path and ends a line that was cut short.
func (l *Log) open() error {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file; move it away", l.path)
	}
	if err == nil && info.Mode().Perm() != 0o600 {
		err = file.Chmod(0o600)
	}
	torn := false
	if err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		_, err = file.ReadAt(last, info.Size()-1)
		torn = last[0] != '\n'
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size, l.torn = file, info.Size(), torn
	return nil
}

// Append writes r as one line and returns when it is on the disk.
func (l *Log) Append(r Record) error {
	line, err := encode(r, l.now)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	number, err := l.write(line)
	if err != nil {
		return fmt.Errorf("audit log %s: %w", l.path, err)
	}
	if err := l.sync(number); err != nil {
		return fmt.Errorf("audit log %s: %w", l.path, err)
	}
	return nil
}

// write puts one line into the file, in one write, and gives its number.
func (l *Log) write(line []byte) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return 0, ErrClosed
	}
	if l.size > 0 && l.size+int64(len(line)) > l.max {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	l.torn = n > 0 && n < len(line)
	if err != nil {
		return 0, err
	}
	l.written++
	return l.written, nil
}

// sync returns when line number is on the disk. Whoever waits here while another's fsync runs finds, most often,
// that the next one has covered its line too.
func (l *Log) sync(number int64) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.synced >= number {
		return nil
	}
	l.mu.Lock()
	file, written := l.file, l.written
	l.mu.Unlock()
	if file == nil { // Close has synced
		return nil
	}
	if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // put aside meanwhile: synced then
		return err
	}
	l.synced = written
	return nil
}

// rotate puts the file aside and begins a new one. l.mu is held. The old file is synced before it is closed.
func (l *Log) rotate() error {
	if err := l.file.Sync(); err != nil {
		return err
	}
	for i := KeepFiles - 1; i >= 1; i-- {
		err := os.Rename(aside(l.path, i), aside(l.path, i+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.path, aside(l.path, 1)); err != nil {
		return err
	}
	old := l.file
	if err := l.open(); err != nil {
		return errors.Join(err, os.Rename(aside(l.path, 1), l.path)) // goes on in the old one
	}
	return old.Close()
}

// aside is the name of the i-th youngest file that was put aside.
func aside(path string, i int) string { return fmt.Sprintf("%s.%d", path, i) }

// Close syncs and closes the log. It is idempotent.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.file.Sync(), l.file.Close())
	l.file = nil
	return err
}

// encode gives the line of a record.
func encode(r Record, now func() time.Time) ([]byte, error) {
	if r.Kind == "" {
		return nil, errors.New("a record without a kind")
	}
	r.Version = version
	if r.Time.IsZero() {
		r.Time = now()
	}
	r.Time = r.Time.UTC().Truncate(time.Millisecond)
	for _, name := range []*string{&r.Run, &r.Session, &r.Agent, &r.Kind, &r.Rule, &r.Verdict} {
		*name = clean(*name, maxName)
	}
	r.Subject, r.Reason = clean(r.Subject, maxText), clean(r.Reason, maxText)
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// JSON spells < as six bytes: texts made of such are cut again, until the line fits.
	for limit := maxText / 2; len(line)+1 > MaxLine; limit /= 2 {
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
		if c < ' ' || c == 0x7f || 0x80 <= c && c < 0xa0 || 0x202a <= c && c <= 0x202e || 0x2066 <= c && c <= 0x2069 {
			c = ' ' // a terminal would act on these
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
