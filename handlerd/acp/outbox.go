package acp

import (
	"context"
	"errors"
	"io"
)

// errEnded is the error of a send to a side that takes nothing any more.
var errEnded = errors.New("this side has ended")

// A parcel is one line on its way out, its newline included.
type parcel struct {
	bytes []byte
	from  *buffer // to give back when it is written; nil for none
	last  bool    // nothing follows: end the output
}

// A buffer holds one line of a pump. Each pump has two, so that one line is read while another is written, and no
// more.
type buffer struct {
	b    []byte
	home chan<- *buffer
	big  *attic
}

// release gives the buffer back, without its array where that is big.
func (f *buffer) release() {
	if cap(f.b) > bigBuffer {
		f.big.put(f.b)
		f.b = nil
	}
	f.home <- f // has room for every buffer there is
}

// An outbox is the one FIFO writer to a side.
type outbox struct {
	to    io.WriteCloser
	queue chan parcel
	done  chan struct{} // closed when nothing is written any more
	err   error         // why, nil after a parcel that was last; read after done
}

func newOutbox(to io.WriteCloser) *outbox {
	return &outbox{to: to, queue: make(chan parcel, 4), done: make(chan struct{})}
}

// run writes until the last parcel or an error.
func (o *outbox) run() {
	defer close(o.done)
	for p := range o.queue {
		if p.last {
			o.err = closeWrite(o.to)
			return
		}
		_, err := o.to.Write(p.bytes)
		if p.from != nil {
			p.from.release()
		}
		if err != nil {
			o.err = err
			return
		}
	}
}

// send queues a parcel, waiting while the queue is full.
func (o *outbox) send(ctx context.Context, p parcel) error {
	select {
	case <-o.done:
		return errEnded
	default:
	}
	select {
	case o.queue <- p:
		return nil
	case <-o.done:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// line queues a line without its newline, which the sender must not touch any more.
func (o *outbox) line(ctx context.Context, b []byte) error {
	return o.send(ctx, parcel{bytes: append(b, '\n')})
}

// finish ends the output after what is queued, and waits for that.
func (o *outbox) finish(ctx context.Context) {
	if o.send(ctx, parcel{last: true}) != nil {
		return
	}
	select {
	case <-o.done:
	case <-ctx.Done():
	}
}

// closeWrite ends one direction of a connection, where it can be ended alone.
func closeWrite(c io.WriteCloser) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
