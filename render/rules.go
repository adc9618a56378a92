package render

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/handlerd/handler/policy"
)

// checkRule reads a rule as the proxy will, so that a wrong one is refused before anything starts.
func checkRule(r Rule) error {
	_, err := policy.ParseRule(r.Kind, r.Text, r.By)
	return err
}

// presetRules gives the allow rules that a preset stands for.
func presetRules(name string) ([]string, error) { return policy.Presets(name) }

// serverRule is the network rule that an http or sse server needs: its host and port, by a private rule where the
// URL has an address that is not public.
func serverRule(url string) (kind, text string, err error) {
	host, port, err := policy.ParseURL(url)
	if err != nil {
		return "", "", err
	}
	kind = RuleAllow
	if addr, err := netip.ParseAddr(host); err == nil {
		if _, public := policy.ClassifyAddr(addr); !public {
			kind = RulePrivate
		}
		if addr.Is6() {
			host = "[" + host + "]"
		}
	}
	return kind, strings.TrimSuffix(host, ".") + ":" + strconv.Itoa(int(port)), nil
}
