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
	var display bool
	cmd := &cobra.Command{
		Use:   "acp AGENT",
		Short: "Be an ACP agent on standard input and output, for an editor",
		Long: `Speaks ACP on standard input and output, as editors expect of an agent, and runs AGENT in a strict sandbox.
An agent that names no scopes sees the folder this is started in.`,
		Example: `  handler acp claude-code
  handler acp web --display`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := u.acp(cmd.Context(), args[0], display)
			if err != nil {
				u.answerFirst(err)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&display, "display", false, "show the agent's windows on your screen")
	return cmd
}

// acp joins standard input and output to a run until either ends.
func (u *ui) acp(ctx context.Context, agent string, display bool) error {
	stream, err := u.start(ctx, agent, "", display)
	if err != nil {
		return err
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	go func() {
		// The editor's end of input ends the agent's; what the agent still says is passed on.
		_, _ = io.Copy(stream.UnixConn, u.in)
		_ = stream.CloseWrite()
	}()
	_, err = stream.WriteTo(u.out)
	if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) {
		return nil // asked to end, or the editor is gone: that is how it ends
	}
	return err
}

// start starts a run in cwd ("" for this one).
func (u *ui) start(ctx context.Context, agent, cwd string, display bool) (*client.Stream, error) {
	c, _, err := u.connect(ctx)
	if err != nil {
		return nil, err
	}
	return u.startOn(ctx, c, agent, cwd, display)
}

func (u *ui) startOn(ctx context.Context, c *client.Client, agent, cwd string, display bool) (*client.Stream, error) {
	if cwd == "" {
		var err error
		if cwd, err = os.Getwd(); err != nil {
			return nil, fault.Wrap(fault.Failed, err, "cd to a folder that exists", "the current folder")
		}
	}
	return c.Start(ctx, types.RunRequest{
		Agent: agent, Cwd: cwd, Display: display,
		Wayland: types.Wayland{
			HandlerSocket: u.getenv("HANDLER_WAYLAND_SOCKET"),
			Display:       u.getenv("WAYLAND_DISPLAY"),
			RuntimeDir:    u.getenv("XDG_RUNTIME_DIR"),
		},
	})
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
