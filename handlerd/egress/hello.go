package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	tlsHandshake = 0x16     // the first byte of a TLS connection
	maxHello     = 64 << 10 // of a client's greeting, with its records
)

// alertUnrecognizedName is TLS for "not that host": fatal alert 112.
var alertUnrecognizedName = []byte{0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70}

var errHelloSeen = errors.New("the greeting was read")

// readHello reads a client's TLS greeting, of which first has already been read, and gives all that was read and
// the server name in it ("" if there is none). crypto/tls does the parsing, as a server that gives up once it has
// seen the greeting; what it would answer is thrown away.
func readHello(conn net.Conn, first []byte, deadline time.Time) (hello []byte, name string, err error) {
	conn.SetReadDeadline(deadline)
	var seen bytes.Buffer
	limited := io.LimitReader(io.MultiReader(bytes.NewReader(first), conn), maxHello)
	server := tls.Server(&helloConn{Reader: io.TeeReader(limited, &seen)}, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			name = info.ServerName
			return nil, errHelloSeen
		},
	})
	if err := server.HandshakeContext(context.Background()); !errors.Is(err, errHelloSeen) {
		return nil, "", errors.New("no TLS greeting")
	}
	return seen.Bytes(), name, nil
}

// A helloConn is as much of a connection as tls.Server needs to read a greeting.
type helloConn struct{ io.Reader }

func (*helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (*helloConn) Close() error                     { return nil }
func (*helloConn) LocalAddr() net.Addr              { return nil }
func (*helloConn) RemoteAddr() net.Addr             { return nil }
func (*helloConn) SetDeadline(time.Time) error      { return nil }
func (*helloConn) SetReadDeadline(time.Time) error  { return nil }
func (*helloConn) SetWriteDeadline(time.Time) error { return nil }
