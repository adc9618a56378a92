package main_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox/rundir"
)

// loopbackServer answers every connection by serve and gives its port.
func loopbackServer(t *testing.T, address string, serve func(*net.TCPConn)) int {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("this machine has no ", address) // ::1 is not everywhere
	}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				serve(c.(*net.TCPConn))
			})
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func dialInside(t *testing.T, d *rundir.Dir, port int) *net.UnixConn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := d.Dial(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// upper answers with what it got, once the client has ended what it says.
func upper(c *net.TCPConn) {
	got, _ := io.ReadAll(c)
	_, _ = c.Write(bytes.ToUpper(got))
}

// descriptors of a process that are sockets.
func sockets(t *testing.T, pid int) int {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// The guest reaches ports of its loopback, of either family; each direction ends on its own; what nobody listens on is
// said; a thousand leave nothing, and nor does one whose daemon goes while the server waits.
func TestDialPort(t *testing.T) {
	g := startGuest(t, in["host"], rundir.Options{}, `read x; exit 0`)
	within(t, "start", g.dir.Started())
	port := loopbackServer(t, "127.0.0.1:0", upper)
	before := sockets(t, g.cmd.Process.Pid)
	payload := strings.Repeat("0123456789abcdef", 1<<14)
	c := dialInside(t, g.dir, port)
	go func() {
		_, _ = io.WriteString(c, payload)
		_ = c.CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || string(got) != strings.ToUpper(payload) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := free.Addr().(*net.TCPAddr).Port
	free.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var refused *rundir.DialError
	if _, err := g.dir.Dial(ctx, closed); !errors.As(err, &refused) || !strings.Contains(refused.Text, "nothing listens on 127.0.0.1:") {
		t.Errorf("a port that is closed: %v", err)
	}
	waiting := loopbackServer(t, "127.0.0.1:0", func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	dialInside(t, g.dir, waiting).Close()
	var all sync.WaitGroup
	work := make(chan int)
	for range 20 {
		all.Go(func() {
			for n := range work {
				c, err := g.dir.Dial(ctx, port)
				if err != nil {
					t.Errorf("%d: %v", n, err)
					continue
				}
				_, _ = io.WriteString(c, "abc")
				_ = c.CloseWrite()
				if got, err := io.ReadAll(c); err != nil || string(got) != "ABC" {
					t.Errorf("%d: %q %v", n, got, err)
				}
				c.Close()
			}
		})
	}
	for n := range 1000 {
		work <- n
	}
	close(work)
	all.Wait()
	for end := time.Now().Add(patience); sockets(t, g.cmd.Process.Pid) > before; {
		if time.Now().After(end) {
			t.Fatalf("%d sockets, %d before", sockets(t, g.cmd.Process.Pid), before)
		}
		time.Sleep(10 * time.Millisecond) // another process closes descriptors, and tells nobody
	}
}

func TestDialPortV6(t *testing.T) {
	port := loopbackServer(t, "[::1]:0", upper)
	g := startGuest(t, in["host"], rundir.Options{}, `read x; exit 0`)
	within(t, "start", g.dir.Started())
	c := dialInside(t, g.dir, port)
	_, _ = io.WriteString(c, "six")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "SIX" {
		t.Errorf("%q %v", got, err)
	}
}
