package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coder/websocket"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/fault"
)

// cmdHands is a person at the guarded browser of a run:
//
//	hands take RUN [again]  takes it over, and comes with the ticket; again: somebody else has it, and it is refused
//	hands click X Y         the left button, in pixels of the display
//	hands type TEXT         keys, one after the other
//	hands hold KEYSYM       a key that is not let go, as X11 counts keys (hexadecimal)
//	hands until RRGGBB      waits until much of the display has the colour
//	hands back RUN          gives it back; the view is told so, and nothing that is typed then passes
//	hands leave             closes the view, as a page that is closed does
func cmdHands(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if neg || len(args) == 0 || args[0] != "take" && s.hands == nil {
		ts.Fatalf("usage: hands take|click|type|hold|until|back|leave …, take first")
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	socket := filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "handler", "handlerd.sock")
	switch {
	case args[0] == "take" && len(args) == 3:
		_, err := client.New(socket).Takeover(ctx, args[1], true)
		if err == nil || fault.Of(err).Kind != fault.Refused || !strings.Contains(err.Error(), "was taken over") {
			ts.Fatalf("taken by two: %v", err)
		}
	case args[0] == "take" && len(args) == 2:
		ts.Check(takeHands(ts, ctx, socket, args[1]))
	case args[0] == "click" && len(args) == 3:
		x, errX := strconv.Atoi(args[1])
		y, errY := strconv.Atoi(args[2])
		ts.Check(errors.Join(errX, errY))
		for _, button := range []byte{0, 1, 0} {
			s.hands.send(5, button, uint16(x), uint16(y))
		}
	case args[0] == "type" && len(args) == 2:
		for _, c := range args[1] {
			s.hands.send(4, byte(1), uint16(0), uint32(c))
			s.hands.send(4, byte(0), uint16(0), uint32(c))
		}
	case args[0] == "hold" && len(args) == 2:
		key, err := strconv.ParseUint(args[1], 16, 32)
		ts.Check(err)
		s.hands.send(4, byte(1), uint16(0), uint32(key))
	case args[0] == "until" && len(args) == 2:
		colour, err := strconv.ParseUint(args[1], 16, 24)
		ts.Check(err)
		ts.Check(s.hands.until(uint32(colour)))
	case args[0] == "back" && len(args) == 2:
		ts.Check(giveBack(ctx, s.hands, socket, args[1]))
	case args[0] == "leave":
		ts.Check(s.hands.ws.Close(websocket.StatusNormalClosure, ""))
	default:
		ts.Fatalf("hands %s: what is that", strings.Join(args, " "))
	}
	ts.Check(s.hands.err)
}

// takeHands takes over, and opens the view; the ticket counts once.
func takeHands(ts *testscript.TestScript, ctx context.Context, socket, run string) error {
	t, err := client.New(socket).Takeover(ctx, run, true)
	if err != nil {
		return err
	}
	if !t.On || t.Ticket == nil || t.Ticket.ViewOnly || t.IdleSeconds != 1800 {
		return fmt.Errorf("the answer: %+v", t)
	}
	life, done := context.WithCancel(context.Background())
	ts.Defer(done)
	v, err := openView(life, socket, t.Ticket.Ticket)
	if err != nil {
		return err
	}
	var refused *viewRefused
	if _, err := openView(ctx, socket, t.Ticket.Ticket); !errors.As(err, &refused) || refused.status != http.StatusForbidden {
		return fmt.Errorf("its ticket counted twice: %v", err)
	}
	of(ts).hands = v
	return nil
}

// giveBack gives it back while the person still types.
func giveBack(ctx context.Context, v *viewing, socket, run string) error {
	t, err := client.New(socket).Takeover(ctx, run, false)
	if err != nil || t.On || !strings.Contains(t.Says, "has its browser again") {
		return fmt.Errorf("the answer: %+v, %w", t, err)
	}
	for range 20 {
		v.send(4, byte(1), uint16(0), uint32('!'))
	}
	v.err = nil // it may be closed by then
	for {
		_, _, err := v.ws.Read(ctx)
		var words websocket.CloseError
		switch {
		case errors.As(err, &words) && words.Reason == "the browser was given back":
			return nil
		case err != nil:
			return fmt.Errorf("the view ended with %w", err)
		}
	}
}
