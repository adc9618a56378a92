package policy

import (
	"fmt"
	"slices"
	"strings"
)

// networkPresets is a table of facts: the hosts from which each ecosystem's own tools fetch.
var networkPresets = map[string][]string{
	"crates": {"crates.io", "index.crates.io", "static.crates.io"},
	"debian": {"deb.debian.org", "security.debian.org"},
	"github": {
		"github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com",
		"objects.githubusercontent.com", "release-assets.githubusercontent.com", "uploads.github.com",
	},
	"go":   {"proxy.golang.org", "sum.golang.org"},
	"npm":  {"registry.npmjs.org", "registry.yarnpkg.com"},
	"pypi": {"pypi.org", "files.pythonhosted.org"},
}

// Presets gives the texts of the allow rules that a preset stands for (D.4).
func Presets(name string) ([]string, error) {
	rules, ok := networkPresets[name]
	if !ok {
		return nil, fmt.Errorf("there is no network preset %s: there are %s", quoteHost(name), strings.Join(PresetNames(), ", "))
	}
	return slices.Clone(rules), nil
}

// PresetNames lists the presets in order.
func PresetNames() []string {
	names := make([]string, 0, len(networkPresets))
	for name := range networkPresets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
