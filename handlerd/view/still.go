package view

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"os"
	"time"
)

// StillTime bounds the taking of one picture.
const StillTime = 10 * time.Second

// Bounds of what a server sends for it.
const (
	maxUpdatesStill = 256      // messages
	maxRectsStill   = 64 << 10 // rectangles, of all of them
	stillTimes      = 4        // times the bytes of the whole screen

	stillAgain = 2 * time.Second // for the picture that comes after one of one colour
)

// errStillTime is why a still is not taken.
var errStillTime = fmt.Errorf("the display did not show all of itself within %v", StillTime)

// Still reads one picture from a display's VNC server and gives it as a PNG. It closes conn.
func Still(ctx context.Context, conn net.Conn) ([]byte, error) {
	defer conn.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, StillTime, errStillTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	img, err := still(conn)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, ending(err, badServer)
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// stillFormat is four bytes a pixel: blue, green, red, nothing.
var stillFormat = [16]byte{32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0}

func still(conn net.Conn) (*image.NRGBA, error) {
	s, err := greet(conn)
	if err != nil {
		return nil, unexpected(err)
	}
	ask := append([]byte{msgSetPixelFormat, 0, 0, 0}, stillFormat[:]...)
	ask = append(ask, msgSetEncodings, 0, 0, 1, 0, 0, 0, encodingRaw)
	request := []byte{msgUpdateRequest, 0, 0, 0, 0, 0} // all of it, whether it changed or not
	request = binary.BigEndian.AppendUint16(request, uint16(s.width))
	request = binary.BigEndian.AppendUint16(request, uint16(s.height))
	if _, err := conn.Write(append(ask, request...)); err != nil {
		return nil, err
	}
	t := &tracing{screen: s, img: image.NewNRGBA(image.Rect(0, 0, s.width, s.height)), missing: s.width * s.height,
		seen: make([]bool, s.width*s.height), bytes: stillTimes * int64(s.width*s.height) * bytesPerPixel, rects: maxRectsStill}
	r := bufio.NewReaderSize(conn, relayBuffer)
	// A server may answer in parts, and of its own accord with less than was asked for.
	for range maxUpdatesStill {
		updated, err := t.message(r)
		if err != nil {
			return nil, unexpected(err)
		}
		if t.missing == 0 {
			return t.img, t.second(conn, r, request)
		}
		if updated {
			if _, err := conn.Write(request); err != nil {
				return nil, err
			}
		}
	}
	return nil, badServer("said much and did not show all of its screen")
}

// A tracing is a picture that comes about from what a server sends. Only places that were never drawn count.
type tracing struct {
	screen  screen
	img     *image.NRGBA
	seen    []bool // by place
	missing int    // places
	bytes   int64  // that may still come
	rects   int    // likewise
}

// second waits a little for what comes after a picture of one colour: a VNC server that was just started shows such a
// one before it has seen its display.
func (t *tracing) second(conn net.Conn, r *bufio.Reader, request []byte) error {
	for at := bytesPerPixel; at < len(t.img.Pix); at += bytesPerPixel {
		if !bytes.Equal(t.img.Pix[at:at+bytesPerPixel], t.img.Pix[:bytesPerPixel]) {
			return nil
		}
	}
	changes := append([]byte{msgUpdateRequest, 1}, request[2:]...)
	if _, err := conn.Write(changes); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(stillAgain))
	for updated := false; !updated; {
		if _, err := r.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil // it is of one colour
		}
		_ = conn.SetReadDeadline(time.Time{})
		var err error
		if updated, err = t.message(r); err != nil {
			return unexpected(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(stillAgain))
	}
	return nil
}

// message reads one, and tells whether it was an update.
func (t *tracing) message(r *bufio.Reader) (bool, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return false, err
	}
	if kind != msgUpdate {
		return false, (&updates{from: r}).message(kind)
	}
	head := make([]byte, 3)
	if _, err := io.ReadFull(r, head); err != nil {
		return false, err
	}
	for range binary.BigEndian.Uint16(head[1:]) {
		if err := t.rectangle(r); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (t *tracing) rectangle(r *bufio.Reader) error {
	rc, _, err := readRect(r)
	if err != nil {
		return err
	}
	if rc.encoding != encodingRaw {
		return badServer("sent a rectangle in the encoding %d, which nobody asked for", rc.encoding)
	}
	if err := rc.inside(t.screen); err != nil {
		return err
	}
	t.rects--
	t.bytes -= int64(rc.width) * int64(rc.height) * bytesPerPixel
	if t.rects < 0 || t.bytes < 0 {
		return badServer("sent much more than its screen")
	}
	return t.draw(rc, r)
}

// draw reads a rectangle of stillFormat into the picture.
func (t *tracing) draw(rc rect, from io.Reader) error {
	line := make([]byte, rc.width*bytesPerPixel)
	for y := rc.y; y < rc.y+rc.height; y++ {
		if _, err := io.ReadFull(from, line); err != nil {
			return err
		}
		out, seen := t.img.Pix[t.img.PixOffset(rc.x, y):], t.seen[y*t.screen.width+rc.x:]
		for x := range rc.width {
			i := x * bytesPerPixel
			out[i], out[i+1], out[i+2], out[i+3] = line[i+2], line[i+1], line[i], 0xff
			if !seen[x] {
				seen[x] = true
				t.missing--
			}
		}
	}
	return nil
}
