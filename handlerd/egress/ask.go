package egress

import (
	"context"
	"net"
	"net/netip"

	"github.com/handlerd/handler/policy"
)

// ask holds a request while a person is asked (D.4). It gives the rules as they are after the answer, since a change
// of them may be the answer, and a verdict that is never Ask.
func (s *Server) ask(ctx context.Context, d *destination, v policy.Verdict) (policy.Network, policy.Verdict) {
	if s.opt.Ask == nil {
		v.Action = policy.Refuse
		return s.opt.Rules(), v
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.Ask)
	defer cancel()
	answer := s.opt.Ask(ctx, d.host, d.port, v)
	d.seen = s.rechecks.Load()
	rules := s.opt.Rules()
	if answer.Action != policy.Allow {
		answer.Action = policy.Refuse
		return rules, answer
	}
	// A deny rule that came meanwhile wins over the answer (D.4); that no rule names the host is what it answers.
	rules.Unknown = policy.UnknownAsk
	now := d.decide(rules)
	if now.Action == policy.Ask {
		d.asked = true
		now = policy.Verdict{}
	}
	return rules, now
}

// track remembers a connection to a server for Recheck and Close until done is called.
func (s *Server) track(d destination, conn net.Conn) (done func()) {
	s.mu.Lock()
	s.open[conn] = d
	if s.closed || s.pauses.Load() != d.pause {
		conn.Close()
	}
	s.mu.Unlock()
	if d.up == nil && s.rechecks.Load() != d.seen {
		s.recheck(conn, d) // the rules changed after they had judged it
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, conn)
	}
}

// Recheck is called after the rules have changed: what is open to a destination that they now refuse is cut, and the
// audit log is told. Requests to upstreams are not the rules' to judge and stay. A destination that a person let out
// once stays open until a rule denies it.
func (s *Server) Recheck() {
	s.rechecks.Add(1)
	s.mu.Lock()
	open := make(map[net.Conn]destination, len(s.open))
	for conn, d := range s.open {
		open[conn] = d
	}
	s.mu.Unlock()
	for conn, d := range open {
		if d.up == nil {
			s.recheck(conn, d)
		}
	}
}

// recheck cuts one connection if the rules refuse it now. Its tunnel or exchange sees the end of the connection, and
// takes the client's down with it.
func (s *Server) recheck(conn net.Conn, d destination) {
	rules := s.opt.Rules()
	if d.asked {
		rules.Unknown = policy.UnknownAsk
	}
	v, bad := d.decide(rules), netip.Addr{}
	if v.Action == policy.Allow || v.Action == policy.Ask && d.asked {
		v, bad = d.decideResolved(rules, d.addrs)
	}
	if v.Action == policy.Allow {
		return
	}
	v.Action = policy.Refuse
	v.Reason += "; what was open to it is cut"
	s.note(d, refusal(v, bad))
	conn.Close()
}
