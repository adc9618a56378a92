package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/handlerd/handler/handlerd/api/client"
)

// ~. at the beginning of a line leaves, ~~ there is one tilde, and anything else passes as it is, however it is cut.
func TestLeaving(t *testing.T) {
	for in, want := range map[string]string{
		"ls\r~.":         "ls\r<left>",
		"~.":             "<left>",
		"ls ~.\rx":       "ls ~.\rx",
		"\r~~.\r":        "\r~.\r",
		"~x~.\n~/a\r~.y": "~x~.\n~/a\r<left>",
		"~":              "",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in))} {
			got, err := io.ReadAll(&leaving{r: r, begin: true})
			text := string(got)
			if errors.Is(err, client.ErrLeave) {
				text += "<left>"
			} else if err != nil {
				t.Errorf("%q: %v", in, err)
			}
			if text != want {
				t.Errorf("%s %q: %q, want %q", name, in, text, want)
			}
		}
	}
}
