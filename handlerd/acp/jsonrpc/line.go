package jsonrpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

const (
	// DefaultMaxLine bounds one line in bytes: 64 MiB, as the relay does.
	DefaultMaxLine = 64 << 20
	readBuffer     = 64 << 10
	keepBuffer     = 1 << 20 // a buffer that grew past this is given back after its line
)

// A LineReader gives one line of a stream at a time, bounded.
type LineReader struct {
	r   *bufio.Reader
	max int
	buf []byte
}

// NewLineReader makes a LineReader of lines of at most max bytes, their ends not counted.
func NewLineReader(r io.Reader, max int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, readBuffer), max: max}
}

// Next gives the next line without its line ending; the slice is good until the next call. A line over the bound is skipped whole and reported with
// ErrLineTooLong and its beginning; reading may go on. What follows the last line ending is half a line and is
// never given: io.ErrUnexpectedEOF.
func (l *LineReader) Next() ([]byte, error) {
	if cap(l.buf) > keepBuffer {
		l.buf = nil
	}
	l.buf = l.buf[:0]
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if !long && len(l.buf)+len(part) > l.max+2 { // 2: the line ending
			long = true
			l.buf = append(l.buf, part...)
			l.buf = bytes.Clone(l.buf[:min(len(l.buf), readBuffer)])
		} else if !long {
			l.buf = append(l.buf, part...)
		}
		switch {
		case err == nil && long:
			return l.buf, ErrLineTooLong
		case err == nil:
			line := bytes.TrimSuffix(l.buf, []byte{'\n'})
			return bytes.TrimSuffix(line, []byte{'\r'}), nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(l.buf) > 0 || long):
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// peekEnvelope reads what the beginning of an over-long line tells: its method and id, as far as they come before
// the long value. answer says that the line is an answer.
func peekEnvelope(prefix []byte) (method string, id json.RawMessage, answer bool) {
	d := json.NewDecoder(bytes.NewReader(prefix))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", nil, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return method, id, answer
		}
		if key == "result" || key == "error" {
			answer = true
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return method, id, answer
		}
		switch key {
		case "id":
			id = v
		case "method":
			if json.Unmarshal(v, &method) != nil {
				return "", id, answer
			}
		}
	}
	return method, id, answer
}
