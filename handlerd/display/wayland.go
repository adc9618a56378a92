package display

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sort"
	"strings"
	"syscall"
	"time"
)

// askTimeout bounds the whole conversation with a compositor: it answers in well under a millisecond, and one that
// is stopped would answer never.
const askTimeout = time.Second

// Bounds on what a compositor may say before the conversation is given up: real ones offer 20 to 80 globals.
const (
	maxMessage = 4096 // bytes; libwayland's own bound
	maxGlobals = 1000
)

// A Global is one interface that a compositor offers to its clients.
type Global struct {
	Interface string // such as "wl_compositor"
	Version   uint32
	Name      uint32 // the compositor's number for it, by which it is bound
}

// A Compositor is what answered on a socket.
type Compositor struct {
	Globals []Global // in the order they were offered
}

var (
	errNotWayland = errors.New("does not speak Wayland")
	errSilent     = fmt.Errorf("did not answer within %v", askTimeout)
)

// Ask connects to the Wayland socket at path, an absolute path, and reads which globals the compositor offers. It
// makes no window and leaves nothing. It takes at most a second.
func Ask(ctx context.Context, path string) (Compositor, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return Compositor{}, silent(err)
	}
	defer conn.Close()
	// A deadline in the past wakes a read when the context ends for another reason than time.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(askRegistry()); err != nil {
		return Compositor{}, silent(notWayland(err))
	}
	c, err := readGlobals(conn)
	return c, silent(err)
}

// silent turns a timeout into what a person reads.
func silent(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errSilent
	}
	return err
}

// reason says of an error of check what the socket's path is or does, to follow "which".
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not open"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens on (a compositor that ended left it)"
	default:
		return err.Error()
	}
}

// Object ids of the conversation: 1 is the display, by the protocol; the others are ours to choose.
const (
	objDisplay  = 1
	objRegistry = 2
	objCallback = 3
)

// askRegistry is wl_display.get_registry and wl_display.sync: the globals come, and then the callback.
func askRegistry() []byte {
	var b []byte
	for _, request := range []struct{ opcode, id uint32 }{{1, objRegistry}, {0, objCallback}} {
		b = binary.NativeEndian.AppendUint32(b, objDisplay)
		b = binary.NativeEndian.AppendUint32(b, 12<<16|request.opcode)
		b = binary.NativeEndian.AppendUint32(b, request.id)
	}
	return b
}

// readGlobals reads events until the callback. What is not what a compositor says is errNotWayland.
func readGlobals(r io.Reader) (Compositor, error) {
	var c Compositor
	for range maxGlobals {
		object, opcode, body, err := readEvent(r)
		if err != nil {
			return Compositor{}, err
		}
		switch {
		case object == objCallback && opcode == 0:
			return c, nil
		case object == objRegistry && opcode == 0:
			g, ok := parseGlobal(body)
			if !ok {
				return Compositor{}, errNotWayland
			}
			c.Globals = append(c.Globals, g)
		case object == objDisplay && opcode == 1, object == objRegistry && opcode == 1:
			// delete_id and global_remove: nothing that matters here
		default: // wl_display.error too: we asked for nothing that may fail
			return Compositor{}, errNotWayland
		}
	}
	return Compositor{}, errNotWayland
}

func readEvent(r io.Reader) (object, opcode uint32, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, notWayland(err)
	}
	word := binary.NativeEndian.Uint32(head[4:])
	size := word >> 16
	if size < 8 || size > maxMessage || size%4 != 0 {
		return 0, 0, nil, errNotWayland
	}
	body = make([]byte, size-8)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, 0, nil, notWayland(err)
	}
	return binary.NativeEndian.Uint32(head[:]), word & 0xffff, body, nil
}

// notWayland: whoever hangs up in the middle is no compositor.
func notWayland(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) {
		return errNotWayland
	}
	return err
}

// parseGlobal reads the arguments of wl_registry.global: name, interface and version.
func parseGlobal(body []byte) (Global, bool) {
	if len(body) < 12 {
		return Global{}, false
	}
	length := int(binary.NativeEndian.Uint32(body[4:])) // with its NUL
	padded := (length + 3) &^ 3
	if length < 2 || length > maxMessage || len(body) != 8+padded+4 || body[8+length-1] != 0 {
		return Global{}, false
	}
	return Global{
		Name:      binary.NativeEndian.Uint32(body),
		Interface: string(body[8 : 8+length-1]),
		Version:   binary.NativeEndian.Uint32(body[8+padded:]),
	}, true
}

// powers are the globals that give a client more than its own windows, by the beginning of their names, which differ
// by compositor and by how old a protocol is.
var powers = []struct{ prefix, power string }{
	{"zwlr_screencopy_manager", "take pictures of the whole screen"},
	{"ext_image_copy_capture_manager", "take pictures of the whole screen"},
	{"zwlr_export_dmabuf_manager", "take pictures of the whole screen"},
	{"zkde_screencast", "take pictures of the whole screen"},
	{"weston_capture", "take pictures of the whole screen"},
	{"weston_debug", "take pictures of the whole screen"}, // there with weston --debug, which opens its screenshooter to all
	{"zwp_virtual_keyboard_manager", "type into other windows"},
	{"org_kde_kwin_fake_input", "type and click in other windows"},
	{"zwlr_virtual_pointer_manager", "click in other windows"},
	{"ext_transient_seat_manager", "make a keyboard and a mouse of its own"},
	{"zwlr_data_control_manager", "read and change the clipboard at any time"},
	{"ext_data_control_manager", "read and change the clipboard at any time"},
	{"zwp_input_method_manager", "read what is typed into other windows"},
	{"zwlr_foreign_toplevel_manager", "list and close other windows"},
	{"ext_foreign_toplevel_list", "list other windows"},
	{"org_kde_plasma_window_management", "list and close other windows"},
	{"zwlr_layer_shell", "lay surfaces over other windows"},
	{"ext_session_lock_manager", "lock the screen"},
	{"zwlr_output_manager", "change the screens' settings"},
	{"zwlr_gamma_control_manager", "change the screens' colours"},
}

// Powers says what any client of this compositor may do besides showing its own windows and pasting into them, in
// words that follow "can", sorted and each once. A compositor that offers none of the protocols we know to be
// powerful gives none; it may still have means that we do not know.
func (c Compositor) Powers() []string {
	found := make(map[string]bool)
	for _, g := range c.Globals {
		for _, p := range powers {
			if strings.HasPrefix(g.Interface, p.prefix) {
				found[p.power] = true
			}
		}
	}
	list := make([]string, 0, len(found))
	for p := range found {
		list = append(list, p)
	}
	sort.Strings(list)
	return list
}

// SecurityContext tells whether the compositor offers security-context-v1, by which a client can be given fewer
// globals than the person's own programs.
func (c Compositor) SecurityContext() bool {
	for _, g := range c.Globals {
		if g.Interface == securityManager {
			return true
		}
	}
	return false
}

// Notice is the sentence to show where a run with this display is shown, or "" when there is nothing to say.
func (c Compositor) Notice() string {
	list := c.Powers()
	if len(list) == 0 {
		return ""
	}
	return "this compositor lets every program it shows do more than show windows: the sandbox can " + strings.Join(list, ", ")
}
