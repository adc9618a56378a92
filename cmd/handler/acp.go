package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

func newACP(u *ui) *cobra.Command {
	var display string
	var f answerFlags
	var limits limitFlags
	cmd := &cobra.Command{
		Use:   "acp AGENT",
		Short: "Be an ACP agent on standard input and output, for an editor",
		Long: `Speaks ACP on standard input and output, as editors expect of an agent, and runs AGENT in a strict sandbox.
An agent that names no scopes sees the folder this is started in.`,
		Example: `  handler acp claude-code
  handler acp web --display
  handler acp web --unattended --read-only`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf(cmd, "yes", "read-only"); err != nil {
				return err
			}
			if !f.unattended && (f.yes || f.readOnly) {
				return fault.New(fault.Usage, "add --unattended, or let the editor answer", "--yes and --read-only answer only where nobody is asked")
			}
			req := types.RunRequest{Agent: args[0], Limits: limits.request()}
			if err := wantDisplay(display, &req); err != nil {
				return err
			}
			return u.acp(cmd.Context(), f.request(req, f.unattended))
		},
	}
	f.register(cmd)
	displayFlag(cmd, &display, "show the agent's windows on your screen, or vnc: on one of the sandbox's own that you watch (handler web)")
	limits.register(cmd)
	return cmd
}

// answerFlags say who answers what the agent asks (P5).
type answerFlags struct{ yes, readOnly, unattended bool }

func (f *answerFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.yes, "yes", false, "allow what the agent asks, once each")
	fl.BoolVar(&f.readOnly, "read-only", false, "allow what only reads, refuse the rest")
	fl.BoolVar(&f.unattended, "unattended", false, "never wait for an answer: destinations that no rule names are refused, and what neither --yes nor --read-only nor the agent's own rules allow is refused")
}

// request adds to a request what the flags say of a run in which somebody can be asked, or not.
func (f *answerFlags) request(req types.RunRequest, unattended bool) types.RunRequest {
	req.Unattended, req.NeverAsk = unattended, f.unattended
	switch {
	case f.readOnly:
		req.Answers = types.AnswersReads
	case f.yes:
		req.Answers = types.AnswersAllow
	}
	return req
}

// acp joins standard input and output to a run until either ends. The error says why the run was not, or why it ended
// where neither the editor nor the agent meant it to.
func (u *ui) acp(ctx context.Context, req types.RunRequest) error {
	c, stream, err := u.start(ctx, req)
	if err != nil {
		u.answerFirst(err)
		return err
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	done := make(chan struct{}) // the editor has ended its input
	go func() {
		// The editor's end of input ends the agent's; what the agent still says is passed on.
		_, _ = io.Copy(stream.UnixConn, u.in)
		close(done)
		_ = stream.CloseWrite()
	}()
	_, err = stream.WriteTo(u.out)
	if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) {
		return nil // asked to end, or the editor is gone: that is how it ends
	}
	select {
	case <-done:
		return err // the editor has ended it, however the agent took that
	default:
	}
	_ = u.out.Close() // the editor is to see the end at once
	if _, end := waitGone(ctx, c, stream.RunID); end != nil {
		return end
	}
	return err
}

// start starts a run in this folder.
func (u *ui) start(ctx context.Context, req types.RunRequest) (*client.Client, *client.Stream, error) {
	c, _, err := u.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	stream, err := u.startOn(ctx, c, req)
	return c, stream, err
}

// startOn starts a run in req.Cwd ("" for this folder).
func (u *ui) startOn(ctx context.Context, c *client.Client, req types.RunRequest) (*client.Stream, error) {
	if req.Cwd == "" {
		var err error
		if req.Cwd, err = os.Getwd(); err != nil {
			return nil, fault.Wrap(fault.Failed, err, "cd to a folder that exists", "the current folder")
		}
	}
	req.Wayland = types.Wayland{
		HandlerSocket: u.getenv("HANDLER_WAYLAND_SOCKET"),
		Display:       u.getenv("WAYLAND_DISPLAY"),
		RuntimeDir:    u.getenv("XDG_RUNTIME_DIR"),
	}
	return c.Start(ctx, req)
}

// answerFirst tells an editor why there is no agent: editors show the error of initialize, and seldom stderr.
func (u *ui) answerFirst(cause error) {
	if terminal(u.in) {
		return
	}
	_ = u.in.SetReadDeadline(time.Now().Add(2 * time.Second)) // works on pipes; on files the read ends by itself
	line, err := bufio.NewReader(io.LimitReader(u.in, 1<<20)).ReadBytes('\n')
	if err != nil {
		return
	}
	var request struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(line, &request) != nil || request.ID == nil || request.Method == "" {
		return
	}
	f := fault.Of(cause)
	_ = json.NewEncoder(u.out).Encode(map[string]any{
		"jsonrpc": "2.0", "id": request.ID,
		"error": map[string]any{"code": -32603, "message": "handler: " + f.Text, "data": map[string]any{"hint": f.Hint}},
	})
}
