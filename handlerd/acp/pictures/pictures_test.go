package pictures

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every shape in which an agent of today sends a picture is found, and nothing that only looks like one.
func TestFind(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1) + `{"type":"image","data":"deep"}` + strings.Repeat("]", maxDepth+1)
	many := "[" + strings.Repeat("[],", maxNodes) + `{"type":"image","data":"many"}]`
	for _, test := range []struct {
		name, raw string
		want      []string
	}{
		{"ACP content", `[{"type":"content","content":{"type":"image","data":"a","mimeType":"image/gif"}}]`, []string{"a"}},
		{"MCP result", `{"content":[{"type":"text","text":"x"},{"type":"image","data":"a"}]}`, []string{"a"}},
		{"codex", `{"result":{"content":[{"type":"image","data":"a"}]}}`, []string{"a"}},
		{"Anthropic", `[{"type":"image","source":{"type":"base64","data":"a","media_type":"image/gif"}}]`, []string{"a"}},
		{"resource", `[{"type":"content","content":{"type":"resource","resource":{"uri":"x","blob":"a","mimeType":"image/gif"}}}]`, []string{"a"}},
		{"a chunk", `{"type":"image","data":"data:image/gif;base64,a"}`, []string{"data:image/gif;base64,a"}},
		{"escaped", `{"type":"image","data":"a\/b"}`, []string{"a/b"}},
		{"several", `[{"type":"image","data":"a"},{"type":"image","data":"b"}]`, []string{"a", "b"}},
		{"a file", `{"type":"resource","resource":{"uri":"x","blob":"a","mimeType":"application/pdf"}}`, nil},
		{"meta", `{"_meta":{"content":[{"type":"image","data":"a"}]}}`, nil},
		{"audio", `{"type":"audio","data":"a"}`, nil},
		{"no string", `{"type":"image","data":["a"],"source":"data"}`, nil},
		{"too deep", deep, nil},
		{"too many", many, nil},
		{"no JSON", `{"type":"image","data":"a"`, nil},
		{"words", `"the \"data\" of an image"`, nil},
	} {
		var got []string
		Find([]byte(test.raw), func(b64 string) { got = append(got, b64) })
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestDecode(t *testing.T) {
	gif := base64.StdEncoding.EncodeToString([]byte("GIF89a!"))
	for _, test := range []struct{ name, b64, ext, want string }{
		{"gif", gif, "gif", ""},
		{"no padding", strings.TrimRight(gif, "="), "gif", ""},
		{"data URL", "data:image/png;base64," + gif, "gif", ""},
		{"svg", "PHN2Zy8+", "", "no png, jpeg, webp or gif"},
		{"nothing", "", "", "no png, jpeg, webp or gif"},
		{"no base64", "%%%", "", "not valid base64"},
		{"too large", strings.Repeat("A", MaxBytes/3*4+100), "", "over the bound of 20 MiB"},
	} {
		_, _, ext, err := Decode(test.b64)
		if ext != test.ext || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %q, %v", test.name, ext, err)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte(`[{"type":"image","source":{"data":"a"}},{"blob":"b","mimeType":"image/x"}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n := 0
		Find(raw, func(string) { n++ })
		if n > 3*maxNodes {
			t.Error(fmt.Sprint(n, " pictures"))
		}
	})
}
