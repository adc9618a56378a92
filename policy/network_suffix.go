package policy

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

// openSuffix says whether a suffix that a rule allows leads to everyone: to every site under a suffix that registries
// sell names under (publicsuffix.org's list, the part that ICANN's registries made), such as "com", "co.uk", or "ck",
// below which every name is such a suffix. home.arpa is on the list and yet everyone's own (RFC 8375).
func openSuffix(host string) bool {
	if host == "home.arpa" {
		return false
	}
	for _, name := range []string{host, "x." + host} {
		if suffix, icann := publicsuffix.PublicSuffix(name); icann && suffix == name {
			return true
		}
	}
	return false
}

// Shared says whether an allow rule is for a suffix under which a provider gives names to whoever asks, such as
// "*.github.io": what is below it is not one owner's. Such a rule is possible, since people have reasons, and worth a
// word to them.
func (r Rule) Shared() bool {
	if r.Kind != KindAllow || !r.Suffix {
		return false
	}
	for _, name := range []string{r.Host, "x." + r.Host} {
		suffix, icann := publicsuffix.PublicSuffix(name)
		if !icann && suffix == name && strings.Contains(r.Host, ".") { // a name without a dot is no listed suffix
			return true
		}
	}
	return false
}
