package rundir

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/handlerd/handler/sandbox/guestwire"
)

// listenToGuest reads the guest's frames until its connection ends, then closes done.
func (d *Dir) listenToGuest() {
	defer close(d.done)
	conn := d.ctl.peek()
	if conn == nil {
		return
	}
	defer conn.Close() // one that broke the protocol ends its sandbox when it sees this
	defer d.stderr.flush()
	err := d.readFrames(guestwire.NewReader(conn))
	if err == io.EOF || errors.Is(err, net.ErrClosed) {
		return
	}
	d.log.Warn("run directory: guest connection failed", "dir", d.path, "err", err)
	d.mu.Lock()
	d.res.Err = err
	d.mu.Unlock()
}

// readFrames accepts hello, then started or failed, then stderr and at most one exit.
func (d *Dir) readFrames(r *guestwire.Reader) error {
	f, err := r.Next()
	if err != nil {
		return err
	}
	if f.Kind != guestwire.Hello || f.Version != guestwire.Version {
		return fmt.Errorf("guest: the first frame is %s %d, not hello %d; guest and daemon must be of one build",
			f.Kind, f.Version, guestwire.Version)
	}
	for {
		f, err := r.Next()
		if err != nil {
			return err
		}
		if err := d.apply(f); err != nil {
			return err
		}
	}
}

// apply takes one frame into the result.
func (d *Dir) apply(f guestwire.Frame) error {
	if f.Kind == guestwire.Stderr {
		d.stderr.write(f.Data, f.Dropped) // outside mu: it may call back
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.res
	switch {
	case f.Kind == guestwire.Started && !r.Started && r.Failed == "":
		r.Started, r.PID = true, f.PID
		close(d.started)
	case f.Kind == guestwire.Failed && !r.Started && r.Failed == "":
		r.Failed = f.Text
	case f.Kind == guestwire.Exit && r.Started && !r.Exited:
		r.Exited, r.Code, r.Signal = true, f.Code, f.Signal
	default:
		return fmt.Errorf("guest: frame %s out of order", f.Kind)
	}
	return nil
}
