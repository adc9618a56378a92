package egress

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/handlerd/handler/policy"
)

// A connectRequest is a CONNECT request whose destination is a host and a port.
type connectRequest struct {
	dest   destination
	asJSON bool // the client wants refusals as JSON
}

const connectVerb = http.MethodConnect + " "

// parseConnect reads a CONNECT request of the form that clients send, whole in b, and gives its length. Whatever is
// not of that form, or not whole yet, is not ok and left to net/http, which knows how to read it or what to answer:
// so nothing is served here that would be refused there, and net/http's cost is not paid for each tunnel.
func parseConnect(b []byte) (req connectRequest, n int, ok bool) {
	if !bytes.HasPrefix(b, []byte(connectVerb)) {
		return req, 0, false
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return req, 0, false
	}
	line, fields, _ := bytes.Cut(b[len(connectVerb):end], []byte("\r\n"))
	target, ok := bytes.CutSuffix(line, []byte(" HTTP/1.1"))
	if !ok || !plainAuthority(target) {
		return req, 0, false
	}
	req.dest.method = http.MethodConnect
	var err error
	if req.dest.host, req.dest.port, err = policy.ParseAuthority(string(target), 0); err != nil {
		return req, 0, false
	}
	if req.asJSON, ok = parseConnectFields(fields); !ok {
		return req, 0, false
	}
	return req, end + len("\r\n\r\n"), true
}

// parseConnectFields reads the header fields of a CONNECT request: there is one Host, and none that says that there
// is a body or that an answer is awaited.
func parseConnectFields(fields []byte) (asJSON, ok bool) {
	hosts, accepts := 0, 0
	for len(fields) > 0 {
		var line []byte
		line, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !httpguts.ValidHeaderFieldName(string(name)) || !printableASCII(value) {
			return false, false
		}
		switch value = bytes.TrimSpace(value); strings.ToLower(string(name)) {
		case "host":
			if hosts++; !plainAuthority(value) {
				return false, false
			}
		case "accept":
			if accepts++; accepts == 1 {
				asJSON = bytes.Contains(value, []byte("application/json"))
			}
		case "content-length", "transfer-encoding", "trailer", "expect", "upgrade":
			return false, false
		}
	}
	return asJSON, hosts == 1
}

// plainAuthority says whether b is made of what hosts and ports are made of.
func plainAuthority(b []byte) bool {
	for _, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(".-_:[]", c) < 0 {
			return false
		}
	}
	return len(b) > 0
}

func printableASCII(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}

// serveConnect opens a tunnel for a request that net/http has read.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request) {
	req := connectRequest{dest: destination{method: r.Method}, asJSON: wantsJSON(r.Header)}
	var err error
	// RequestURI, not URL: net/url has an opinion of its own on what a host is.
	if req.dest.host, req.dest.port, err = policy.ParseAuthority(r.RequestURI, 0); err != nil {
		s.fail(w, r, destination{method: r.Method}, refuseTarget(err))
		return
	}
	if r.ContentLength != 0 || len(r.TransferEncoding) != 0 {
		s.fail(w, r, req.dest, broken(http.StatusBadRequest, "a CONNECT request has no body"))
		return
	}
	c := clientOf(r.Context())
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.fail(w, r, req.dest, broken(http.StatusInternalServerError, "the connection cannot become a tunnel"))
		return
	}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return
	}
	// What net/http has not read of c's head comes behind what it has in its buffer.
	s.openTunnel(c, req, append(bytes.Clone(early), c.head...))
}

func refuseTarget(err error) *failure {
	return &failure{status: http.StatusForbidden,
		verdict: policy.Verdict{Action: policy.Refuse, Rule: "D.2", Reason: err.Error()}}
}

// openTunnel reaches the destination, says so, and carries bytes until the tunnel ends; or answers why not. early is
// what the client has sent together with its request.
func (s *Server) openTunnel(c *client, req connectRequest, early []byte) {
	if h := s.opt.Local(req.dest.host); h != nil && req.dest.port == 80 && s.paused.Load() == nil {
		s.tunnelLocal(c, req.dest, h, early)
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.mu.Lock()
	c.giveUp = cancel
	s.mu.Unlock()
	stop := watchClient(c.Conn, cancel)
	up, f := s.reach(ctx, &req.dest)
	stop()
	if f != nil {
		f.gone = ctx.Err() != nil
		s.note(req.dest, f)
		writeAnswer(c.Conn, f.answer(req.asJSON))
		return
	}
	defer up.Close()
	defer s.track(req.dest, up)()
	c.Conn.SetWriteDeadline(time.Now().Add(s.limits.HeaderTime))
	if _, err := io.WriteString(c.Conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	s.tunnel(req.dest, c.Conn, up, early)
}

// watchAfter is how long a destination may take to be reached before we look whether its client is still there.
const watchAfter = 50 * time.Millisecond

// watchClient calls gone if conn's peer ends its side before stop is called. It takes no byte from conn; once the
// peer has sent one, its end is no longer seen. stop returns when conn is not used any more.
func watchClient(conn net.Conn, gone func()) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(watchAfter, func() {
		defer close(done)
		socket, ok := conn.(syscall.Conn)
		if !ok {
			return
		}
		raw, err := socket.SyscallConn()
		if err != nil {
			return
		}
		// A read deadline ends the wait, so an error is how stop ends it.
		_ = raw.Read(func(fd uintptr) bool {
			n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if err == syscall.EAGAIN || err == syscall.EINTR {
				return false
			}
			if n <= 0 {
				gone()
			}
			return true
		})
	})
	conn.SetReadDeadline(time.Time{})
	return func() {
		if !timer.Stop() {
			conn.SetReadDeadline(time.Unix(1, 0))
			<-done
		}
	}
}

// note counts why a destination was not reached, and tells the audit log if a rule said no.
func (s *Server) note(d destination, f *failure) {
	upstream := ""
	if d.up != nil {
		upstream = d.up.Name
	}
	if f.verdict.Action != policy.Refuse {
		s.counters.failed.Add(1)
		if d.host != "" && !f.gone {
			s.opt.Failed(Failure{Host: d.host, Port: d.port, Upstream: upstream, Text: f.text})
		}
		return
	}
	s.counters.refused.Add(1)
	record := Record{
		Time: time.Now(), Verdict: f.verdict, Method: d.method, Host: d.host, Port: d.port, Addr: f.addr, Upstream: upstream,
	}
	s.opt.Audit(record)
}

// isAddress says whether a canonical host is an address and not a name.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
