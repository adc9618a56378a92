// Package duplex joins two connections. Each direction ends on its own, so that a program may end what it says and
// still listen; and when one end is gone as a whole, the other is closed although nobody writes to it.
package duplex

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Conn is a connection whose own direction can be ended alone: *net.TCPConn, *net.UnixConn and what wraps one. One
// that is no syscall.Conn too is closed only when both directions have ended or one fails.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Join carries bytes both ways until both have ended, one fails, or an end is gone. Both connections are closed then
// and nothing of Join is left. It sets no time limits; closing either connection ends it.
func Join(a, b Conn) {
	var ways, watches sync.WaitGroup
	end := func() {
		_ = a.Close()
		_ = b.Close()
	}
	carry := func(dst, src Conn) {
		if _, err := io.Copy(dst, src); err != nil || dst.CloseWrite() != nil {
			end()
			return
		}
		watches.Go(func() {
			if gone(src) {
				end()
			}
		})
	}
	ways.Go(func() { carry(a, b) })
	ways.Go(func() { carry(b, a) })
	ways.Wait()
	end()
	watches.Wait()
}

// gone waits, on a connection that was read to its end, until either side has closed it altogether; false if that cannot
// be waited for.
func gone(c Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	// The runtime's poller wakes this for a hang-up as for bytes.
	err = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n > 0 && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return !errors.Is(err, os.ErrDeadlineExceeded)
}
