package view

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/handlerd/handler/sandbox"
)

func updated(said []byte, s screen) ([]byte, screen, error) {
	var out bytes.Buffer
	u := &updates{from: bufio.NewReader(bytes.NewReader(said)), to: bufio.NewWriter(&out), screen: s}
	err := u.run()
	if flushed := u.to.Flush(); flushed != nil {
		return nil, s, flushed
	}
	return out.Bytes(), u.screen, err
}

var small = screen{width: 8, height: 4, format: stillFormat}

func zrle(length uint32, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, length), body...)
}

// TestUpdates: pictures pass as they are, the bell and the display's clipboard do not.
func TestUpdates(t *testing.T) {
	for _, c := range []struct {
		name       string
		said, want []byte
	}{
		{"pixels", update(plain(0, 0, 8, 4, 1)), nil},
		{"several", update(plain(0, 0, 2, 1, 1), rectangle(1, 1, 2, 2, encodingCopyRect, 0, 0, 0, 0), plain(7, 3, 1, 1, 9)), nil},
		{"none", update(), nil},
		{"an empty one", update(plain(8, 4, 0, 0, 1)), nil},
		{"compressed ones", update(rectangle(0, 0, 8, 4, encodingZRLE, zrle(3, 1, 2, 3)...)), nil},
		{"a pointer", update(rectangle(3, 3, 9, 2, encodingCursor, make([]byte, 9*2*4+2*2)...)), nil},
		{"another size, and what fits into it", update(rectangle(0, 0, 16, 9, encodingDesktopSize), plain(15, 8, 1, 1, 5)), nil},
		{"the bell", []byte{msgBell}, []byte{}},
		{"a clipboard", cutText(msgServerCutText, 5, "hello"), []byte{}},
		{"an extended one", cutText(msgServerCutText, -5, "hello"), []byte{}},
	} {
		want := c.want
		if want == nil {
			want = c.said
		}
		if got, _, err := updated(c.said, small); err != io.EOF || !bytes.Equal(got, want) {
			t.Errorf("%s: %x passed, want %x; %v", c.name, got, want, err)
		}
		for n := 1; n < len(c.said); n++ {
			if _, _, err := updated(c.said[:n], small); err != io.ErrUnexpectedEOF || over(err) {
				t.Errorf("%s, the first %d bytes: %v", c.name, n, err)
			}
		}
	}
}

// TestUpdatesRefuse: what the display says beyond its screen, or beyond bounds, ends the view.
func TestUpdatesRefuse(t *testing.T) {
	for _, c := range []struct {
		name string
		said []byte
		want string
	}{
		{"a kind that is not known", []byte{7}, "kind 7"},
		{"a colour map", []byte{1, 0, 0, 0, 0, 0}, "kind 1"},
		{"many rectangles", binary.BigEndian.AppendUint16([]byte{msgUpdate, 0}, maxRectsUpdate+1), "rectangles"},
		{"beyond its width", update(plain(1, 0, 8, 1, 1)), "not on its screen"},
		{"beyond its height", update(plain(0, 4, 1, 1, 1)), "not on its screen"},
		{"a copy beyond it", update(rectangle(0, 0, 65535, 65535, encodingCopyRect, 0, 0, 0, 0)), "not on its screen"},
		{"compressed beyond it", update(rectangle(0, 0, 9, 1, encodingZRLE, zrle(0)...)), "not on its screen"},
		{"compressed and large", update(rectangle(0, 0, 8, 4, encodingZRLE, zrle(8*4*4+zrleSlack+1)...)), "larger than its pixels"},
		{"compressed and of the largest number", update(rectangle(0, 0, 8, 4, encodingZRLE, zrle(1<<32-1)...)), "larger than its pixels"},
		{"a large pointer", update(rectangle(0, 0, maxCursor+1, 1, encodingCursor)), "pointer"},
		{"no size", update(rectangle(0, 0, 0, 4, encodingDesktopSize)), "0x4"},
		{"a large size", update(rectangle(0, 0, sandbox.MaxScreenWidth+1, 4, encodingDesktopSize)), "pixels"},
		{"Tight", update(rectangle(0, 0, 1, 1, 7)), "encoding 7"},
		{"a clipboard without end", cutText(msgServerCutText, maxCutText+1, ""), "bytes at once"},
		{"one of the least number", cutText(msgServerCutText, -1<<31, ""), "bytes at once"},
	} {
		var protocol *ProtocolError
		if _, _, err := updated(c.said, small); !errors.As(err, &protocol) || protocol.FromViewer || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// FuzzUpdates: whatever a display says, what comes out is no more than came in, passes again as it is, and leaves a
// screen within bounds.
func FuzzUpdates(f *testing.F) {
	for _, seed := range [][]byte{update(plain(0, 0, 8, 4, 1)), update(rectangle(0, 0, 8, 4, encodingZRLE, zrle(3, 1, 2, 3)...)),
		update(rectangle(0, 0, 16, 9, encodingDesktopSize), rectangle(0, 0, 2, 2, encodingCursor, make([]byte, 18)...)), {msgBell},
		cutText(msgServerCutText, 5, "hello"), cutText(msgServerCutText, -5, "hello")} {
		f.Add(seed)
		f.Add(append(seed, update(plain(0, 0, 1, 1, 1))...))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		out, s, err := updated(said, small)
		if err == nil || len(out) > len(said) || checkSize(s.width, s.height) != nil {
			t.Fatalf("%d of %d bytes, %dx%d, %v", len(out), len(said), s.width, s.height, err)
		}
		if err != io.EOF {
			return
		}
		if again, _, err := updated(out, small); err != io.EOF || !bytes.Equal(again, out) {
			t.Fatalf("%x became %x: %v", out, again, err)
		}
	})
}
