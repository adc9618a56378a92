package view

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Rates of what one viewer says; what comes faster waits.
const (
	MaxMessagesSecond = 500 // on average
	messageBurst      = 500

	MaxHeld     = 64          // keys that one viewer holds down; further ones do not reach the display
	releaseTime = time.Second // for the display to take that keys and buttons are let go
)

// A filter carries what a viewer says to the display's server, less what it may not: the clipboard, and but for one with
// hands, pointer and keys.
type filter struct {
	from *bufio.Reader
	to   io.Writer
	pace pace

	mu    sync.Mutex // held while something is said to the display
	hands *hands     // nil for those who only watch
	over  bool       // letGo was called
}

// hands are what a person does with a display, as far as it has to be undone at the end.
type hands struct {
	acted   func()
	keys    []uint32 // that are down
	pointer [5]byte  // its last message: buttons and place
}

// takeHold lets pointer and keys pass until letGo. acted is called at each.
func (f *filter) takeHold(acted func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.hands = &hands{acted: acted}
	}
}

// letGo lets nothing of pointer and keys pass any more, and releases on the display what is held down. It may be called
// while run is under way, and again.
func (f *filter) letGo(display net.Conn) {
	// What waits for the display to take it waits no longer.
	_ = display.SetWriteDeadline(time.Now().Add(releaseTime))
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hands
	f.hands, f.over = nil, true
	if h == nil || len(h.keys) == 0 && h.pointer[0] == 0 {
		return
	}
	var said []byte
	for _, key := range h.keys {
		said = binary.BigEndian.AppendUint32(append(said, msgKey, 0, 0, 0), key)
	}
	if h.pointer[0] != 0 {
		said = append(append(said, msgPointer, 0), h.pointer[1:]...)
	}
	_ = display.SetWriteDeadline(time.Now().Add(releaseTime))
	_, _ = display.Write(said) // one that does not take it is gone
}

// run passes messages on until the viewer ends, ctx does, or something is said that the filter does not know. Its error
// is io.EOF at an end between two messages.
func (f *filter) run(ctx context.Context) error {
	for {
		kind, err := f.from.ReadByte()
		if err != nil {
			return err
		}
		if err := f.pace.wait(ctx); err != nil {
			return err
		}
		if err := unexpected(f.message(kind)); err != nil {
			return err
		}
	}
}

func (f *filter) message(kind byte) error {
	switch kind {
	case msgSetPixelFormat:
		return f.pixelFormat()
	case msgSetEncodings:
		return f.encodings()
	case msgUpdateRequest:
		body, err := f.read(9)
		if err != nil {
			return err
		}
		return f.say(kind, body)
	case msgKey:
		body, err := f.read(7)
		if err != nil {
			return err
		}
		return f.key(body[0] != 0, binary.BigEndian.Uint32(body[3:]))
	case msgPointer:
		body, err := f.read(5)
		if err != nil {
			return err
		}
		return f.point([5]byte(body))
	case msgClientCutText:
		head, err := f.read(7)
		if err != nil {
			return err
		}
		return skip(f.from, abs(int32(binary.BigEndian.Uint32(head[3:]))), maxCutText, badViewer)
	}
	return badViewer("sent a message of kind %d, which a view does not know", kind)
}

// abs is the length of a clipboard: a negative one is the extended form's.
func abs(n int32) int64 {
	if n < 0 {
		return -int64(n)
	}
	return int64(n)
}

func (f *filter) read(n int) ([]byte, error) {
	body := make([]byte, n)
	_, err := io.ReadFull(f.from, body)
	return body, err
}

// say passes a message on in one write.
func (f *filter) say(kind byte, body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(kind, body)
}

// write is say with mu held.
func (f *filter) write(kind byte, body []byte) error {
	_, err := f.to.Write(append([]byte{kind}, body...))
	return err
}

// key passes on that a key is down, or is let go that was.
func (f *filter) key(down bool, key uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hands
	if h == nil {
		return nil
	}
	h.acted()
	at := slices.Index(h.keys, key)
	var state byte
	switch {
	case down && at < 0 && len(h.keys) == MaxHeld, !down && at < 0:
		return nil
	case down && at < 0:
		h.keys = append(h.keys, key)
	case !down:
		h.keys = slices.Delete(h.keys, at, at+1)
	}
	if down {
		state = 1
	}
	return f.write(msgKey, binary.BigEndian.AppendUint32([]byte{state, 0, 0}, key))
}

// point passes on where the pointer is and what of it is pressed.
func (f *filter) point(body [5]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hands == nil {
		return nil
	}
	f.hands.acted()
	f.hands.pointer = body
	return f.write(msgPointer, body[:])
}

func (f *filter) pixelFormat() error {
	body, err := f.read(19)
	if err != nil {
		return err
	}
	if err := checkFormat(body[3:]); err != nil {
		return badViewer("%v", err)
	}
	return f.say(msgSetPixelFormat, body)
}

// encodings passes on those that are known, in the viewer's order.
func (f *filter) encodings() error {
	head, err := f.read(3)
	if err != nil {
		return err
	}
	count := int(binary.BigEndian.Uint16(head[1:]))
	if count > maxEncodings {
		return badViewer("names %d encodings, more than %d", count, maxEncodings)
	}
	all, err := f.read(4 * count)
	if err != nil {
		return err
	}
	var kept []byte
	for ; len(all) > 0; all = all[4:] {
		if passed[int32(binary.BigEndian.Uint32(all))] {
			kept = append(kept, all[:4]...)
		}
	}
	return f.say(msgSetEncodings, append(binary.BigEndian.AppendUint16([]byte{0}, uint16(len(kept)/4)), kept...))
}

// A pace is how fast messages may come.
type pace struct {
	tokens float64
	last   time.Time
}

// wait returns when the next one may.
func (p *pace) wait(ctx context.Context) error {
	now := time.Now()
	if p.last.IsZero() {
		p.tokens = messageBurst
	} else {
		p.tokens = min(messageBurst, p.tokens+now.Sub(p.last).Seconds()*MaxMessagesSecond)
	}
	p.last = now
	p.tokens--
	if p.tokens >= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(-p.tokens / MaxMessagesSecond * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
