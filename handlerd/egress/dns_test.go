package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A nameServer is a DNS server of the test on loopback. Each name has a list of answers, of which the last is repeated:
// addresses of both families, "cname NAME", "servfail", or "silence". A list is used up by look-ups, not by questions:
// a look-up asks for A and for AAAA.
type nameServer struct {
	conn net.PacketConn

	mu      sync.Mutex
	answers map[string][]string // protected by mu
	asked   map[string]int      // protected by mu; questions for A
}

func serveDNS(t *testing.T, answers map[string][]string) (*nameServer, netip.AddrPort) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, answers: answers, asked: map[string]int{}}
	done := make(chan struct{})
	go func() { defer close(done); s.serve() }()
	t.Cleanup(func() { conn.Close(); <-done })
	return s, netip.MustParseAddrPort(conn.LocalAddr().String())
}

func (s *nameServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		if reply := s.answer(m.Questions[0], m.ID); reply != nil {
			if packed, err := reply.Pack(); err == nil {
				s.conn.WriteTo(packed, from)
			}
		}
	}
}

func (s *nameServer) answer(q dnsmessage.Question, id uint16) *dnsmessage.Message {
	m := &dnsmessage.Message{Header: dnsmessage.Header{ID: id, Response: true, RecursionAvailable: true, Authoritative: true}, Questions: []dnsmessage.Question{q}}
	for _, word := range strings.Fields(s.next(q)) {
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 3600}
		addr, err := netip.ParseAddr(word)
		switch {
		case word == "silence":
			return nil
		case word == "servfail":
			m.RCode = dnsmessage.RCodeServerFailure
		case word == "none":
			m.RCode = dnsmessage.RCodeNameError
		case err == nil && addr.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case err == nil && addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		case err != nil: // an alias; the address that follows is its
			alias := dnsmessage.MustNewName(word + ".")
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.CNAMEResource{CNAME: alias}})
			q.Name = alias
		}
	}
	return m
}

func (s *nameServer) next(q dnsmessage.Question) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimSuffix(q.Name.String(), ".")
	list := s.answers[name]
	if len(list) == 0 {
		return "none"
	}
	at := s.asked[name]
	if q.Type == dnsmessage.TypeA {
		s.asked[name]++
	} else { // comes beside the question for A, before or after it
		at = s.asked[name+" AAAA"]
		s.asked[name+" AAAA"]++
	}
	return list[min(at, len(list)-1)]
}

// TestNameServer drives the real resolver against answers that change, mix, hide and fail. Their time to live is an hour,
// and none is kept: each request asks anew and is judged by what it was told (E18, E19, E20).
func TestNameServer(t *testing.T) {
	names, addr := serveDNS(t, map[string][]string{
		"public.example": {publicAddr},
		"rebind.example": {publicAddr, "127.0.0.1", publicAddr, "10.0.0.1", "2606:2800::1 fd00::1", publicAddr},
		"mixed.example":  {publicAddr + " 192.168.1.1"},
		"six.example":    {publicAddr + " ::1"},
		"mapped.example": {"::ffff:127.0.0.1"},
		"alias.example":  {"metadata.internal 169.254.169.254"},
		"chain.example":  {"one.example two.example " + publicAddr},
		"many.example":   {strings.Repeat("8.8.8.8 ", 20) + "8.8.4.4"},
		"sick.example":   {"servfail"},
		"silent.example": {"silence"},
		"empty.example":  {" "},
	})
	w := newWorld(t, rules(t, "allow *.example"), func(o *Options) {
		o.Resolver = DNSServer(addr)
		o.Limits.Resolve = 500 * time.Millisecond
	})
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "reached") })
	for _, a := range []string{publicAddr, "8.8.8.8"} {
		w.net.routes[a+":80"] = to
	}
	for _, tt := range []struct{ name, want string }{
		{"public.example", "200 reached"},
		{"rebind.example", "200 reached"}, {"rebind.example", "403 D.2"}, {"rebind.example", "200 reached"},
		{"rebind.example", "403 D.2"}, {"rebind.example", "403 D.2"}, {"rebind.example", "200 reached"},
		{"mixed.example", "403 D.2"}, {"six.example", "403 D.2"}, {"mapped.example", "403 D.2"}, {"alias.example", "403 D.2"},
		{"chain.example", "200 reached"}, {"many.example", "200 reached"},
		{"sick.example", "502 "}, {"silent.example", "504 "}, {"none.example", "502 "}, {"empty.example", "502 "},
	} {
		before := len(w.net.dials())
		resp := w.raw("GET http://" + tt.name + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get(RuleHeader))
		if resp.StatusCode == 200 {
			got = "200 " + bodyOf(t, resp)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if dialled := len(w.net.dials()) > before; dialled != (resp.StatusCode == 200) {
			t.Errorf("%s: dialled %v", tt.name, w.net.dials()[before:])
		}
	}
	names.mu.Lock()
	defer names.mu.Unlock()
	if names.asked["rebind.example"] != 6 {
		t.Errorf("six requests asked %d times", names.asked["rebind.example"])
	}
}
