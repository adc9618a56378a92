package sandboxtest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/sandboxtest/facts"
)

// compositor listens at path until the test ends. It knows one thing of Wayland, to answer wl_display.sync, which is
// how a client sees that someone is there; or it hangs up on everyone.
func compositor(t *testing.T, path string, answers bool) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-served })
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if answers {
				answerSyncs(c)
			}
			c.Close()
		}
	}()
}

// answerSyncs answers each sync (object 1, request 0, the id of a callback) with the callback's event done and a
// serial number. Messages are words in the machine's order; the second word is size and opcode.
func answerSyncs(c io.ReadWriter) {
	order := binary.NativeEndian
	for request := make([]byte, 12); ; {
		if _, err := io.ReadFull(c, request); err != nil || order.Uint32(request) != 1 || order.Uint32(request[4:]) != 12<<16 {
			return
		}
		done := order.AppendUint32(append([]byte(nil), request[8:]...), 12<<16)
		if _, err := c.Write(order.AppendUint32(done, 1)); err != nil {
			return
		}
	}
}

// The one display socket is at its place and can be connected to, WAYLAND_DISPLAY names it absolutely, and the
// runtime folder is private.
func (s *suite) display(t *testing.T) {
	dir, err := os.MkdirTemp("", "wl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	compositor(t, dir+"/wayland-7", true)
	write(t, dir+"/bus", "another thing of the runtime folder")
	show := func(r *run) *run {
		r.spec.Display = &sandbox.Display{Mode: sandbox.DisplayWayland, Socket: dir + "/wayland-7"}
		return r
	}
	var rep facts.Report
	show(s.prepare(t, "report")).once(&rep)
	shown := rep.Env["WAYLAND_DISPLAY"]
	if !filepath.IsAbs(shown) || s.Strict && shown != sandbox.DisplayTarget {
		t.Errorf("WAYLAND_DISPLAY=%q", shown)
	}
	if v, ok := rep.Env["DISPLAY"]; ok {
		t.Errorf("DISPLAY=%q", v)
	}
	if o := show(s.prepare(t)).try("unix=" + sandbox.DisplayTarget)["unix="+sandbox.DisplayTarget]; !o.OK {
		t.Errorf("connect: %+v", o)
	}
	var files []facts.File
	r := show(s.prepare(t, "files", filepath.Dir(sandbox.DisplayTarget), sandbox.RuntimeTarget))
	r.once(&files)
	if len(files) != 2 || !slices.Equal(files[0].Names, []string{"wayland-0"}) {
		t.Errorf("beside the display: %+v", files)
	}
	if xdg := rep.Env["XDG_RUNTIME_DIR"]; s.Strict && xdg != sandbox.RuntimeTarget && xdg != sandbox.RuntimeTarget+"/u" {
		t.Errorf("XDG_RUNTIME_DIR=%q", xdg)
	} else if s.Strict && xdg == sandbox.RuntimeTarget && (files[1].Mode != 0o700 || files[1].UID != os.Getuid()) {
		t.Errorf("runtime folder: %+v", files[1])
	}
}

// A display that is not there, that nobody or something else serves, or that is no socket, fails the start.
func (s *suite) displayMissing(t *testing.T) {
	dir, err := os.MkdirTemp("", "wl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/stale", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	write(t, dir+"/regular", "")
	names := []string{"missing", "stale", "regular"}
	if s.Strict { // the fake does not speak Wayland
		compositor(t, dir+"/another", false)
		names = append(names, "another")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r := s.prepare(t, "wait")
			r.spec.Display = &sandbox.Display{Mode: sandbox.DisplayWayland, Socket: filepath.Join(dir, name)}
			var spec *sandbox.SpecError
			if err := r.startFails(); !errors.As(err, &spec) {
				t.Errorf("%v, want a *sandbox.SpecError", err)
			}
		})
	}
}
