package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// The bounds of a host (RFC 1035), and of what is looked at to find one.
const (
	maxHostText  = 1024
	maxHostName  = 253
	maxHostLabel = 63
)

// hostProfile maps a name as browsers do (UTS 46, not transitional). Hyphens and lengths are checked in
// checkNameLabels, because real names such as "r3---sn-x.example.org" break the profile's rule for hyphens.
var hostProfile = idna.New(
	idna.MapForLookup(),
	idna.BidiRule(),
	idna.Transitional(false),
	idna.StrictDomainName(false),
	idna.CheckHyphens(false),
)

// CanonicalHost gives the one spelling of a host by which rules, resolver and dialer know it: a name in lower case
// as ASCII (IDNA) without a trailing dot, or an address as [netip.Addr] prints it, unmapped and without brackets.
// It takes a name, an IPv4 address, or an IPv6 address with or without brackets. Whatever two programs might read
// differently is refused: user information, percent signs, zones, brackets around anything but IPv6, a last label
// that is a number (so "127.1", "0x7f.1" and "2130706433" are never looked up), and what is too long (D.2).
// CanonicalHost of its own result is that result.
func CanonicalHost(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("the host is empty")
	case len(s) > maxHostText:
		return "", fmt.Errorf("the host is longer than %d bytes", maxHostName)
	case strings.Contains(s, "@"):
		return "", errors.New("the host contains user information, which is refused")
	case strings.Contains(s, "%"):
		return "", errors.New("the host contains a percent sign: zones and encoded names are refused")
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if addr, err := netip.ParseAddr(inner); ok && err == nil && addr.Is6() {
			return addr.Unmap().String(), nil
		}
		return "", fmt.Errorf("%s: brackets are for IPv6 addresses only", quoteHost(s))
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Unmap().String(), nil
	}
	return canonicalName(s)
}

// canonicalName is CanonicalHost of what is not an address.
func canonicalName(s string) (string, error) {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`:/\?#[]*"<>^|`+"`{}", c) >= 0 {
			return "", fmt.Errorf("%s is not a host: it contains %q", quoteHost(s), rune(c))
		}
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, utf8.RuneError) {
		return "", fmt.Errorf("%s is not a host: it is not UTF-8", quoteHost(s))
	}
	name, err := hostProfile.ToASCII(s)
	if err != nil {
		return "", fmt.Errorf("%s is not a host name", quoteHost(s))
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if err := checkNameLabels(name); err != nil {
		return "", fmt.Errorf("%s is not a host name: %w", quoteHost(s), err)
	}
	return name, nil
}

// checkNameLabels checks an ASCII name in lower case.
func checkNameLabels(name string) error {
	if len(name) > maxHostName {
		return fmt.Errorf("it is longer than %d bytes", maxHostName)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return errors.New("it has an empty label")
		case len(label) > maxHostLabel:
			return fmt.Errorf("a label is longer than %d bytes", maxHostLabel)
		case label[0] == '-' || label[len(label)-1] == '-':
			return errors.New("a label begins or ends with a hyphen")
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return fmt.Errorf("it contains %q", rune(c))
			}
		}
		last = label
	}
	if numericLabel(last) {
		return errors.New("its last label is a number, and it is no address that everyone reads the same way")
	}
	return nil
}

// numericLabel says whether some program would take a name that ends in this label for an IPv4 address.
func numericLabel(label string) bool {
	if strings.HasPrefix(label, "0x") {
		return strings.Trim(label[2:], "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// ParseAuthority takes "host", "host:port" or "[v6]:port" apart, as it stands in a request line or a URL, and
// makes the host canonical. A port is decimal, 1 to 65535, without a sign or leading zeros; without one
// defaultPort is given, and if that is 0 the port is required.
func ParseAuthority(s string, defaultPort uint16) (host string, port uint16, err error) {
	h, port, err := splitAuthority(s)
	if err != nil {
		return "", 0, err
	}
	if port == 0 {
		port = defaultPort
	}
	if host, err = CanonicalHost(h); err != nil {
		return "", 0, err
	}
	if port == 0 {
		return "", 0, fmt.Errorf("%s needs a port", quoteHost(s))
	}
	return host, port, nil
}

// splitAuthority splits off the port; 0 if there is none. The host keeps its brackets.
func splitAuthority(s string) (host string, port uint16, err error) {
	if len(s) > maxHostText {
		return "", 0, fmt.Errorf("the host is longer than %d bytes", maxHostName)
	}
	if strings.Contains(s, "@") {
		return "", 0, errors.New("the host contains user information, which is refused")
	}
	host, rest := s, ""
	if strings.HasPrefix(s, "[") {
		if end := strings.IndexByte(s, ']'); end >= 0 {
			host, rest = s[:end+1], s[end+1:]
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		host, rest = s[:i], s[i:]
	}
	if rest == "" {
		return host, 0, nil
	}
	if rest[0] != ':' {
		return "", 0, fmt.Errorf("%s: only a port may follow the bracket", quoteHost(s))
	}
	if strings.Count(rest, ":") > 1 {
		return "", 0, fmt.Errorf("%s: an IPv6 address stands in brackets, as in [2001:db8::1]:443", quoteHost(s))
	}
	port, err = parsePort(rest[1:])
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", quoteHost(s), err)
	}
	return host, port, nil
}

// parsePort is stricter than strconv: no sign, no leading zero, not empty.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' || s[0] == '+' {
		return 0, fmt.Errorf("the port %s is not a number from 1 to 65535", quoteHost(s))
	}
	return uint16(n), nil
}

// ParseURL gives the canonical host and the port of an http, https, ws or wss URL, for those who ask about one
// (P3, `handler policy check`).
func ParseURL(raw string) (host string, port uint16, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		// url.Error repeats the URL, which may hold a secret.
		return "", 0, errors.New("the URL cannot be read")
	}
	var def uint16
	switch u.Scheme {
	case "http", "ws":
		def = 80
	case "https", "wss":
		def = 443
	default:
		return "", 0, fmt.Errorf("the URL's scheme is %s, not http, https, ws or wss", quoteHost(u.Scheme))
	}
	if u.User != nil {
		return "", 0, errors.New("the URL contains user information, which is refused")
	}
	return ParseAuthority(u.Host, def)
}

// quoteHost quotes what somebody else wrote, cut to a length that a message can bear.
func quoteHost(s string) string {
	const limit = 80
	if len(s) > limit {
		return strconv.QuoteToASCII(s[:limit]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// joinHostPort writes host and port as a rule does: a port of 0 is left out.
func joinHostPort(host string, port uint16) string {
	if port == 0 {
		return host
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}
