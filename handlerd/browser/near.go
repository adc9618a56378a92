package browser

import (
	"context"
	"net/http"
	"strings"

	"github.com/handlerd/handler/policy"
)

// A page of the workspace is the agent's own program, and nothing is asked about what it does. While one may be open,
// the browser reaches what the agent itself reaches, and the origins that its person let this browser go to: else a
// page that leads itself to any public address would take along what the agent knows (F.4).

// asLocal wraps what answers the workspace's hosts in this session's browser, so that it is known that a page may be open.
func (s *session) asLocal(local func(host string) http.Handler) func(host string) http.Handler {
	if local == nil {
		return nil
	}
	return func(host string) http.Handler {
		h := local(host)
		if h == nil {
			return nil
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.comesNear()
			h.ServeHTTP(w, r)
		})
	}
}

// comesNear is before a page of the workspace may be open: what the browser has open elsewhere is cut.
func (s *session) comesNear() {
	s.b.mu.Lock()
	w := s.worker
	flips := !s.near
	s.near = true
	s.served++
	s.b.mu.Unlock()
	if flips && w != nil {
		w.RecheckNetwork()
	}
}

// isNear says whether a page of the workspace may be open, and how often one was given by now.
func (s *session) isNear() (near bool, served int) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.near, s.served
}

// leaves takes it back where none is open: at is where the browser is, found out since served. A tab without an address may
// be written by a page of the workspace, unless it is the current one that was just emptied.
func (s *session) leaves(at whereabouts, served int, emptied bool) {
	for _, t := range at.Tabs {
		if kind := s.place(t.URL).kind; kind == placeData || kind == placeBlank && !strings.HasPrefix(t.URL, "chrome-error:") && (!t.Current || !emptied) {
			return
		}
	}
	for _, url := range at.urls() {
		if s.place(url).kind == placeLocal {
			return
		}
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.served == served {
		s.near = false
	}
}

// nearNetwork is what the browser reaches while a page of the workspace may be open. The caller holds b.mu.
func (s *session) nearNetwork(p Policy) network {
	n := policy.Network{Agent: p.Agent, Unknown: policy.UnknownRefuse}
	for _, r := range p.Rules.Rules {
		if r.Kind != policy.KindPrivate { // which is for the agent, and not for pages of others
			n.Rules = append(n.Rules, r)
		}
	}
	n.Rules = append(n.Rules, s.entered...)
	return n
}

const nearNote = "While a page of the workspace is open, pages of the web load nothing from hosts that neither your rules nor your person allowed: close its tab."

// navigate goes to an address in the current tab. Where that shows a page of the workspace, it is emptied first, so that
// the next page finds its whole network.
func (u *use) navigate(ctx context.Context, url string) (answer, error) {
	near, served := u.s.isNear()
	if near && u.s.place(url).kind == placeWeb {
		if got, err := u.upstream(ctx, "browser_navigate", map[string]any{"url": "about:blank"}, OpTime); err != nil || got.failed != "" || got.modal != "" {
			return got, err
		}
		at, err := u.look(ctx, false)
		if err != nil {
			return answer{}, err
		}
		u.s.leaves(at, served, true)
	}
	got, err := u.upstream(ctx, "browser_navigate", map[string]any{"url": url}, OpTime)
	if near, _ := u.s.isNear(); near && u.s.place(url).kind == placeWeb {
		u.note(nearNote)
	}
	return got, err
}

// letTargets lets the browser reach where an element of the workspace leads, once its person has seen that and said yes.
func (u *use) letTargets(f facts) {
	if near, _ := u.s.isNear(); !near || u.policy.Network.Unknown != policy.UnknownPublic {
		return
	}
	for _, e := range f.Elements {
		for _, t := range e.Element.Targets {
			if p := u.s.place(t); p.kind == placeWeb {
				u.s.let(p)
			}
		}
	}
}
