package agents

import (
	"strings"
	"testing"
	"time"
)

func TestBrowserTable(t *testing.T) {
	parse := func(text string) (*Agent, error) {
		return Parse("web", "web.toml", []byte("harness = \"demo\"\n[browser]\n"+text))
	}
	a, err := parse("network = \"rules\"\nread_only = true\nlifetime = \"10m\"\nsearch = \"https://find.example.org/?q=%s&x=1\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if life, err := a.Browser.Life(); err != nil || life != 10*time.Minute || !a.Browser.ReadOnly || a.Browser.Network != BrowserRules {
		t.Errorf("%+v %v %v", a.Browser, life, err)
	}
	again, err := Parse("web", "web.toml", Format(a))
	if err != nil || again.Browser != a.Browser {
		t.Errorf("written and read again: %+v, %v", again, err)
	}
	if life, err := new(Agent).Browser.Life(); err != nil || life != DefaultBrowserLife {
		t.Errorf("%v %v", life, err)
	}
	for text, want := range map[string]string{
		"network = \"all\"":    "browser.network",
		"network = \"Public\"": "browser.network",
		"lifetime = \"16m\"":   "browser.lifetime",
		"lifetime = \"none\"":  "browser.lifetime",
		"lifetime = \"-5m\"":   "browser.lifetime",
		"readonly = true":      "readonly",

		"search = \"find.example.org/%s\"":                  "browser.search",
		"search = \"https://find.example.org/\"":            "browser.search",
		"search = \"https://%s.example.org/\"":              "browser.search",
		"search = \"https://find.example.org/%s/%s\"":       "browser.search",
		"search = \"file:///tmp/%s\"":                       "browser.search",
		"search = \"https://me:pw@find.example.org/?q=%s\"": "browser.search",
		"search = \"https://find.example.org/#%s\"":         "browser.search",
	} {
		if _, err := parse(text + "\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
