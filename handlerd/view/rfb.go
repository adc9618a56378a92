package view

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/handlerd/handler/sandbox"
)

// version is the one revision of RFB that is spoken.
const version = "RFB 003.008\n"

// Numbers of RFC 6143.
const (
	securityNone = 1

	msgSetPixelFormat = 0
	msgSetEncodings   = 2
	msgUpdateRequest  = 3
	msgKey            = 4
	msgPointer        = 5
	msgClientCutText  = 6

	msgUpdate        = 0
	msgBell          = 2
	msgServerCutText = 3

	encodingRaw         = 0
	encodingCopyRect    = 1
	encodingZRLE        = 16
	encodingDesktopSize = -223
	encodingCursor      = -239
)

// passed are the encodings that a viewer may ask for: those whose length is known or said, so that a message's end is.
var passed = map[int32]bool{encodingRaw: true, encodingCopyRect: true, encodingZRLE: true, encodingDesktopSize: true, encodingCursor: true}

// Bounds of what both sides say.
const (
	maxEncodings   = 128       // that a viewer names
	maxCutText     = 1 << 20   // bytes of a clipboard that is skipped
	maxName        = 1 << 10   // bytes of a server's name
	maxSecurity    = 32        // ways to get in that a server names
	maxCursor      = 256       // pixels of a pointer's picture, each way
	bytesPerPixel  = 4         // the one format that passes
	zrleSlack      = 64 << 10  // bytes that a compressed rectangle may be over its plain size
	relayBuffer    = 32 << 10  // bytes of one WebSocket message to a viewer
	maxRectsUpdate = 16 << 10  // rectangles of one update
	maxWaiting     = 256 << 10 // of what a viewer sends in one WebSocket message
)

// A ProtocolError says that one side said what RFB, or the filter, does not know. Its text has nothing of what was said.
type ProtocolError struct {
	FromViewer bool
	Text       string
}

func (e *ProtocolError) Error() string {
	if e.FromViewer {
		return "the viewer " + e.Text
	}
	return "the display's VNC server " + e.Text
}

func badServer(format string, args ...any) error {
	return &ProtocolError{Text: fmt.Sprintf(format, args...)}
}

func badViewer(format string, args ...any) error {
	return &ProtocolError{FromViewer: true, Text: fmt.Sprintf(format, args...)}
}

// A screen is what a server says of its own at the beginning.
type screen struct {
	width, height int
	format        [16]byte
}

// check holds a size to the bounds of a sandbox's display.
func checkSize(width, height int) error {
	if width < 1 || height < 1 || width > sandbox.MaxScreenWidth || height > sandbox.MaxScreenHeight {
		return badServer("says that it has %dx%d pixels", width, height)
	}
	return nil
}

// checkFormat lets the one kind of pixels through: four bytes with three colours of eight bits.
func checkFormat(f []byte) error {
	max := func(at int) uint16 { return binary.BigEndian.Uint16(f[at:]) }
	switch {
	case f[0] != 8*bytesPerPixel || f[1] != 24 && f[1] != 32 || f[2] > 1 || f[3] != 1:
		return errors.New("wants pixels other than four bytes of true colour")
	case max(4) != 255 || max(6) != 255 || max(8) != 255:
		return errors.New("wants colours of other than eight bits")
	case f[10] > 24 || f[11] > 24 || f[12] > 24:
		return errors.New("wants colours beyond its pixels")
	}
	return nil
}

// greet is a client's part of the beginning: no password, shared with whoever else looks.
func greet(conn io.ReadWriter) (screen, error) {
	var s screen
	head := make([]byte, len(version))
	if _, err := io.ReadFull(conn, head); err != nil {
		return s, err
	}
	if !bytes.Equal(head, []byte(version)) {
		return s, badServer("speaks no %s", version[:len(version)-1])
	}
	if _, err := io.WriteString(conn, version); err != nil {
		return s, err
	}
	if err := greetSecurity(conn); err != nil {
		return s, err
	}
	if _, err := conn.Write([]byte{1}); err != nil { // shared
		return s, err
	}
	init := make([]byte, 24)
	if _, err := io.ReadFull(conn, init); err != nil {
		return s, err
	}
	s.width, s.height = int(binary.BigEndian.Uint16(init)), int(binary.BigEndian.Uint16(init[2:]))
	if err := checkSize(s.width, s.height); err != nil {
		return s, err
	}
	copy(s.format[:], init[4:20])
	if err := checkFormat(s.format[:]); err != nil {
		return s, badServer("%v", err)
	}
	return s, skip(conn, int64(binary.BigEndian.Uint32(init[20:])), maxName, badServer)
}

func greetSecurity(conn io.ReadWriter) error {
	count := make([]byte, 1)
	if _, err := io.ReadFull(conn, count); err != nil {
		return err
	}
	if count[0] == 0 || count[0] > maxSecurity {
		return badServer("lets nobody in")
	}
	kinds := make([]byte, count[0])
	if _, err := io.ReadFull(conn, kinds); err != nil {
		return err
	}
	if bytes.IndexByte(kinds, securityNone) < 0 {
		return badServer("wants a password")
	}
	if _, err := conn.Write([]byte{securityNone}); err != nil {
		return err
	}
	result := make([]byte, 4)
	if _, err := io.ReadFull(conn, result); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(result) != 0 {
		return badServer("refused to be watched")
	}
	return nil
}

// receive is a server's part of the beginning. name is what the viewer shows.
func receive(conn io.ReadWriter, s screen, name string) error {
	if _, err := io.WriteString(conn, version); err != nil {
		return err
	}
	head := make([]byte, len(version))
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	if !bytes.Equal(head, []byte(version)) {
		return badViewer("speaks no %s", version[:len(version)-1])
	}
	if _, err := conn.Write([]byte{1, securityNone}); err != nil {
		return err
	}
	one := make([]byte, 1)
	if _, err := io.ReadFull(conn, one); err != nil {
		return err
	}
	if one[0] != securityNone {
		return badViewer("chose a way in that was not offered")
	}
	if _, err := conn.Write(make([]byte, 4)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, one); err != nil { // shared or not: it is shared
		return err
	}
	init := binary.BigEndian.AppendUint16(nil, uint16(s.width))
	init = binary.BigEndian.AppendUint16(init, uint16(s.height))
	init = append(init, s.format[:]...)
	init = binary.BigEndian.AppendUint32(init, uint32(len(name)))
	_, err := conn.Write(append(init, name...))
	return err
}

// skip reads n bytes away, at most as many as may be.
func skip(r io.Reader, n, most int64, bad func(string, ...any) error) error {
	if n < 0 || n > most {
		return bad("says more than %d bytes at once", most)
	}
	_, err := io.CopyN(io.Discard, r, n)
	return unexpected(err)
}

// unexpected makes an end in the middle of a message one.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
