package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/sandbox/guestwire"
)

// A Shell is a command of the person's in a run. Close ends it.
type Shell struct {
	conn net.Conn
	read *bufio.Reader
	w    *guestwire.ShellWriter
	room *room
	once sync.Once
	left atomic.Bool // by ErrLeave
}

// Shell starts a command in the run whose id begins with id.
func (c *Client) Shell(ctx context.Context, id string, req types.ShellRequest) (*Shell, error) {
	stream, err := c.upgrade(ctx, types.PathRuns+"/"+url.PathEscape(id)+"/shell", types.UpgradeShell, req)
	if err != nil {
		return nil, err
	}
	return &Shell{conn: stream.UnixConn, read: stream.read, w: guestwire.NewShellWriter(stream.UnixConn), room: newRoom()}, nil
}

// Resize tells the command's terminal of a new size.
func (s *Shell) Resize(rows, cols uint16) error {
	return s.w.Write(guestwire.ShellFrame{Kind: guestwire.ShellResize, Rows: rows, Cols: cols})
}

// Close ends the command and everything it started.
func (s *Shell) Close() error {
	s.once.Do(s.room.close)
	return s.conn.Close()
}

// Serve copies in to the command, and what it writes to out and errout, and returns its exit code, 128 and the signal's
// number when a signal ended it; or ErrLeave when in gave that. A read of in that waits is left behind: close in where that matters.
func (s *Shell) Serve(in io.Reader, out, errout io.Writer) (code int, err error) {
	defer s.Close()
	go s.send(in)
	r := guestwire.NewShellReader(s.read)
	for {
		f, err := r.Next()
		switch {
		case s.left.Load():
			return 0, ErrLeave
		case err != nil:
			return 0, fault.New(fault.Failed, "see: handler ps", "the connection to the shell ended")
		}
		switch f.Kind {
		case guestwire.ShellOutput:
			_, err = out.Write(f.Data)
		case guestwire.ShellErrors:
			_, err = errout.Write(f.Data)
		case guestwire.ShellTaken:
			s.room.give(int(f.Taken))
		case guestwire.ShellExit:
			return int(f.Code), nil
		case guestwire.ShellFailed:
			return 0, fault.New(fault.Failed, "see: handler ps", "the shell ended: %s", f.Text)
		}
		if err != nil {
			return 0, err
		}
	}
}

// send sends in, never more than the window.
func (s *Shell) send(in io.Reader) {
	buf := make([]byte, 8<<10)
	for {
		n, err := in.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			some := s.room.take(len(rest))
			if some == 0 {
				return // closed
			}
			if s.w.Write(guestwire.ShellFrame{Kind: guestwire.ShellInput, Data: rest[:some]}) != nil {
				return
			}
			rest = rest[some:]
		}
		if errors.Is(err, ErrLeave) {
			s.left.Store(true)
			_ = s.Close()
			return
		}
		if err != nil {
			_ = s.w.Write(guestwire.ShellFrame{Kind: guestwire.ShellInputEnd})
			return
		}
	}
}

// ErrLeave is what a reader given to Serve returns to end the shell rather than its input.
var ErrLeave = errors.New("the person leaves the shell")

// room is how much input may be sent.
type room struct {
	mu   sync.Mutex
	more *sync.Cond
	left int
	over bool
}

func newRoom() *room {
	r := &room{left: guestwire.ShellWindow}
	r.more = sync.NewCond(&r.mu)
	return r
}

// take waits for room and takes up to most of it; 0 when there will be none.
func (r *room) take(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.left == 0 && !r.over {
		r.more.Wait()
	}
	if r.over {
		return 0
	}
	n := min(most, r.left)
	r.left -= n
	return n
}

// give gives room back. What the sandbox says is not trusted: there is never more than a window.
func (r *room) give(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = min(r.left+n, guestwire.ShellWindow)
	r.more.Signal()
}

func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.more.Broadcast()
}
