package display

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// secure is a fake compositor with security-context-v1: on its own socket it offers everything, on the listeners that
// it is handed only what fewer says.
type secure struct {
	t     *testing.T
	fewer []string
	fail  bool // it refuses to make a context

	mu     sync.Mutex
	asked  []string // what it was told of the sandbox
	closed chan struct{}
	work   sync.WaitGroup
}

// whole are the globals of its own socket; the manager is the third.
var whole = []string{"wl_compositor", "zwlr_screencopy_manager_v1", securityManager}

// answer plays both conversations: that of Ask ends in a sync of object 3, that of Open binds the manager.
func (s *secure) answer(c net.Conn) {
	buf, oob := make([]byte, 4096), make([]byte, 256)
	n, oobn, _, _, err := c.(*net.UnixConn).ReadMsgUnix(buf, oob)
	if err != nil || n < 24 {
		return
	}
	if n == 24 {
		offer(c, whole, objCallback)
		return
	}
	fds := s.fds(oob[:oobn])
	if s.fail || len(fds) != 2 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		c.Write(event(objDisplay, 0, append(words(objContext, 2), text("metadata has already been set")...)))
		return
	}
	s.read(buf[:n])
	f := os.NewFile(uintptr(fds[0]), "listener")
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		s.t.Error(err)
		return
	}
	s.work.Go(func() {
		// The pipe's end hangs up when the context is closed.
		os.NewFile(uintptr(fds[1]), "close").Read(make([]byte, 1))
		l.Close()
		close(s.closed)
	})
	s.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.ReadFull(c, make([]byte, 24))
			offer(c, s.fewer, objCallback)
			c.Close()
		}
	})
	offer(c, whole, objDone)
}

func offer(c net.Conn, globals []string, done uint32) {
	var b []byte
	for i, g := range globals {
		b = append(b, event(objRegistry, 0, globalArgs(uint32(i+1), g, 1))...)
	}
	c.Write(append(b, event(done, 0, words(7))...))
}

func (s *secure) fds(oob []byte) []int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		s.t.Errorf("%d control messages, %v", len(messages), err)
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		s.t.Error(err)
	}
	return fds
}

// read keeps the requests' strings and what is bound.
func (s *secure) read(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) >= 8 {
		object, word := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:])
		body := b[8 : word>>16]
		switch {
		case object == objRegistry:
			if name := binary.NativeEndian.Uint32(body); name != 3 {
				s.t.Errorf("global %d was bound, which is not the manager", name)
			}
		case object == objContext && word&0xffff >= 1 && word&0xffff <= 3:
			s.asked = append(s.asked, string(body[4:4+binary.NativeEndian.Uint32(body)-1]))
		}
		b = b[word>>16:]
	}
}

func startSecure(t *testing.T, s *secure) string {
	s.t, s.closed = t, make(chan struct{})
	path := filepath.Join(runtimeDir(t), "wayland-0")
	serve(t, path, s.answer)
	t.Cleanup(s.work.Wait)
	return path
}

func TestOpenRestricted(t *testing.T) {
	s := &secure{fewer: []string{"wl_compositor", "xdg_wm_base"}}
	socket := startSecure(t, s)
	path := filepath.Join(runtimeDir(t), "wayland.sock")
	c, err := Open(t.Context(), socket, path, "handler.web", "k3f9")
	if err != nil {
		t.Fatal(err)
	}
	if !c.Restricted || c.Socket != path || len(c.Compositor.Powers()) != 0 {
		t.Errorf("got %+v", c)
	}
	s.mu.Lock()
	if diff := cmp.Diff([]string{Engine, "handler.web", "k3f9"}, s.asked); diff != "" {
		t.Error(diff)
	}
	s.mu.Unlock()
	if again, err := Ask(t.Context(), path); err != nil || len(again.Globals) != 2 {
		t.Errorf("the sandbox's socket gives %+v, %v", again, err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-s.closed:
	case <-time.After(10 * time.Second):
		t.Error("the compositor still listens after Close")
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestOpenPlain(t *testing.T) {
	socket := filepath.Join(runtimeDir(t), "wayland-0")
	serve(t, socket, compositor("wl_compositor", "zwlr_screencopy_manager_v1"))
	path := filepath.Join(runtimeDir(t), "wayland.sock")
	c, err := Open(t.Context(), socket, path, "handler.web", "k3f9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Restricted || c.Socket != socket || c.Compositor.Notice() == "" {
		t.Errorf("got %+v", c)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); err != nil {
		t.Errorf("the person's own socket is gone: %v", err)
	}
}

// TestOpenRefused: a compositor that offers contexts and makes none is an error, and nothing is left.
func TestOpenRefused(t *testing.T) {
	socket := startSecure(t, &secure{fail: true})
	dir := runtimeDir(t)
	path := filepath.Join(dir, "wayland.sock")
	_, err := Open(t.Context(), socket, path, "handler.web", "k3f9")
	if err == nil || !strings.Contains(err.Error(), "metadata has already been set") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	// What lies there already is nobody's to remove.
	touch(t, path)
	if _, err := Open(t.Context(), socket, path, "handler.web", "k3f9"); err == nil {
		t.Error("a path that is taken was used")
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}
