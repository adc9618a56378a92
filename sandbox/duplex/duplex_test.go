package duplex_test

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/sandbox/duplex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair gives two ends of a connection.
func pair(t *testing.T, network string) (near, far duplex.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{n, f} {
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return n.(duplex.Conn), f.(duplex.Conn)
}

// joined gives the two outer ends of a pair that Join joins, and a channel that is closed when Join returns.
func joined(t *testing.T, one, other string) (a, b duplex.Conn, done chan struct{}) {
	t.Helper()
	a, innerA := pair(t, one)
	b, innerB := pair(t, other)
	done = make(chan struct{})
	go func() { defer close(done); duplex.Join(innerA, innerB) }()
	return a, b, done
}

func ended(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("Join does not return")
	}
}

// One side ends what it says; the other goes on for as long as it likes.
func TestHalfClose(t *testing.T) {
	for _, n := range [][2]string{{"tcp", "unix"}, {"unix", "tcp"}, {"unix", "unix"}, {"tcp", "tcp"}} {
		a, b, done := joined(t, n[0], n[1])
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<15)
		go func() {
			_, _ = a.Write(want)
			_ = a.CloseWrite()
		}()
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: %d bytes, %v", n, len(got), err)
		}
		go func() {
			_, _ = b.Write(want)
			_ = b.Close()
		}()
		if got, err := io.ReadAll(a); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: back: %d bytes, %v", n, len(got), err)
		}
		ended(t, done)
	}
}

// An end that is gone is noticed although the other neither reads, writes nor closes.
func TestGone(t *testing.T) {
	a, b, done := joined(t, "unix", "tcp")
	a.Close()
	ended(t, done)
	if _, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the other end: %v", err)
	}
}

// A half-closed end may be waited for, and is closed when it goes.
func TestHalfThenGone(t *testing.T) {
	a, b, done := joined(t, "unix", "tcp")
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the other end: %v", err)
	}
	if _, err := b.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(a, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		t.Fatal("ended with one direction open")
	default:
	}
	a.Close()
	ended(t, done)
}

// A connection that is closed on this side ends Join, also when its other side has ended what it said before.
func TestHalfThenClosedHere(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		a, innerA := pair(t, network)
		b, innerB := pair(t, network)
		done := make(chan struct{})
		go func() { defer close(done); duplex.Join(innerA, innerB) }()
		_ = b.CloseWrite()
		if _, err := io.ReadAll(a); err != nil { // it came through: that direction has ended
			t.Fatal(err)
		}
		innerB.Close()
		ended(t, done)
	}
}
