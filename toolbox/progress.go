package toolbox

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// An Event is one piece of progress. A step begins with an Event whose Step alone is set, has any number with Line,
// or Done and Total, and ends with one whose Took is set.
type Event struct {
	// Subject is what is being built: "toolbox default", "addon playwright".
	Subject string
	// Step is the name of the step that the event is of: "installing packages".
	Step string
	// Begin marks the first event of a step, End the last.
	Begin, End bool
	// Line is one line of output, at most 500 bytes, valid UTF-8.
	Line string
	// Done and Total measure the step, in its own unit; Total is 0 while unknown.
	Done, Total int64
	// Bytes says that Done and Total count bytes.
	Bytes bool
	// Took is how long the step lasted, on its last event.
	Took time.Duration
}

// keepLines is how much of a step's output an error shows.
const keepLines = 20

// maxLine bounds one line of output.
const maxLine = 500

// A reporter turns steps and their output into Events, one at a time, and keeps the end of the output for errors.
type reporter struct {
	to      func(Event)
	subject string

	mu    sync.Mutex // protects what follows, and calls of to
	step  string
	began time.Time
	last  []string
	part  []byte
	spoke int64 // Done of the last byte event
}

func newReporter(subject string, to func(Event)) *reporter {
	if to == nil {
		to = func(Event) {}
	}
	return &reporter{to: to, subject: subject}
}

// begin ends the step before and begins one.
func (r *reporter) begin(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish()
	r.step, r.began, r.last, r.part, r.spoke = step, time.Now(), nil, nil, 0
	r.to(Event{Subject: r.subject, Step: step, Begin: true})
}

// end ends the step.
func (r *reporter) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish()
}

func (r *reporter) finish() {
	if r.step == "" {
		return
	}
	r.flush()
	r.to(Event{Subject: r.subject, Step: r.step, End: true, Took: time.Since(r.began)})
	r.step = ""
}

// bytesEvery keeps the events of a stream rare enough to be drawn and sent.
const bytesEvery = 8 << 20

// bytes says how much of a stream has passed.
func (r *reporter) bytes(done int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if done-r.spoke < bytesEvery {
		return
	}
	r.spoke = done
	r.to(Event{Subject: r.subject, Step: r.step, Done: done, Bytes: true})
}

// Write takes output of the step and reports whole lines. It never fails.
func (r *reporter) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	for {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if room := 8*maxLine - len(r.part); len(line) > room {
			line = line[:max(0, room)]
		}
		r.part = append(r.part, line...)
		if !whole {
			return n, nil
		}
		r.flush()
		p = rest
	}
}

func (r *reporter) flush() {
	text := r.part
	r.part = nil
	// A program that draws a bar overwrites its line: what it wrote last counts.
	if i := bytes.LastIndexByte(bytes.TrimRight(text, "\r"), '\r'); i >= 0 {
		text = text[i+1:]
	}
	line := strings.TrimSpace(strings.ToValidUTF8(string(text), "�"))
	if line == "" {
		return
	}
	for len(line) > maxLine {
		line = line[:maxLine]
		for !utf8.ValidString(line) {
			line = line[:len(line)-1]
		}
	}
	r.last = append(r.last, line)
	if len(r.last) > keepLines {
		r.last = r.last[1:]
	}
	done, total := buildStep(line)
	r.to(Event{Subject: r.subject, Step: r.step, Line: line, Done: done, Total: total})
}

// count says what a line of a package installation means for the bar.
func (r *reporter) count(line string, done, total int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to(Event{Subject: r.subject, Step: r.step, Line: line, Done: done, Total: total})
}

// tail gives the last lines of the step's output.
func (r *reporter) tail() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
	return append([]string(nil), r.last...)
}

var buildStepPattern = regexp.MustCompile(`^(?:\[\d+/\d+\] )?STEP (\d+)/(\d+)`)

// buildStep reads the builder's "STEP 2/6: RUN …".
func buildStep(line string) (done, total int64) {
	m := buildStepPattern.FindStringSubmatch(line)
	if m == nil {
		return 0, 0
	}
	done, _ = strconv.ParseInt(m[1], 10, 32)
	total, _ = strconv.ParseInt(m[2], 10, 32)
	return done, total
}
