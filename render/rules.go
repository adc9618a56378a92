package render

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/policy"
)

// checkRule reads a rule as the proxy will, so that a wrong one is refused before anything starts. A notice is for a
// rule that is right and wide.
func checkRule(r Rule) (notice string, err error) {
	rule, err := policy.ParseRule(r.Kind, r.Text, r.By)
	if err == nil && rule.Shared() {
		notice = fmt.Sprintf("the rule allow %s (%s) lets out to whoever asked for a name under %s", rule, r.By, rule.Host)
	}
	return notice, err
}

// narrowed is what of an upstream is served once the agent has narrowed it (D.9). What the harness does not serve
// cannot be given back by an agent: it would be served with the key.
func narrowed(u harness.Upstream, by agents.Upstream) (methods, paths []string, err error) {
	methods, paths = slices.Clone(u.Methods), slices.Clone(u.Paths)
	for _, m := range by.Methods {
		if !slices.Contains(u.Methods, m) {
			return nil, nil, fmt.Errorf("upstreams.%s.methods: %s is more than the harness serves: %s", u.Name, m, strings.Join(u.Methods, ", "))
		}
	}
	for _, p := range by.Paths {
		if !slices.ContainsFunc(u.Paths, func(wide string) bool { return policy.CoversPath(wide, p) }) {
			return nil, nil, fmt.Errorf("upstreams.%s.paths: %s is more than the harness serves: %s", u.Name, p, strings.Join(u.Paths, ", "))
		}
	}
	if len(by.Methods) > 0 {
		methods = slices.Clone(by.Methods)
	}
	if len(by.Paths) > 0 {
		paths = slices.Clone(by.Paths)
	}
	return methods, paths, nil
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

// A ruleList collects the rules of one network, none twice.
type ruleList struct {
	rules  []Rule
	seen   map[Rule]bool
	notice func(text string) // of a rule that is right and wide
	err    error             // the first
}

func newRuleList() *ruleList {
	return &ruleList{seen: map[Rule]bool{}, notice: func(string) {}}
}

func (l *ruleList) add(kind, by string, texts ...string) {
	for _, text := range texts {
		rule := Rule{Kind: kind, Text: text, By: by}
		if l.seen[rule] || l.err != nil {
			continue
		}
		l.seen[rule] = true
		notice, err := checkRule(rule)
		if err != nil {
			l.err = err
			return
		}
		l.rules = append(l.rules, rule)
		if notice != "" {
			l.notice(notice)
		}
	}
}

// addNetwork adds what a person wrote.
func (l *ruleList) addNetwork(by string, n agents.Network) {
	l.add(RuleAllow, by, n.Allow...)
	l.add(RuleDeny, by, n.Deny...)
	l.add(RulePrivate, by, n.Private...)
	for _, name := range n.Presets {
		texts, err := presetRules(name)
		if err != nil && l.err == nil {
			l.err = err
		}
		l.add(RuleAllow, "preset "+name, texts...)
	}
}
