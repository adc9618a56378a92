package view

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// encodings is a SetEncodings message.
func encodings(all ...int32) []byte {
	b := binary.BigEndian.AppendUint16([]byte{msgSetEncodings, 0}, uint16(len(all)))
	for _, e := range all {
		b = binary.BigEndian.AppendUint32(b, uint32(e))
	}
	return b
}

// cutText is a clipboard of either side's.
func cutText(kind byte, length int32, text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind, 0, 0, 0}, uint32(length)), text...)
}

var (
	format  = append([]byte{msgSetPixelFormat, 0, 0, 0}, stillFormat[:]...)
	request = []byte{msgUpdateRequest, 1, 0, 0, 0, 0, 0, 8, 0, 4}
	key     = []byte{msgKey, 1, 0, 0, 0, 0, 0xff, 0x0d}
	pointer = []byte{msgPointer, 1, 0, 1, 0, 1}
)

func filtered(said []byte) ([]byte, error) {
	var out bytes.Buffer
	f := &filter{from: bufio.NewReader(bytes.NewReader(said)), to: &out}
	err := f.run(context.Background())
	return out.Bytes(), err
}

// TestFilter: what looking needs passes, and nothing else does.
func TestFilter(t *testing.T) {
	for _, c := range []struct {
		name       string
		said, want []byte
	}{
		{"pixels", format, format},
		{"a request", request, request},
		{"encodings that are known", encodings(encodingZRLE, encodingRaw, encodingCursor), encodings(encodingZRLE, encodingRaw, encodingCursor)},
		{"encodings that are not: Tight, extended clipboard, QEMU keys, fence", encodings(7, encodingRaw, -0x3f5ecd20, -258, -312), encodings(encodingRaw)},
		{"none", encodings(), encodings()},
		{"a key", key, nil},
		{"the pointer", pointer, nil},
		{"a clipboard", cutText(msgClientCutText, 5, "hello"), nil},
		{"an extended clipboard", cutText(msgClientCutText, -8, "\x01\x00\x00\x01hell"), nil},
		{"an empty one", cutText(msgClientCutText, 0, ""), nil},
		{"all of them", bytes.Join([][]byte{key, request, pointer, cutText(msgClientCutText, 1, "x"), format, key}, nil), append(bytes.Clone(request), format...)},
	} {
		got, err := filtered(c.said)
		if err != io.EOF || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %x passed, want %x; %v", c.name, got, c.want, err)
		}
	}
}

// TestFilterRefuses: what the filter does not know ends the view, and an end in mid-message is no good end.
func TestFilterRefuses(t *testing.T) {
	bad := func(at int, b byte) []byte {
		f := bytes.Clone(format)
		f[4+at] = b
		return f
	}
	for _, c := range []struct {
		name string
		said []byte
		want string
	}{
		{"QEMU's keys", []byte{255, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, "kind 255"},
		{"a fence", []byte{248, 0, 0, 0}, "kind 248"},
		{"a size for the display", []byte{251, 0}, "kind 251"},
		{"power of a machine", []byte{250, 0, 1, 2}, "kind 250"},
		{"bytes of a palette", bad(0, 8), "four bytes"},
		{"no true colour", bad(3, 0), "four bytes"},
		{"many bits", bad(4, 1), "eight bits"},
		{"colours beyond", bad(10, 25), "beyond"},
		{"many encodings", binary.BigEndian.AppendUint16([]byte{msgSetEncodings, 0}, maxEncodings+1), "encodings"},
		{"a large clipboard", cutText(msgClientCutText, maxCutText+1, ""), "bytes at once"},
		{"one of the least number", cutText(msgClientCutText, -1<<31, ""), "bytes at once"},
	} {
		var protocol *ProtocolError
		out, err := filtered(c.said)
		if !errors.As(err, &protocol) || !protocol.FromViewer || !strings.Contains(err.Error(), c.want) || len(out) > 0 {
			t.Errorf("%s: %x, %v", c.name, out, err)
		}
	}
	for _, whole := range [][]byte{format, request, key, pointer, encodings(encodingRaw), cutText(msgClientCutText, 5, "hello")} {
		for n := 1; n < len(whole); n++ {
			if out, err := filtered(whole[:n]); err != io.ErrUnexpectedEOF || over(err) || len(out) > 0 {
				t.Errorf("%x: %x, %v", whole[:n], out, err)
			}
		}
	}
}

// TestPace: what comes faster than it may waits, and not beyond its view.
func TestPace(t *testing.T) {
	var p pace
	ctx, cancel := context.WithCancelCause(context.Background())
	for range messageBurst {
		if err := p.wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	over := errors.New("over")
	cancel(over)
	for range 2 * messageBurst { // some may pass meanwhile
		if err := p.wait(ctx); err == over {
			return
		}
	}
	t.Error("nothing waited")
}

// FuzzFilter: whatever a viewer says, only messages for looking come out, whole; and with hands keys and pointer too, of which
// nothing is down that is not let go at the end.
func FuzzFilter(f *testing.F) {
	for _, seed := range [][]byte{format, request, key, pointer, encodings(7, encodingRaw), cutText(msgClientCutText, 5, "hello")} {
		f.Add(seed)
		f.Add(append(seed, request...))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 256*8 { // none of those waits
			return
		}
		out, err := filtered(said)
		if err == nil {
			t.Fatal("it ended without a reason")
		}
		whole(t, out, false)
		var with bytes.Buffer
		hands := &filter{from: bufio.NewReader(bytes.NewReader(said)), to: &with}
		hands.takeHold(func() {})
		_ = hands.run(context.Background())
		var last bytes.Buffer
		hands.letGo(heldConn{w: &last})
		down, pressed := whole(t, append(with.Bytes(), last.Bytes()...), true)
		if len(down) > 0 || pressed != 0 {
			t.Fatalf("%v and %b are held down at the end", down, pressed)
		}
	})
}

// A heldConn is a display's connection that takes what it is told.
type heldConn struct {
	net.Conn
	w io.Writer
}

func (c heldConn) Write(b []byte) (int, error)      { return c.w.Write(b) }
func (c heldConn) SetWriteDeadline(time.Time) error { return nil }

// whole fails where something else passed than whole messages of the known kinds, and gives what is down at the end.
func whole(t *testing.T, out []byte, hands bool) (down map[uint32]bool, pressed byte) {
	t.Helper()
	down = map[uint32]bool{}
	for len(out) > 0 {
		n := 0
		switch kind := out[0]; {
		case kind == msgSetPixelFormat:
			n = 20
		case kind == msgUpdateRequest:
			n = 10
		case kind == msgKey && hands:
			n = 8
		case kind == msgPointer && hands:
			n = 6
		case kind == msgSetEncodings && len(out) >= 4:
			n = 4 + 4*int(binary.BigEndian.Uint16(out[2:]))
			for at := 4; at+4 <= min(n, len(out)); at += 4 {
				if e := int32(binary.BigEndian.Uint32(out[at:])); !passed[e] {
					t.Fatalf("the encoding %d passed", e)
				}
			}
		default:
			t.Fatalf("a message of kind %d passed, or half of one", kind)
		}
		if n > len(out) {
			t.Fatalf("half a message: %x", out)
		}
		switch out[0] {
		case msgKey:
			key := binary.BigEndian.Uint32(out[4:])
			if delete(down, key); out[1] != 0 {
				down[key] = true
			}
			if len(down) > MaxHeld {
				t.Fatalf("%d keys are down", len(down))
			}
		case msgPointer:
			pressed = out[1]
		}
		out = out[n:]
	}
	return down, pressed
}
