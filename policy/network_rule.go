package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Kinds of a network rule (D.4).
const (
	KindAllow   = "allow"
	KindDeny    = "deny"
	KindPrivate = "private"
)

// A Rule is one line of the network rules (D.4), made by [ParseRule]. Two rules that mean the same are equal.
type Rule struct {
	Kind string // KindAllow, KindDeny or KindPrivate
	By   string // who asked for it: "agent web", "addon playwright", "preset npm"

	Host   string       // canonical name; "" in a rule about addresses
	Suffix bool         // the rule is "*.Host": every name below Host, not Host itself
	Prefix netip.Prefix // addresses, masked and unmapped; invalid in a rule about names
	Port   uint16       // 0 if none is named: 80 and 443 for allow, every port for deny

	// In a rule about requests, of plain http or to an upstream; all empty in one about hosts whole.
	Methods  string // "GET,HEAD", sorted; "" for every method
	Path     string // plain ([PlainPath]); "" in a rule about hosts
	Rest     bool   // Path is the beginning of the paths meant
	Upstream string // the name of an upstream, in a rule about one; it has no host then
}

// ParseRule reads one rule. Allow takes "host", "host:port", "*.suffix", "*.suffix:port" and a public address in the
// same forms ("[v6]:port"); deny takes these, any address, and "prefix" or "prefix:port"; private takes
// "address:port" and "prefix:port", "[v6]:port" and "[v6prefix]:port".
//
// Allow and deny take rules about requests of plain http besides: "GET,HEAD http://HOST/PATH", where the methods may be
// left out, HOST is any of the forms above but a prefix (port 80 if none is named), and PATH is plain and may end with
// "*". Deny takes "METHODS upstream/NAME/PATH" of the same kind.
//
// by says who asked for the rule. An error says what is wrong and what to write instead.
func ParseRule(kind, text, by string) (Rule, error) {
	r := Rule{Kind: kind, By: by}
	err := r.parse(text)
	if err == nil && (len(text) > maxRuleText || len(r.String()) > maxRuleText) {
		err = fmt.Errorf("it is longer than %d bytes", maxRuleText)
	}
	if err != nil {
		return Rule{}, fmt.Errorf("network rule %s %s of %s: %w", kind, quoteHost(text), by, err)
	}
	return r, nil
}

func (r *Rule) parse(text string) error {
	switch {
	case r.Kind != KindAllow && r.Kind != KindDeny && r.Kind != KindPrivate:
		return errors.New("the kind is not allow, deny or private")
	case text == "":
		return errors.New("it is empty")
	}
	if methods, rest, ok := strings.Cut(text, " "); ok {
		var err error
		if r.Methods, err = parseMethods(methods); err != nil {
			return err
		}
		return r.parseRequest(rest)
	}
	if strings.HasPrefix(text, httpForm) || strings.HasPrefix(text, upstreamForm) {
		return r.parseRequest(text)
	}
	return r.parseHost(text)
}

// parseHost reads a rule about hosts, or the host of one about requests.
func (r *Rule) parseHost(text string) error {
	switch {
	case strings.Contains(text, "://"):
		return errors.New("only http:// can begin a rule, since what goes through TLS is not seen: " +
			"name the host, without the scheme and the path")
	case text == "*" || strings.HasPrefix(text, "*:"):
		return errors.New(`"*" alone would name every host; name the hosts, or a suffix such as *.example.org`)
	}
	if suffix, ok := strings.CutPrefix(text, "*."); ok {
		return r.parseName(suffix, true)
	}
	if prefix, port, ok, err := parseAddresses(text); ok || err != nil {
		if err != nil {
			return err
		}
		r.Prefix, r.Port = prefix, port
		return r.checkAddresses()
	}
	return r.parseName(text, false)
}

// parseName reads what follows "*." or a host.
func (r *Rule) parseName(text string, suffix bool) error {
	if strings.Contains(text, "*") {
		return errors.New(`"*" stands only at the beginning, as in *.example.org`)
	}
	if strings.Contains(text, "/") {
		return errors.New("it contains a slash: a rule names a host, or a prefix such as 10.0.0.0/8")
	}
	h, port, err := splitAuthority(text)
	if err != nil {
		return err
	}
	host, err := CanonicalHost(h)
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		// parseAddresses took the plain forms; here are "*.1.2.3.4" and what only IDNA makes an address.
		return errors.New("an address has no suffixes")
	}
	if r.Kind == KindPrivate {
		return errors.New("a private rule names addresses, such as 10.0.0.5:8080 or 10.0.0.0/8:5432; " +
			"name the host in an allow rule besides")
	}
	if suffix && r.Kind == KindAllow && openSuffix(host) {
		return fmt.Errorf("it would allow every site under %s, where anyone can register a name: name the hosts, or a longer suffix", host)
	}
	r.Host, r.Suffix, r.Port = host, suffix, port
	return nil
}

// checkAddresses is what each kind wants of a rule about addresses.
func (r *Rule) checkAddresses() error {
	class, special := classifyPrefix(r.Prefix)
	if !special && r.Prefix.IsSingleIP() {
		if c, public := ClassifyAddr(r.Prefix.Addr()); !public {
			class, special = c, true
		}
	}
	switch r.Kind {
	case KindAllow:
		if !r.Prefix.IsSingleIP() {
			return errors.New("an allow rule names one address; a prefix is for deny and private")
		}
		if special {
			return fmt.Errorf("it is %s: name it in a private rule, with its port", class)
		}
	case KindPrivate:
		if !special && r.Prefix.IsSingleIP() {
			return errors.New("it is a public address: name it in an allow rule")
		}
		if !special {
			return errors.New("it holds more than one kind of private addresses: name a smaller prefix")
		}
		if !class.Nameable {
			return fmt.Errorf("it is %s, which is never reached from a sandbox", class)
		}
		if r.Port == 0 {
			return errors.New("a private rule needs a port, as in 10.0.0.5:8080")
		}
	}
	return nil
}

// parseAddresses reads an address or prefix with or without a port; ok is false if text is neither.
func parseAddresses(text string) (p netip.Prefix, port uint16, ok bool, err error) {
	addresses, rest := text, ""
	bracketed := strings.HasPrefix(text, "[")
	if bracketed {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return p, 0, false, errors.New("a bracket is not closed")
		}
		addresses, rest = text[1:end], text[end+1:]
		if !strings.Contains(addresses, ":") {
			return p, 0, false, errors.New("brackets are for IPv6 addresses only")
		}
	} else if slash := strings.IndexByte(text, '/'); slash >= 0 {
		if i := strings.IndexByte(text[slash:], ':'); i >= 0 {
			addresses, rest = text[:slash+i], text[slash+i:]
		}
	} else if strings.Count(text, ":") == 1 {
		i := strings.IndexByte(text, ':')
		addresses, rest = text[:i], text[i:]
	}
	p, ok, err = parsePrefix(addresses)
	if err != nil || !ok {
		if bracketed && err == nil {
			err = errors.New("what stands in brackets is no IPv6 address")
		}
		return netip.Prefix{}, 0, false, err
	}
	if rest == "" {
		return p, 0, true, nil
	}
	if rest[0] != ':' {
		return p, 0, false, errors.New("only a port may follow the bracket")
	}
	port, err = parsePort(rest[1:])
	return p, port, err == nil, err
}

// parsePrefix reads an address or a prefix; ok is false if s is neither.
func parsePrefix(s string) (p netip.Prefix, ok bool, err error) {
	if strings.Contains(s, "%") {
		return p, false, errors.New("zones are refused")
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), true, nil
	}
	p, err = netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, false, nil
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, false, errors.New("write the prefix as IPv4")
	}
	if p.Masked() != p {
		return netip.Prefix{}, false, fmt.Errorf("the prefix has bits beyond its length: write %s", p.Masked())
	}
	return p, true, nil
}

// String gives the rule's text, which [ParseRule] reads back with the same Kind and By.
func (r Rule) String() string {
	if !r.aboutRequests() {
		return r.destination(r.Port)
	}
	text := httpForm + r.destination(webPort(r.Port))
	if r.Upstream != "" {
		text = upstreamForm + r.Upstream
	}
	if r.Methods != "" {
		text = r.Methods + " " + text
	}
	return text + printPattern(r.Path, r.Rest)
}

// destination writes the host, suffix, address or prefix with a port; 0 is left out.
func (r Rule) destination(port uint16) string {
	if !r.Prefix.IsValid() {
		host := r.Host
		if r.Suffix {
			host = "*." + host
		}
		return joinHostPort(host, port)
	}
	text := r.Prefix.String()
	if r.Prefix.IsSingleIP() {
		text = r.Prefix.Addr().String()
	}
	return joinHostPort(text, port)
}

// namesHost says whether the rule speaks of a canonical host, whatever the port.
func (r *Rule) namesHost(host string) bool {
	if r.Upstream != "" {
		return false
	}
	if r.Prefix.IsValid() {
		addr, err := netip.ParseAddr(host)
		return err == nil && r.namesAddr(addr)
	}
	if r.Suffix {
		below, ok := strings.CutSuffix(host, r.Host)
		return ok && len(below) > 1 && below[len(below)-1] == '.'
	}
	return host == r.Host
}

// namesAddr says whether a rule about addresses holds this one.
func (r *Rule) namesAddr(addr netip.Addr) bool {
	return r.Prefix.IsValid() && addr.Zone() == "" && r.Prefix.Contains(addr.Unmap())
}

// namesPort says whether the rule covers the port.
func (r *Rule) namesPort(port uint16) bool {
	if r.Port != 0 {
		return port == r.Port
	}
	return r.Kind == KindDeny || port == 80 || port == 443
}

// ports says which ports the rule covers, for messages.
func (r Rule) ports() string {
	switch {
	case r.Port != 0:
		return "port " + strconv.Itoa(int(r.Port))
	case r.Kind == KindDeny:
		return "every port"
	}
	return "ports 80 and 443"
}
