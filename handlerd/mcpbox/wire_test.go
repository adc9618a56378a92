package mcpbox

import (
	"net"
	"strings"
	"testing"
)

// TestIntricate: a message of many small values, which would take up far more memory than it is long, ends its box; one long text does
// not.
func TestIntricate(t *testing.T) {
	for line, want := range map[string]bool{
		`{"result":[` + strings.Repeat("[],", wireParts) + `[]]}`: true, `{"result":"` + strings.Repeat(`[],\"{`, wireParts) + `"}`: false,
		strings.Repeat("[", wireParts+1): true, `"` + strings.Repeat(`\\`, wireParts) + `"`: false,
	} {
		ours, theirs := net.Pipe()
		w := newWire(ours, "it", nil)
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, _ = theirs.Write([]byte(line + "\n"))
		_, _ = theirs.Write([]byte("{}\n")) // it was read by now
		if ended := w.why() != nil; ended != want {
			t.Errorf("%.40s…: ended %v", line, ended)
		}
		w.Close()
		theirs.Close()
	}
}
