package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/handlerd/handler/handlerd/fault"
)

// An agent chooses names of files, and they come back in errors, hints and tables: none may speak to the terminal.
func TestNoEscapesInErrors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const evil = "/x/\x1b]0;PWNED\x07\x1b[2J\u202e/\x9b31m"
	u := newUI(os.Stdin, w, w, func(string) string { return "" })
	code := u.exit(fault.New(fault.Refused, "name it: "+evil, "the scope leads out, to %s", evil))
	u.say("%s", evil)
	if err := table(w, [][]string{{"AGENT", "SCOPES"}, {"web", evil}}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if code != 3 {
		t.Errorf("exit code %d", code)
	}
	if i := strings.IndexFunc(string(out), func(c rune) bool {
		return c < ' ' && c != '\n' || c == 0x7f || c >= 0x80 && c < 0xa0 || c == 0x202e
	}); i >= 0 {
		t.Errorf("control character at %d of %q", i, out)
	}
	if !strings.Contains(string(out), "leads out, to /x/") {
		t.Errorf("the text itself is gone: %q", out)
	}
}
