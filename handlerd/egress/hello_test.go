package egress

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// greeting gives what a TLS client says first.
func greeting(t testing.TB, conf *tls.Config) []byte {
	t.Helper()
	var sent bytes.Buffer
	err := tls.Client(recorder{&helloConn{Reader: strings.NewReader("")}, &sent}, conf).HandshakeContext(context.Background())
	if err == nil || sent.Len() == 0 {
		t.Fatalf("no greeting: %v", err)
	}
	return sent.Bytes()
}

// A recorder is a connection whose writes are kept and whose peer says nothing.
type recorder struct {
	*helloConn
	to io.Writer
}

func (r recorder) Write(p []byte) (int, error) { return r.to.Write(p) }

// records splits a greeting's one record into several of n bytes each.
func records(hello []byte, n int) []byte {
	var out []byte
	for body := hello[5:]; len(body) > 0; {
		part := body[:min(n, len(body))]
		out = append(out, hello[0], hello[1], hello[2], byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
		body = body[len(part):]
	}
	return out
}

// withExtension adds an extension at the end of a greeting of one record.
func withExtension(hello []byte, kind uint16, data []byte) []byte {
	b := bytes.Clone(hello)
	at := 5 + 4 + 2 + 32                           // the session id
	at += 1 + int(b[at])                           // the cipher suites
	at += 2 + int(binary.BigEndian.Uint16(b[at:])) // the compressions
	at += 1 + int(b[at])                           // the length of the extensions
	added := binary.BigEndian.AppendUint16(nil, kind)
	added = binary.BigEndian.AppendUint16(added, uint16(len(data)))
	added = append(added, data...)
	grow := func(at int) { binary.BigEndian.PutUint16(b[at:], binary.BigEndian.Uint16(b[at:])+uint16(len(added))) }
	grow(at) // extensions
	grow(7)  // handshake
	grow(3)  // record
	return append(b, added...)
}

// echConfig is a list with one configuration for encrypted greetings, whose outer name is public.
func echConfig(t testing.TB, public string) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := []byte{7, 0, 0x20, 0, 32} // id, DHKEM(X25519), key
	c = append(c, key.PublicKey().Bytes()...)
	c = append(c, 0, 4, 0, 1, 0, 1, 32, byte(len(public))) // HKDF-SHA256, AES-128-GCM, longest name
	c = append(append(c, public...), 0, 0)
	c = append([]byte{0xfe, 0x0d, byte(len(c) >> 8), byte(len(c))}, c...)
	return append([]byte{byte(len(c) >> 8), byte(len(c))}, c...)
}

// greaseECH is an encrypted greeting that is none: random bytes in its form (RFC 9849, 6.2).
func greaseECH() []byte {
	b := append([]byte{0, 0, 1, 0, 1, 42, 0, 32}, bytes.Repeat([]byte{7}, 32)...)
	return append(append(b, 0, 208), bytes.Repeat([]byte{9}, 208)...)
}

// greetings are what clients send, by the name that is seen in them.
func greetings(t testing.TB) map[string][][]byte {
	plain := greeting(t, &tls.Config{ServerName: "srv.example"})
	return map[string][][]byte{
		"srv.example": {
			plain, records(plain, 100), records(plain, 1),
			withExtension(plain, 0x2a2a, []byte{0}),   // GREASE (RFC 8701)
			withExtension(plain, 0xfe0d, greaseECH()), // as Chromium sends to servers that it has no key of
			greeting(t, &tls.Config{ServerName: "srv.example", MaxVersion: tls.VersionTLS12}),
			greeting(t, &tls.Config{ServerName: "srv.example", NextProtos: []string{"h2", "http/1.1"}}),
		},
		"outer.example": {
			// The name within an encrypted greeting is not seen: what is compared is the outer one.
			greeting(t, &tls.Config{ServerName: "inner.example", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echConfig(t, "outer.example")}),
		},
		"": {greeting(t, &tls.Config{InsecureSkipVerify: true}), greeting(t, &tls.Config{ServerName: "192.0.2.1"})},
	}
}

func TestReadHello(t *testing.T) {
	for want, all := range greetings(t) {
		for i, hello := range all {
			for _, first := range []int{1, 3, 6, 50, len(hello)} { // how much comes at once
				rest := &helloConn{Reader: oneByte{bytes.NewReader(hello[first:])}}
				got, name, err := readHello(rest, hello[:first], time.Now().Add(time.Minute))
				if err != nil || name != want || !bytes.Equal(got, hello) {
					t.Errorf("%q, %d, first %d: %q, %d of %d bytes, %v", want, i, first, name, len(got), len(hello), err)
				}
			}
		}
	}
	for _, bad := range [][]byte{
		{tlsHandshake}, []byte("\x16\x03\x01\x00\x00"), []byte("\x16garbage in every byte of it"), bytes.Repeat([]byte{tlsHandshake, 3, 1, 0, 1, 1}, maxHello/6+1),
		append([]byte{tlsHandshake, 3, 1, 0x40, 0}, make([]byte, 1<<14)...),
		withExtension(greeting(t, &tls.Config{ServerName: "srv.example"}), 0xfe0d, []byte("not a valid one")),
	} {
		if _, name, err := readHello(&helloConn{Reader: strings.NewReader("")}, bad, time.Now()); err == nil {
			t.Errorf("%.20q: read, with the name %q", bad, name)
		}
	}
}

// oneByte gives a byte at a time, as a slow client does.
type oneByte struct{ io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.Reader.Read(p[:min(1, len(p))]) }

// FuzzReadHello: whatever comes, nothing is lost or made up of what is sent on, and no name is one that is not there.
func FuzzReadHello(f *testing.F) {
	for _, all := range greetings(f) {
		for _, hello := range all {
			f.Add(hello, 5)
		}
	}
	f.Add([]byte("\x16\x03\x01\x00\x05hello"), 1)
	f.Fuzz(func(t *testing.T, b []byte, first int) {
		if first < 0 || first > len(b) {
			return
		}
		hello, name, err := readHello(&helloConn{Reader: bytes.NewReader(b[first:])}, b[:first], time.Now())
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, hello) || len(hello) > maxHello {
			t.Errorf("%d bytes were read of %d, and they are not the first", len(hello), len(b))
		}
		var all []byte // of the records, without their heads
		for rest := hello; len(rest) >= 5; {
			n := min(int(binary.BigEndian.Uint16(rest[3:])), len(rest)-5)
			all = append(all, rest[5:5+n]...)
			rest = rest[5+n:]
		}
		if !bytes.Contains(all, []byte(name)) {
			t.Errorf("the name %q is not in the greeting", name)
		}
	})
}

// TestGreetingsInTunnels: a greeting that names the host goes through whole, however it is cut; one that names another,
// if only as the outer name of an encrypted one, does not; one without a name does.
func TestGreetingsInTunnels(t *testing.T) {
	w := tunnelWorld(t, nil, echo)
	for name, all := range greetings(t) {
		for i, hello := range all {
			conn, br := w.tunnel("srv.example:443")
			for part := hello; len(part) > 0; part = part[min(200, len(part)):] {
				if _, err := conn.Write(part[:min(200, len(part))]); err != nil {
					break // refused already
				}
			}
			conn.CloseWrite()
			got, err := io.ReadAll(br)
			if err != nil && !errors.Is(err, net.ErrClosed) && name != "outer.example" {
				t.Errorf("%q, %d: %v", name, i, err)
			}
			if refused := bytes.Equal(got, alertUnrecognizedName); refused != (name == "outer.example") || !refused && !bytes.Equal(got, hello) {
				t.Errorf("%q, %d: got %.20q of %d bytes", name, i, got, len(got))
			}
			conn.Close()
		}
	}
}
