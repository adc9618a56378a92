package guestwire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// A shell is a connection of its own, which the guest makes to shell.sock when a shell frame asks it to (contract E).
// It carries binary frames both ways: a kind (one byte), the length of what follows (uint32, big-endian), and that.
// The daemon passes them on to its client unchanged, once it has checked them.
//
//	guest to host   ShellToken     the token of the shell frame; first, once
//	                ShellStarted   the command runs; nothing follows
//	                ShellOutput    bytes of the terminal, or of standard output
//	                ShellErrors    bytes of standard error, where there is no terminal
//	                ShellTaken     uint32: so many bytes of input were taken since the last one
//	                ShellExit      the exit code (one byte), then the name of the signal that ended it, or nothing; last
//	                ShellFailed    why there is no shell, or none any more; last
//	host to guest   ShellOpen      a ShellRequest in JSON; first, once
//	                ShellInput     bytes for the terminal or standard input
//	                ShellInputEnd  there is no more input
//	                ShellResize    rows and columns, uint16 each
//
// At most ShellWindow bytes of input may be under way, so that a command that reads nothing never keeps its reader from
// seeing the end of the connection.
const (
	ShellToken    = 't'
	ShellStarted  = 's'
	ShellOutput   = 'O'
	ShellErrors   = 'E'
	ShellTaken    = 'a'
	ShellExit     = 'x'
	ShellFailed   = 'f'
	ShellOpen     = 'o'
	ShellInput    = 'i'
	ShellInputEnd = 'e'
	ShellResize   = 'r'
)

// Bounds of a shell's connection.
const (
	MaxShellData = 32 << 10  // bytes behind one frame's head
	ShellWindow  = 256 << 10 // bytes of input that were sent and not taken

	shellHead   = 5
	maxToken    = 64
	maxTerm     = 64
	maxShellArg = 256 // arguments of a command
)

// A ShellRequest says what runs in a shell and on what.
type ShellRequest struct {
	Argv     []string `json:"argv"`     // none: the sandbox's own shell
	Terminal bool     `json:"terminal"` // on a terminal, else on three pipes
	Term     string   `json:"term"`     // TERM; "" for a plain one
	Rows     uint16   `json:"rows"`     // of the terminal; 0 for a usual size
	Cols     uint16   `json:"cols"`
}

// Check says what of a request cannot be.
func (r ShellRequest) Check() error {
	if len(r.Argv) > maxShellArg {
		return fmt.Errorf("the command has %d words, at most %d are possible", len(r.Argv), maxShellArg)
	}
	if len(r.Argv) > 0 && r.Argv[0] == "" {
		return errors.New("the command's name is empty")
	}
	for _, a := range r.Argv {
		if strings.ContainsRune(a, 0) || !utf8.ValidString(a) {
			return errors.New("a word of the command is not text")
		}
	}
	if !termName(r.Term) {
		return errors.New("TERM is not the name of a terminal")
	}
	if body, err := json.Marshal(r); err != nil || len(body) > MaxShellData {
		return fmt.Errorf("the command is longer than %d KiB", MaxShellData>>10)
	}
	return nil
}

// termName tells the name of a terminal, or "": it becomes part of a path in the sandbox.
func termName(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '.' && c != '+' && c != '_') {
			return false
		}
	}
	return len(s) <= maxTerm
}

// A ShellFrame is one frame of a shell's connection. Only the fields of its Kind are meaningful.
type ShellFrame struct {
	Kind   byte
	Data   []byte       // ShellToken, ShellOutput, ShellErrors, ShellInput: at least one byte
	Taken  uint32       // ShellTaken; at least 1
	Code   uint8        // ShellExit
	Signal string       // ShellExit
	Text   string       // ShellFailed
	Open   ShellRequest // ShellOpen
	Rows   uint16       // ShellResize
	Cols   uint16       // ShellResize
}

// FromGuest tells whether a kind is one that a guest sends.
func (f ShellFrame) FromGuest() bool {
	return bytes.IndexByte([]byte{ShellToken, ShellStarted, ShellOutput, ShellErrors, ShellTaken, ShellExit, ShellFailed}, f.Kind) >= 0
}

// AppendShell appends a frame to dst. It fails on one that a ShellReader would refuse; a Text that is too long is cut.
func AppendShell(dst []byte, f ShellFrame) ([]byte, error) {
	var body []byte
	switch f.Kind {
	case ShellToken, ShellOutput, ShellErrors, ShellInput:
		body = f.Data
	case ShellTaken:
		body = binary.BigEndian.AppendUint32(nil, f.Taken)
	case ShellExit:
		body = append([]byte{f.Code}, f.Signal...)
	case ShellFailed:
		body = []byte(cutText(f.Text))
	case ShellOpen:
		var err error
		if body, err = json.Marshal(f.Open); err != nil {
			return dst, err
		}
	case ShellResize:
		body = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, f.Rows), f.Cols)
	}
	if _, err := parseShell(f.Kind, body); err != nil {
		return dst, err
	}
	dst = binary.BigEndian.AppendUint32(append(dst, f.Kind), uint32(len(body)))
	return append(dst, body...), nil
}

// parseShell makes a frame of a body, strictly. Its Data is body.
func parseShell(kind byte, body []byte) (ShellFrame, error) {
	f := ShellFrame{Kind: kind}
	bad := func(what string) (ShellFrame, error) { return ShellFrame{}, fmt.Errorf("shell frame: %s", what) }
	if len(body) > MaxShellData {
		return bad("too long")
	}
	switch kind {
	case ShellToken, ShellOutput, ShellErrors, ShellInput:
		if len(body) == 0 || kind == ShellToken && len(body) > maxToken {
			return bad("data of a length that cannot be")
		}
		f.Data = body
	case ShellStarted, ShellInputEnd:
		if len(body) != 0 {
			return bad("something where nothing may be")
		}
	case ShellTaken:
		if len(body) != 4 {
			return bad("not a number")
		}
		if f.Taken = binary.BigEndian.Uint32(body); f.Taken == 0 || f.Taken > ShellWindow {
			return bad("an amount of input out of range")
		}
	case ShellExit:
		if len(body) == 0 || !signalWord(string(body[1:])) {
			return bad("not an exit code and a signal")
		}
		f.Code, f.Signal = body[0], string(body[1:])
	case ShellFailed:
		if len(body) == 0 || len(body) > MaxText || !utf8.Valid(body) {
			return bad("text out of range")
		}
		f.Text = string(body)
	case ShellOpen:
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&f.Open); err != nil || dec.InputOffset() != int64(len(body)) {
			return bad("not a request")
		}
		if err := f.Open.Check(); err != nil {
			return ShellFrame{}, err
		}
	case ShellResize:
		if len(body) != 4 {
			return bad("not a size")
		}
		f.Rows, f.Cols = binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])
	default:
		return bad("of an unknown kind")
	}
	return f, nil
}

// A ShellReader reads frames from a stream, with one buffer of a frame's size and nothing read ahead.
type ShellReader struct {
	r   io.Reader
	buf []byte
}

// NewShellReader makes one.
func NewShellReader(r io.Reader) *ShellReader {
	return &ShellReader{r: r, buf: make([]byte, shellHead+MaxShellData)}
}

// Next returns the next frame; its Data is good until the next call. At the end of the stream it returns io.EOF, in the
// middle of a frame io.ErrUnexpectedEOF; after any other error the stream has no meaning any more.
func (r *ShellReader) Next() (ShellFrame, error) {
	head := r.buf[:shellHead]
	if _, err := io.ReadFull(r.r, head); err != nil {
		return ShellFrame{}, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxShellData {
		return ShellFrame{}, errors.New("shell frame: too long")
	}
	body := r.buf[shellHead : shellHead+int(n)]
	if err := fill(r.r, body); err != nil {
		return ShellFrame{}, err
	}
	return parseShell(head[0], body)
}

// A ShellWriter writes frames to a stream, whole ones, from any number of goroutines.
type ShellWriter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewShellWriter makes one.
func NewShellWriter(w io.Writer) *ShellWriter { return &ShellWriter{w: w} }

// Write writes a frame.
func (w *ShellWriter) Write(f ShellFrame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	if w.buf, err = AppendShell(w.buf[:0], f); err != nil {
		return err
	}
	_, err = w.w.Write(w.buf)
	return err
}
