package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
)

// cmdWatch watches a run's own display, or its guarded browser once that is open, as a viewer does, until much of it has a colour; then it clicks and types all over
// it, and watches whether that has another effect than none. It also tries its ticket again, and another one.
func cmdWatch(ts *testscript.TestScript, neg bool, args []string) {
	what := types.ViewDisplay
	if len(args) == 3 {
		what = args[2]
	}
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: watch RUN RRGGBB [browser]")
	}
	colour, err := strconv.ParseUint(args[1], 16, 24)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	socket := filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "handler", "handlerd.sock")
	var ticket types.ViewTicket
	within(time.Minute, func() bool {
		ticket, err = client.New(socket).View(ctx, args[0], what)
		return err == nil || !strings.Contains(err.Error(), "is not open yet")
	})
	ts.Check(err)
	v, err := openView(ctx, socket, ticket.Ticket)
	ts.Check(err)
	defer v.conn.Close()
	for _, text := range []string{ticket.Ticket, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		var refused *viewRefused
		if _, err := openView(ctx, socket, text); !errors.As(err, &refused) || refused.status != http.StatusForbidden {
			ts.Fatalf("a ticket that is used up, or none: %v", err)
		}
	}
	ts.Check(v.until(uint32(colour)))
	for x := 0; x < v.width; x += 40 {
		for y := 0; y < v.height; y += 40 {
			for _, button := range []byte{1, 0} {
				v.send(5, button, uint16(x), uint16(y))
			}
		}
	}
	for _, down := range []byte{1, 0} {
		v.send(4, down, uint16(0), uint32(0xff0d)) // Return
	}
	ts.Check(v.err)
	// What was typed comes before this request, and a page has a second to show that it heard of it.
	time.Sleep(time.Second)
	seen, err := v.share(uint32(colour), false)
	ts.Check(err)
	if seen < 0.3 {
		ts.Fatalf("what a viewer typed reached the page: %.0f %% of it has the colour", 100*seen)
	}
	fmt.Fprintf(ts.Stdout(), "%dx%d, view only: %v\n", v.width, v.height, ticket.ViewOnly)
}

type viewRefused struct{ status int }

func (e *viewRefused) Error() string { return "refused with status " + strconv.Itoa(e.status) }

// A viewing is RFB over a WebSocket, as noVNC speaks it.
type viewing struct {
	ws            *websocket.Conn
	conn          net.Conn
	width, height int
	pixels        []uint32
	err           error // of the first send that failed
}

func openView(ctx context.Context, socket, ticket string) (*viewing, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	ws, resp, err := websocket.Dial(ctx, "ws://handlerd"+types.PathView+"?ticket="+ticket, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{"binary"}})
	if err != nil {
		if resp != nil {
			return nil, &viewRefused{resp.StatusCode}
		}
		return nil, err
	}
	ws.SetReadLimit(64 << 20)
	v := &viewing{ws: ws, conn: websocket.NetConn(ctx, ws, websocket.MessageBinary)}
	return v, v.greet()
}

func (v *viewing) greet() error {
	hello := make([]byte, 12)
	if _, err := io.ReadFull(v.conn, hello); err != nil {
		return err
	}
	v.raw(hello)
	kinds := make([]byte, 2)
	if _, err := io.ReadFull(v.conn, kinds); err != nil || kinds[0] != 1 || kinds[1] != 1 {
		return fmt.Errorf("security types %v: %w", kinds, err)
	}
	v.raw([]byte{1})
	result := make([]byte, 4)
	if _, err := io.ReadFull(v.conn, result); err != nil {
		return err
	}
	v.raw([]byte{1}) // shared
	head := make([]byte, 24)
	if _, err := io.ReadFull(v.conn, head); err != nil {
		return err
	}
	v.width, v.height = int(binary.BigEndian.Uint16(head)), int(binary.BigEndian.Uint16(head[2:]))
	v.pixels = make([]uint32, v.width*v.height)
	if _, err := io.CopyN(io.Discard, v.conn, int64(binary.BigEndian.Uint32(head[20:]))); err != nil {
		return err
	}
	// 32 bits a pixel, 0x00RRGGBB, little endian; raw pixels only.
	v.raw([]byte{0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0})
	v.send(2, byte(0), uint16(1), int32(0))
	return v.err
}

func (v *viewing) raw(b []byte) {
	if _, err := v.conn.Write(b); v.err == nil {
		v.err = err
	}
}

func (v *viewing) send(kind byte, parts ...any) {
	msg := []byte{kind}
	for _, p := range parts {
		var err error
		if msg, err = binary.Append(msg, binary.BigEndian, p); err != nil && v.err == nil {
			v.err = err
		}
	}
	v.raw(msg)
}

// until waits until much of the display has the colour.
func (v *viewing) until(colour uint32) error {
	incremental := false
	for {
		seen, err := v.share(colour, incremental)
		if err != nil {
			return fmt.Errorf("%.0f %% of the display has the colour: %w", 100*seen, err)
		}
		if seen > 0.3 {
			return nil
		}
		incremental = true
	}
}

// share asks for an update, takes it, and gives the part of the display that has the colour.
func (v *viewing) share(colour uint32, incremental bool) (float64, error) {
	more := byte(0)
	if incremental {
		more = 1
	}
	v.send(3, more, uint16(0), uint16(0), uint16(v.width), uint16(v.height))
	if v.err != nil {
		return 0, v.err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(v.conn, head); err != nil {
		return 0, err
	}
	if head[0] != 0 {
		return 0, fmt.Errorf("message %d came from the display", head[0])
	}
	for range binary.BigEndian.Uint16(head[2:]) {
		if err := v.rectangle(); err != nil {
			return 0, err
		}
	}
	n := 0
	for _, p := range v.pixels {
		if p == colour {
			n++
		}
	}
	return float64(n) / float64(len(v.pixels)), nil
}

func (v *viewing) rectangle() error {
	head := make([]byte, 12)
	if _, err := io.ReadFull(v.conn, head); err != nil {
		return err
	}
	at := func(i int) int { return int(binary.BigEndian.Uint16(head[2*i:])) }
	x, y, w, h := at(0), at(1), at(2), at(3)
	if kind := int32(binary.BigEndian.Uint32(head[8:])); kind != 0 || x+w > v.width || y+h > v.height {
		return fmt.Errorf("a rectangle of encoding %d at %d,%d, %dx%d", kind, x, y, w, h)
	}
	line := make([]byte, 4*w)
	for row := range h {
		if _, err := io.ReadFull(v.conn, line); err != nil {
			return err
		}
		for col := range w {
			v.pixels[(y+row)*v.width+x+col] = binary.LittleEndian.Uint32(line[4*col:]) & 0xffffff
		}
	}
	return nil
}
