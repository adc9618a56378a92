package web

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

const kernelTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1E56 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 100 1
   1: 0100007F:1E56 0100007F:A000 01 00000000:00000000 00:00000000 00000000  1001        0 101 1
   2: 0100007F:A001 0100007F:1E56 06 00000000:00000000 00:00000000 00000000     0        0 0 3
   3: 0100007F:A000 0100007F:1E56 01 00000000:00000000 00:00000000 00000000  1002        0 102 1
   4: 0000000000000000FFFF00000100007F:A002 0000000000000000FFFF00000100007F:1E56 01 0:0 00:0 0  1003 0 103 1
`

func TestFindPeer(t *testing.T) {
	if !littleEndian {
		t.Skip("the table is a little-endian machine's")
	}
	server := netip.MustParseAddrPort("127.0.0.1:7766")
	for port, want := range map[uint16]int{0xA000: 1002, 0xA002: 1003, 0xA001: -1, 0xA003: -1} {
		uid, err := findPeer(strings.NewReader(kernelTable), netip.AddrPortFrom(server.Addr(), port), server)
		if want < 0 && !errors.Is(err, errNoPeer) || want >= 0 && (err != nil || uid != want) {
			t.Errorf("port %x: %d, %v, want %d", port, uid, err, want)
		}
	}
}

func FuzzFindPeer(f *testing.F) {
	f.Add(kernelTable)
	server := netip.MustParseAddrPort("127.0.0.1:7766")
	f.Fuzz(func(t *testing.T, table string) {
		uid, err := findPeer(strings.NewReader(table), netip.MustParseAddrPort("127.0.0.1:40960"), server)
		if err == nil && uid < 0 {
			t.Error("no user has that number")
		}
	})
}

// Connections of another user are closed with no answer. The test is one user, so it is the door that is another's.
func TestAnotherUser(t *testing.T) {
	r := newRig(t)
	s := r.login()
	_ = r.d.Close()
	r.o.UID = os.Getuid() + 1
	r.start()
	for _, ip := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("tcp", net.JoinHostPort(ip, strconv.Itoa(r.port)))
		if err != nil {
			continue // no IPv6
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write([]byte("GET /api/me HTTP/1.1\r\nHost: " + r.host() + "\r\n" + s.cookie + "\r\n\r\n"))
		if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: answered with %d bytes, %v", ip, n, err)
		}
		_ = c.Close()
	}
}
