package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/handlerd/handler/handlerd/api/types"
)

// Servers lists the MCP servers that are hosted for the run whose id begins with run.
func (c *Client) Servers(ctx context.Context, run string) ([]types.Server, error) {
	var v []types.Server
	return v, c.exchange(ctx, http.MethodGet, types.PathRuns+"/"+url.PathEscape(run)+"/servers", nil, &v)
}

// StopServers is the kill switch: the hosted server name of a run, or all where name is "", answers no call more. It
// gives the names of those that it stopped.
func (c *Client) StopServers(ctx context.Context, run, name string) ([]string, error) {
	var v []string
	return v, c.exchange(ctx, http.MethodPost, types.PathRuns+"/"+url.PathEscape(run)+"/servers/stop", types.StopServer{Name: name}, &v)
}

// exchange sends a request and reads its answer into v.
func (c *Client) exchange(ctx context.Context, method, path string, body, v any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}
