package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/handlerd/handler/handlerd/api/types"
)

// View gives a ticket for watching what of a run (types.ViewDisplay, types.ViewBrowser): it is good for one WebSocket at
// types.PathView.
func (c *Client) View(ctx context.Context, run, what string) (types.ViewTicket, error) {
	var v types.ViewTicket
	return v, c.look(ctx, run, types.SubView, what, &v)
}

// Still keeps a picture of it as an artifact.
func (c *Client) Still(ctx context.Context, run, what string) (types.Artifact, error) {
	var v types.Artifact
	return v, c.look(ctx, run, types.SubStill, what, &v)
}

// Takeover takes the guarded browser of a run over, or gives it back.
func (c *Client) Takeover(ctx context.Context, run string, on bool) (types.Takeover, error) {
	var v types.Takeover
	return v, c.ofRun(ctx, run, types.SubTakeover, types.TakeoverRequest{On: on}, &v)
}

func (c *Client) look(ctx context.Context, run, sub, what string, to any) error {
	return c.ofRun(ctx, run, sub, types.ViewRequest{What: what}, to)
}

func (c *Client) ofRun(ctx context.Context, run, sub string, req, to any) error {
	resp, err := c.do(ctx, http.MethodPost, types.PathRuns+"/"+url.PathEscape(run)+sub, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(to)
}
