package view

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func keyOf(down byte, key uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{msgKey, down, 0, 0}, key)
}

func pointerAt(buttons byte, x, y uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16([]byte{msgPointer, buttons}, x), y)
}

// withHands is a view of somebody who has mouse and keys.
func (h *house) withHands(t *testing.T, ctx context.Context, idle time.Duration, dial func(context.Context) (net.Conn, error)) (g *guest, gone chan error) {
	t.Helper()
	gone = make(chan error, 2)
	grant := grant(dial, func(why error) { gone <- why })
	grant.Context, grant.Hands = ctx, idle
	g = h.comeFor(t, grant)
	g.greet(t)
	return g, gone
}

func told(t *testing.T, gone chan error) error {
	t.Helper()
	select {
	case why := <-gone:
		return why
	case <-time.After(patience):
		t.Fatal("nobody was told of the end")
		return nil
	}
}

// TestHands: keys and pointer pass as they were said, the clipboard does not, and what is held down when the viewer leaves is
// let go before anybody is told that they left.
func TestHands(t *testing.T) {
	h := open(t)
	s, dial := serve(t, hello())
	g, gone := h.withHands(t, context.Background(), time.Hour, dial)
	said := [][]byte{keyOf(1, 'a'), keyOf(0, 'a'), pointerAt(0, 3, 2), cutText(msgClientCutText, 6, "secret"), pointerAt(5, 4, 2), keyOf(1, 0xffe1), keyOf(1, 'B'), request}
	for _, b := range said {
		if _, err := g.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	want := bytes.Join(append(said[:3:3], said[4:]...), nil)
	if got := s.hears(t, len(want)); !bytes.Equal(got, want) {
		t.Errorf("the display heard %x, want %x", got, want)
	}
	g.ws.Close(websocket.StatusNoStatusRcvd, "") // as a page does that goes
	if why := told(t, gone); why != io.EOF {
		t.Errorf("it was told %v", why)
	}
	want = bytes.Join([][]byte{keyOf(0, 0xffe1), keyOf(0, 'B'), pointerAt(0, 4, 2)}, nil)
	if got := s.hears(t, len(want)); !bytes.Equal(got, want) {
		t.Errorf("at the end the display heard %x, want %x", got, want)
	}
	if err := h.ended(t); err != nil {
		t.Error(err)
	}
}

// TestHandsTaken: when they are taken away, what is held is let go, nothing passes from then on, and the viewer is told why.
func TestHandsTaken(t *testing.T) {
	h := open(t)
	s, dial := serve(t, hello())
	ctx, cancel := context.WithCancelCause(context.Background())
	g, gone := h.withHands(t, ctx, time.Hour, dial)
	if _, err := g.Write(keyOf(1, 'x')); err != nil {
		t.Fatal(err)
	}
	s.hears(t, 8)
	back := errors.New("you gave it back")
	cancel(back)
	if why := told(t, gone); why != back {
		t.Errorf("it was told %v", why)
	}
	_, _ = g.Write(keyOf(1, 'y'))
	if words := g.last(t); words.Reason != back.Error() {
		t.Errorf("the viewer was told %q", words.Reason)
	}
	if got := s.hears(t, 8); !bytes.Equal(got, keyOf(0, 'x')) {
		t.Errorf("at the end the display heard %x", got)
	}
	for b := range s.heard {
		if len(b) > 0 {
			t.Errorf("and then %x", b)
		}
	}
	if err := h.ended(t); err != back {
		t.Error(err)
	}
}

// TestHandsIdle: a viewer who only watches is no longer the one who has mouse and keys.
func TestHandsIdle(t *testing.T) {
	h := open(t)
	_, dial := serve(t, hello())
	g, gone := h.withHands(t, context.Background(), 50*time.Millisecond, dial)
	for range 3 { // looking is not doing
		if _, err := g.Write(request); err != nil {
			t.Fatal(err)
		}
	}
	if why := told(t, gone); why != ErrIdle {
		t.Errorf("it was told %v", why)
	}
	if words := g.last(t); words.Reason != ErrIdle.Error() {
		t.Errorf("the viewer was told %q", words.Reason)
	}
}

// TestHeld: keys that are down are counted; one too many, and the release of one that is not down, do not pass.
func TestHeld(t *testing.T) {
	var said bytes.Buffer
	for key := range uint32(MaxHeld + 10) {
		said.Write(keyOf(1, key))
		said.Write(keyOf(1, key)) // it repeats
	}
	said.Write(keyOf(0, MaxHeld+1))
	said.Write(keyOf(0, 5))
	var out bytes.Buffer
	acted := 0
	f := &filter{from: bufio.NewReader(&said), to: &out}
	f.takeHold(func() { acted++ })
	if err := f.run(t.Context()); err != io.EOF {
		t.Fatal(err)
	}
	if want := 8 * (2*MaxHeld + 1); out.Len() != want || acted != 2*(MaxHeld+10)+2 {
		t.Errorf("%d bytes passed, want %d; %d acts", out.Len(), want, acted)
	}
	ours, theirs := pair(t)
	f.letGo(ours)
	got := make([]byte, 8*(MaxHeld-1))
	if _, err := io.ReadFull(theirs, got); err != nil {
		t.Fatal(err)
	}
	for ; len(got) > 0; got = got[8:] {
		if got[0] != msgKey || got[1] != 0 || binary.BigEndian.Uint32(got[4:]) == 5 {
			t.Errorf("let go: %x", got[:8])
		}
	}
	f.letGo(ours) // again
	out.Reset()
	f.takeHold(func() {})
	if err := errors.Join(f.key(true, 1), f.point([5]byte{1})); err != nil || out.Len() > 0 {
		t.Errorf("after that %x passed: %v", out.Bytes(), err)
	}
	ours.Close()
	if rest, err := io.ReadAll(theirs); err != nil || len(rest) > 0 {
		t.Errorf("the display heard %x more: %v", rest, err)
	}
}

// TestRevoke: a ticket that is taken back is good for nothing, and whoever gave it is told; one that is used is not.
func TestRevoke(t *testing.T) {
	d := NewDesk(nil)
	defer d.Close()
	gone := make(chan error, 2)
	give := func() string {
		text, _, err := d.Ticket(grant(nil, func(why error) { gone <- why }))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	back := errors.New("back")
	text := give()
	if !d.Revoke(text, back) || told(t, gone) != back {
		t.Error("it was not taken back")
	}
	if _, err := d.Visit(text, "ana"); err != ErrNoTicket || d.Revoke(text, back) {
		t.Errorf("a ticket that was taken back: %v", err)
	}
	text = give()
	v, err := d.Visit(text, "ana")
	if err != nil || d.Revoke(text, back) {
		t.Fatalf("one that is used: %v", err)
	}
	v.Abort()
	if why := told(t, gone); why != io.EOF {
		t.Errorf("it was told %v", why)
	}
}
