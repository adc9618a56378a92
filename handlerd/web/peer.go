package web

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// errNoPeer says that the kernel's tables have no such connection: it is gone already.
var errNoPeer = errors.New("the connection is in no table of the kernel's")

// peerUID gives the user whose process made a loopback connection, as the kernel's tables of this network namespace
// say: its end is the one whose own address is our peer's.
func peerUID(conn net.Conn) (int, error) {
	client, err := addrPort(conn.RemoteAddr())
	if err != nil {
		return 0, err
	}
	server, err := addrPort(conn.LocalAddr())
	if err != nil {
		return 0, err
	}
	// A program may speak IPv4 by a socket of IPv6, which is in the other table.
	tables := []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"}
	if client.Addr().Is6() {
		slices.Reverse(tables)
	}
	for _, table := range tables {
		f, err := os.Open(table)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		uid, err := findPeer(f, client, server)
		f.Close()
		if !errors.Is(err, errNoPeer) {
			return uid, err
		}
	}
	return 0, errNoPeer
}

func addrPort(a net.Addr) (netip.AddrPort, error) {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("not a TCP connection: %T", a)
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), nil
}

// findPeer reads a table of /proc/net and gives the uid of the socket from own to remote. A line that is not as the
// kernel writes them is passed over: what it would have said is not known.
func findPeer(table io.Reader, own, remote netip.AddrPort) (int, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 {
			continue
		}
		if a, ok := parseKernelAddr(fields[1]); !ok || a != own {
			continue
		}
		if a, ok := parseKernelAddr(fields[2]); !ok || a != remote {
			continue
		}
		uid, err := strconv.ParseUint(fields[7], 10, 32)
		if err != nil {
			continue
		}
		if fields[3] == timeWait { // nobody's any more, and the kernel writes 0 for its user
			continue
		}
		return int(uid), nil
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, errNoPeer
}

// littleEndian is the order of bytes in this machine's words, which the tables are written in.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// timeWait is the state of a connection that its process has closed.
const timeWait = "06"

// parseKernelAddr reads "0100007F:1F90": words of 32 bits in the machine's own order, and the port. IPv6 has four.
func parseKernelAddr(text string) (netip.AddrPort, bool) {
	host, portText, ok := strings.Cut(text, ":")
	if !ok || len(portText) != 4 {
		return netip.AddrPort{}, false
	}
	port, err := strconv.ParseUint(portText, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		if littleEndian {
			slices.Reverse(word)
		}
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), ok
}
