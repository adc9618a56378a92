package client

import (
	"context"
	"net/url"

	"github.com/handlerd/handler/handlerd/api/types"
)

// Forward opens a port of the sandbox's loopback of the run whose id begins with id, for Dial. It is open until the
// stream is closed; a stream that ends by itself says that the run has ended. Nothing else is said on it.
func (c *Client) Forward(ctx context.Context, id string, port int, listener string) (*Stream, error) {
	return c.upgrade(ctx, types.PathRuns+"/"+url.PathEscape(id)+"/forward", types.UpgradeForward, types.ForwardRequest{Port: port, Listener: listener})
}

// Dial connects to a port that Forward has open; the stream is the port's own bytes.
func (c *Client) Dial(ctx context.Context, id string, port int) (*Stream, error) {
	return c.upgrade(ctx, types.PathRuns+"/"+url.PathEscape(id)+"/dial", types.UpgradeDial, types.PortRequest{Port: port})
}
