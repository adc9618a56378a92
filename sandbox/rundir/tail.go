package rundir

import (
	"bytes"
	"sync"
)

// MaxLine is the most bytes of one call of Options.StderrLine; a longer line comes in pieces.
const MaxLine = 16 << 10

const defaultTail = 64 << 10

// tail keeps the end of a stream and cuts it into lines.
type tail struct {
	max  int
	line func([]byte) // nil for none

	part []byte // the unfinished line; only the writing goroutine touches it

	mu   sync.Mutex
	buf  []byte // at most 2*max
	lost int64  // dropped by the guest, or before buf
}

func newTail(size int, line func([]byte)) tail {
	if size <= 0 {
		size = defaultTail
	}
	return tail{max: size, line: line}
}

// write takes bytes, dropped of which were lost before them.
func (t *tail) write(b []byte, dropped int64) {
	t.mu.Lock()
	t.lost += dropped
	t.buf = append(t.buf, b...)
	if len(t.buf) > 2*t.max { // twice, so that the copying is paid for once in a while only
		cut := len(t.buf) - t.max
		t.lost += int64(cut)
		t.buf = append(t.buf[:0], t.buf[cut:]...)
	}
	t.mu.Unlock()
	if t.line == nil {
		return
	}
	for len(b) > 0 {
		piece, rest, whole := bytes.Cut(b, []byte{'\n'})
		for room := MaxLine - len(t.part); len(piece) > room; room = MaxLine {
			t.part = append(t.part, piece[:room]...)
			piece = piece[room:]
			t.emit()
		}
		t.part = append(t.part, piece...)
		if whole {
			t.emit()
		}
		b = rest
	}
}

func (t *tail) emit() {
	t.line(t.part)
	t.part = t.part[:0]
}

// flush hands out an unfinished last line.
func (t *tail) flush() {
	if t.line != nil && len(t.part) > 0 {
		t.emit()
	}
}

func (t *tail) snapshot() ([]byte, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cut := max(0, len(t.buf)-t.max)
	return bytes.Clone(t.buf[cut:]), t.lost + int64(cut)
}
