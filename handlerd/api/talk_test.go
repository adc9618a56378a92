package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/talk"
)

// noted is a Talk that notes what it is told.
type noted struct{ told []string }

func (n *noted) note(what, id string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	n.told = append(n.told, fmt.Sprintf("%s %s %s", what, id, text))
	if id == "gone" {
		return fault.New(fault.NotFound, "see: handler sessions list", "there is no session %q", id)
	}
	return nil
}

func (n *noted) Create(_ context.Context, req types.NewSession) (types.Session, error) {
	return types.Session{ID: "new"}, n.note("create", req.Agent, req.Cwd)
}
func (n *noted) Continue(_ context.Context, id string, req types.ContinueSession) (types.Session, error) {
	return types.Session{ID: id}, n.note("continue", id, req.Display)
}
func (n *noted) Prompt(_ context.Context, id string, p types.Prompt) (types.PromptTaken, error) {
	return types.PromptTaken{Seq: 7}, n.note("prompt", id, len(p.Content))
}
func (n *noted) Cancel(_ context.Context, id string) error { return n.note("cancel", id, nil) }
func (n *noted) Answer(_ context.Context, id string, a types.QuestionAnswer) error {
	return n.note("answer", id, a)
}
func (n *noted) Option(_ context.Context, id string, o types.SessionOption) error {
	return n.note("option", id, o)
}
func (n *noted) Title(_ context.Context, id, title string) error { return n.note("title", id, title) }
func (n *noted) End(_ context.Context, id string) error          { return n.note("end", id, nil) }

func serveTalk(t *testing.T, tk api.Talk) *client.Client {
	t.Helper()
	return serveOptions(t, api.Options{Talk: tk})
}

func TestTalk(t *testing.T) {
	n := &noted{}
	c, ctx := serveTalk(t, n), t.Context()
	if s, err := c.NewSession(ctx, types.NewSession{Agent: "demo", Cwd: "/src"}); err != nil || s.ID != "new" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := c.ContinueSession(ctx, "s1", types.ContinueSession{Display: true}); err != nil || s.ID != "s1" {
		t.Errorf("%+v, %v", s, err)
	}
	long := strings.Repeat("x", 2<<20) // more than other requests may have
	p := types.Prompt{Content: json.RawMessage(`[{"type":"text","text":"` + long + `"}]`)}
	if taken, err := c.Prompt(ctx, "s1", p); err != nil || taken.Seq != 7 {
		t.Errorf("%+v, %v", taken, err)
	}
	for _, err := range []error{
		c.CancelTurn(ctx, "s1"), c.SetTitle(ctx, "s1", "T"), c.EndSession(ctx, "s1"),
		c.AnswerQuestion(ctx, "s1", types.QuestionAnswer{ID: "r/0", Option: "yes"}),
		c.SetOption(ctx, "s1", types.SessionOption{ID: "mode", Value: json.RawMessage(`"code"`)}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{
		`create demo "/src"`, `continue s1 true`, fmt.Sprintf("prompt s1 %d", len(p.Content)), `cancel s1 null`, `title s1 "T"`, `end s1 null`,
		`answer s1 {"id":"r/0","option":"yes"}`, `option s1 {"id":"mode","value":"code"}`,
	}, n.told); diff != "" {
		t.Error(diff)
	}
	if err := c.CancelTurn(ctx, "gone"); fault.Of(err).Kind != fault.NotFound {
		t.Errorf("got %v", err)
	}
}

// A paste of 50 MB is answered with the bound, and not by a connection that breaks.
func TestLongPrompt(t *testing.T) {
	c := serveTalk(t, &noted{})
	_, err := c.Prompt(t.Context(), "s1", types.Prompt{Content: json.RawMessage(`[{"type":"text","text":"` + strings.Repeat("x", 50_000_000) + `"}]`)})
	f := fault.Of(err)
	if f.Kind != fault.Refused || !strings.Contains(f.Text, fmt.Sprintf("at most %d MiB", talk.MaxPromptBytes>>20)) || !strings.Contains(f.Text, "47.7 MiB") || f.Hint == "" {
		t.Errorf("got %v", err)
	}
}

func TestNoTalk(t *testing.T) {
	if _, err := serveTalk(t, nil).NewSession(t.Context(), types.NewSession{}); fault.Of(err).Kind != fault.NotFound {
		t.Errorf("got %v", err)
	}
}
