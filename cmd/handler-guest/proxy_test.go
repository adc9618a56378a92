package main_test

import (
	"bytes"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// startProxy starts a guest with a proxy on a free port and returns where it listens.
func startProxy(t *testing.T, d *rundir.Dir) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // to find a port that is free
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	cmd := exec.Command(guestBin, "init", "--run-dir", d.Path(), "--proxy-addr", addr, "--", "/bin/sh", "-c", "read x")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	within(t, "start", d.Started())
	return addr
}

func dialTCP(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// Bytes pass both ways, and each way ends on its own.
func TestProxyHalfClose(t *testing.T) {
	d := newDir(t, rundir.Options{})
	l, err := d.Listen(sandbox.SocketEgress)
	if err != nil {
		t.Fatal(err)
	}
	addr := startProxy(t, d)
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		got, _ := io.ReadAll(c) // until the client's half-close
		_, _ = c.Write(got)
	}()
	c := dialTCP(t, addr)
	if _, err := c.Write(payload); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, payload) {
		t.Errorf("%d bytes of %d, %v", len(got), len(payload), err)
	}
	// The other way round: the proxy ends its side first, the client's bytes still arrive.
	late := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.(*net.UnixConn).CloseWrite()
		b, _ := io.ReadAll(c)
		late <- string(b)
	}()
	c = dialTCP(t, addr)
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Fatalf("%q %v", b, err)
	}
	if _, err := c.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	select {
	case s := <-late:
		if s != "late" {
			t.Errorf("%q", s)
		}
	case <-time.After(patience):
		t.Error("the late bytes never came")
	}
}

// With no proxy there, and beyond the bound, a client reads a 503 that says why.
func TestProxyRefuses(t *testing.T) {
	d := newDir(t, rundir.Options{})
	addr := startProxy(t, d)
	ask := func() string {
		c := dialTCP(t, addr)
		_, _ = io.WriteString(c, "CONNECT example.com:443 HTTP/1.1\r\n\r\n")
		b, _ := io.ReadAll(c)
		c.Close() // the guest waits for this a moment, and its place is taken until then
		return string(b)
	}
	if s := ask(); !strings.HasPrefix(s, "HTTP/1.1 503 ") || !strings.Contains(s, "no network now") {
		t.Errorf("no proxy: %q", s)
	}
	l, err := d.Listen(sandbox.SocketEgress)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{}, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			accepted <- struct{}{}
		}
	}()
	for range 512 {
		dialTCP(t, addr)
		within(t, "connection at the proxy", accepted)
	}
	if s := ask(); !strings.HasPrefix(s, "HTTP/1.1 503 ") || !strings.Contains(s, "512") {
		t.Errorf("over the bound: %q", s)
	}
}
