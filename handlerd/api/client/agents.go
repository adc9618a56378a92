package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/handlerd/handler/handlerd/api/types"
)

// Agents lists the agents.
func (c *Client) Agents(ctx context.Context) ([]types.AgentInfo, error) {
	var v []types.AgentInfo
	return v, c.get(ctx, types.PathAgents, &v)
}

// Agent gives one agent with all there is to change.
func (c *Client) Agent(ctx context.Context, name string) (types.AgentDetail, error) {
	var v types.AgentDetail
	return v, c.get(ctx, types.PathAgents+"/"+url.PathEscape(name), &v)
}

// SaveAgent saves an agent. etag is that of the file which it replaces; "" says that there is none.
func (c *Client) SaveAgent(ctx context.Context, name string, edit types.AgentEdit, etag string) (types.AgentDetail, error) {
	var v types.AgentDetail
	header := http.Header{"If-Match": {etag}}
	if etag == "" {
		header = http.Header{"If-None-Match": {"*"}}
	}
	resp, err := c.send(ctx, http.MethodPut, types.PathAgents+"/"+url.PathEscape(name), edit, header)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// RemoveAgent removes a saved agent; etag is that of its file, "" for whatever it is.
func (c *Client) RemoveAgent(ctx context.Context, name, etag string) error {
	header := http.Header{}
	if etag != "" {
		header.Set("If-Match", etag)
	}
	resp, err := c.send(ctx, http.MethodDelete, types.PathAgents+"/"+url.PathEscape(name), nil, header)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// CheckAgent says what an edit would be, and saves nothing.
func (c *Client) CheckAgent(ctx context.Context, edit types.AgentEdit) (types.AgentCheck, error) {
	var v types.AgentCheck
	return v, c.post(ctx, types.PathAgentCheck, edit, &v)
}

// Harnesses lists the agent programs.
func (c *Client) Harnesses(ctx context.Context) (types.Harnesses, error) {
	var v types.Harnesses
	return v, c.get(ctx, types.PathHarnesses, &v)
}

// Addons lists the addons.
func (c *Client) Addons(ctx context.Context) (types.Addons, error) {
	var v types.Addons
	return v, c.get(ctx, types.PathAddons, &v)
}

// Presets lists the network presets.
func (c *Client) Presets(ctx context.Context) ([]types.Preset, error) {
	var v []types.Preset
	return v, c.get(ctx, types.PathPresets, &v)
}

// Display says which screens there are for a sandbox's windows.
func (c *Client) Display(ctx context.Context) (types.DisplayState, error) {
	var v types.DisplayState
	return v, c.get(ctx, types.PathDisplay, &v)
}

// Folders lists the folders in one, "" for the home folder.
func (c *Client) Folders(ctx context.Context, under string) (types.Folders, error) {
	var v types.Folders
	return v, c.get(ctx, withQuery(types.PathFolders, url.Values{"under": {under}}), &v)
}

// An AuditFilter chooses records of the audit log; empty fields ask nothing.
type AuditFilter struct {
	Last                         int // 0 for the server's usual number
	Kinds                        []string
	Agent, Run, Session, Verdict string
	Follow                       bool
}

// Audit calls each for records of the audit log, oldest first, and with Follow for those that come, until ctx is done.
func (c *Client) Audit(ctx context.Context, f AuditFilter, each func(types.AuditRecord) error) error {
	query := url.Values{"agent": {f.Agent}, "run": {f.Run}, "session": {f.Session}, "verdict": {f.Verdict}, "last": {""}, "follow": {""}}
	if f.Last > 0 {
		query.Set("last", strconv.Itoa(f.Last))
	}
	if f.Follow {
		query.Set("follow", "1")
	}
	if len(f.Kinds) > 0 {
		query["kind"] = f.Kinds
	}
	resp, err := c.do(ctx, http.MethodGet, withQuery(types.PathAudit, query), nil)
	if err != nil {
		return err
	}
	return eachLine(resp.Body, each)
}
