package policy

import "strings"

// FoldName gives the name by which agents tell MCP servers apart, more or less: lower case, and every run of
// characters outside [a-z0-9] is one "_" (B.5). Two servers of the same folded name are one to Handler (P8). render
// uses it for the same end.
func FoldName(name string) string {
	var to strings.Builder
	outside := false
	for _, r := range strings.ToLower(name) {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			to.WriteRune(r)
			outside = false
			continue
		}
		if !outside {
			to.WriteByte('_')
		}
		outside = true
	}
	return to.String()
}
