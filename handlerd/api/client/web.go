package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/handlerd/handler/handlerd/api/types"
)

// Web says whether the page is served, and who is logged in.
func (c *Client) Web(ctx context.Context) (types.WebStatus, error) {
	var v types.WebStatus
	return v, c.get(ctx, types.PathWeb, &v)
}

// WebLink has the page served where it is not, on port or, with 0, the usual one, and gives a link that is good once.
func (c *Client) WebLink(ctx context.Context, port int) (types.WebLink, error) {
	var v types.WebLink
	resp, err := c.do(ctx, http.MethodPost, types.PathWebLink, types.WebOpen{Port: port})
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// WebOff ends the serving of the page.
func (c *Client) WebOff(ctx context.Context) error {
	resp, err := c.do(ctx, http.MethodPost, types.PathWebOff, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// WebLogout logs a browser out by the beginning of its login's id, or types.AllLogins.
func (c *Client) WebLogout(ctx context.Context, id string) error {
	resp, err := c.do(ctx, http.MethodDelete, types.PathWebLogins+"/"+url.PathEscape(id), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// WebForward shows a port of a run in the page.
func (c *Client) WebForward(ctx context.Context, run string, port int) (types.Forwarded, error) {
	var v types.Forwarded
	resp, err := c.do(ctx, http.MethodPost, types.PathRuns+"/"+url.PathEscape(run)+types.SubForwards, types.PortRequest{Port: port})
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}
