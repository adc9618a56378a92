package policy

import (
	"slices"
	"strings"
)

// allowServer is P3 and P6 for one server, after P8.
func (c *Config) allowServer(s server, caps Caps) error {
	if !s.ours {
		if err := c.allowClients(s, caps); err != nil {
			return err
		}
	}
	if s.kind == typeHTTP || s.kind == typeSSE {
		return c.reach(s)
	}
	return nil
}

// reach is P3: the host of an http or sse server is one that the network rules allow, whoever asked for the server.
// Only the host in the URL is seen here; where redirects lead is egress's to say. A host that a person is to be asked
// about passes: the connection to it is what the question is about, and it is not made here.
func (c *Config) reach(s server) error {
	scheme, _, _ := strings.Cut(s.url, ":")
	odd := strings.ContainsFunc(s.url, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' })
	if odd || scheme != "http" && scheme != "https" {
		return refuse("P3", s.of()+" has a url that is not a plain http or https one", "")
	}
	host, port, err := ParseURL(s.url)
	if err != nil {
		return refuse("P3", s.of()+": "+err.Error(), "")
	}
	if c.Reach == nil {
		return refuse("P3", s.of()+": "+host+" is not allowed", "")
	}
	if v := c.Reach(host, port); v.Action == Refuse {
		return refuse("P3", s.of()+": "+v.Reason, v.Hint)
	}
	return nil
}

// takes tells whether the agent takes servers of a type: it said so, or is known to.
func (c *Config) takes(kind string, caps Caps) bool {
	switch kind {
	case typeHTTP:
		if caps.HTTP {
			return true
		}
	case typeSSE:
		if caps.SSE {
			return true
		}
	case typeACP:
		return caps.ACP // P3: never by what somebody else says of the agent
	}
	return slices.Contains(c.Transports, kind)
}
