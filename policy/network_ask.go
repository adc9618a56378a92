package policy

// Values of Network.Unknown.
const (
	UnknownRefuse = "refuse"
	UnknownAsk    = "ask"
)

// unnamed is the verdict on a public destination that no rule decides: the refusal, or with UnknownAsk the same
// words as a question. What a rule denies, what is not public and what is no host never comes here, so none of it is
// ever asked about.
func (n Network) unnamed(t target) Verdict {
	v := n.refuseUnnamed(t)
	if n.Unknown == UnknownAsk {
		v.Action = Ask
	}
	return v
}

// Wanted is the allow rule that a destination lacks, as a person would write it: ports 80 and 443 are a host's own,
// any other one is named. host is canonical.
func Wanted(host string, port uint16) string {
	if port == 80 || port == 443 {
		port = 0
	}
	return joinHostPort(host, port)
}
