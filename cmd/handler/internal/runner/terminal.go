package runner

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxAnswer bounds a line that a person types, in bytes.
const maxAnswer = 64 << 10

// errNobody says that the terminal has ended: there is nobody to ask.
var errNobody = errors.New("the terminal has ended")

// A terminal asks and reads lines. It is used by one dialogue at a time.
type terminal struct {
	in     io.Reader
	out    io.Writer
	lines  chan string // nil until the first question; closed at the end of in
	closed chan struct{}
	gone   time.Time // when a question was taken back that nobody had answered
}

// goneFor is how long after a question was taken back a person may still be typing its answer.
const goneFor = 3 * time.Second

const goneText = "  the question above is gone; press Enter for another one "

func newTerminal(in io.Reader, out io.Writer) *terminal {
	return &terminal{in: in, out: out, closed: make(chan struct{})}
}

// close lets the reader end at the next line.
func (t *terminal) close() { close(t.closed) }

func (t *terminal) say(s string) { _, _ = io.WriteString(t.out, s) }

// ask prints a question and waits for a line. What was typed before the question was there does not answer it, nor what
// a person is typing for one that was taken back: an agent could ask something harmless, take it back, and have the yes
// for something else.
func (t *terminal) ask(ctx context.Context, question string) (string, error) {
	if t.in == nil {
		return "", errNobody
	}
	if time.Since(t.gone) < goneFor {
		if _, err := t.line(ctx, goneText); err != nil {
			return "", err
		}
	}
	t.gone = time.Time{}
	return t.line(ctx, question)
}

// line prints a question and waits for a line.
func (t *terminal) line(ctx context.Context, question string) (string, error) {
	t.dropTypedAhead()
	if t.lines == nil {
		t.lines = make(chan string)
		go t.read(t.lines)
	}
	t.say(question)
	select {
	case line, ok := <-t.lines:
		if !ok {
			t.say("\n")
			return "", errNobody
		}
		return line, nil
	case <-ctx.Done():
		t.gone = time.Now()
		return "", ctx.Err()
	}
}

// dropTypedAhead forgets lines that were read already and, on a real terminal, what its driver holds.
func (t *terminal) dropTypedAhead() {
	if f, ok := t.in.(*os.File); ok {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // fails where it is no terminal
	}
	select {
	case _, ok := <-t.lines:
		if !ok {
			return
		}
	default:
	}
}

func (t *terminal) read(lines chan<- string) {
	defer close(lines)
	r := bufio.NewReader(t.in)
	for {
		line, err := readLine(r)
		if err != nil {
			return
		}
		select {
		case lines <- line:
		case <-t.closed:
			return
		}
	}
}

// readLine gives a line without its ending; what is over the bound is thrown away.
func readLine(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		part, err := r.ReadSlice('\n')
		b.Write(part[:min(len(part), maxAnswer-b.Len())])
		switch {
		case err == nil:
			return strings.TrimRight(b.String(), "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && b.Len() > 0:
			return b.String(), nil
		default:
			return "", err
		}
	}
}
