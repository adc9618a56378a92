package egress

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/handlerd/handler/policy"
)

// An Upstream is a provider whose key stays outside (D.9). The sandbox knows it as
// http://127.0.0.1:3128/upstream/NAME/ and has a placeholder instead of the key.
type Upstream struct {
	Name string // [a-z0-9-], at most 63 bytes
	// URL is where requests go: what follows /upstream/NAME is appended to its path. It is https, or http if it
	// leads to an address outside the public internet, which a private rule must name with its port.
	URL     string
	Methods []string // served methods, at least one
	Paths   []string // served paths, at least one, beginning with "/"; a trailing "*" stands for any rest

	// Header gets Prefix and the value of Secret, which is asked at each request and never logged. Extra are
	// further headers; they replace the agent's own, but for the lists of beta features, where they join them.
	Header string
	Prefix string
	Secret func() (string, error)
	Extra  map[string]string

	// MaxRequests is the run's budget; 0 for none.
	MaxRequests int64
}

// How the sandbox calls this proxy.
const (
	insideHost = "127.0.0.1:3128"
	insideName = "localhost:3128"

	upstreamRoot = "/upstream/"
	minKey       = 16
)

// listHeaders hold lists to which an upstream's Extra adds.
var listHeaders = []string{"Anthropic-Beta", "Openai-Beta"}

// An upstream is an Upstream that has been checked.
type upstream struct {
	Upstream
	base *url.URL
	host string
	port uint16
	key  [sha256.Size]byte
	used atomic.Int64
}

var upstreamName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func checkUpstreams(ups []Upstream, key string) (map[string]*upstream, error) {
	if len(ups) > 0 && len(key) < minKey {
		return nil, fmt.Errorf("egress: the placeholder key is shorter than %d bytes", minKey)
	}
	checked := map[string]*upstream{}
	for _, u := range ups {
		c, err := u.check()
		if err != nil {
			return nil, fmt.Errorf("egress: upstream %q: %w", u.Name, err)
		}
		if checked[u.Name] != nil {
			return nil, fmt.Errorf("egress: there are two upstreams %q", u.Name)
		}
		c.key = sha256.Sum256([]byte(key))
		checked[u.Name] = c
	}
	return checked, nil
}

func (u Upstream) check() (*upstream, error) {
	if !upstreamName.MatchString(u.Name) {
		return nil, errors.New("the name is not made of a-z, 0-9 and hyphens")
	}
	base, err := url.Parse(u.URL)
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("the URL is not a plain https URL")
	}
	host, port, err := policy.ParseURL(u.URL)
	if err != nil {
		return nil, err
	}
	switch {
	case len(u.Methods) == 0 || len(u.Paths) == 0:
		return nil, errors.New("it serves no methods or no paths")
	case u.Secret == nil || !httpguts.ValidHeaderFieldName(u.Header):
		return nil, errors.New("it has no secret or no header for it")
	}
	for _, p := range u.Paths {
		if !strings.HasPrefix(p, "/") || strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			return nil, fmt.Errorf("the path %q does not begin with a slash, or has a star before its end", p)
		}
	}
	for name, value := range u.Extra {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("the extra header %q is not a header", name)
		}
	}
	return &upstream{Upstream: u, base: base, host: host, port: port}, nil
}

// serveOrigin takes requests that speak to this proxy as a server: upstreams, and nothing else.
func (s *Server) serveOrigin(w http.ResponseWriter, r *http.Request) {
	d := destination{method: r.Method}
	rest, ok := strings.CutPrefix(r.URL.Path, upstreamRoot)
	if !ok {
		s.fail(w, r, d, broken(http.StatusBadRequest, "this is the run's proxy: set HTTP_PROXY and HTTPS_PROXY to it"))
		return
	}
	name, rest, _ := strings.Cut(rest, "/")
	up := s.upstreams[name]
	if up == nil {
		s.fail(w, r, d, refuseUpstream("this run has no upstream "+bounded(name), ""))
		return
	}
	d.up, d.host, d.port = up, up.host, up.port
	if f := up.permit(r, s.opt.Rules()); f != nil {
		s.fail(w, r, d, f)
		return
	}
	if r.ContentLength > s.limits.UpstreamBody {
		s.fail(w, r, d, broken(http.StatusRequestEntityTooLarge, "the request is longer than %d MiB", s.limits.UpstreamBody>>20))
		return
	}
	secret, err := up.Secret()
	if err != nil || secret == "" || !httpguts.ValidHeaderFieldValue(up.Prefix+secret) {
		s.log.Error("egress: the key of an upstream cannot be used", "upstream", name, "readable", err == nil)
		s.fail(w, r, d, broken(http.StatusBadGateway, "the key of upstream %s cannot be read outside: ask the person to look at it", name))
		return
	}
	if up.MaxRequests > 0 && up.used.Add(1) > up.MaxRequests {
		s.fail(w, r, d, refuseUpstream(fmt.Sprintf("the budget of %d requests to upstream %s is used up", up.MaxRequests, name), ""))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, s.limits.UpstreamBody)
	r.URL.Path, r.URL.RawPath = "/"+rest, ""
	up.prepare(r.Header, secret)
	s.exchange(w, r, s.provider, d, "upstream "+name)
}

func refuseUpstream(reason, hint string) *failure {
	return refusal(policy.Verdict{Action: policy.Refuse, Rule: "D.9", Reason: reason, Hint: hint}, netip.Addr{})
}

// permit says no to whatever is not the agent asking for what the upstream serves and the rules do not deny. It
// changes nothing.
func (u *upstream) permit(r *http.Request, rules policy.Network) *failure {
	path, literal := strings.CutPrefix(r.URL.EscapedPath(), upstreamRoot+u.Name)
	switch {
	case r.Host != insideHost && r.Host != insideName:
		return refuseUpstream("an upstream is reached as http://"+insideHost+upstreamRoot+u.Name+"/", "")
	case fromPage(r.Header):
		return refuseUpstream("upstream "+u.Name+" is for the agent, not for a page in a browser", "")
	case !u.knowsKey(r.Header):
		return refuseUpstream("the request to upstream "+u.Name+" does not bring this run's placeholder key",
			"use the key that the sandbox was given")
	case !literal:
		return refuseUpstream("the path of the request is not in its plain form", "")
	}
	served := policy.Served{Name: u.Name, Methods: u.Methods, Paths: u.Paths}
	if v := rules.DecideUpstream(served, r.Method, path); v.Action == policy.Refuse {
		return refusal(v, netip.Addr{})
	}
	return nil
}

// fromPage tells a browser's request from an agent's. Node's fetch sends Sec-Fetch-Mode, but no page's request is
// without Sec-Fetch-Site.
func fromPage(h http.Header) bool {
	for name := range h {
		if name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") && name != "Sec-Fetch-Mode" {
			return true
		}
	}
	mode := h.Values("Sec-Fetch-Mode")
	return len(mode) > 1 || len(mode) == 1 && mode[0] != "cors"
}

// keyHeaders are where an agent's client library may put its key.
func (u *upstream) keyHeaders() []string {
	return []string{"X-Api-Key", "Authorization", http.CanonicalHeaderKey(u.Header)}
}

// knowsKey compares in constant time, digests of equal length.
func (u *upstream) knowsKey(h http.Header) bool {
	found := 0
	for _, name := range u.keyHeaders() {
		for _, value := range h.Values(name) {
			if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
				value = token
			}
			sum := sha256.Sum256([]byte(value))
			found |= subtle.ConstantTimeCompare(sum[:], u.key[:])
		}
	}
	return found == 1
}

func bounded(s string) string {
	const limit = 120
	return fmt.Sprintf("%q", s[:min(len(s), limit)])
}

// prepare turns the agent's headers into the provider's: the placeholder out, the key in.
func (u *upstream) prepare(h http.Header, secret string) {
	for _, name := range u.keyHeaders() {
		h.Del(name)
	}
	for _, name := range []string{"Cookie", "Upgrade", "Sec-Fetch-Mode", "Referer"} {
		h.Del(name)
	}
	for name := range h {
		if overrides(name) { // the key is for the method and the path that were judged
			delete(h, name)
		}
	}
	// What Connection names is dropped on the way out, and nobody may have the key dropped.
	h.Del("Connection")
	for name, value := range u.Extra {
		name = http.CanonicalHeaderKey(name)
		if old := strings.Join(h.Values(name), ","); old != "" && slices.Contains(listHeaders, name) {
			if !slices.Contains(strings.Split(strings.ReplaceAll(old, " ", ""), ","), value) {
				old += "," + value
			}
			value = old
		}
		h.Set(name, value)
	}
	h.Set(u.Header, u.Prefix+secret)
}

// newProviderProxy makes the proxy of upstream requests.
func (s *Server) newProviderProxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			x := exchangeOf(pr.In.Context())
			up := x.dest.up
			out := *up.base
			out.Path = strings.TrimSuffix(up.base.Path, "/") + x.path
			out.RawPath = ""
			out.RawQuery = pr.In.URL.RawQuery
			out.Host = authority(x.dest, defaultPort(up.base.Scheme))
			pr.Out.URL, pr.Out.Host = &out, out.Host
			stripProxyHeaders(pr.Out.Header)
		},
		ModifyResponse: providerResponse,
		Transport:      s.newTransport(),
		FlushInterval:  -1, // answers stream
		BufferPool:     &bufferPool{},
		ErrorHandler:   s.exchangeFailed,
		ErrorLog:       s.debugLog(),
	}
}

func defaultPort(scheme string) uint16 {
	if scheme == "http" {
		return 80
	}
	return 443
}

// providerResponse refuses redirects, which would take the key elsewhere, and headers that carry it back.
func providerResponse(resp *http.Response) error {
	x := exchangeOf(resp.Request.Context())
	if resp.StatusCode/100 == 3 && resp.StatusCode != http.StatusNotModified || resp.StatusCode == http.StatusSwitchingProtocols {
		return &failureError{broken(http.StatusBadGateway,
			"upstream %s answered with a redirect or an upgrade (%d), which is not followed", x.dest.up.Name, resp.StatusCode)}
	}
	secret := strings.TrimPrefix(resp.Request.Header.Get(x.dest.up.Header), x.dest.up.Prefix)
	for name, values := range resp.Header {
		leaks := slices.ContainsFunc(values, func(v string) bool { return secret != "" && strings.Contains(v, secret) })
		if name == "Set-Cookie" || leaks {
			delete(resp.Header, name)
		}
	}
	return countResponse(resp)
}
