package arch

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestMessageBounds holds the bounds of a message on the page, as limits.md names them, against the page's own.
func TestMessageBounds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "handlerd/web/page/src/model/attach.ts"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "export const bounds = {")
	block, _, _ = strings.Cut(block, "}")
	code := map[string]int64{}
	for _, m := range regexp.MustCompile(`(\w+): ([\d *]+),`).FindAllStringSubmatch(block, -1) {
		n := int64(1)
		for factor := range strings.SplitSeq(m[2], "*") {
			f, err := strconv.ParseInt(strings.TrimSpace(factor), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			n *= f
		}
		code[m[1]] = n
	}
	manual := map[string]int64{}
	units := map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20}
	for _, row := range rows(t, "limits.md", "of one message") {
		number, unit, _ := strings.Cut(row[1], " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if names := spans(row[3]); err != nil || len(names) != 1 || units[unit] == 0 {
			t.Fatalf("%q", row)
		} else {
			manual[names[0]] = n * units[unit]
		}
	}
	if len(code) == 0 || !maps.Equal(code, manual) {
		t.Errorf("limits.md says %v, and the page has %v", manual, code)
	}
}
