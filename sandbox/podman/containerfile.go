package podman

import (
	"regexp"
	"slices"
	"strings"
)

var (
	escapeDirective = regexp.MustCompile(`(?i)^#\s*escape\s*=\s*` + "`" + `\s*$`)
	heredocPattern  = regexp.MustCompile(`<<-?\s*["']?([A-Za-z_][A-Za-z0-9_]*)["']?`)
)

// declareArgs writes an ARG for each name into every stage of a Containerfile, after its FROM: a step sees only the
// build arguments that its stage declares, and no other way of podman's gives a variable to the steps and not to the
// image. Everything else stays as it is, byte for byte. It is pure.
func declareArgs(containerfile string, names []string) string {
	if len(names) == 0 {
		return containerfile
	}
	names = slices.Sorted(slices.Values(names))
	var out strings.Builder
	escape := `\`
	var from, inside bool // of an instruction FROM; of any instruction
	var heredocs []string // terminators that are still to come
	for line := range strings.Lines(containerfile) {
		out.WriteString(line)
		text := strings.TrimSpace(line)
		switch {
		case len(heredocs) > 0 && !inside:
			if text == heredocs[0] {
				heredocs = heredocs[1:]
			}
			continue
		case escapeDirective.MatchString(text):
			escape = "`"
			continue
		case strings.HasPrefix(text, "#"), text == "" && !inside:
			continue
		}
		if !inside {
			word, _, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
			from = strings.EqualFold(word, "FROM")
		}
		for _, m := range heredocPattern.FindAllStringSubmatch(text, -1) {
			if !from {
				heredocs = append(heredocs, m[1])
			}
		}
		inside = strings.HasSuffix(text, escape)
		if !inside && from {
			if !strings.HasSuffix(line, "\n") {
				out.WriteByte('\n')
			}
			for _, name := range names {
				out.WriteString("ARG " + name + "\n")
			}
			from = false
		}
	}
	return out.String()
}
