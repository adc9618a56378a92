package guestwire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/guestwire"
)

func frames() []guestwire.Frame {
	return []guestwire.Frame{
		{Kind: guestwire.Hello, Version: guestwire.Version},
		{Kind: guestwire.Started, PID: 2},
		{Kind: guestwire.Stderr, Data: bytes.Repeat([]byte{0, 0xff, '\n'}, guestwire.MaxStderr/3), Dropped: 7},
		{Kind: guestwire.Stderr, Data: []byte{}, Dropped: 1 << 40},
		{Kind: guestwire.Exit, Code: 143, Signal: "TERM"},
		{Kind: guestwire.Exit, Code: 0},
		{Kind: guestwire.Failed, Text: "no command \"x\"\n\u2028<é>"},
		{Kind: guestwire.Signal, Signal: "USR1"},
		{Kind: guestwire.Written},
		{Kind: guestwire.Shell, Token: "ABC234"},
		{Kind: guestwire.Dial, Token: "ABC234", Port: 65535},
	}
}

// Every kind survives the wire, and no frame is longer than the bound.
func TestRoundTrip(t *testing.T) {
	var wire []byte
	for _, f := range frames() {
		before := len(wire)
		var err error
		if wire, err = guestwire.Append(wire, f); err != nil {
			t.Fatalf("append %s: %v", f.Kind, err)
		}
		if n := len(wire) - before; n > guestwire.MaxFrame {
			t.Errorf("%s has %d bytes", f.Kind, n)
		}
	}
	r := guestwire.NewReader(bytes.NewReader(wire))
	for _, want := range frames() {
		got, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", want.Kind, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", want.Kind, d)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("end: %v, want io.EOF", err)
	}
}

// What is not exactly a frame is refused.
func TestParseRefuses(t *testing.T) {
	for _, line := range []string{
		``, `null`, `[]`, `"hello"`, `{}`, `{"type":"hello"}`, `{"type":"hello","version":0}`,
		`{"type":"hello","version":1.5}`, `{"type":"hello","version":"1"}`, `{"type":"hello","version":1}x`,
		`{"type":"hello","version":1} {}`, `{"type":"hello","version":1,"version":1}`, `{"type":"hello","Version":1}`,
		`{"Type":"hello","version":1}`, `{"type":"hello","version":1,"more":1}`, `{"type":"nope"}`, `{"type":1}`,
		`{"type":"started","pid":0}`, `{"type":"started","pid":-1}`, `{"type":"started","pid":99999999999}`,
		`{"type":"exit","code":256,"signal":""}`, `{"type":"exit","code":1,"signal":"te rm"}`, `{"type":"exit","code":1}`,
		`{"type":"stderr","data":"*","dropped":0}`, `{"type":"stderr","data":"","dropped":-1}`,
		`{"type":"stderr","data":["a"],"dropped":0}`, `{"type":"stderr","data":{"a":1},"dropped":0}`,
		`{"type":"failed","text":""}`, `{"type":"failed","text":"` + strings.Repeat("x", guestwire.MaxText+1) + `"}`,
		`{"type":"signal","name":"STOP"}`, `{"type":"signal","name":""}`, "{\"type\":\"failed\",\"text\":\"\xff\"}",
		`{"type":"written"`, `{"type":"written","x":null}`,
		`{"type":"dial","token":"a","port":0}`, `{"type":"dial","token":"a","port":65536}`, `{"type":"dial","token":"a","port":"80"}`,
		`{"type":"dial","token":"","port":80}`, `{"type":"dial","token":"a b","port":80}`, `{"type":"dial","token":"a"}`, `{"type":"dial","port":80}`,
		`{"type":"shell","token":"a","port":80}`,
	} {
		if f, err := guestwire.Parse([]byte(line)); err == nil {
			t.Errorf("%s: parsed as %+v", line, f)
		}
	}
}

func TestReaderBounds(t *testing.T) {
	long := strings.Repeat("x", guestwire.MaxFrame) + "\n"
	if _, err := guestwire.NewReader(strings.NewReader(long)).Next(); !errors.Is(err, guestwire.ErrFrameTooLong) {
		t.Errorf("long: %v", err)
	}
	if _, err := guestwire.NewReader(strings.NewReader(`{"type":`)).Next(); err != io.ErrUnexpectedEOF {
		t.Errorf("cut: %v", err)
	}
}

// Long and broken text is cut to what the other side takes.
func TestAppendCutsText(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", guestwire.MaxText), "\xff\xfe", strings.Repeat("\xff", 2*guestwire.MaxText)} {
		line, err := guestwire.Append(nil, guestwire.Frame{Kind: guestwire.Failed, Text: text})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := guestwire.Parse(line[:len(line)-1]); err != nil {
			t.Error(err)
		}
	}
}

func TestFilesRoundTrip(t *testing.T) {
	for _, files := range [][]sandbox.File{
		nil,
		{{Path: "/a", Mode: 0o600}},
		{{Path: "/a/b", Mode: 0o400, Content: []byte("secret")}, {Path: "/c", Mode: 0o755, Content: bytes.Repeat([]byte("x"), 1<<20)}},
	} {
		var wire bytes.Buffer
		if err := guestwire.WriteFiles(&wire, files); err != nil {
			t.Fatal(err)
		}
		whole := wire.Bytes()
		var got []sandbox.File
		err := guestwire.ReadFiles(bytes.NewReader(whole), func(name string, mode fs.FileMode, size int64, r io.Reader) error {
			b, err := io.ReadAll(r)
			if len(b) == 0 {
				b = nil
			}
			got = append(got, sandbox.File{Path: name, Mode: mode, Content: b})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(files, got, cmp.Comparer(bytes.Equal)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		// Cut anywhere, it is an error and never a shorter transfer.
		for _, n := range []int{0, 5, len(whole) / 2, len(whole) - 1} {
			if err := guestwire.ReadFiles(bytes.NewReader(whole[:n]), ignore); err == nil {
				t.Errorf("cut at %d of %d: no error", n, len(whole))
			}
		}
	}
}

func ignore(string, fs.FileMode, int64, io.Reader) error { return nil }

func TestCheckFiles(t *testing.T) {
	many := make([]sandbox.File, guestwire.MaxFiles+1)
	for i := range many {
		many[i].Path = fmt.Sprintf("/%d", i)
	}
	for name, files := range map[string][]sandbox.File{
		"relative": {{Path: "a"}}, "root": {{Path: "/"}}, "dots": {{Path: "/a/../b"}}, "empty": {{}}, "nul": {{Path: "/a\x00b"}},
		"twice": {{Path: "/a"}, {Path: "/a"}}, "setuid": {{Path: "/a", Mode: fs.ModeSetuid | 0o755}},
		"large": {{Path: "/a", Content: make([]byte, guestwire.MaxFileBytes+1)}}, "many": many,
	} {
		var spec *sandbox.SpecError
		if err := guestwire.CheckFiles(files); !errors.As(err, &spec) || spec.Field != "files" {
			t.Errorf("%s: %v, want a *sandbox.SpecError", name, err)
		}
	}
}

// FuzzGuestFrame: no line panics, and what parses is written and parsed again to the same frame.
func FuzzGuestFrame(f *testing.F) {
	for _, fr := range frames() {
		line, err := guestwire.Append(nil, fr)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line[:len(line)-1])
	}
	f.Add([]byte(`{"type":"hello","version":1,"version":2}`))
	f.Add([]byte(`{"type":"exit","code":1e2,"signal":"K\u0049LL"}`))
	f.Add([]byte(" {\t\"type\" : \"written\" } "))
	f.Fuzz(func(t *testing.T, line []byte) {
		got, err := guestwire.Parse(line)
		if err != nil {
			return
		}
		again, err := guestwire.Append(nil, got)
		if err != nil {
			t.Fatalf("parsed but not written: %+v: %v", got, err)
		}
		back, err := guestwire.Parse(again[:len(again)-1])
		if err != nil || !cmp.Equal(got, back) {
			t.Fatalf("%+v became %+v (%v)", got, back, err)
		}
	})
}

// FuzzFiles: no stream panics, and nothing out of bounds is delivered.
func FuzzFiles(f *testing.F) {
	var wire bytes.Buffer
	if err := guestwire.WriteFiles(&wire, []sandbox.File{{Path: "/a/b", Mode: 0o600, Content: []byte("x")}}); err != nil {
		f.Fatal(err)
	}
	f.Add(wire.Bytes())
	f.Add([]byte("handler-files 1\n\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = guestwire.ReadFiles(bytes.NewReader(b), func(name string, mode fs.FileMode, size int64, _ io.Reader) error {
			if err := guestwire.CheckFiles([]sandbox.File{{Path: name, Mode: mode}}); err != nil || size > guestwire.MaxFileBytes {
				t.Fatalf("delivered %q %v %d: %v", name, mode, size, err)
			}
			return nil
		})
	})
}
