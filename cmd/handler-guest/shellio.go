package main

import (
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/guestwire"
)

// shell is one command, its terminal or pipes, and the daemon's connection.
type shell struct {
	conn    *net.UnixConn
	w       *guestwire.ShellWriter
	tty     *tty
	kill    func(unix.Signal)
	box     *inbox
	gone    chan struct{} // closed when the daemon is gone, or says what it must not
	copying sync.WaitGroup
}

// run sees the command to its end, and all it leaves behind; it returns the exit code.
func (s *shell) run(children <-chan unix.WaitStatus) int {
	var last guestwire.ShellFrame
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	gone := s.gone
	for {
		select {
		case status, ok := <-children:
			if !ok {
				return s.finish(last)
			}
			last = exitFrame(status)
			s.leave()
			timer.Reset(leaveTime)
		case <-gone:
			gone = nil
			s.tty.close() // the terminal's end is a HUP to what has it
			s.leave()
			timer.Reset(leaveTime)
		case <-timer.C:
			s.kill(unix.SIGKILL)
			timer.Reset(killAgain)
		}
	}
}

// leave asks everything below us to end; interactive shells hear HUP and not TERM.
func (s *shell) leave() {
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGCONT} {
		s.kill(sig)
	}
}

func exitFrame(status unix.WaitStatus) guestwire.ShellFrame {
	if status.Signaled() {
		return guestwire.ShellFrame{Kind: guestwire.ShellExit, Code: uint8(128 + int(status.Signal())), Signal: signalName(status.Signal())}
	}
	return guestwire.ShellFrame{Kind: guestwire.ShellExit, Code: uint8(status.ExitStatus())}
}

// finish sends what was written to the last byte, and how the command ended. Somebody else in the sandbox may hold the
// terminal open, so the wait is bounded.
func (s *shell) finish(last guestwire.ShellFrame) int {
	done := make(chan struct{})
	go func() { s.copying.Wait(); close(done) }()
	select {
	case <-done:
	case <-s.gone:
	case <-time.After(drainOutput):
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(drainOutput))
	_ = s.w.Write(last)
	return int(last.Code)
}

// read takes the daemon's frames. It never waits for the command: input goes to the box, which the daemon may not
// overfill.
func (s *shell) read(r *guestwire.ShellReader) {
	defer close(s.gone)
	defer s.box.end()
	for {
		f, err := r.Next()
		if err != nil {
			return
		}
		switch f.Kind {
		case guestwire.ShellInput:
			if !s.box.put(f.Data) {
				return
			}
		case guestwire.ShellInputEnd:
			s.box.end()
		case guestwire.ShellResize:
			s.tty.resize(f.Rows, f.Cols)
		default:
			return
		}
	}
}

// feed gives the command its input, and tells how much it took. What a command does not want any more is taken too, so
// that whoever sends goes on.
func (s *shell) feed() {
	wanted := true
	for {
		b := s.box.take()
		if b == nil {
			s.tty.endInput()
			return
		}
		for part := range chunks(b) {
			if wanted {
				_, err := s.tty.in.Write(part)
				wanted = err == nil
			}
			if s.w.Write(guestwire.ShellFrame{Kind: guestwire.ShellTaken, Taken: uint32(len(part))}) != nil {
				return
			}
		}
	}
}

// chunks cuts b into pieces of a frame's size at most.
func chunks(b []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(len(b), 4<<10)
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// copy sends what the command writes. When nobody takes it any more the command learns of it by its next write.
func (s *shell) copy(kind byte, f *os.File) {
	buf := make([]byte, guestwire.MaxShellData)
	for {
		n, err := f.Read(buf)
		if n > 0 && s.w.Write(guestwire.ShellFrame{Kind: kind, Data: buf[:n]}) != nil {
			_ = f.Close()
			return
		}
		if err != nil { // EIO is how a terminal ends
			return
		}
	}
}

// An inbox holds input that the command has not taken, at most a window.
type inbox struct {
	mu    sync.Mutex
	more  *sync.Cond
	bytes []byte
	over  bool
}

func newInbox() *inbox {
	b := &inbox{}
	b.more = sync.NewCond(&b.mu)
	return b
}

// put adds input; false when that is more than there may be.
func (b *inbox) put(p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.bytes)+len(p) > guestwire.ShellWindow {
		return false
	}
	b.bytes = append(b.bytes, p...)
	b.more.Signal()
	return true
}

// end says that no more comes.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.more.Signal()
}

// take waits for input and gives all there is; nil after the last.
func (b *inbox) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.bytes) == 0 && !b.over {
		b.more.Wait()
	}
	p := b.bytes
	b.bytes = nil
	if len(p) == 0 {
		return nil
	}
	return p
}
