package client

import (
	"context"
	"net/url"

	"github.com/handlerd/handler/handlerd/api/types"
)

// NewSession begins a session whose client is handlerd.
func (c *Client) NewSession(ctx context.Context, req types.NewSession) (types.Session, error) {
	var v types.Session
	return v, c.post(ctx, types.PathSessions, req, &v)
}

// ContinueSession lets handlerd continue a session that has no run.
func (c *Client) ContinueSession(ctx context.Context, id string, req types.ContinueSession) (types.Session, error) {
	var v types.Session
	return v, c.post(ctx, sessionPath(id, "continue"), req, &v)
}

// Prompt begins a turn of a session. It returns when the prompt is written down; the answer comes as events.
func (c *Client) Prompt(ctx context.Context, id string, p types.Prompt) (types.PromptTaken, error) {
	var v types.PromptTaken
	return v, c.post(ctx, sessionPath(id, "prompt"), p, &v)
}

// CancelTurn asks a session's agent to end its turn.
func (c *Client) CancelTurn(ctx context.Context, id string) error {
	return c.post(ctx, sessionPath(id, "cancel"), struct{}{}, nil)
}

// AnswerQuestion answers a question of a session's agent.
func (c *Client) AnswerQuestion(ctx context.Context, id string, a types.QuestionAnswer) error {
	return c.post(ctx, sessionPath(id, "answer"), a, nil)
}

// SetOption sets a mode or an option of a session's agent.
func (c *Client) SetOption(ctx context.Context, id string, o types.SessionOption) error {
	return c.post(ctx, sessionPath(id, "option"), o, nil)
}

// SetTitle names a session; "" goes back to the agent's title.
func (c *Client) SetTitle(ctx context.Context, id, title string) error {
	return c.post(ctx, sessionPath(id, "title"), types.SessionTitle{Title: title}, nil)
}

// EndSession ends a session's run and returns when nothing of it is left. The session stays.
func (c *Client) EndSession(ctx context.Context, id string) error {
	return c.post(ctx, sessionPath(id, "end"), struct{}{}, nil)
}

func sessionPath(id, what string) string {
	return types.PathSessions + "/" + url.PathEscape(id) + "/" + what
}
