package browser

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/handlerd/handler/policy"
)

// A place is what a URL means to the checks.
type place struct {
	url    string // as it was given
	kind   placeKind
	origin string // scheme://host:port, canonical, of local and web places
	scheme string
	host   string
	port   uint16
}

type placeKind int

const (
	placeBad   placeKind = iota // no URL that a page may have: file:, chrome:, what cannot be read
	placeBlank                  // about:blank, about:srcdoc, the browser's own error page: nobody's, or its parent's
	placeData                   // data: what is in it came with the URL
	placeLocal                  // handlerd itself answers it (F.6)
	placeWeb
)

// place classifies a URL by its text.
func (s *session) place(raw string) place {
	p := place{url: raw}
	inner := strings.TrimPrefix(raw, "blob:")
	scheme, _, _ := strings.Cut(inner, ":")
	switch strings.ToLower(scheme) {
	case "", "about":
		p.kind = placeBlank
		return p
	case "chrome-error":
		if raw == "chrome-error://chromewebdata/" {
			p.kind = placeBlank
		}
		return p
	case "data":
		p.kind = placeData
		return p
	case "null": // a blob of a document that has no origin
		if inner != raw {
			p.kind = placeData
		}
		return p
	case "http", "https", "ws", "wss":
	default:
		return p
	}
	u, err := url.Parse(inner)
	if err != nil {
		return p
	}
	u.User = nil // the browser sends it to the host, which is what counts
	host, port, err := policy.ParseURL(u.Scheme + "://" + u.Host)
	if err != nil {
		return p
	}
	p.kind, p.scheme, p.host, p.port = placeWeb, u.Scheme, host, port
	p.origin = fmt.Sprintf("%s://%s", u.Scheme, hostPort(host, u.Scheme, port))
	if local := s.localHosts(); local != nil && u.Scheme == "http" && port == 80 && local(host) {
		p.kind = placeLocal
	}
	return p
}

// localHosts says which hosts handlerd itself answers in this browser; nil for none.
func (s *session) localHosts() func(host string) bool {
	s.b.mu.Lock()
	local := s.local
	s.b.mu.Unlock()
	if local == nil {
		return nil
	}
	return func(host string) bool { return local(host) != nil }
}

// hostPort writes a host as an origin does: the scheme's own port is left out.
func hostPort(host, scheme string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if (scheme == "http" || scheme == "ws") && port == 80 || (scheme == "https" || scheme == "wss") && port == 443 {
		return host
	}
	return fmt.Sprintf("%s:%d", host, port)
}

// loopback says whether a host is always the machine itself.
func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// external says whether acting on a place needs a person (F.4): everything but what handlerd itself answers and the
// sandbox's own loopback. Data and what nobody understands is external.
func (p place) external(n network) bool {
	switch p.kind {
	case placeLocal:
		return false
	case placeWeb:
		return !loopback(p.host) || n.Decide(p.host, p.port).Action == policy.Allow
	}
	return true
}

// A lookup is what a name resolved to.
type lookup struct {
	addrs []netip.Addr
	err   error
	until time.Time
}

const (
	lookupTime = 5 * time.Second  // for one name
	lookupKeep = 30 * time.Second // before a name is looked up again
	maxLookups = 256              // names that one check looks up
	lookTries  = 3                // to look at tabs that come and go
)

// public checks that a place lies where the browser may be (F.5): by its scheme, by the class of a literal address, and
// by every address that its name resolves to. A name without addresses is no way in: the proxy found none either.
func (s *session) public(ctx context.Context, n network, p place) error {
	switch p.kind {
	case placeBad:
		return fmt.Errorf("%s is no page of the web", shorten(p.url, 200))
	case placeBlank, placeData, placeLocal:
		return nil
	}
	if addr, err := netip.ParseAddr(p.host); err == nil {
		if class, public := policy.ClassifyAddr(addr); !public && n.Decide(p.host, p.port).Action != policy.Allow {
			return fmt.Errorf("%s is %s", p.host, class)
		}
		return nil
	}
	if loopback(p.host) && n.Decide(p.host, p.port).Action != policy.Allow {
		return fmt.Errorf("%s is the machine itself", p.host)
	}
	found, err := s.lookup(ctx, p.host)
	if err != nil {
		return err
	}
	if len(found.addrs) == 0 {
		return nil
	}
	if v, _ := n.DecideResolved(p.host, p.port, found.addrs); v.Action == policy.Refuse {
		return errors.New(v.Reason)
	}
	return nil
}

// lookup resolves a name, or remembers it. An error is only that the check has no time or room for it.
func (s *session) lookup(ctx context.Context, host string) (lookup, error) {
	if found, ok := s.lookups[host]; ok && time.Now().Before(found.until) {
		return found, nil
	}
	if len(s.lookups) >= maxLookups {
		s.lookups = map[string]lookup{}
	}
	timed, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	addrs, err := s.b.o.Resolve(timed, host)
	if ctx.Err() != nil {
		return lookup{}, context.Cause(ctx)
	}
	found := lookup{addrs, err, time.Now().Add(lookupKeep)}
	if s.lookups == nil {
		s.lookups = map[string]lookup{}
	}
	s.lookups[host] = found
	return found, nil
}

// look finds out where the browser is and checks it (F.5): every tab, every frame, every worker. Somewhere private
// closes the browser, and nothing of it is read. settle waits until the URLs stand still.
func (u *use) look(ctx context.Context, settle bool) (whereabouts, error) {
	var at whereabouts
	var err error
	_, served := u.s.isNear()
	for range lookTries {
		err = u.probe(ctx, "look", map[string]any{
			"tabs": u.s.b.o.Limits.Tabs, "frames": maxFrames, "downloadTime": DownloadTime.Milliseconds(), "settle": settle, "stop": u.late,
		}, &at)
		var torn *refusal
		if !errors.As(err, &torn) || u.late || !strings.Contains(torn.reason, "has been closed") {
			break // else a tab was closed while it was looked at
		}
	}
	var modal *modalError
	if errors.As(err, &modal) {
		if landed := u.lookAtTabs(ctx); landed != nil {
			return whereabouts{}, landed
		}
		return whereabouts{}, err
	}
	if err != nil {
		return whereabouts{}, err
	}
	if at.Closed > 0 {
		u.notes = append(u.notes, fmt.Sprintf("Pages opened %d more tabs than the %d that there may be; those were closed.", at.Closed, u.s.b.o.Limits.Tabs))
	}
	if at.Dismissed > 0 {
		u.note("%d dialogs were dismissed, since they would have blocked the other tabs: close those to see them.", at.Dismissed)
	}
	if err = u.land(ctx, at.urls()); err == nil {
		err = at.whole()
	}
	if u.looked = err == nil; u.looked {
		u.s.frames = u.s.foreign(at)
		u.s.leaves(at, served, false)
	}
	return at, err
}

// foreign are the sites of frames that are not their tab's own.
func (s *session) foreign(at whereabouts) []string {
	var sites []string
	for _, t := range at.Tabs {
		own := s.place(t.URL).origin
		for _, url := range t.Frames {
			if p := s.place(url); p.kind == placeWeb && p.origin != own && !slices.Contains(sites, p.origin) {
				sites = append(sites, p.origin)
			}
		}
	}
	slices.Sort(sites)
	return sites
}

// whole refuses to go on where not all of them are known.
func (w whereabouts) whole() error {
	for _, t := range w.Tabs {
		if t.More {
			return refuse("F.8", fmt.Sprintf("a page has more than %d frames and workers, and is not read for that", maxFrames), "Close its tab with browser_tabs, or go to another page with browser_navigate")
		}
	}
	return nil
}

// urls are all of them, each once.
func (w whereabouts) urls() []string {
	urls := append([]string{w.URL}, w.ServiceWorkers...)
	for _, t := range w.Tabs {
		urls = append(append(append(urls, t.URL), t.Frames...), t.Workers...)
	}
	slices.Sort(urls)
	return slices.Compact(urls)
}

// linkTargets are all places where a line of playwright-mcp's list of tabs may say that a tab is. A title, and an
// address, may hold what looks like one: then each of them is checked, and where they are too many, the last one is no
// address at all, so that what they hide is not let through.
func linkTargets(list string) []string {
	var urls []string
	for rest := list; ; {
		_, after, found := strings.Cut(rest, "](")
		if !found {
			break
		}
		if len(urls) == 2*maxFrames {
			return append(urls, "more:")
		}
		rest = after
		if end := strings.IndexAny(after, ") \n"); end >= 0 {
			after = after[:end]
		}
		urls = append(urls, after)
	}
	return urls
}

// lookAtTabs is look while a dialog is open, when no program of ours can run.
func (u *use) lookAtTabs(ctx context.Context) error {
	a, err := u.upstream(ctx, "browser_tabs", map[string]any{"action": "list"}, OpTime)
	if err != nil {
		return err
	}
	return u.land(ctx, linkTargets(section(a.text, "Result")))
}

// land checks where the browser is, and closes it where it must not be.
func (u *use) land(ctx context.Context, urls []string) error {
	seen := map[string]bool{}
	for _, raw := range urls {
		p := u.s.place(raw)
		if p.origin != "" && seen[p.origin] {
			continue
		}
		seen[p.origin] = true
		err := u.s.public(ctx, u.policy.Network, p)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		u.s.snapshot, u.landed = nil, true
		u.s.closeThis(u.worker, "a page led it somewhere private")
		u.s.tell() // here and now
		return refuse("F.5", "the page led to where the browser must not be: "+shorten(err.Error(), 300)+". The browser was closed, and nothing was read",
			"Do not go back to that page; begin with browser_navigate elsewhere. If your person wants it reached, that is a network rule of the agent: handler agent edit "+u.policy.Agent+" --private ADDRESS:PORT, with browser.network = \"rules\"")
	}
	return nil
}
