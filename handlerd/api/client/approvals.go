package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/handlerd/handler/handlerd/api/types"
)

// Approvals gives the questions that wait for a person; with run != "" that run's.
func (c *Client) Approvals(ctx context.Context, run string) ([]types.Approval, error) {
	var v []types.Approval
	return v, c.get(ctx, withQuery(types.PathApprovals, url.Values{"run": {run}}), &v)
}

// Approval gives the question whose id begins with id.
func (c *Client) Approval(ctx context.Context, id string) (types.Approval, error) {
	var v types.Approval
	return v, c.get(ctx, types.PathApprovals+"/"+url.PathEscape(id), &v)
}

// ApprovalPicture gives the picture of the question whose id begins with id: a PNG.
func (c *Client) ApprovalPicture(ctx context.Context, id string) ([]byte, error) {
	resp, err := c.do(ctx, http.MethodGet, types.PathApprovals+"/"+url.PathEscape(id)+"/picture", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, maxPicture))
}

// maxPicture is more than the largest picture of a question.
const maxPicture = 1 << 20

// WatchApprovals calls each for what happens to questions, of one run or with "" of all, until ctx is done, the daemon
// ends or each fails. From the first event, types.ApprovalWatching, until it returns somebody counts as being there.
func (c *Client) WatchApprovals(ctx context.Context, run string, each func(types.ApprovalEvent) error) error {
	resp, err := c.do(ctx, http.MethodGet, withQuery(types.PathApprovals, url.Values{"run": {run}, "watch": {"1"}}), nil)
	if err != nil {
		return err
	}
	return eachLine(resp.Body, each)
}

// Answer answers the question whose id begins with id.
func (c *Client) Answer(ctx context.Context, id string, a types.ApprovalAnswer) (types.ApprovalDone, error) {
	var v types.ApprovalDone
	return v, c.post(ctx, types.PathApprovals+"/"+url.PathEscape(id), a, &v)
}

// ChangeRules adds a network rule to live runs, and for good.
func (c *Client) ChangeRules(ctx context.Context, change types.RuleChange) (types.RuleChanged, error) {
	var v types.RuleChanged
	return v, c.post(ctx, types.PathRules, change, &v)
}

// Rules gives the network rules of the live run whose id begins with id.
func (c *Client) Rules(ctx context.Context, id string) ([]types.LiveRule, error) {
	var v []types.LiveRule
	return v, c.get(ctx, types.PathRuns+"/"+url.PathEscape(id)+"/rules", &v)
}

// Verdicts calls each for the last n network verdicts in the audit log, of one agent and one run if they are named,
// oldest first; with follow it goes on until ctx is done.
func (c *Client) Verdicts(ctx context.Context, agent, run string, n int, follow bool, each func(types.NetworkVerdict) error) error {
	query := url.Values{"agent": {agent}, "run": {run}, "last": {strconv.Itoa(n)}}
	if follow {
		query.Set("follow", "1")
	}
	resp, err := c.do(ctx, http.MethodGet, withQuery(types.PathVerdicts, query), nil)
	if err != nil {
		return err
	}
	return eachLine(resp.Body, each)
}

// withQuery adds what of a query is not empty.
func withQuery(path string, query url.Values) string {
	for name := range query {
		if query.Get(name) == "" {
			query.Del(name)
		}
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// post sends a request and decodes its answer into v, unless that is nil.
func (c *Client) post(ctx context.Context, path string, body, v any) error {
	resp, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}
