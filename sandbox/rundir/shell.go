package rundir

import (
	"context"
	"net"

	"github.com/handlerd/handler/sandbox/guestwire"
)

// OpenShell asks the guest for a connection and returns it; it is the caller's then, and its frames are those of
// guestwire.ShellReader with the token behind it. It waits until the command runs and the guest has answered, at most
// until ctx is done.
func (d *Dir) OpenShell(ctx context.Context) (net.Conn, error) {
	if err := d.awaitStarted(ctx); err != nil {
		return nil, err
	}
	return d.ask(ctx, guestwire.Frame{Kind: guestwire.Shell})
}
