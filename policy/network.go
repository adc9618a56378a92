package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Network is the rules by which a run reaches the network (D.4). The zero Network reaches nothing. It is a value:
// who changes the rules makes another.
type Network struct {
	Agent   string // whose rules these are, for reasons and hints
	Server  string // the hosted MCP server of Agent's whose rules these are instead; "" for the agent's own
	Rules   []Rule
	Unknown string // what becomes of a destination that no rule names: UnknownRefuse (also if empty) or UnknownAsk
}

// Decide judges a destination before anything is looked up (D.2, D.3, D.4). host is a name or an address in any
// spelling [CanonicalHost] takes, a port 1 to 65535. Deny wins; an address outside the public internet needs a
// private rule that names it and its port, and nothing else; every other host needs an allow rule, or with
// UnknownAsk a person's yes. A name that is allowed here must still be judged by [Network.DecideResolved].
func (n Network) Decide(host string, port uint16) Verdict {
	v, _ := n.judge(&target{host: host, port: port})
	return v
}

// An Entry is a rule and everyone who asked for it.
type Entry struct {
	Rule Rule     // its By is the first of By
	By   []string // in order, none twice
}

// Entries gives the rules in order, those that mean the same as one.
func (n Network) Entries() []Entry {
	entries, at := make([]Entry, 0, len(n.Rules)), make(map[Rule]int, len(n.Rules))
	for _, r := range n.Rules {
		key := r
		key.By = ""
		i, known := at[key]
		if !known {
			i, at[key] = len(entries), len(entries)
			entries = append(entries, Entry{Rule: r})
		}
		entries[i].By = appendNew(entries[i].By, r.By)
	}
	return entries
}

// A Step is what one rule had to say about a destination.
type Step struct {
	Entry
	Decided bool   // the verdict rests on this rule
	Note    string // "names it", "does not name it", "names the host, but only port 8443"
}

// Explain is [Network.Decide] rule by rule, in the order of Rules, for `handler policy check`.
func (n Network) Explain(host string, port uint16) (Verdict, []Step) {
	return n.explain(target{host: host, port: port})
}

func (n Network) explain(t target) (Verdict, []Step) {
	v, decided := n.judge(&t)
	if _, err := CanonicalHost(t.host); err != nil || t.port == 0 {
		return v, nil // no rule can name it
	}
	steps := []Step{}
	for _, e := range n.Entries() {
		step := Step{Entry: e, Note: e.Rule.note(t)}
		if decided >= 0 {
			rule := n.Rules[decided]
			rule.By = e.Rule.By
			step.Decided = rule == e.Rule
		}
		steps = append(steps, step)
	}
	return v, steps
}

// judge makes the target's host canonical and gives the verdict, with the index of the rule that decided or -1.
func (n Network) judge(t *target) (v Verdict, decided int) {
	canonical, err := CanonicalHost(t.host)
	if err != nil {
		return refuseNet("D.2", err.Error(), ""), -1
	}
	t.host = canonical
	if t.port == 0 {
		return refuseNet("D.3", "port 0 of "+canonical+" cannot be reached", ""), -1
	}
	deny, allow := -1, -1
	addr, _ := netip.ParseAddr(canonical)
	class, public := Class{}, true
	if addr.IsValid() {
		class, public = ClassifyAddr(addr)
	}
	for i := range n.Rules {
		r := &n.Rules[i] // a copy of each costs more than the question
		if !r.namesHost(canonical) || !r.namesWhat(*t) {
			continue
		}
		switch {
		case r.Kind == KindDeny && deny < 0:
			deny = i
		case r.Kind == KindAllow && public && allow < 0, r.Kind == KindPrivate && !public && allow < 0:
			allow = i
		}
	}
	switch {
	case deny >= 0:
		return n.refuseDenied(*t, n.Rules[deny]), deny
	case !public && !class.Nameable:
		return refuseNet("D.2", fmt.Sprintf("%s is %s, which is never reached from a sandbox", canonical, class), ""), -1
	case allow >= 0:
		return Verdict{}, allow
	case !public:
		return n.refusePrivate(canonical, class, t.port), -1
	}
	return n.unnamed(*t), -1
}

// DecideResolved judges every address that a name resolved to (D.2): one that is not public, and that no private
// rule names with the port, refuses the name, and so does one that a deny rule names. Nothing resolved is refused
// too. It does not repeat [Network.Decide]. The reason never contains the addresses, since the agent reads it: the
// first one that was refused is bad (D.6).
func (n Network) DecideResolved(host string, port uint16, addrs []netip.Addr) (v Verdict, bad netip.Addr) {
	return n.decideResolved(target{host: host, port: port}, addrs)
}

// DecideRequestResolved is [Network.DecideResolved] for a request of plain http, which a deny rule about requests to
// an address may name.
func (n Network) DecideRequestResolved(r Request, addrs []netip.Addr) (v Verdict, bad netip.Addr) {
	return n.decideResolved(r.target(), addrs)
}

func (n Network) decideResolved(t target, addrs []netip.Addr) (v Verdict, bad netip.Addr) {
	if len(addrs) == 0 {
		return refuseNet("D.2", t.host+" has no address", ""), netip.Addr{}
	}
	for _, a := range addrs {
		if v := n.decideAddr(t, a, len(addrs)); v.Action == Refuse {
			return v, a
		}
	}
	return Verdict{}, netip.Addr{}
}

func (n Network) decideAddr(t target, a netip.Addr, of int) Verdict {
	host, port, private := t.host, t.port, false
	for _, r := range n.Rules {
		if !r.namesAddr(a) || !r.namesWhat(t) {
			continue
		}
		switch r.Kind {
		case KindDeny:
			reason := fmt.Sprintf("%s resolves to an address that a deny rule of %s names", host, r.By)
			return refuseNet("D.4", reason, "")
		case KindPrivate:
			private = true
		}
	}
	class, public := ClassifyAddr(a)
	if public || private && class.Nameable {
		return Verdict{}
	}
	which := "resolves to " + class.String()
	if of > 1 {
		which = fmt.Sprintf("resolves to %d addresses, of which one is %s", of, class)
	}
	if !class.Nameable {
		return refuseNet("D.2", fmt.Sprintf("%s %s, which is never reached from a sandbox", host, which), "")
	}
	reason := fmt.Sprintf("%s %s, and no \"private\" rule of %s names it with port %d", host, which, n.whose(), port)
	return refuseNet("D.2", reason, n.hint(KindPrivate, "ADDRESS:"+strconv.Itoa(int(port)))+", with the address from the audit log")
}

func (n Network) refuseDenied(t target, r Rule) Verdict {
	what, why := t.host, ""
	if r.aboutRequests() {
		what = t.what()
		switch {
		case !t.request:
			why = ", since it would hide the requests that the rule is about"
		case t.odd:
			why = ", since the path is not in its plain form"
		}
	}
	return refuseNet("D.4", fmt.Sprintf("%s is denied for %s by the rule deny %s (%s)%s", what, n.whose(), r, r.By, why), "")
}

func (n Network) refusePrivate(host string, class Class, port uint16) Verdict {
	reason := fmt.Sprintf("%s is %s and no \"private\" rule of %s names it with port %d", host, class, n.whose(), port)
	return refuseNet("D.4", reason, n.hint(KindPrivate, joinHostPort(host, port)))
}

// refuseUnnamed tells a host that nobody named from a port (D.3) and a request that nobody named.
func (n Network) refuseUnnamed(t target) Verdict {
	host, port := t.host, t.port
	ports, requests := n.allowedOf(host)
	switch {
	case len(requests) > 0:
		return n.refuseUnnamedRequest(t, append(ports, requests...))
	case len(ports) > 0:
		reason := fmt.Sprintf("port %d of %s is not allowed for %s, only %s", port, host, n.whose(), strings.Join(ports, " and "))
		return refuseNet("D.3", reason, n.hint(KindAllow, joinHostPort(host, port)))
	}
	return refuseNet("D.4", fmt.Sprintf("%s is not allowed for %s", host, n.whose()), n.hint(KindAllow, Wanted(host, port)))
}

// AllowedOf says what allow rules let out of a host, in canonical spelling, for a question that is about more of it:
// "only port 8443", "only GET http://host/path"; "" where no rule names the host.
func (n Network) AllowedOf(host string) string {
	ports, requests := n.allowedOf(host)
	all := shorten(append(ports, requests...))
	if len(all) == 0 {
		return ""
	}
	return "only " + strings.Join(all, " and ")
}

func (n Network) allowedOf(host string) (ports, requests []string) {
	for _, r := range n.Rules {
		if r.Kind != KindAllow || !r.namesHost(host) {
			continue
		}
		if r.aboutRequests() {
			requests = appendNew(requests, r.String())
		} else {
			ports = appendNew(ports, r.ports())
		}
	}
	return ports, requests
}

// shorten keeps of a list what a message can bear.
func shorten(list []string) []string {
	const shown = 4
	if more := len(list) - shown; more > 0 {
		return append(list[:shown:shown], fmt.Sprintf("%d more", more))
	}
	return list
}

// refuseUnnamedRequest says what of a host is allowed, where it is requests.
func (n Network) refuseUnnamedRequest(t target, allowed []string) Verdict {
	reason := fmt.Sprintf("%s is not allowed for %s, only %s", t.what(), n.whose(), strings.Join(shorten(allowed), " and "))
	want := Rule{Kind: KindAllow, Host: t.host, Port: t.port, Methods: t.method, Path: t.path}
	switch _, err := ParseRule(KindAllow, want.String(), "hint"); {
	case t.request && t.odd:
		return refuseNet("D.4", reason+"; its path is not in its plain form, so that no rule about paths can name it", "")
	case !t.request || err != nil:
		return refuseNet("D.4", reason, n.hint(KindAllow, joinHostPort(t.host, t.port)))
	}
	return refuseNet("D.4", reason, n.hint(KindAllow, "'"+want.String()+"'"))
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// whose names those whose rules they are.
func (n Network) whose() string {
	if n.Server != "" {
		return fmt.Sprintf("the server %q of agent %q", n.Server, n.Agent)
	}
	return fmt.Sprintf("agent %q", n.Agent)
}

// hint is the one wording of what a person does about a refusal.
func (n Network) hint(kind, value string) string {
	name := n.Agent
	if name == "" {
		name = "NAME"
	}
	if kind == KindPrivate {
		value = "--private " + value
	}
	if n.Server != "" {
		value += " --addon " + n.Server
	}
	return fmt.Sprintf("allow it: handler policy allow %s %s", name, value)
}

func refuseNet(rule, reason, hint string) Verdict {
	return Verdict{Action: Refuse, Rule: rule, Reason: reason, Hint: hint}
}
