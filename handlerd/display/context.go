package display

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Engine is the name by which compositors know Handler in security-context-v1.
const Engine = "io.github.handlerd.handler"

// securityManager is the interface by which a client is given fewer globals than the person's own programs.
const securityManager = "wp_security_context_manager_v1"

// A Context is a socket of a compositor's for one sandbox.
type Context struct {
	// Socket is what the sandbox gets.
	Socket string
	// Compositor is what is offered on Socket.
	Compositor Compositor
	// Restricted tells whether Socket is a security context of its own, and not the person's own socket.
	Restricted bool

	path string   // of the context's own socket; "" without one
	hold *os.File // as long as it is open the compositor listens on path
	once sync.Once
}

// Open gives a sandbox the least that the compositor on socket can do: a security context (security-context-v1) with
// a listener at path, where the compositor offers it, else socket itself. path is a name for a socket that does not
// exist yet, absolute and at most 107 bytes, in a folder of the caller's own. appID and instance tell the compositor
// which agent and which run its windows are of; each at most 128 bytes. A compositor that offers security contexts and
// makes none is an error: the person's own socket is never what a sandbox gets instead.
//
// The caller closes the Context when the sandbox is gone; clients that are connected stay.
func Open(ctx context.Context, socket, path, appID, instance string) (*Context, error) {
	whole, err := Ask(ctx, socket)
	if err != nil {
		return nil, err
	}
	if !whole.SecurityContext() {
		return &Context{Socket: socket, Compositor: whole}, nil
	}
	c := &Context{Socket: path, Restricted: true, path: path}
	if err := c.open(ctx, socket, whole, appID, instance); err != nil {
		c.Close()
		return nil, fmt.Errorf("the compositor's security context (security-context-v1): %w", err)
	}
	if c.Compositor, err = Ask(ctx, path); err != nil {
		c.Close()
		return nil, fmt.Errorf("the compositor's security context %s: it %w", path, err)
	}
	return c, nil
}

// Close ends the compositor's listening on the context's own socket, and removes it. It is idempotent.
func (c *Context) Close() error {
	var err error
	c.once.Do(func() {
		if c.hold != nil {
			err = c.hold.Close()
		}
		if c.path != "" {
			if e := os.Remove(c.path); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	})
	return err
}

// open makes the listener and hands it to the compositor.
func (c *Context) open(ctx context.Context, socket string, whole Compositor, appID, instance string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		c.path = "" // it is not ours to remove
		return err
	}
	l.SetUnlinkOnClose(false) // the compositor listens on; Close removes it
	defer l.Close()
	listening, err := l.File()
	if err != nil {
		return err
	}
	defer listening.Close()
	ends, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ends.Close()
	c.hold = hold

	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return silent(err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	rights := unix.UnixRights(int(listening.Fd()), int(ends.Fd()))
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix(requestContext(whole, appID, instance), rights, nil); err != nil {
		return silent(notWayland(err))
	}
	return silent(awaitContext(conn))
}

// Object ids of the conversation that makes a context, besides objDisplay and objRegistry.
const (
	objManager = 3
	objContext = 4
	objDone    = 5
)

// requestContext is the whole conversation in one message: the compositor reads it in order, and the descriptors that
// come with it belong to the one request that takes some. It ends in a sync, so that an error is heard of.
func requestContext(whole Compositor, appID, instance string) []byte {
	var manager Global
	for _, g := range whole.Globals {
		if g.Interface == securityManager {
			manager = g
		}
	}
	var b []byte
	b = request(b, objDisplay, 1, words(objRegistry)) // get_registry
	bind := append(words(manager.Name), text(securityManager)...)
	b = request(b, objRegistry, 0, append(bind, words(1, objManager)...))
	b = request(b, objManager, 1, words(objContext)) // create_listener(id, listen_fd, close_fd)
	b = request(b, objContext, 1, text(Engine))      // set_sandbox_engine
	b = request(b, objContext, 2, text(cut(appID)))  // set_app_id
	b = request(b, objContext, 3, text(cut(instance)))
	b = request(b, objContext, 4, nil) // commit
	return request(b, objDisplay, 0, words(objDone))
}

// cut bounds what is said of the sandbox.
func cut(s string) string { return s[:min(len(s), 128)] }

func request(b []byte, object, opcode uint32, body []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, object)
	b = binary.NativeEndian.AppendUint32(b, uint32(8+len(body))<<16|opcode)
	return append(b, body...)
}

func words(all ...uint32) []byte {
	var b []byte
	for _, w := range all {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

// text is a string as Wayland writes it: its length with a NUL, and padding to a whole word.
func text(s string) []byte {
	b := words(uint32(len(s) + 1))
	b = append(b, s...)
	return append(b, make([]byte, 4-len(s)%4)...)
}

// awaitContext reads until the compositor has done everything, or says what it will not do.
func awaitContext(r io.Reader) error {
	for range maxGlobals {
		object, opcode, body, err := readEvent(r)
		if err != nil {
			return err
		}
		switch {
		case object == objDone && opcode == 0:
			return nil
		case object == objDisplay && opcode == 0:
			return refusal(body)
		}
	}
	return errNotWayland
}

// refusal reads wl_display.error: an object, a code and a text for people.
func refusal(body []byte) error {
	if len(body) < 12 {
		return errNotWayland
	}
	length := int(binary.NativeEndian.Uint32(body[8:]))
	if length < 1 || 12+length > len(body) {
		return errNotWayland
	}
	return fmt.Errorf("it was refused: %.200q", body[12:12+length-1])
}
