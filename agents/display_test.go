package agents

import (
	"strings"
	"testing"
)

// TestDisplay: what it was before still reads, and is written as it was; what it is not says what it may be.
func TestDisplay(t *testing.T) {
	for text, want := range map[string]Display{"true": DisplayWayland, "false": DisplayNone, `"wayland"`: DisplayWayland, `"vnc"`: DisplayVNC} {
		a, err := Parse("web", "web", []byte("harness = \"demo\"\ndisplay = "+text+"\n"))
		if err != nil || a.Display != want {
			t.Errorf("%s: %v, %v", text, a, err)
			continue
		}
		if again, err := Parse("web", "web", Format(a)); err != nil || again.Display != want {
			t.Errorf("%s written and read: %v, %v", text, again, err)
		}
	}
	for _, text := range []string{`"x11"`, "1", "[]", `""`, "{}"} {
		if a, err := Parse("web", "web", []byte("harness = \"demo\"\ndisplay = "+text+"\n")); err == nil || !strings.Contains(err.Error(), "display") {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
	for size, good := range map[string]bool{"": true, "1600x900": true, "10x10": false, "99999x99999": false, "wide": false, "1280x800x2": false} {
		if err := (&Agent{Name: "web", Harness: "demo", Display: DisplayVNC, DisplaySize: size}).Validate(); (err == nil) != good {
			t.Errorf("display_size %q: %v", size, err)
		}
	}
}
