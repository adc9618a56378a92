package e2e

import (
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/dns/dnsmessage"
)

// A nameServer answers questions about the names of a script, on 127.0.0.1, and says that each answer is good for an hour.
type nameServer struct {
	conn net.PacketConn

	mu     sync.Mutex
	zone   map[string][]string // protected by mu; the answers to the look-ups of a name, the last repeated
	asked  map[string]int      // protected by mu; by name and type
	served chan struct{}
}

// cmdNameserver starts one: NAME=ANSWER|ANSWER…, where an answer is addresses and aliases with commas between.
func cmdNameserver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: nameserver VAR NAME=ADDRESS,…|ADDRESS,…")
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	ts.Check(err)
	s := &nameServer{conn: conn, zone: map[string][]string{}, asked: map[string]int{}, served: make(chan struct{})}
	for _, arg := range args[1:] {
		name, answers, ok := strings.Cut(arg, "=")
		if !ok {
			ts.Fatalf("%q is not NAME=ANSWERS", arg)
		}
		s.zone[name+"."] = strings.Split(answers, "|")
	}
	go s.serve()
	ts.Defer(func() { conn.Close(); <-s.served })
	ts.Setenv(args[0], conn.LocalAddr().String())
}

func (s *nameServer) serve() {
	defer close(s.served)
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var question dnsmessage.Message
		if question.Unpack(buf[:n]) != nil || len(question.Questions) != 1 {
			continue
		}
		answer := s.answer(question)
		if packed, err := answer.Pack(); err == nil {
			_, _ = s.conn.WriteTo(packed, from) // one that is lost is asked again
		}
	}
}

func (s *nameServer) answer(m dnsmessage.Message) dnsmessage.Message {
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	list, name := s.zone[q.Name.String()], q.Name
	if len(list) == 0 {
		m.RCode = dnsmessage.RCodeNameError
		return m
	}
	key := q.Name.String() + q.Type.String()
	words := list[min(s.asked[key], len(list)-1)]
	s.asked[key]++
	for word := range strings.SplitSeq(words, ",") {
		header := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 3600}
		addr, err := netip.ParseAddr(word)
		switch {
		case err != nil:
			alias := dnsmessage.MustNewName(word + ".")
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.CNAMEResource{CNAME: alias}})
			name = alias
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return m
}
