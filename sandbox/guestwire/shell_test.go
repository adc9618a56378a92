package guestwire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/sandbox/guestwire"
)

func shellFrames() []guestwire.ShellFrame {
	return []guestwire.ShellFrame{
		{Kind: guestwire.ShellToken, Data: []byte("ABC234")},
		{Kind: guestwire.ShellStarted},
		{Kind: guestwire.ShellOutput, Data: bytes.Repeat([]byte{0xff}, guestwire.MaxShellData)},
		{Kind: guestwire.ShellErrors, Data: []byte{0}},
		{Kind: guestwire.ShellTaken, Taken: guestwire.ShellWindow},
		{Kind: guestwire.ShellExit, Code: 255, Signal: "RTMIN+1"},
		{Kind: guestwire.ShellFailed, Text: "no"},
		{Kind: guestwire.ShellOpen, Open: guestwire.ShellRequest{Argv: []string{"sh", "-c", "", "é"}, Terminal: true, Term: "xterm-256color", Rows: 1, Cols: 65535}},
		{Kind: guestwire.ShellInput, Data: []byte("x")},
		{Kind: guestwire.ShellInputEnd},
		{Kind: guestwire.ShellResize, Rows: 24, Cols: 80},
	}
}

func TestShellRoundTrip(t *testing.T) {
	var wire bytes.Buffer
	w := guestwire.NewShellWriter(&wire)
	for _, f := range shellFrames() {
		if err := w.Write(f); err != nil {
			t.Fatalf("%c: %v", f.Kind, err)
		}
	}
	whole := wire.Bytes()
	r := guestwire.NewShellReader(bytes.NewReader(whole))
	for _, want := range shellFrames() {
		got, err := r.Next()
		if err != nil {
			t.Fatalf("%c: %v", want.Kind, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	r = guestwire.NewShellReader(bytes.NewReader(whole[:3]))
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut: %v", err)
	}
}

// What is out of bounds is refused by both ends.
func TestShellRefuses(t *testing.T) {
	many := make([]string, 257)
	for i := range many {
		many[i] = "x"
	}
	for name, f := range map[string]guestwire.ShellFrame{
		"kind": {Kind: 'z'}, "no data": {Kind: guestwire.ShellInput}, "nothing taken": {Kind: guestwire.ShellTaken},
		"long":       {Kind: guestwire.ShellOutput, Data: make([]byte, guestwire.MaxShellData+1)},
		"taken":      {Kind: guestwire.ShellTaken, Taken: guestwire.ShellWindow + 1},
		"signal":     {Kind: guestwire.ShellExit, Signal: "\x1b[2J"},
		"term":       {Kind: guestwire.ShellOpen, Open: guestwire.ShellRequest{Term: "../x"}},
		"words":      {Kind: guestwire.ShellOpen, Open: guestwire.ShellRequest{Argv: many}},
		"nul":        {Kind: guestwire.ShellOpen, Open: guestwire.ShellRequest{Argv: []string{"a\x00b"}}},
		"no name":    {Kind: guestwire.ShellOpen, Open: guestwire.ShellRequest{Argv: []string{"", "x"}}},
		"long words": {Kind: guestwire.ShellOpen, Open: guestwire.ShellRequest{Argv: []string{strings.Repeat("x", guestwire.MaxShellData)}}},
		"token":      {Kind: guestwire.ShellToken, Data: make([]byte, 65)},
	} {
		if _, err := guestwire.AppendShell(nil, f); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	for name, wire := range map[string]string{
		"length": "i\x7f\xff\xff\xff", "resize": "r\x00\x00\x00\x01x", "text": "f\x00\x00\x00\x01\xff",
		"open": "o\x00\x00\x00\x0d{\"argv\":null}", "more": "o\x00\x00\x00\x04{}{}", "key": "o\x00\x00\x00\x0a{\"env\":[]} ",
	} {
		f, err := guestwire.NewShellReader(strings.NewReader(wire)).Next()
		if name == "open" {
			if err != nil || f.Open.Terminal {
				t.Errorf("%s: %+v, %v", name, f, err)
			}
		} else if err == nil {
			t.Errorf("%s: read as %+v", name, f)
		}
	}
}

// FuzzShellFrame: no stream panics, and what is read is written and read again to the same frame.
func FuzzShellFrame(f *testing.F) {
	for _, fr := range shellFrames() {
		line, err := guestwire.AppendShell(nil, fr)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Add([]byte("o\x00\x00\x00\x12{\"argv\":[\"\\u0000\"]}"))
	f.Add([]byte("i\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := guestwire.NewShellReader(bytes.NewReader(wire))
		for {
			got, err := r.Next()
			if err != nil {
				return
			}
			again, err := guestwire.AppendShell(nil, got)
			if err != nil {
				t.Fatalf("read but not written: %+v: %v", got, err)
			}
			back, err := guestwire.NewShellReader(bytes.NewReader(again)).Next()
			if err != nil || !cmp.Equal(got, back) {
				t.Fatalf("%+v became %+v (%v)", got, back, err)
			}
		}
	})
}
