package display

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers every connection on path with answer until the test ends.
func serve(t *testing.T, path string, answer func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
}

// compositor is a fake one: it reads the two requests and offers globals.
func compositor(globals ...string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, 24)); err != nil {
			return
		}
		var b []byte
		for i, g := range globals {
			b = append(b, event(objRegistry, 0, globalArgs(uint32(i+1), g, 3))...)
		}
		b = append(b, event(objCallback, 0, binary.NativeEndian.AppendUint32(nil, 7))...)
		b = append(b, event(objDisplay, 1, binary.NativeEndian.AppendUint32(nil, objCallback))...)
		c.Write(b)
	}
}

func event(object, opcode uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, object)
	b = binary.NativeEndian.AppendUint32(b, uint32(8+len(body))<<16|opcode)
	return append(b, body...)
}

func globalArgs(name uint32, iface string, version uint32) []byte {
	b := binary.NativeEndian.AppendUint32(nil, name)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(iface)+1))
	b = append(b, iface...)
	b = append(b, make([]byte, 4-len(iface)%4)...)
	return binary.NativeEndian.AppendUint32(b, version)
}

// dead leaves a socket file that nobody listens on.
func dead(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wl") // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestFind(t *testing.T) {
	dir := runtimeDir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	serve(t, in("wayland-1"), compositor("wl_compositor"))
	touch(t, in("wayland-1.lock"))
	dead(t, in("wayland-0"))
	touch(t, in("wayland-0.lock"))
	touch(t, in("wayland-notes"))
	serve(t, in("podman.sock"), func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	other := runtimeDir(t)
	serve(t, filepath.Join(other, "w"), compositor())
	if err := os.Symlink(in("wayland-1"), filepath.Join(other, "wayland-link")); err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name string
		env  Env
		want string
	}{
		{"the only live one", Env{RuntimeDir: dir}, in("wayland-1")},
		{"WAYLAND_DISPLAY, relative", Env{RuntimeDir: dir, WaylandDisplay: "wayland-1"}, in("wayland-1")},
		{"WAYLAND_DISPLAY, absolute", Env{WaylandDisplay: in("wayland-1")}, in("wayland-1")},
		{"WAYLAND_DISPLAY before the scan", Env{RuntimeDir: dir, WaylandDisplay: filepath.Join(other, "w")}, filepath.Join(other, "w")},
		{"HANDLER_WAYLAND_SOCKET before all", Env{RuntimeDir: dir, WaylandDisplay: in("wayland-1"), HandlerSocket: filepath.Join(other, "w")}, filepath.Join(other, "w")},
		{"HANDLER_WAYLAND_SOCKET, relative", Env{RuntimeDir: dir, HandlerSocket: "wayland-1"}, in("wayland-1")},
		{"a symlink is resolved", Env{RuntimeDir: other}, in("wayland-1")},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Find(t.Context(), test.env)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestFindLater: a socket that comes after the daemon started is found (pitfall W09).
func TestFindLater(t *testing.T) {
	dir := runtimeDir(t)
	if got, err := Find(t.Context(), Env{RuntimeDir: dir}); err == nil {
		t.Fatalf("found %q in an empty folder", got)
	}
	serve(t, filepath.Join(dir, "wayland-0"), compositor())
	if _, err := Find(t.Context(), Env{RuntimeDir: dir}); err != nil {
		t.Error(err)
	}
}

func TestFindSeveral(t *testing.T) {
	dir := runtimeDir(t)
	for _, name := range []string{"wayland-1", "wayland-0"} {
		serve(t, filepath.Join(dir, name), compositor())
	}
	if err := os.Symlink("wayland-0", filepath.Join(dir, "wayland-again")); err != nil {
		t.Fatal(err)
	}
	_, err := Find(t.Context(), Env{RuntimeDir: dir})
	var several *AmbiguousError
	if !errors.As(err, &several) {
		t.Fatalf("got %v, want an AmbiguousError", err)
	}
	want := []string{filepath.Join(dir, "wayland-0"), filepath.Join(dir, "wayland-1")}
	if diff := cmp.Diff(want, several.Sockets); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(err.Error(), "HANDLER_WAYLAND_SOCKET="+want[0]) {
		t.Errorf("the error does not say what to do: %v", err)
	}
}

// TestFindRefuses: what is asked for by name and cannot be used is an error, never another socket.
func TestFindRefuses(t *testing.T) {
	dir := runtimeDir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	serve(t, in("wayland-1"), compositor())
	serve(t, in("podman.sock"), func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	serve(t, in("rude"), func(net.Conn) {})
	serve(t, in("angry"), func(c net.Conn) { c.Write(event(objDisplay, 0, make([]byte, 12))) })
	serve(t, in("endless"), func(c net.Conn) {
		// Ends when the other side has had enough.
		for {
			if _, err := c.Write(event(objRegistry, 0, globalArgs(1, "wl_x", 1))); err != nil {
				return
			}
		}
	})
	dead(t, in("wayland-0"))
	touch(t, in("file"))
	long := filepath.Join(dir, strings.Repeat("d", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(in("rude"), filepath.Join(long, "s")); err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct{ value, want string }{
		{"wayland-7", "does not exist"},
		{"wayland-0", "nothing listens on"},
		{"file", "is no socket"},
		{"podman.sock", "does not speak Wayland"},
		{"angry", "does not speak Wayland"},
		{"endless", "does not speak Wayland"},
		{filepath.Join(long, "s"), "more than 107 bytes"},
	} {
		_, err := Find(t.Context(), Env{RuntimeDir: dir, WaylandDisplay: test.value})
		var socket *SocketError
		if !errors.As(err, &socket) || socket.Variable != "WAYLAND_DISPLAY" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("WAYLAND_DISPLAY=%s: got %v, want a SocketError with %q", test.value, err, test.want)
		} else if hint := fault.Of(err).Hint; !strings.Contains(hint, in("wayland-1")) {
			t.Errorf("WAYLAND_DISPLAY=%s: the hint does not name the live socket: %q", test.value, hint)
		}
	}
	_, err := Find(t.Context(), Env{HandlerSocket: "wayland-1"})
	if err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
		t.Errorf("relative without a runtime folder: got %v", err)
	}
}

func TestFindNothing(t *testing.T) {
	dir := runtimeDir(t)
	dead(t, filepath.Join(dir, "wayland-0"))
	for _, test := range []struct {
		env  Env
		want string
	}{
		{Env{}, "nor XDG_RUNTIME_DIR is set"},
		{Env{RuntimeDir: filepath.Join(dir, "gone")}, "no Wayland socket in"},
		{Env{RuntimeDir: dir}, "nobody answers on wayland-0"},
	} {
		_, err := Find(t.Context(), test.env)
		var none *NotFoundError
		if !errors.As(err, &none) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want a NotFoundError with %q", test.env, err, test.want)
		}
	}
}

// TestFindSilent: a compositor that is stopped accepts and says nothing.
func TestFindSilent(t *testing.T) {
	dir := runtimeDir(t)
	hold := make(chan struct{})
	serve(t, filepath.Join(dir, "wayland-0"), func(net.Conn) { <-hold })
	t.Cleanup(func() { close(hold) })
	start := time.Now()
	_, err := Find(t.Context(), Env{WaylandDisplay: filepath.Join(dir, "wayland-0")})
	if err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(start); took > 10*askTimeout {
		t.Errorf("took %v", took)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Find(ctx, Env{RuntimeDir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestPowers(t *testing.T) {
	dir := runtimeDir(t)
	path := filepath.Join(dir, "wayland-0")
	serve(t, path, compositor("wl_compositor", "xdg_wm_base", "zwlr_screencopy_manager_v1",
		"ext_image_copy_capture_manager_v1", "zwp_virtual_keyboard_manager_v1", "wp_security_context_manager_v1"))
	c, err := Ask(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"take pictures of the whole screen", "type into other windows"}, c.Powers()); diff != "" {
		t.Error(diff)
	}
	if !c.SecurityContext() || c.Globals[0] != (Global{"wl_compositor", 3, 1}) {
		t.Errorf("got %+v", c)
	}
	if !strings.Contains(c.Notice(), "type into other windows") {
		t.Errorf("notice: %q", c.Notice())
	}
	plain := Compositor{Globals: []Global{{"wl_compositor", 4, 1}, {"xdg_wm_base", 2, 2}}}
	if plain.Notice() != "" || plain.SecurityContext() {
		t.Errorf("a compositor with windows alone: %q", plain.Notice())
	}
}

func FuzzReadGlobalsEnds(f *testing.F) {
	f.Add(event(objCallback, 0, make([]byte, 4)))
	f.Add(append(event(objRegistry, 0, globalArgs(1, "wl_shm", 1)), event(objCallback, 0, make([]byte, 4))...))
	f.Add(event(objRegistry, 0, []byte{0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := readGlobals(strings.NewReader(string(data)))
		if err == nil && len(c.Globals) > len(data)/24 {
			t.Errorf("%d globals out of %d bytes", len(c.Globals), len(data))
		}
	})
}
