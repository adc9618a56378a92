package guestwire

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Version is the protocol's version, in hello. Guest and host come from one build, so it must be equal.
const Version = 1

// Bounds of the protocol, in bytes.
const (
	MaxFrame  = 64 << 10 // one frame with its newline
	MaxStderr = 32 << 10 // Data of one frame, before base64
	MaxText   = 4 << 10  // Text
)

// Kinds of frames; the package comment has the table.
const (
	Hello   = "hello"
	Started = "started"
	Stderr  = "stderr"
	Exit    = "exit"
	Failed  = "failed"
	Signal  = "signal"
	Written = "written"
	Shell   = "shell"
	Dial    = "dial"
	Screen  = "screen"
	Hands   = "hands"
)

// ErrFrameTooLong says that a line had more than MaxFrame bytes.
var ErrFrameTooLong = errors.New("guest frame is longer than 64 KiB")

// A Frame is one message. Only the fields of its Kind are meaningful.
type Frame struct {
	Kind    string
	Version int    // hello
	PID     int    // started; at least 1
	Data    []byte // stderr
	Dropped int64  // stderr: bytes lost before Data because the host read too slowly
	Code    int    // exit; 0 to 255, 128 + the signal's number when a signal ended the command
	Signal  string // exit: what ended the command, or ""; signal: what to send
	Text    string // failed
	Token   string // shell, dial, screen, hands: what the guest says on the connection it makes; letters and digits, at most 64
	Port    int    // dial: of the sandbox's loopback; 1 to 65535
}

// SignalNames are the names that a signal frame may carry.
func SignalNames() []string { return []string{"TERM", "INT", "HUP", "USR1", "USR2", "KILL"} }

// keys returns the keys of a kind besides "type", in the order in which they are written.
func keys(kind string) ([]string, bool) {
	switch kind {
	case Hello:
		return []string{"version"}, true
	case Started:
		return []string{"pid"}, true
	case Stderr:
		return []string{"data", "dropped"}, true
	case Exit:
		return []string{"code", "signal"}, true
	case Failed:
		return []string{"text"}, true
	case Signal:
		return []string{"name"}, true
	case Written:
		return nil, true
	case Shell, Screen, Hands:
		return []string{"token"}, true
	case Dial:
		return []string{"token", "port"}, true
	}
	return nil, false
}

// Append appends the frame's line, newline included, to dst. It fails on a frame that Parse would refuse; a Text
// that is too long is cut instead, since it is only ever shown.
func Append(dst []byte, f Frame) ([]byte, error) {
	f.Text = cutText(f.Text)
	if err := f.check(); err != nil {
		return dst, err
	}
	names, _ := keys(f.Kind)
	dst = append(dst, `{"type":"`...)
	dst = append(dst, f.Kind...)
	dst = append(dst, '"')
	for _, k := range names {
		dst = append(dst, ',', '"')
		dst = append(dst, k...)
		dst = append(dst, '"', ':')
		switch k {
		case "version":
			dst = strconv.AppendInt(dst, int64(f.Version), 10)
		case "pid":
			dst = strconv.AppendInt(dst, int64(f.PID), 10)
		case "port":
			dst = strconv.AppendInt(dst, int64(f.Port), 10)
		case "code":
			dst = strconv.AppendInt(dst, int64(f.Code), 10)
		case "dropped":
			dst = strconv.AppendInt(dst, f.Dropped, 10)
		case "data":
			dst = append(dst, '"')
			dst = base64.StdEncoding.AppendEncode(dst, f.Data)
			dst = append(dst, '"')
		case "signal", "name":
			dst = append(dst, '"')
			dst = append(dst, f.Signal...)
			dst = append(dst, '"')
		case "text":
			text, err := json.Marshal(f.Text)
			if err != nil {
				return dst, err
			}
			dst = append(dst, text...)
		case "token":
			dst = append(dst, '"')
			dst = append(dst, f.Token...)
			dst = append(dst, '"')
		}
	}
	return append(dst, '}', '\n'), nil
}

// cutText makes s valid UTF-8 of at most MaxText bytes.
func cutText(s string) string {
	if len(s) > MaxText {
		s = s[:MaxText-4] + "…"
	}
	if !utf8.ValidString(s) {
		s = string(bytes.ToValidUTF8([]byte(s), []byte("?")))
	}
	return s
}

// check holds the bounds that both directions keep.
func (f *Frame) check() error {
	switch f.Kind {
	case Hello:
		if f.Version < 1 || f.Version > math.MaxInt32 {
			return fmt.Errorf("guest frame hello: version %d is out of range", f.Version)
		}
	case Started:
		if f.PID < 1 || f.PID > math.MaxInt32 {
			return fmt.Errorf("guest frame started: pid %d is out of range", f.PID)
		}
	case Stderr:
		if len(f.Data) > MaxStderr || f.Dropped < 0 {
			return fmt.Errorf("guest frame stderr: %d bytes and %d dropped are out of range", len(f.Data), f.Dropped)
		}
	case Exit:
		if f.Code < 0 || f.Code > 255 || !signalWord(f.Signal) {
			return fmt.Errorf("guest frame exit: code %d or its signal is out of range", f.Code)
		}
	case Failed:
		if f.Text == "" || len(f.Text) > MaxText {
			return fmt.Errorf("guest frame failed: text of %d bytes is out of range", len(f.Text))
		}
	case Signal:
		if !slices.Contains(SignalNames(), f.Signal) {
			return errors.New("guest frame signal: unknown name")
		}
	case Written:
	case Shell, Dial, Screen, Hands:
		if f.Token == "" || len(f.Token) > maxToken || !termName(f.Token) {
			return errors.New("guest frame " + f.Kind + ": the token is out of range")
		}
		if f.Kind == Dial && (f.Port < 1 || f.Port > math.MaxUint16) {
			return fmt.Errorf("guest frame dial: port %d is out of range", f.Port)
		}
	default:
		return errors.New("guest frame of an unknown type")
	}
	return nil
}

// signalWord tells a signal's name without SIG: capitals, digits, + and - (RTMIN+1), at most 16 bytes; or "".
func signalWord(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '+' && c != '-' {
			return false
		}
	}
	return len(s) <= 16
}

// Parse parses one line, without its newline, strictly: valid UTF-8, one flat object, exactly the keys of its kind,
// each once and spelled exactly, values in range.
func Parse(line []byte) (Frame, error) {
	if len(line) >= MaxFrame {
		return Frame{}, ErrFrameTooLong
	}
	if !utf8.Valid(line) {
		return Frame{}, errors.New("guest frame is not valid UTF-8")
	}
	fields, err := flatObject(line)
	if err != nil {
		return Frame{}, fmt.Errorf("guest frame: %w", err)
	}
	kind, _ := fields["type"].(string)
	names, ok := keys(kind)
	if !ok {
		return Frame{}, errors.New("guest frame of an unknown type")
	}
	if len(fields) != len(names)+1 {
		return Frame{}, fmt.Errorf("guest frame %s: %d keys instead of %d", kind, len(fields), len(names)+1)
	}
	f := Frame{Kind: kind}
	for _, k := range names {
		v, ok := fields[k]
		if !ok {
			return Frame{}, fmt.Errorf("guest frame %s: no %s", kind, k)
		}
		if err := f.set(k, v); err != nil {
			return Frame{}, fmt.Errorf("guest frame %s: %s: %w", kind, k, err)
		}
	}
	return f, f.check()
}

// set sets the field of key k from a string or a json.Number.
func (f *Frame) set(k string, v any) (err error) {
	switch k {
	case "version":
		f.Version, err = number(v)
	case "pid":
		f.PID, err = number(v)
	case "code":
		f.Code, err = number(v)
	case "port":
		f.Port, err = number(v)
	case "dropped":
		var n int
		n, err = number(v)
		f.Dropped = int64(n)
	default:
		s, ok := v.(string)
		if !ok {
			return errors.New("not a string")
		}
		switch k {
		case "data":
			f.Data, err = base64.StdEncoding.Strict().DecodeString(s)
		case "text":
			f.Text = s
		case "token":
			f.Token = s
		default: // "signal" and "name"
			f.Signal = s
		}
	}
	return err
}

func number(v any) (int, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, errors.New("not a number")
	}
	i, err := strconv.Atoi(n.String())
	if err != nil {
		return 0, errors.New("not a whole number in range")
	}
	return i, nil
}

// flatObject reads one JSON object of strings and numbers, refusing duplicate keys and anything after it.
func flatObject(line []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	fields := make(map[string]any, 4)
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, errors.New("bad JSON")
		}
		key, _ := k.(string) // the decoder gives only strings here
		if _, dup := fields[key]; dup {
			return nil, errors.New("a key appears twice")
		}
		v, err := dec.Token()
		if err != nil {
			return nil, errors.New("bad JSON")
		}
		switch v.(type) {
		case string, json.Number:
			fields[key] = v
		default:
			return nil, errors.New("a value is neither a string nor a number")
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("bad JSON")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the object")
	}
	return fields, nil
}

// A Reader reads frames from a stream.
type Reader struct{ br *bufio.Reader }

// NewReader returns a Reader that buffers at most one frame.
func NewReader(r io.Reader) *Reader { return &Reader{bufio.NewReaderSize(r, MaxFrame)} }

// Next returns the next frame. Its Data is the caller's to keep. At the end of the stream it returns io.EOF, in the
// middle of a frame io.ErrUnexpectedEOF; after any other error the stream has no meaning any more.
func (r *Reader) Next() (Frame, error) {
	line, err := r.br.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return Frame{}, ErrFrameTooLong
	case err == io.EOF && len(line) > 0:
		return Frame{}, io.ErrUnexpectedEOF
	case err != nil:
		return Frame{}, err
	}
	return Parse(line[:len(line)-1])
}
