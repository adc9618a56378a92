package policy

import "fmt"

// Values of Network.Unknown.
const (
	UnknownRefuse = "refuse"
	UnknownAsk    = "ask"

	// UnknownPublic lets everything out that is public, on ports 80 and 443, but for what a deny rule names: what a
	// browser of handlerd's own may reach (F.1). No file of an agent's can say it.
	UnknownPublic = "public"
)

// unnamed is the verdict on a public destination that no rule decides: the refusal, or with UnknownAsk the same
// words as a question. What a rule denies, what is not public and what is no host never comes here, so none of it is
// ever asked about.
func (n Network) unnamed(t target) Verdict {
	if n.Unknown == UnknownPublic {
		return n.publicOnly(t)
	}
	v := n.refuseUnnamed(t)
	if n.Unknown == UnknownAsk {
		v.Action = Ask
	}
	return v
}

// Denies says whether a rule denies a destination, in the words of the refusal: what no question and no yes of a
// person's for something else may pass (D.4).
func (n Network) Denies(host string, port uint16) (Verdict, bool) {
	v, decided := n.judge(&target{host: host, port: port})
	return v, decided >= 0 && n.Rules[decided].Kind == KindDeny
}

// Wanted is the allow rule that a destination lacks, as a person would write it: ports 80 and 443 are a host's own,
// any other one is named. host is canonical.
func Wanted(host string, port uint16) string {
	if port == 80 || port == 443 {
		port = 0
	}
	return joinHostPort(host, port)
}

// publicOnly is the verdict of UnknownPublic on a host that is a name or a public address. What a name resolves to is
// classified later, as always.
func (n Network) publicOnly(t target) Verdict {
	if t.port == 80 || t.port == 443 {
		return Verdict{}
	}
	return refuseNet("D.3", fmt.Sprintf("the browser reaches ports 80 and 443 only, and not %s", joinHostPort(t.host, t.port)), "")
}
