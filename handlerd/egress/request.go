package egress

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/handlerd/handler/policy"
)

// decide asks the rules about what the agent named: a request of plain http with its method and path, anything else
// by host and port.
func (d destination) decide(rules policy.Network) policy.Verdict {
	if d.plain {
		return rules.DecideRequest(d.request())
	}
	return rules.Decide(d.host, d.port)
}

// decideResolved asks them about the answers.
func (d destination) decideResolved(rules policy.Network, addrs []netip.Addr) (policy.Verdict, netip.Addr) {
	if d.plain {
		return rules.DecideRequestResolved(d.request(), addrs)
	}
	return rules.DecideResolved(d.host, d.port, addrs)
}

func (d destination) request() policy.Request {
	return policy.Request{Method: d.method, Host: d.host, Port: d.port, Path: d.path}
}

// overrideHeaders have some servers take a request for another than its line says.
var overrideHeaders = []string{
	"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Override-Url",
}

// overrides says whether a header of the agent's is one of overrideHeaders to some server: to those behind a gateway that
// makes variables of them, an underscore is a hyphen.
func overrides(name string) bool {
	name = strings.ReplaceAll(name, "_", "-")
	return slices.ContainsFunc(overrideHeaders, func(o string) bool { return strings.EqualFold(o, name) })
}

// overridden refuses a request whose headers say another method or path, where the rules look at those of its host.
func overridden(d destination, rules policy.Network, h http.Header) *failure {
	for name := range h {
		if overrides(name) && rules.LooksAtRequests(d.host, d.port) {
			return refusal(policy.Verdict{Action: policy.Refuse, Rule: "D.4",
				Reason: "the header " + name + " would have the server take the request for another than the rules of agent \"" + rules.Agent + "\" judge",
				Hint:   "leave the header out"}, netip.Addr{})
		}
	}
	return nil
}
