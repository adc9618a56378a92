package view

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

// A dialogue is a side that says what it says whatever it hears.
type dialogue struct {
	io.Reader
	heard bytes.Buffer
}

func (d *dialogue) Write(b []byte) (int, error) { return d.heard.Write(b) }

func says(b []byte) *dialogue { return &dialogue{Reader: bytes.NewReader(b)} }

// changed is a good beginning of a display with one byte changed.
func changed(at int, b byte) []byte {
	all := hello()
	all[at] = b
	return all
}

// TestGreet: a display that begins as it should is answered without a password, shared; any other ends the view.
func TestGreet(t *testing.T) {
	d := says(hello())
	s, err := greet(d)
	if err != nil || s != small || d.heard.String() != version+"\x01\x01" {
		t.Errorf("%+v, %q, %v", s, d.heard.String(), err)
	}
	at := len(version)
	for name, c := range map[string]struct {
		says []byte
		want string
	}{
		"another revision":    {[]byte("RFB 003.003\n"), "speaks no"},
		"something else":      {[]byte("SSH-2.0-OpenSSH_9.2\r\n"), "speaks no"},
		"nobody is let in":    {append([]byte(version), 0), "lets nobody in"},
		"many ways":           {append([]byte(version), maxSecurity+1), "lets nobody in"},
		"a password":          {append([]byte(version), 1, 2), "a password"},
		"refused":             {changed(at+5, 1), "refused"},
		"no width":            {changed(at+7, 0), "0x4"},
		"much width":          {changed(at+6, 0xff), "pixels"},
		"other pixels":        {changed(at+10, 16), "pixels"},
		"a name without end":  {changed(at+26, 0xff), "bytes at once"},
		"a name a bit longer": {append(hello()[:at+26], binary.BigEndian.AppendUint32(nil, maxName+1)...), "bytes at once"},
	} {
		var protocol *ProtocolError
		if _, err := greet(says(c.says)); !errors.As(err, &protocol) || protocol.FromViewer || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range len(hello()) {
		if _, err := greet(says(hello()[:n])); unexpected(err) != io.ErrUnexpectedEOF {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

// TestReceive: a viewer is told the display's size and a name of our own, and nothing of the display's words.
func TestReceive(t *testing.T) {
	good := version + "\x01\x01"
	d := says([]byte(good))
	if err := receive(d, small, "ours"); err != nil {
		t.Fatal(err)
	}
	want := append([]byte(version), 1, securityNone, 0, 0, 0, 0, 0, 8, 0, 4)
	want = append(append(want, stillFormat[:]...), 0, 0, 0, 4)
	if got := d.heard.Bytes(); !bytes.Equal(got, append(want, "ours"...)) {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"RFB 003.003\n\x01\x01", "GET / HTTP/1.1\r\n", version + "\x02\x01"} {
		var protocol *ProtocolError
		if err := receive(says([]byte(bad)), small, ""); !errors.As(err, &protocol) || !protocol.FromViewer {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for n := range len(good) {
		if err := receive(says([]byte(good[:n])), small, ""); unexpected(err) != io.ErrUnexpectedEOF {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

// FuzzGreeting: whatever either side begins with, it is not believed beyond bounds, and what we say does not depend on it.
func FuzzGreeting(f *testing.F) {
	f.Add(hello())
	f.Add([]byte(version + "\x01\x01"))
	f.Add(append([]byte(version), 2, 2, 1, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, said []byte) {
		d := says(said)
		s, err := greet(d)
		if err == nil && (checkSize(s.width, s.height) != nil || checkFormat(s.format[:]) != nil) {
			t.Fatalf("%+v", s)
		}
		if !strings.HasPrefix(version+"\x01\x01", d.heard.String()) {
			t.Fatalf("we said %q", d.heard.String())
		}
		d = says(said)
		if err := receive(d, small, "ours"); err == nil && !bytes.HasPrefix(said, []byte(version+"\x01")) {
			t.Fatalf("%q was let in", said)
		}
	})
}
