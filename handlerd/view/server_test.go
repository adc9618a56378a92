package view

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// pair gives the two ends of a connection of the kind that leads to a display: it holds some bytes, and no more.
func pair(t testing.TB) (ours, theirs net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "view")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// A server is a display's VNC server, as far as a test lets it be one: it keeps what it hears behind the beginning.
type server struct {
	conn  net.Conn // the server's end
	heard chan []byte
	ready chan error // closed when the beginning is over
}

// hello is a good beginning of a display of 8x4 pixels.
func hello() []byte { return helloOf(8, 4) }

func helloOf(width, height uint16) []byte {
	b := append([]byte(version), 1, securityNone, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, width)
	b = binary.BigEndian.AppendUint16(b, height)
	b = append(b, stillFormat[:]...)
	return append(binary.BigEndian.AppendUint32(b, 4), "fake"...)
}

// serve is a server that begins with greeting, and the dial to it, which counts once.
func serve(t testing.TB, greeting []byte) (*server, func(context.Context) (net.Conn, error)) {
	t.Helper()
	ours, theirs := pair(t)
	s := &server{conn: theirs, heard: make(chan []byte, 100), ready: make(chan error, 1)}
	done := make(chan struct{})
	t.Cleanup(func() { theirs.Close(); <-done })
	go func() {
		defer close(done)
		defer close(s.heard)
		if _, err := theirs.Write(greeting); err != nil {
			s.ready <- err
			return
		}
		// version, way in, shared
		_, err := io.ReadFull(theirs, make([]byte, len(version)+2))
		s.ready <- err
		for err == nil {
			buf := make([]byte, 64<<10)
			var n int
			n, err = theirs.Read(buf)
			select {
			case s.heard <- buf[:n]:
			default: // more than a test looks at
			}
		}
	}()
	dialled := false
	return s, func(context.Context) (net.Conn, error) {
		if dialled {
			return nil, errors.New("dialled twice")
		}
		dialled = true
		return ours, nil
	}
}

// hears waits until the server heard n bytes more.
func (s *server) hears(t testing.TB, n int) []byte {
	t.Helper()
	var got []byte
	late := time.After(patience)
	for len(got) < n {
		select {
		case b, ok := <-s.heard:
			if !ok {
				t.Fatalf("the display heard only %x", got)
			}
			got = append(got, b...)
		case <-late:
			t.Fatalf("the display heard only %x", got)
		}
	}
	return got
}

func (s *server) says(t testing.TB, b []byte) {
	t.Helper()
	if _, err := s.conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// update is a message with these rectangles.
func update(rects ...[]byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{msgUpdate, 0}, uint16(len(rects)))
	for _, r := range rects {
		b = append(b, r...)
	}
	return b
}

func rectangle(x, y, w, h int, encoding int32, body ...byte) []byte {
	var b []byte
	for _, n := range []int{x, y, w, h} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(encoding)), body...)
}

// plain is a raw rectangle of one colour.
func plain(x, y, w, h int, colour byte) []byte {
	body := make([]byte, w*h*bytesPerPixel)
	for i := range body {
		body[i] = colour
	}
	return rectangle(x, y, w, h, encodingRaw, body...)
}
