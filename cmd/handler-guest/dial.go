package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/duplex"
	"github.com/handlerd/handler/sandbox/guestwire"
)

const (
	maxDials = 256             // of the daemon at one time, under way or open; it allows fewer itself
	portTime = 5 * time.Second // to connect to a port of our own loopback
)

// A dialRequest is what the daemon asks for.
type dialRequest struct {
	token string
	port  int  // 0 for the display
	hands bool // the display with pointer and keys
}

func (r dialRequest) String() string {
	if r.port == 0 {
		return "display"
	}
	return fmt.Sprintf("port %d", r.port)
}

// serveDials joins a port of the loopback, or the display, to shell.sock for each request. It never waits for one.
func serveDials(requests <-chan dialRequest, runDir string, scr *screen) {
	slots := make(chan struct{}, maxDials)
	for r := range requests {
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				if err := dialFor(r, filepath.Join(runDir, sandbox.SocketShell), scr); err != nil {
					fmt.Fprintf(os.Stderr, "handler-guest: %s: %v\n", r, err)
				}
			}()
		default: // its request runs out of time
		}
	}
}

// dialFor connects to shell.sock, says the token, connects to what is asked for, says that, and carries both ways until
// both have ended. Its error is that the daemon was not reached.
func dialFor(r dialRequest, socket string, scr *screen) error {
	c, err := net.DialTimeout("unix", socket, dialTime)
	if err != nil {
		return err
	}
	u := c.(*net.UnixConn)
	defer u.Close()
	w := guestwire.NewShellWriter(u)
	if err := w.Write(guestwire.ShellFrame{Kind: guestwire.ShellToken, Data: []byte(r.token)}); err != nil {
		return err
	}
	var to duplex.Conn
	if r.port == 0 {
		to, err = scr.dial(r.hands)
	} else {
		to, err = dialLoopback(r.port)
	}
	if err != nil {
		return w.Write(guestwire.ShellFrame{Kind: guestwire.ShellFailed, Text: err.Error()})
	}
	defer to.Close()
	if err := w.Write(guestwire.ShellFrame{Kind: guestwire.ShellStarted}); err != nil {
		return err
	}
	duplex.Join(u, to)
	return nil
}

// dialLoopback connects to a port of 127.0.0.1, or of ::1 where nothing listens there: "localhost" is either, and
// servers pick one.
func dialLoopback(port int) (duplex.Conn, error) {
	text := strconv.Itoa(port)
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", text), portTime)
	if errors.Is(err, unix.ECONNREFUSED) {
		var err6 error
		if c, err6 = net.DialTimeout("tcp", net.JoinHostPort("::1", text), portTime); err6 != nil {
			return nil, fmt.Errorf("nothing listens on 127.0.0.1:%d in the sandbox", port)
		}
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("127.0.0.1:%d in the sandbox: %w", port, err)
	}
	return c.(*net.TCPConn), nil
}
