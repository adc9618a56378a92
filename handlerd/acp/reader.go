package acp

import (
	"bytes"
	"errors"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// DefaultMaxLine is the longest line that is taken from either side (facts: agents take 32 MiB a message, pictures
// in answers may be longer).
const DefaultMaxLine = 64 << 20

// DefaultMaxRequest is the longest line that is passed on to an agent: what the TypeScript SDK takes.
const DefaultMaxRequest = 32 << 20

// bigBuffer is from where on a buffer's array goes to the attic instead of staying in its buffer.
const bigBuffer = 256 << 10

// bigStep is by how much the array of a line over bigBuffer grows.
const bigStep = 16

// atticTime is how long a big array waits for the next long line.
const atticTime = 5 * time.Second

// An attic keeps big arrays for the next long line, but not for long: a run that has seen one picture does not keep
// its size for ever, and one that sees many need not make a new array for each.
type attic struct {
	mu     sync.Mutex
	arrays [][]byte    // at most as many as a pump has buffers; protected by mu
	empty  *time.Timer // protected by mu
}

func (a *attic) put(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.arrays = append(a.arrays, b[:0])
	if a.empty == nil {
		a.empty = time.AfterFunc(atticTime, a.clear)
	} else {
		a.empty.Reset(atticTime)
	}
}

// clear gives the arrays back to the system: left to itself, the garbage collector of a quiet daemon takes minutes.
func (a *attic) clear() {
	a.mu.Lock()
	a.arrays = nil
	a.mu.Unlock()
	debug.FreeOSMemory()
}

// get gives an array of at least need bytes; nil when there is none.
func (a *attic) get(need int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, b := range a.arrays {
		if cap(b) >= need {
			a.arrays = slices.Delete(a.arrays, i, i+1)
			return b
		}
	}
	a.arrays = nil // too small, so of no more use than the one that is about to be made
	return nil
}

// ErrHalfLine is the end of the input in the middle of a line. The half is dropped.
var ErrHalfLine = errors.New("the input ended in the middle of a line")

// A Line is one line without its end.
type Line struct {
	Bytes   []byte // the whole line; of one that is TooLong only the beginning
	TooLong bool
	Size    int64 // the whole line's bytes, its end left out; a TooLong one's carriage return is counted
}

// chunk is how much is read at a time.
const chunk = 64 << 10

// A Reader reads lines of any length up to a bound. It is not safe for concurrent use.
type Reader struct {
	from  io.Reader
	max   int
	store []byte // of chunk bytes
	ahead []byte // what was read and not given yet: a part of store
	spare *attic // big arrays to use again; nil for none
	last  int    // bytes of the last line longer than bigBuffer: the next such line is taken to be as long
}

// NewReader reads from r lines of at most limit bytes; 0 stands for [DefaultMaxLine].
func NewReader(r io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultMaxLine
	}
	return &Reader{from: r, max: limit, store: make([]byte, chunk)}
}

// Next reads the next line that is not blank into buf, which it may grow, and trims one carriage return. The line's
// array has room for one byte more. A line over the bound is no error: it is read to its end, and its beginning
// comes back with TooLong. At the end of the input the error is io.EOF, or ErrHalfLine with the half's size.
func (r *Reader) Next(buf []byte) (Line, error) {
	for {
		line, err := r.next(buf[:0])
		if len(line.Bytes) > bigBuffer {
			r.last = len(line.Bytes)
		}
		if err != nil || line.TooLong || len(bytes.TrimSpace(line.Bytes)) > 0 {
			return line, err
		}
		buf = line.Bytes
	}
}

func (r *Reader) next(buf []byte) (Line, error) {
	for {
		if end := bytes.IndexByte(r.ahead, '\n'); end >= 0 {
			buf = r.append(buf, r.ahead[:end+1])
			size := int64(len(buf))
			r.ahead = r.ahead[end+1:]
			if len(buf) > r.max+2 {
				buf = buf[:r.max]
			}
			return trim(buf, size, r.max), nil
		}
		buf = r.append(buf, r.ahead)
		r.ahead = nil
		if len(buf) > r.max+2 {
			return r.discard(buf)
		}
		done, err := false, error(nil)
		if buf, done, err = r.read(buf); done {
			return trim(buf, int64(len(buf)), r.max), nil
		}
		if err != nil && len(r.ahead) == 0 {
			return r.end(buf, int64(len(buf)), err)
		}
	}
}

// read reads on, of a short line ahead, of a long one to where it belongs. done tells that the line's end came.
func (r *Reader) read(buf []byte) (_ []byte, done bool, err error) {
	if len(buf) < chunk/2 {
		n, err := r.from.Read(r.store)
		r.ahead = r.store[:n]
		return buf, false, err
	}
	buf = r.grow(buf, 1)
	room := buf[len(buf):min(cap(buf), len(buf)+chunk)]
	n, err := r.from.Read(room)
	if end := bytes.IndexByte(room[:n], '\n'); end >= 0 {
		r.ahead = r.store[:copy(r.store, room[end+1:n])]
		return buf[:len(buf)+end+1], true, nil // an error comes again with the next read
	}
	return buf[:len(buf)+n], false, err
}

// discard reads to the end of a line over the bound, of which it keeps the beginning.
func (r *Reader) discard(buf []byte) (Line, error) {
	size := int64(len(buf))
	buf = buf[:r.max]
	for {
		n, err := r.from.Read(r.store)
		if end := bytes.IndexByte(r.store[:n], '\n'); end >= 0 {
			r.ahead = r.store[end+1 : n]
			return Line{Bytes: buf, TooLong: true, Size: size + int64(end)}, nil
		}
		size += int64(n)
		if err != nil {
			return r.end(buf, size, err)
		}
	}
}

// end is what the end of the input means for the line that is being read.
func (r *Reader) end(buf []byte, size int64, err error) (Line, error) {
	if errors.Is(err, io.EOF) && len(bytes.TrimSpace(buf)) > 0 {
		return Line{Bytes: buf, Size: size}, ErrHalfLine
	}
	return Line{Bytes: buf}, err
}

// trim cuts the line's end off, and says whether what is left is over the bound.
func trim(buf []byte, size int64, limit int) Line {
	kept := int64(len(buf)) == size
	size--
	if kept {
		buf = buf[:size]
		if n := len(buf); n > 0 && buf[n-1] == '\r' {
			buf = buf[:n-1]
			size--
		}
	}
	if size > int64(limit) {
		return Line{Bytes: buf[:min(len(buf), limit)], TooLong: true, Size: size}
	}
	return Line{Bytes: buf, Size: size}
}

// append adds to a line.
func (r *Reader) append(buf, more []byte) []byte {
	return append(r.grow(buf, len(more)), more...)
}

// grow makes room for n bytes more: by doubling, of long lines in a few big steps. What a step leaves behind stays in
// memory until the garbage is collected, and pages of a new array that nothing touches cost nothing, so a few steps
// keep a long line in memory about once where doubling has it there nearly three times. A line after a long one is
// taken to be as long, and a big array that is left from one is used again.
func (r *Reader) grow(buf []byte, n int) []byte {
	need := len(buf) + n
	if need <= cap(buf) {
		return buf
	}
	var grown []byte
	if need > bigBuffer && r.spare != nil {
		grown = r.spare.get(need)
	}
	if grown == nil {
		size := max(2*need, 4<<10)
		switch {
		case need <= bigBuffer:
		case need <= r.last+1:
			size = r.last + chunk
		default:
			size = bigStep * need
		}
		grown = make([]byte, 0, min(size, max(need, r.max+chunk)))
	}
	return append(grown, buf...)
}
