package view

import (
	"bytes"
	"context"
	"errors"
	"image/color"
	"image/png"
	"net"
	"strings"
	"testing"
	"time"
)

// answer lets a server answer each request for a picture with the next of these; then it says nothing more.
func answer(t testing.TB, s *server, updates ...[]byte) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { s.conn.Close(); <-done })
	go func() {
		defer close(done)
		for b := range s.heard {
			if len(b) == 0 || len(updates) == 0 {
				continue
			}
			if _, err := s.conn.Write(updates[0]); err != nil {
				return
			}
			updates = updates[1:]
		}
	}()
}

// TestStill: a picture is whole, however it comes, and says nothing of what is drawn over again. One of a single colour,
// as a VNC server shows before it has seen its display, is waited behind.
func TestStill(t *testing.T) {
	spot := plain(0, 0, 1, 1, 3)
	for name, parts := range map[string][][]byte{
		"at once":                    {update(plain(0, 0, 8, 4, 7), spot)},
		"in rectangles":              {update(plain(0, 0, 8, 2, 7), spot, plain(0, 2, 8, 2, 7))},
		"in updates":                 {update(plain(0, 0, 8, 2, 7), spot), update(), update(plain(0, 2, 8, 2, 7))},
		"the same one twice":         {update(plain(0, 0, 8, 2, 1), plain(0, 0, 8, 2, 7)), update(plain(0, 2, 8, 2, 7), spot)},
		"with other words before":    {append(append([]byte{msgBell}, cutText(msgServerCutText, 2, "hi")...), update(plain(0, 0, 8, 4, 7), spot)...)},
		"after one of no display":    {update(plain(0, 0, 8, 4, 9)), update(plain(0, 0, 8, 4, 7), spot)},
		"after that, with the bell":  {update(plain(0, 0, 8, 4, 9)), append([]byte{msgBell}, update(plain(0, 0, 8, 4, 7), spot)...)},
		"of one colour, and nothing": {update(plain(0, 0, 8, 4, 7))},
	} {
		s, dial := serve(t, hello())
		answer(t, s, parts...)
		conn, _ := dial(context.Background())
		data, err := Still(context.Background(), conn)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil || img.Bounds().Dx() != 8 || img.Bounds().Dy() != 4 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for x := range 8 {
			for y := range 4 {
				want := color.NRGBA{7, 7, 7, 255}
				if x+y == 0 && name != "of one colour, and nothing" {
					want = color.NRGBA{3, 3, 3, 255}
				}
				if got := color.NRGBAModel.Convert(img.At(x, y)); got != want {
					t.Errorf("%s: %v at %d,%d", name, got, x, y)
				}
			}
		}
	}
}

// TestStillRefuses: rectangles that come again make no picture, and none comes of a display that says too much.
func TestStillRefuses(t *testing.T) {
	var rects [][]byte
	for range 2 * stillTimes {
		rects = append(rects, plain(0, 0, 8, 3, 7))
	}
	var empty [][]byte
	for range maxUpdatesStill {
		empty = append(empty, update())
	}
	none := make([][]byte, 60000)
	for i := range none {
		none[i] = plain(0, 0, 0, 4, 7)
	}
	for name, c := range map[string]struct {
		says [][]byte
		want string
	}{
		"one rectangle again and again":      {[][]byte{update(rects...)}, "much more than its screen"},
		"nothing, again and again":           {empty, "did not show all"},
		"rectangles of nothing, many":        {[][]byte{update(none...), update(none...)}, "much more than its screen"},
		"an encoding that was not asked for": {[][]byte{update(rectangle(0, 0, 1, 1, encodingCopyRect, 0, 0, 0, 0))}, "encoding 1"},
		"another size":                       {[][]byte{update(rectangle(0, 0, 9, 9, encodingDesktopSize))}, "encoding -223"},
		"beyond its screen":                  {[][]byte{update(plain(8, 0, 1, 1, 7))}, "not on its screen"},
		"what is no message":                 {[][]byte{{99}}, "kind 99"},
	} {
		s, dial := serve(t, hello())
		answer(t, s, c.says...)
		conn, _ := dial(context.Background())
		var protocol *ProtocolError
		if _, err := Still(context.Background(), conn); !errors.As(err, &protocol) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStillEnds: a display that ends in the middle, says nothing, or whose asker goes, gives none, and at once.
func TestStillEnds(t *testing.T) {
	s, dial := serve(t, hello())
	conn, _ := dial(context.Background())
	go func() {
		<-s.heard
		_, _ = s.conn.Write(update(plain(0, 0, 8, 4, 7))[:40])
		s.conn.Close()
	}()
	if _, err := Still(context.Background(), conn); err == nil || !strings.Contains(err.Error(), "in the middle of a message") {
		t.Errorf("half a picture: %v", err)
	}
	_, dial = serve(t, hello())
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("the run has ended")
	d := NewDesk(nil)
	time.AfterFunc(10*time.Millisecond, func() { cancel(gone) })
	if _, err := d.Still(ctx, dial); err != gone {
		t.Errorf("a run that ends: %v", err)
	}
	_, dial = serve(t, hello())
	closed := make(chan error)
	go func() {
		_, err := d.Still(context.Background(), dial)
		closed <- err
	}()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != ErrClosed {
		t.Errorf("a desk that closes: %v", err)
	}
	if _, err := d.Still(context.Background(), func(context.Context) (net.Conn, error) { t.Error("dialled"); return nil, ErrClosed }); err != ErrClosed {
		t.Errorf("a closed desk: %v", err)
	}
}
