package policy

import (
	"net/netip"
)

// A Class is a range of addresses that is no part of the public internet.
type Class struct {
	Prefix netip.Prefix
	Name   string // a phrase: "a private address"
	Source string // who says so: "RFC 1918"

	// Nameable says whether a "private" rule may name addresses of the class. Those that stand for another
	// address, or for many, or for none, are never reached.
	Nameable bool
}

// String gives the phrase and its source: "a private address (RFC 1918)".
func (c Class) String() string {
	return c.Name + " (" + c.Source + ")"
}

// ClassifyAddr says what an address is, after unmapping it: (Class{}, true) for one of the public internet, else
// its most specific class. It is the whole of IANA's special-purpose registries and multicast: entries that the
// registries call globally reachable (anycast of relays, AS112, NAT64) are refused too, since no server that an
// agent needs lives there and some of them lead to any other address. In IPv6 only 2000::/3 is public. An address
// with a zone, or none, is never public (D.2).
func ClassifyAddr(a netip.Addr) (Class, bool) {
	if !a.IsValid() || a.Zone() != "" {
		return classOther, false
	}
	a = a.Unmap()
	best, found := Class{}, false
	for _, c := range specialPurpose {
		if c.Prefix.Contains(a) && (!found || c.Prefix.Bits() > best.Prefix.Bits()) {
			best, found = c, true
		}
	}
	if found {
		return best, false
	}
	if a.Is6() && !globalUnicast6.Contains(a) {
		return classOther, false
	}
	return Class{}, true
}

// classifyPrefix is ClassifyAddr of a whole prefix: the most specific class that holds all of it.
func classifyPrefix(p netip.Prefix) (Class, bool) {
	best, found := Class{}, false
	for _, c := range specialPurpose {
		if c.Prefix.Bits() <= p.Bits() && c.Prefix.Contains(p.Addr()) && (!found || c.Prefix.Bits() > best.Prefix.Bits()) {
			best, found = c, true
		}
	}
	return best, found
}

var (
	globalUnicast6 = netip.MustParsePrefix("2000::/3")
	classOther     = Class{Name: "an address outside the public internet", Source: "RFC 4291"}
)

// specialPurpose is a table of facts: IANA's IPv4 and IPv6 special-purpose address registries, the multicast
// ranges, the deprecated forms that older registries held, and the addresses on which clouds answer for the machine.
// testdata/network_special.txt holds it against the registries.
var specialPurpose = []Class{
	// IPv4.
	never("0.0.0.0/8", "an address of this network", "RFC 791"),
	never("0.0.0.0/32", "the unspecified address", "RFC 1122"),
	named("10.0.0.0/8", "a private address", "RFC 1918"),
	named("100.64.0.0/10", "an address shared behind a provider's NAT", "RFC 6598"),
	named("127.0.0.0/8", "a loopback address", "RFC 1122"),
	never("169.254.0.0/16", "a link-local address", "RFC 3927"), // clouds hand out credentials there, on several addresses
	named("172.16.0.0/12", "a private address", "RFC 1918"),
	never("192.0.0.0/24", "an address for protocols", "RFC 6890"),
	never("192.0.0.0/29", "an address of a transition technique", "RFC 7335"),
	never("192.0.0.8/32", "a dummy address", "RFC 7600"),
	never("192.0.0.9/32", "an anycast address of port control", "RFC 7723"),
	never("192.0.0.10/32", "an anycast address of relays", "RFC 8155"),
	never("192.0.0.170/32", "an address for finding NAT64", "RFC 8880"),
	never("192.0.0.171/32", "an address for finding NAT64", "RFC 8880"),
	named("192.0.2.0/24", "an address for documentation", "RFC 5737"),
	never("192.31.196.0/24", "an address of AS112", "RFC 7535"),
	never("192.52.193.0/24", "an address of multicast tunnels", "RFC 7450"),
	never("192.88.99.0/24", "an address of 6to4 relays", "RFC 7526"),
	never("192.88.99.2/32", "an address of 6a44 relays", "RFC 6751"),
	named("192.168.0.0/16", "a private address", "RFC 1918"),
	never("192.175.48.0/24", "an address of AS112", "RFC 7534"),
	named("198.18.0.0/15", "an address for benchmarks", "RFC 2544"),
	named("198.51.100.0/24", "an address for documentation", "RFC 5737"),
	named("203.0.113.0/24", "an address for documentation", "RFC 5737"),
	never("224.0.0.0/4", "a multicast address", "RFC 5771"),
	named("240.0.0.0/4", "a reserved address", "RFC 1112"),
	never("255.255.255.255/32", "the broadcast address", "RFC 919"),
	// What clouds answer on for the machine itself, with its credentials; not all of it is link-local.
	never("100.100.100.200/32", "a cloud's metadata address", "Alibaba Cloud"),
	never("168.63.129.16/32", "a cloud's own service address", "Azure"),
	never("169.254.169.254/32", "a cloud's metadata address", "AWS, Azure, Google Cloud and others"),
	never("169.254.170.2/32", "a cloud's metadata address", "Amazon ECS"),

	// IPv6.
	never("::/128", "the unspecified address", "RFC 4291"),
	named("::1/128", "the loopback address", "RFC 4291"),
	never("::/96", "an IPv4-compatible address", "RFC 4291"),
	never("::ffff:0:0/96", "an IPv4-mapped address", "RFC 4291"),
	never("::ffff:0:0:0/96", "an IPv4-translated address", "RFC 2765"),
	never("64:ff9b::/96", "a NAT64 address", "RFC 6052"),
	never("64:ff9b:1::/48", "a local NAT64 address", "RFC 8215"),
	never("100::/64", "a discard address", "RFC 6666"),
	never("100:0:0:1::/64", "a dummy address", "RFC 9780"),
	never("2001::/23", "an address for protocols", "RFC 2928"),
	never("2001::/32", "a Teredo address", "RFC 4380"),
	never("2001:1::1/128", "an anycast address of port control", "RFC 7723"),
	never("2001:1::2/128", "an anycast address of relays", "RFC 8155"),
	never("2001:1::3/128", "an anycast address of service registration", "RFC 9665"),
	named("2001:2::/48", "an address for benchmarks", "RFC 5180"),
	never("2001:3::/32", "an address of multicast tunnels", "RFC 7450"),
	never("2001:4:112::/48", "an address of AS112", "RFC 7535"),
	never("2001:10::/28", "a deprecated ORCHID", "RFC 4843"),
	never("2001:20::/28", "an ORCHID", "RFC 7343"),
	never("2001:30::/28", "a drone's identifier", "RFC 9374"),
	named("2001:db8::/32", "an address for documentation", "RFC 3849"),
	never("2002::/16", "a 6to4 address", "RFC 3056"),
	never("2620:4f:8000::/48", "an address of AS112", "RFC 7534"),
	never("3ffe::/16", "an address of the former 6bone", "RFC 3701"),
	named("3fff::/20", "an address for documentation", "RFC 9637"),
	never("5f00::/16", "a segment routing identifier", "RFC 9602"),
	named("fc00::/7", "a unique local address", "RFC 4193"),
	never("fd00:42::42/128", "a cloud's metadata address", "Scaleway"),
	never("fd00:100::100:200/128", "a cloud's metadata address", "Alibaba Cloud"),
	never("fd00:a9fe:a9fe::1/128", "a cloud's metadata address", "Akamai Cloud"),
	never("fd00:c1::a9fe:a9fe/128", "a cloud's metadata address", "Oracle Cloud"),
	never("fd00:ec2::/32", "a cloud's metadata address", "AWS"), // ::254 for instances, ::23 for pods, ::253 for names
	never("fd20:ce::254/128", "a cloud's metadata address", "Google Cloud"),
	never("fe80::/10", "a link-local address", "RFC 4291"),
	named("fec0::/10", "a site-local address", "RFC 3879"),
	never("ff00::/8", "a multicast address", "RFC 4291"),
}

func named(prefix, name, source string) Class {
	return Class{Prefix: netip.MustParsePrefix(prefix), Name: name, Source: source, Nameable: true}
}

func never(prefix, name, source string) Class {
	return Class{Prefix: netip.MustParsePrefix(prefix), Name: name, Source: source}
}
