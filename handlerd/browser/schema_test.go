package browser

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// TestSchemas: every tool's schema is one, says no to what it does not name, requires what it has, and nothing in it
// could carry code, a selector, coordinates or a secret (F.1, F.5).
func TestSchemas(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)^(code|function|script|filename|selector|x|y|password|token|secret|apikey)$`)
	seen := map[string]bool{}
	for _, tool := range tools() {
		if seen[tool.name] || !strings.HasPrefix(tool.name, "browser_") {
			t.Errorf("%s is there twice or misnamed", tool.name)
		}
		seen[tool.name] = true
		var schema struct {
			Properties           map[string]json.RawMessage `json:"properties"`
			Required             []string                   `json:"required"`
			AdditionalProperties *bool                      `json:"additionalProperties"`
		}
		if err := json.Unmarshal(tool.definition().RawInputSchema, &schema); err != nil {
			t.Fatalf("%s: %v", tool.name, err)
		}
		if schema.AdditionalProperties == nil || *schema.AdditionalProperties {
			t.Errorf("%s takes anything", tool.name)
		}
		for name := range schema.Properties {
			if forbidden.MatchString(name) {
				t.Errorf("%s takes %s", tool.name, name)
			}
		}
		for _, name := range schema.Required {
			if schema.Properties[name] == nil {
				t.Errorf("%s requires %s, which it does not have", tool.name, name)
			}
		}
		if ro := tool.definition().Annotations.ReadOnlyHint; *ro != (tool.kind == reads) {
			t.Errorf("%s says of itself that readOnly is %v", tool.name, *ro)
		}
	}
}
