package api

import (
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/handlerd/handler/sandbox/peer"
)

// An ownerListener drops connections of anybody but the daemon's own user in the daemon's own user namespace (K.1).
type ownerListener struct {
	net.Listener
	log *slog.Logger
}

func (l ownerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := checkOwner(conn); err != nil {
			l.log.Warn("connection to the API refused", "error", err)
			conn.Close()
			continue
		}
		return conn, nil
	}
}

// checkOwner compares the peer's uid, and its user namespace as far as /proc shows it: an agent in a sandbox has
// our uid but another namespace.
func checkOwner(conn net.Conn) error {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("not a unix connection: %T", conn)
	}
	pid, err := peer.Own(uc)
	if err != nil {
		return err
	}
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return err
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return fmt.Errorf("peer %d cannot be looked at: %w", pid, err)
	}
	if own != theirs {
		return fmt.Errorf("peer %d is in another user namespace", pid)
	}
	return nil
}
