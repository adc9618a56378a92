package view

import (
	"bufio"
	"encoding/binary"
	"io"
)

// updates carries what a display's server says to a viewer, less what it may not. It holds no more than its two buffers:
// a viewer that is slow slows the server.
type updates struct {
	from   *bufio.Reader
	to     *bufio.Writer
	screen screen
}

// run passes messages on until the server ends or says what is not known.
func (u *updates) run() error {
	for {
		kind, err := u.from.ReadByte()
		if err != nil {
			return err
		}
		if err := unexpected(u.message(kind)); err != nil {
			return err
		}
		if err := u.to.Flush(); err != nil {
			return err
		}
	}
}

func (u *updates) message(kind byte) error {
	switch kind {
	case msgUpdate:
		return u.update()
	case msgBell: // nobody needs to hear it
		return nil
	case msgServerCutText: // the person's clipboard is no page's to write
		head := make([]byte, 7)
		if _, err := io.ReadFull(u.from, head); err != nil {
			return err
		}
		return skip(u.from, abs(int32(binary.BigEndian.Uint32(head[3:]))), maxCutText, badServer)
	}
	return badServer("sent a message of kind %d, which a view does not know", kind)
}

func (u *updates) update() error {
	head := make([]byte, 3)
	if _, err := io.ReadFull(u.from, head); err != nil {
		return err
	}
	count := int(binary.BigEndian.Uint16(head[1:]))
	if count > maxRectsUpdate {
		return badServer("sent %d rectangles at once", count)
	}
	if _, err := u.to.Write(append([]byte{msgUpdate}, head...)); err != nil {
		return err
	}
	for range count {
		if err := u.rectangle(); err != nil {
			return err
		}
	}
	return nil
}

// A rect is the head of one rectangle.
type rect struct {
	x, y, width, height int
	encoding            int32
}

func readRect(r io.Reader) (rect, [12]byte, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return rect{}, head, err
	}
	at := func(i int) int { return int(binary.BigEndian.Uint16(head[i:])) }
	return rect{at(0), at(2), at(4), at(6), int32(binary.BigEndian.Uint32(head[8:]))}, head, nil
}

// inside says whether a rectangle lies on the screen.
func (r rect) inside(s screen) error {
	if r.x+r.width > s.width || r.y+r.height > s.height {
		return badServer("sent a rectangle that is not on its screen")
	}
	return nil
}

func (u *updates) rectangle() error {
	r, head, err := readRect(u.from)
	if err != nil {
		return err
	}
	size, err := u.size(r)
	if err != nil {
		return err
	}
	if _, err := u.to.Write(head[:]); err != nil {
		return err
	}
	if r.encoding == encodingZRLE {
		if size, err = u.compressed(r); err != nil {
			return err
		}
	}
	_, err = io.CopyN(u.to, u.from, size)
	return err
}

// size is how many bytes stand behind a rectangle's head; of ZRLE, which says its own, none yet.
func (u *updates) size(r rect) (int64, error) {
	switch r.encoding {
	case encodingRaw:
		return int64(r.width) * int64(r.height) * bytesPerPixel, r.inside(u.screen)
	case encodingCopyRect:
		return 4, r.inside(u.screen)
	case encodingZRLE:
		return 0, r.inside(u.screen)
	case encodingCursor:
		if r.width > maxCursor || r.height > maxCursor {
			return 0, badServer("sent a pointer of %dx%d pixels", r.width, r.height)
		}
		return int64(r.width*r.height*bytesPerPixel + (r.width+7)/8*r.height), nil
	case encodingDesktopSize:
		if err := checkSize(r.width, r.height); err != nil {
			return 0, err
		}
		u.screen.width, u.screen.height = r.width, r.height
		return 0, nil
	}
	return 0, badServer("sent a rectangle in the encoding %d, which nobody asked for", r.encoding)
}

// compressed reads and passes on the length that a compressed rectangle says.
func (u *updates) compressed(r rect) (int64, error) {
	length := make([]byte, 4)
	if _, err := io.ReadFull(u.from, length); err != nil {
		return 0, err
	}
	n := int64(binary.BigEndian.Uint32(length))
	if n > int64(r.width)*int64(r.height)*bytesPerPixel+zrleSlack {
		return 0, badServer("sent a compressed rectangle that is larger than its pixels")
	}
	_, err := u.to.Write(length)
	return n, err
}
