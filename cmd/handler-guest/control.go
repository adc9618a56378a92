package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

const (
	maxQueued  = 256 << 10   // bytes of stderr that wait for a slow daemon
	finishTime = time.Second // for the daemon to take the last frames
)

// control is our end of guest.sock. Without one (conn is nil) frames go nowhere and no signal comes.
type control struct {
	conn    net.Conn
	signals chan unix.Signal // what the daemon asks for
	shells  chan string      // tokens of the shells that it asks for
	dials   chan dialRequest // the ports that it asks for, and the display
	gone    chan struct{}    // closed when the daemon is gone; never without a daemon
	wake    chan struct{}    // tells the writer of new frames
	written chan struct{}    // closed when the writer has ended

	mu      sync.Mutex
	queue   []guestwire.Frame // few: the kinds that come once, and stderr that maxQueued bounds
	bytes   int               // of stderr in queue
	dropped int64             // of stderr since the last frame of it
	closing bool
}

// dialControl connects to guest.sock, if there is one, and says hello.
func dialControl(runDir string) (*control, error) {
	c := &control{signals: make(chan unix.Signal), shells: make(chan string, maxShells), dials: make(chan dialRequest, maxDials), gone: make(chan struct{})}
	path := filepath.Join(runDir, sandbox.SocketGuest)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	conn, err := net.DialTimeout("unix", path, dialTime)
	if err != nil {
		return nil, fmt.Errorf("control connection: %w", err)
	}
	c.conn = conn
	c.wake = make(chan struct{}, 1)
	c.written = make(chan struct{})
	go c.write()
	go c.read()
	c.send(guestwire.Frame{Kind: guestwire.Hello, Version: guestwire.Version})
	return c, nil
}

// send queues a frame and never waits.
func (c *control) send(f guestwire.Frame) {
	if c.conn == nil {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, f)
	c.mu.Unlock()
	c.poke()
}

// sendStderr queues bytes, or drops and counts them where the daemon is too slow.
func (c *control) sendStderr(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.poke()
	if c.bytes+len(b) > maxQueued {
		c.dropped += int64(len(b))
		return
	}
	c.bytes += len(b)
	if n := len(c.queue); n > 0 && c.dropped == 0 { // many small writes become one frame
		if last := &c.queue[n-1]; last.Kind == guestwire.Stderr && len(last.Data)+len(b) <= guestwire.MaxStderr {
			last.Data = append(last.Data, b...)
			return
		}
	}
	f := guestwire.Frame{Kind: guestwire.Stderr, Data: append([]byte(nil), b...), Dropped: c.dropped}
	c.queue, c.dropped = append(c.queue, f), 0
}

func (c *control) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns the next frame, or false when there is none.
func (c *control) take() (f guestwire.Frame, ok, closing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return f, false, c.closing
	}
	f = c.queue[0]
	c.queue[0] = guestwire.Frame{}
	c.queue = c.queue[1:]
	if f.Kind == guestwire.Stderr {
		c.bytes -= len(f.Data)
	}
	return f, true, false
}

// write writes the queue until it is empty and closing, or the daemon is gone.
func (c *control) write() {
	defer close(c.written)
	var line []byte
	for {
		f, ok, closing := c.take()
		switch {
		case closing:
			return
		case !ok:
			<-c.wake
			continue
		}
		var err error
		if line, err = guestwire.Append(line[:0], f); err == nil {
			_, err = c.conn.Write(line)
		}
		if err != nil {
			return // the reader sees the same end
		}
	}
}

// read turns frames into signals, shells and dials until the daemon is gone, or says what it must not.
func (c *control) read() {
	defer close(c.gone)
	r := guestwire.NewReader(c.conn)
	for {
		f, err := r.Next()
		switch {
		case err != nil:
			return
		case f.Kind == guestwire.Signal:
			c.signals <- unix.SignalNum("SIG" + f.Signal)
		case f.Kind == guestwire.Shell:
			select {
			case c.shells <- f.Token:
			default: // the daemon asks for more than it allows; its request runs out of time
			}
		case f.Kind == guestwire.Dial || f.Kind == guestwire.Screen || f.Kind == guestwire.Hands:
			select {
			case c.dials <- dialRequest{f.Token, f.Port, f.Kind == guestwire.Hands}:
			default: // likewise
			}
		default:
			return
		}
	}
}

// finish gives the daemon a moment to take what is queued. Nothing may be sent after it.
func (c *control) finish() {
	if c.conn == nil {
		return
	}
	c.mu.Lock()
	if c.dropped > 0 {
		c.queue = append(c.queue, guestwire.Frame{Kind: guestwire.Stderr, Dropped: c.dropped})
	}
	c.closing = true
	c.mu.Unlock()
	c.poke()
	waitFor(c.written, finishTime)
}

// copyStderr sends what the command writes to its standard error; it never waits for the daemon.
func (c *control) copyStderr(r io.Reader) {
	buf := make([]byte, 8<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			c.sendStderr(buf[:n])
		}
		if err != nil {
			return
		}
	}
}
