package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Request is one of plain http, of which the proxy sees all. It is judged like a destination, and by the rules
// about methods and paths besides.
type Request struct {
	Method string
	Host   string // in any spelling [CanonicalHost] takes
	Port   uint16
	Path   string // as the request line has it, without the query; "" is "/"
}

// DecideRequest judges a request of plain http before anything is looked up, as [Network.Decide] judges a tunnel. A
// path that is not plain ([PlainPath]) is one that no allow rule about paths names and every deny rule about paths
// does.
func (n Network) DecideRequest(r Request) Verdict {
	t := r.target()
	v, _ := n.judge(&t)
	return v
}

// ExplainRequest is [Network.DecideRequest] rule by rule.
func (n Network) ExplainRequest(r Request) (Verdict, []Step) {
	return n.explain(r.target())
}

// LooksAtRequests says whether a rule about requests is, or by an address that the name has may be, for this host, in
// canonical spelling, and port: whether more than the two of them matters.
func (n Network) LooksAtRequests(host string, port uint16) bool {
	return slices.ContainsFunc(n.Rules, func(r Rule) bool {
		return r.aboutRequests() && r.namesPort(port) && (r.Prefix.IsValid() || r.namesHost(host))
	})
}

// A Served is what an upstream serves (D.9).
type Served struct {
	Name    string
	Methods []string
	Paths   []string // each plain and beginning with "/"; a trailing "*" stands for any rest
}

// DecideUpstream judges a request to /upstream/NAME: it is one that the upstream serves, and no deny rule about
// upstreams names it. path is what follows NAME, as the request line has it, without the query.
func (n Network) DecideUpstream(s Served, method, path string) Verdict {
	v, _ := n.ExplainUpstream(s, method, path)
	return v
}

// ExplainUpstream is [Network.DecideUpstream] rule by rule; rules about hosts say nothing and are left out.
func (n Network) ExplainUpstream(s Served, method, path string) (Verdict, []Step) {
	plain, err := PlainPath(path)
	if err != nil {
		return refuseNet("D.9", "the path of the request is not in its plain form: "+err.Error(), ""), nil
	}
	steps, deny := []Step{}, -1
	for _, e := range n.Entries() {
		r := e.Rule
		if r.Upstream == "" {
			continue
		}
		step := Step{Entry: e, Note: "names it"}
		switch {
		case r.Upstream != s.Name:
			step.Note = "does not name it"
		case !r.namesMethod(method):
			step.Note = "names the upstream, but only " + r.Methods
		case !r.namesPath(plain):
			step.Note = "names the upstream, but another path"
		case deny < 0:
			deny, step.Decided = len(steps), true
		}
		steps = append(steps, step)
	}
	serves := slices.Contains(s.Methods, method) &&
		slices.ContainsFunc(s.Paths, func(p string) bool { return CoversPath(p, plain) })
	switch {
	case deny >= 0:
		return refuseNet("D.9", fmt.Sprintf("%s of this path of upstream %s is denied for agent %q by the rule deny %s (%s)",
			quoteMethod(method), s.Name, n.Agent, steps[deny].Rule, steps[deny].Rule.By), ""), steps
	case !serves:
		return refuseNet("D.9", fmt.Sprintf("upstream %s does not serve %s %s", s.Name, quoteMethod(method), quote(plain)), ""), steps
	}
	return Verdict{}, steps
}

// A target is what rules are asked about: a tunnel to host and port, or one request of plain http.
type target struct {
	host    string // canonical, once explain has seen to it
	port    uint16
	request bool
	method  string
	path    string // plain
	odd     bool   // the path is not plain
}

func (r Request) target() target {
	t := target{host: r.Host, port: r.Port, request: true, method: r.Method}
	path, err := PlainPath(r.Path)
	t.path, t.odd = path, err != nil
	return t
}

// parseRequest reads what follows the methods of a rule about requests: "http://host/path", or "upstream/name/path".
func (r *Rule) parseRequest(text string) error {
	if r.Kind == KindPrivate {
		return errors.New("a private rule names an address and a port; what may be asked of them is for deny rules to narrow")
	}
	if rest, ok := strings.CutPrefix(text, upstreamForm); ok {
		return r.parseUpstream(rest)
	}
	rest, ok := strings.CutPrefix(text, httpForm)
	if !ok {
		return errors.New("a rule about requests is written as GET,HEAD http://HOST/PATH*, or names an upstream as POST upstream/NAME/PATH*")
	}
	authority, path, ok := strings.Cut(rest, "/")
	if !ok {
		return errors.New("a rule about requests needs a path: write http://" + rest + "/* for all of them")
	}
	var err error
	if r.Path, r.Rest, err = parsePattern("/" + path); err != nil {
		return err
	}
	if err := r.parseHost(authority); err != nil {
		return err
	}
	if r.Port == 0 {
		r.Port = 80
	}
	if inside(r.Host, r.Prefix.Addr().String(), r.Port) && strings.HasPrefix(r.Path, "/"+upstreamForm) {
		return fmt.Errorf("that is the run's own proxy: write %s", strings.TrimPrefix(printPattern(r.Path, r.Rest), "/"))
	}
	return nil
}

const (
	httpForm     = "http://"
	upstreamForm = "upstream/"
)

// inside says whether a host is what the sandbox calls its proxy.
func inside(host, addr string, port uint16) bool {
	return port == 3128 && (host == "localhost" || addr == "127.0.0.1")
}

func (r *Rule) parseUpstream(text string) error {
	if r.Kind != KindDeny {
		return errors.New("an upstream serves what its harness lists; an agent narrows that by a deny rule, " +
			"or by methods and paths under [upstreams.NAME]")
	}
	name, path, ok := strings.Cut(text, "/")
	if name == "" || len(name) > maxHostLabel || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("%s is not the name of an upstream", quoteHost(name))
	}
	if !ok {
		path = "*"
	}
	r.Upstream = name
	var err error
	r.Path, r.Rest, err = parsePattern("/" + path)
	return err
}

// aboutRequests says whether a rule is about requests, not about hosts whole.
func (r *Rule) aboutRequests() bool { return r.Path != "" }

// namesWhat says whether a rule whose host is the target's speaks of the target: of its port, and in a rule about
// requests of its method and path. What a tunnel hides, and a path that is not plain, is named by every deny rule and
// by no allow rule: nobody can tell.
func (r *Rule) namesWhat(t target) bool {
	if !r.namesPort(t.port) || !r.aboutRequests() {
		return r.namesPort(t.port)
	}
	if !t.request {
		return r.Kind == KindDeny
	}
	if !r.namesMethod(t.method) {
		return false
	}
	if t.odd {
		return r.Kind == KindDeny
	}
	return r.namesPath(t.path)
}

// note says how the rule stands to a target.
func (r Rule) note(t target) string {
	named := r.namesHost(t.host)
	switch {
	case !named:
		return "does not name it"
	case !r.namesPort(t.port):
		return "names the host, but only " + r.ports()
	case !r.aboutRequests():
		return "names it"
	case !t.request && r.Kind == KindDeny:
		return "names requests that a tunnel to this port would hide"
	case !t.request:
		return "names plain http requests, not a tunnel"
	case !r.namesMethod(t.method):
		return "names the host, but only " + r.Methods
	case t.odd && r.Kind == KindDeny:
		return "names the host, and the path is not in its plain form"
	case t.odd:
		return "names the host, but the path is not in its plain form"
	case !r.namesPath(t.path):
		return "names the host, but another path"
	}
	return "names it"
}

// quoteMethod gives a method as it is if it looks like one.
func quoteMethod(m string) string {
	if m != "" && len(m) <= maxMethod && strings.Trim(strings.ToUpper(m), "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == "" {
		return m
	}
	return quoteHost(m)
}

// what says what is asked for, without the path: it may be long, and the hint has it where a person needs it.
func (t target) what() string {
	if !t.request {
		return "a tunnel to " + joinHostPort(t.host, t.port)
	}
	return quoteMethod(t.method) + " of this path of " + httpForm + joinHostPort(t.host, webPort(t.port))
}

// webPort is 0, which is not written, for the port of http.
func webPort(port uint16) uint16 {
	if port == 80 {
		return 0
	}
	return port
}
