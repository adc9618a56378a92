package egress

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// maxHosts bounds the hosts that are counted apart, since a sandbox could make up any number of names.
const maxHosts = 1000

// OtherHosts is the name under which hosts beyond the first thousand are counted together.
const OtherHosts = "other hosts"

// A Snapshot is what went through a Server since its start, for `handler ps`.
type Snapshot struct {
	Allowed int64 // requests and tunnels that were let out
	Refused int64 // verdicts
	Failed  int64 // allowed, but not resolved, not connected or over a bound
	Open    int   // client connections at this moment
	Hosts   []HostCount
}

// A HostCount is the traffic with one host, or with one upstream (Host is then "upstream NAME").
type HostCount struct {
	Host     string
	Requests int64
	Sent     int64 // bytes from the sandbox: of a tunnel, or of the bodies of requests
	Received int64 // bytes to the sandbox
}

type counters struct {
	allowed, refused, failed atomic.Int64

	mu    sync.Mutex
	hosts map[string]*hostCounter
}

type hostCounter struct {
	requests, sent, received atomic.Int64
}

// host gives the counter of a host that was allowed, and counts the request.
func (c *counters) host(name string) *hostCounter {
	c.allowed.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts == nil {
		c.hosts = map[string]*hostCounter{}
	}
	h := c.hosts[name]
	if h == nil && len(c.hosts) >= maxHosts {
		name = OtherHosts
		h = c.hosts[name]
	}
	if h == nil {
		h = &hostCounter{}
		c.hosts[name] = h
	}
	h.requests.Add(1)
	return h
}

// Snapshot gives the counts of this moment, hosts in order. Bytes of an open tunnel are counted as it goes, at the
// latest every half minute.
func (s *Server) Snapshot() Snapshot {
	snap := Snapshot{
		Allowed: s.counters.allowed.Load(),
		Refused: s.counters.refused.Load(),
		Failed:  s.counters.failed.Load(),
	}
	s.mu.Lock()
	snap.Open = len(s.clients)
	s.mu.Unlock()
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	for name, h := range s.counters.hosts {
		snap.Hosts = append(snap.Hosts, HostCount{
			Host: name, Requests: h.requests.Load(), Sent: h.sent.Load(), Received: h.received.Load(),
		})
	}
	slices.SortFunc(snap.Hosts, func(a, b HostCount) int { return strings.Compare(a.Host, b.Host) })
	return snap
}
