package egress

import (
	"net/http"
	"net/netip"
	"net/url"

	"github.com/handlerd/handler/policy"
)

// Pause ends everything that is open and refuses everything new with v, whose Action is Refuse, until Resume. What was
// on its way when it was called does not come through after it.
func (s *Server) Pause(v policy.Verdict) {
	s.paused.Store(&v)
	s.pauses.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		if c.giveUp != nil {
			c.giveUp()
		}
		c.Conn.Close()
	}
	for conn := range s.open {
		conn.Close()
	}
}

// Resume takes Pause back.
func (s *Server) Resume() { s.paused.Store(nil) }

// still refuses what comes while the Server is paused, and a local host where it is not served.
func (s *Server) still(d destination) *failure {
	if v := s.paused.Load(); v != nil {
		return refusal(*v, netip.Addr{})
	}
	if d.up == nil && s.opt.Local(d.host) != nil {
		return refusal(policy.Verdict{Action: policy.Refuse, Rule: "F.6",
			Reason: d.host + " is answered by Handler itself, over plain http on port 80 only", Hint: "use http://" + d.host + "/"}, netip.Addr{})
	}
	return nil
}

// serveLocal lets h answer a request in absolute form.
func (s *Server) serveLocal(w http.ResponseWriter, r *http.Request, d destination, h http.Handler) {
	if v := s.paused.Load(); v != nil {
		s.fail(w, r, d, refusal(*v, netip.Addr{}))
		return
	}
	r = r.Clone(r.Context())
	r.Host = d.host
	r.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	r.RequestURI = r.URL.RequestURI()
	r.Header.Del("Upgrade")
	stripProxyHeaders(r.Header)
	h.ServeHTTP(w, r)
}
