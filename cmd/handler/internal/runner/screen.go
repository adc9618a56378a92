package runner

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// maxHeld bounds the events that wait while a question is open; beyond, they are shown all the same.
const maxHeld = 10_000

// A screen prints events in order. While a question is open it holds them back, so that the person reads the question
// last; in JSON nobody reads along, and nothing is held.
type screen struct {
	mu     sync.Mutex
	p      printer
	text   *textPrinter // nil in JSON
	stderr io.Writer
	abort  context.CancelCauseFunc
	err    error
	asking bool
	held   []event
}

// newScreen gives a screen that calls abort when the output can no longer be written.
func newScreen(o Options, abort context.CancelCauseFunc) *screen {
	s := &screen{stderr: o.Stderr, abort: abort}
	if o.JSON {
		s.p = jsonPrinter{o.Stdout}
		return s
	}
	s.text = &textPrinter{w: o.Stdout, color: o.Color, width: o.Width, home: o.Home}
	s.p = s.text
	return s
}

// emit prints an event, or keeps it for the end of a question. It gives the first error of the output.
func (s *screen) emit(e event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking && s.text != nil && len(s.held) < maxHeld {
		s.held = append(s.held, e)
		return s.err
	}
	s.print(e)
	return s.err
}

func (s *screen) print(e event) {
	if s.err != nil {
		return
	}
	if s.err = s.p.print(e); s.err != nil {
		s.abort(fmt.Errorf("write the output: %w", s.err))
	}
}

// aside writes to standard error, on a line of its own if both are one terminal.
func (s *screen) aside(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != nil && !s.asking {
		s.text.endLine()
	}
	_, _ = io.WriteString(s.stderr, text) // a remark that cannot be made is not worth the run
}

// hold begins a question and release ends it.
func (s *screen) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != nil {
		s.text.endLine()
		s.text.last = ""
	}
	s.asking = true
}

func (s *screen) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	for _, e := range s.held {
		s.print(e)
	}
	s.held = nil
}
