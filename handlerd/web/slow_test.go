package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestSlowLoris: connections that send the head of a request byte by byte, as many as there may be, are closed in HeaderTime, and
// whoever waits behind them is served then.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	browser := r.login()
	var conns []net.Conn
	for range MaxConnections {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(r.port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	stop := make(chan struct{})
	var dripping sync.WaitGroup
	dripping.Go(func() {
		text := "GET / HTTP/1.1\r\nHost: " + r.host() + "\r\nX: "
		for n := 0; ; n++ {
			b := byte('x')
			if n < len(text) {
				b = text[n]
			}
			for _, c := range conns {
				_, _ = c.Write([]byte{b}) // it may be closed by now
			}
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	defer dripping.Wait()
	defer close(stop)
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(r.port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(6 * HeaderTime)) // it waits for a place
	r.askOn(c, "GET /api/me", "", browser.cookie).want(t, http.StatusOK, `"user":"ana"`)
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(6 * HeaderTime))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a connection that drips is still open")
		}
	}
}
