// Package peer says who is behind a unix connection, as the kernel noted it when the connection was made. The run
// directories' sockets and the daemon's API ask it before they read a byte.
package peer

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Own gives the process id of c's peer, as this process's PID namespace sees it, if the peer's uid is our own, as this
// user namespace sees it; anybody else's is an error. An agent in a sandbox has our uid: who must tell it from the
// person's own programs has to look further.
func Own(c *net.UnixConn) (pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("peer has uid %d, not ours", cred.Uid)
	}
	return int(cred.Pid), nil
}
