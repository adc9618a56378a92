package egress

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/policy"
)

// A tunnel joins a client and a server until both are done, one fails, nothing moves for too long, or its time is
// over. Each direction is a copy between the bare sockets: its first bytes through a buffer, since most connections
// are short and a pipe costs more than it spares them, the rest spliced by the kernel. A copy is interrupted by a
// read deadline now and then, to count and to look at the clock; that loses nothing, since a read that times out
// has taken no byte.
type tunnel struct {
	client, server   net.Conn
	idle, halfClosed time.Duration
	end              time.Time
	count            *hostCounter
	buffers          *buffers

	began time.Time
	last  atomic.Int64 // when something last moved, since began
	half  atomic.Bool  // one direction is done
	asked atomic.Bool  // keepAlive was called for server
}

var errStuck = errors.New("the peer takes nothing")

// tunnel runs until both directions have ended and both connections are closed. early is what the client sent
// together with its request.
func (s *Server) tunnel(d destination, conn, up net.Conn, early []byte) {
	now := time.Now()
	t := &tunnel{
		client: conn, server: up, idle: s.limits.Idle, halfClosed: s.limits.HalfClosed,
		end: now.Add(s.limits.Total), began: now, count: s.counters.host(d.host), buffers: &s.buffers,
	}
	defer t.close()
	var wg sync.WaitGroup
	wg.Go(func() { t.direction(conn, up, &t.count.received) })
	if s.sendFirst(t, d, early) {
		t.direction(up, conn, &t.count.sent)
	} else {
		t.close()
	}
	wg.Wait()
}

func (t *tunnel) close() {
	t.client.Close()
	t.server.Close()
}

// sendFirst sends what the client says first, after having looked at it: a TLS greeting for another host than
// CONNECT named would reach that host behind a shared address (E14). It says whether the tunnel goes on. What it
// does not see is the Host header within TLS.
func (s *Server) sendFirst(t *tunnel, d destination, early []byte) bool {
	if isAddress(d.host) {
		return len(early) == 0 || t.send(early)
	}
	first, ok := t.firstBytes(early)
	if !ok || len(first) == 0 {
		return ok // the client has closed its side, and the copy will see that too
	}
	if first[0] == tlsHandshake {
		hello, name, err := readHello(t.client, first, time.Now().Add(s.limits.HeaderTime))
		if err != nil || name != "" && !sameHost(name, d.host) {
			reason := "the TLS greeting to " + d.host + " cannot be read"
			if err == nil {
				reason = "the TLS greeting names another host than CONNECT, which named " + d.host
			}
			s.note(d, refusal(policy.Verdict{Action: policy.Refuse, Rule: "D.2", Reason: reason}, netip.Addr{}))
			t.client.SetWriteDeadline(time.Now().Add(time.Second))
			t.client.Write(alertUnrecognizedName)
			return false
		}
		first = hello
	}
	return t.send(first)
}

func sameHost(name, host string) bool {
	canonical, err := policy.CanonicalHost(name)
	return err == nil && canonical == host
}

// firstBytes waits for the client to say something, as long as the tunnel is alive.
func (t *tunnel) firstBytes(early []byte) ([]byte, bool) {
	if len(early) > 0 {
		return early, true
	}
	buf := make([]byte, 4<<10)
	for {
		t.client.SetReadDeadline(time.Now().Add(t.tick()))
		n, err := t.client.Read(buf)
		switch {
		case n > 0 || errors.Is(err, io.EOF):
			t.touch()
			return buf[:n], true
		case !errors.Is(err, os.ErrDeadlineExceeded) || !t.alive():
			return nil, false
		}
	}
}

func (t *tunnel) send(b []byte) bool {
	t.server.SetWriteDeadline(time.Now().Add(t.limit()))
	n, err := t.server.Write(b)
	t.count.sent.Add(int64(n))
	t.touch()
	return err == nil
}

// direction copies until src is at its end, and passes that end on; on any failure it closes both connections.
func (t *tunnel) direction(dst, src net.Conn, n *atomic.Int64) {
	err := t.copy(dst, src, n)
	if err == nil {
		t.touch() // the survivor's time begins now
		if t.half.Swap(true) {
			return // the other direction is done too, and the tunnel with it
		}
		cw, ok := dst.(interface{ CloseWrite() error })
		if ok && cw.CloseWrite() == nil {
			// The other direction now has less time; wake it, so that it looks.
			dst.SetReadDeadline(time.Now())
			return
		}
	}
	t.close()
}

func (t *tunnel) copy(dst, src net.Conn, n *atomic.Int64) error {
	buffered := int64(spliceFrom) // what of it may still go through a buffer
	for {
		began, tick, limit := time.Now(), t.tick(), t.limit()
		if err := errors.Join(src.SetReadDeadline(began.Add(tick)), dst.SetWriteDeadline(began.Add(tick+limit))); err != nil {
			return err
		}
		moved, err := t.copyFirst(dst, src, buffered)
		if buffered -= moved; err == nil {
			var more int64
			more, err = io.Copy(dst, src)
			moved += more
		}
		if moved > 0 {
			n.Add(moved)
			t.touch()
		}
		switch {
		case err == nil || err == io.EOF:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case time.Since(began) >= tick+limit:
			return errStuck // the write deadline, so bytes are lost
		case !t.alive():
			return errIdle
		case time.Since(began) >= tick && !t.asked.Swap(true): // not just woken
			keepAlive(t.server)
		}
	}
}

// spliceFrom is how many bytes of a direction go through a buffer.
const spliceFrom = 32 << 10

// copyFirst copies n bytes or a little more; io.EOF says that src has ended.
func (t *tunnel) copyFirst(dst, src net.Conn, n int64) (moved int64, err error) {
	if n <= 0 {
		return 0, nil
	}
	buf := t.buffers.get()
	defer t.buffers.put(buf)
	for moved < n {
		got, err := src.Read(buf[:])
		if got > 0 {
			wrote, err := dst.Write(buf[:got])
			moved += int64(wrote)
			if err != nil {
				return moved, err
			}
		}
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// keepAlive has the kernel ask a server that says nothing whether it is still there. What is short is spared the calls.
func keepAlive(server net.Conn) {
	if tcp, ok := server.(*net.TCPConn); ok {
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})
	}
}

func (t *tunnel) touch() { t.last.Store(int64(time.Since(t.began))) }

// limit is the time without a byte that the tunnel is allowed now.
func (t *tunnel) limit() time.Duration {
	if t.half.Load() {
		return min(t.idle, t.halfClosed)
	}
	return t.idle
}

// tick is how often a direction looks at the clock.
func (t *tunnel) tick() time.Duration {
	return max(min(t.limit()/8, 30*time.Second, time.Until(t.end)), time.Millisecond)
}

func (t *tunnel) alive() bool {
	now := time.Now()
	return now.Before(t.end) && now.Sub(t.began)-time.Duration(t.last.Load()) < t.limit()
}
