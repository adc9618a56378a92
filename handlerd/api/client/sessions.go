package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/handlerd/handler/handlerd/api/types"
)

// A SessionFilter says which sessions a list has; zero fields ask nothing.
type SessionFilter struct {
	Agent string
	ACP   string // the agent's id of it
	Cwd   string
	Query string // in its title, agent, folder, id or one of its prompts
	Live  bool
	// Before is a session's id: those that come after it in the list.
	Before string
	Limit  int
}

// Sessions gives the sessions that are kept, the last used first, at most 500 or the filter's Limit.
func (c *Client) Sessions(ctx context.Context, f SessionFilter) ([]types.Session, error) {
	query := url.Values{"agent": {f.Agent}, "acp": {f.ACP}, "cwd": {f.Cwd}, "query": {f.Query}, "before": {f.Before}}
	if f.Live {
		query.Set("live", "1")
	}
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	var v []types.Session
	return v, c.get(ctx, withQuery(types.PathSessions, query), &v)
}

// Session gives the session whose id begins with id.
func (c *Client) Session(ctx context.Context, id string) (types.Session, error) {
	var v types.Session
	return v, c.get(ctx, types.PathSessions+"/"+url.PathEscape(id), &v)
}

// RemoveSession removes the session whose id begins with id, with its events and artifacts.
func (c *Client) RemoveSession(ctx context.Context, id string) error {
	resp, err := c.do(ctx, http.MethodDelete, types.PathSessions+"/"+url.PathEscape(id), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// SessionEvents calls each for the events of the session whose id begins with id that have numbers above after, in order;
// with follow it goes on with those that come, until ctx is done, the session is removed, the daemon ends or each fails.
func (c *Client) SessionEvents(ctx context.Context, id string, after int64, follow bool, each func(types.Event) error) error {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}}
	if follow {
		query.Set("follow", "1")
	}
	resp, err := c.do(ctx, http.MethodGet, withQuery(sessionPath(id, "events"), query), nil)
	if err != nil {
		return err
	}
	return eachLine(resp.Body, each)
}

// Feed calls each for what changes in the lists of sessions, runs and approvals, until ctx is done, the daemon ends or
// each fails. begun is called when nothing will be missed from there on.
func (c *Client) Feed(ctx context.Context, begun func(), each func(types.Change) error) error {
	resp, err := c.do(ctx, http.MethodGet, types.PathFeed, nil)
	if err != nil {
		return err
	}
	begun()
	return eachLine(resp.Body, each)
}
