package view

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"time"
)

// Rates of what one viewer says; what comes faster waits.
const (
	MaxMessagesSecond = 500 // on average
	messageBurst      = 500
)

// A filter carries what a viewer says to the display's server, less what it may not: pointer, keys and clipboard.
type filter struct {
	from *bufio.Reader
	to   io.Writer
	pace pace
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
		_, err := f.read(7)
		return err
	case msgPointer:
		_, err := f.read(5)
		return err
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
	_, err := f.to.Write(append([]byte{kind}, body...))
	return err
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
