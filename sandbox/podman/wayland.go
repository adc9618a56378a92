package podman

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// waylandTime bounds how long a compositor may take to answer.
const waylandTime = 3 * time.Second

// checkWayland makes sure that path is the live socket of a Wayland compositor of this user's (A.6), by asking for a
// roundtrip. What lies there is mounted into a sandbox, so any other socket, a podman's or an agent's for keys, would
// be a way out. The error is a *sandbox.SpecError.
func checkWayland(ctx context.Context, path string) error {
	bad := func(format string, args ...any) error {
		return specError("display", path+" "+format, args...)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return bad("does not exist: no compositor runs, or its socket has another name (look at WAYLAND_DISPLAY)")
	case err != nil:
		return bad("cannot be looked at: %v", err)
	case info.Mode()&os.ModeSocket == 0:
		return bad("is not a socket")
	}
	ctx, cancel := context.WithTimeout(ctx, waylandTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return bad("is stale: the compositor that made it has ended")
	}
	if err != nil {
		return bad("takes no connection: %v", err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return bad("cannot be used: %v", err)
	}
	if err := roundtrip(conn); err != nil {
		return bad("is not the socket of a Wayland compositor that answers: %v", err)
	}
	return nil
}

// roundtrip sends wl_display.sync (object 1, request 0) for a new object 2, and waits for its event done (object 2,
// event 0), the shortest exchange that every compositor knows. A message begins with two words: the object, then
// size and opcode, in the machine's byte order.
func roundtrip(conn io.ReadWriter) error {
	order := binary.NativeEndian
	request := order.AppendUint32(nil, 1)
	request = order.AppendUint32(request, 12<<16)
	request = order.AppendUint32(request, 2)
	if _, err := conn.Write(request); err != nil {
		return err
	}
	var head [8]byte
	for range 64 {
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		object, word := order.Uint32(head[:4]), order.Uint32(head[4:])
		size, opcode := word>>16, word&0xffff
		if object == 2 && opcode == 0 && size == 12 {
			return nil
		}
		if object != 1 || size < 8 || opcode == 0 { // event 0 of the display is an error
			return fmt.Errorf("it answered with event %d of object %d", opcode, object)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(size-8)); err != nil {
			return err
		}
	}
	return errors.New("it never answered")
}
