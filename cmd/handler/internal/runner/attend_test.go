package runner

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api/types"
)

// A follower is a Viewer, its person, and what it replied.
type follower struct {
	*Viewer
	screen  *typist
	seq     int64
	replies chan types.QuestionAnswer
	asked   chan string
	fail    error // of Reply
}

func follow(t *testing.T, watch func(context.Context, func(types.ApprovalEvent) error) error, answers ...string) *follower {
	f := &follower{replies: make(chan types.QuestionAnswer, 9), asked: make(chan string, 9)}
	in, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	f.screen = &typist{w: w, answers: answers, mute: len(answers) == 0, asked: func(q string) { f.asked <- q }}
	f.Viewer = NewViewer(Options{
		Agent: "web", Terminal: true, Stdin: in, Stdout: writerFunc(f.screen.show), Stderr: f.screen, By: "handler attach", Watch: watch,
		Answer: func(context.Context, string, types.ApprovalAnswer) (types.ApprovalDone, error) {
			return types.ApprovalDone{}, nil
		},
		Reply: func(_ context.Context, a types.QuestionAnswer) error {
			f.replies <- a
			return f.fail
		},
	})
	return f
}

func (f *follower) event(kind, data string) types.Event {
	f.seq++
	return types.Event{Seq: f.seq, Kind: kind, Time: time.Unix(f.seq, 0), Data: json.RawMessage(data)}
}

func (f *follower) print(t *testing.T, events ...types.Event) {
	t.Helper()
	for _, e := range events {
		if err := f.Print(e); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *follower) text() string {
	f.screen.mu.Lock()
	defer f.screen.mu.Unlock()
	return f.screen.out.String()
}

// reply waits for what was replied.
func (f *follower) reply(t *testing.T) types.QuestionAnswer {
	t.Helper()
	select {
	case a := <-f.replies:
		return a
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing was replied; the screen shows\n%s", f.text())
		return types.QuestionAnswer{}
	}
}

func permission(id, ours string) string {
	return `{"id":"` + id + `","method":"session/request_permission","ours":` + ours + `,"params":{"toolCall":{"toolCallId":"c1"},"options":` + allOptions + `}}`
}

const call = `{"sessionUpdate":"tool_call","toolCallId":"c1","title":"npm test","kind":"execute","status":"pending","rawInput":{"command":"npm test"}}`

// TestAttendPermission: a question that was there before is asked, one that was answered then is not; an answer is sent once,
// and the news of it is not told again.
func TestAttendPermission(t *testing.T) {
	f := follow(t, nil, "y", "n")
	events := []types.Event{
		f.event(types.EventUpdate, call), f.event(types.EventQuestion, permission("r/0", "true")),
		f.event(types.EventAnswered, `{"id":"r/0","answer":{"outcome":{"outcome":"selected","optionId":"3"}},"by":"the page"}`),
		f.event(types.EventQuestion, permission("r/1", "true")),
	}
	for _, e := range events {
		f.Before(e)
	}
	f.Attend(t.Context())
	f.print(t, events...)
	if diff := cmp.Diff(types.QuestionAnswer{ID: "r/1", Option: "1", By: "handler attach"}, f.reply(t)); diff != "" {
		t.Error(diff)
	}
	f.print(t, f.event(types.EventAnswered, `{"id":"r/1","answer":{},"by":"the page"}`), f.event(types.EventQuestion, permission("r/2", "true")))
	if a := f.reply(t); a.ID != "r/2" || a.Option != "3" {
		t.Errorf("%+v", a)
	}
	f.Leave()
	text := f.text()
	if len(f.asked) != 2 || strings.Count(text, "? web wants to run  npm test") != 2 || strings.Count(text, "answered ") != 1 {
		t.Errorf("the screen shows\n%s", text)
	}
}

// TestAttendElsewhere: a question that somebody else answers, that its turn or its run ends, and that another client has, is
// not answered here.
func TestAttendElsewhere(t *testing.T) {
	for name, end := range map[string][2]string{
		"answered": {types.EventAnswered, `{"id":"r/0","answer":{"outcome":{"outcome":"selected","optionId":"1"}},"by":"the page"}`},
		"turn":     {types.EventTurn, `{"state":"ended","stopReason":"cancelled"}`},
		"run":      {types.EventRun, `{"run":"r","state":"ended"}`},
	} {
		f := follow(t, nil)
		f.Attend(t.Context())
		f.print(t, f.event(types.EventUpdate, call), f.event(types.EventQuestion, permission("r/0", "true")))
		<-f.asked
		f.print(t, f.event(end[0], end[1]), f.event(types.EventQuestion, permission("x/0", "false")))
		f.Leave()
		if text := f.text(); len(f.replies) > 0 || !strings.Contains(text, "the agent asks: npm test") {
			t.Errorf("%s: %d replies, the screen shows\n%s", name, len(f.replies), text)
		}
	}
}

// TestAttendNobody: a terminal that has ended answers nothing, and from then on what is asked is told.
func TestAttendNobody(t *testing.T) {
	f := follow(t, nil, "what")
	f.Attend(t.Context())
	f.print(t, f.event(types.EventQuestion, permission("r/0", "true")))
	<-f.at.over.Done()
	f.print(t, f.event(types.EventQuestion, permission("r/1", "true")))
	f.Leave()
	if text := f.text(); len(f.replies) > 0 || !strings.Contains(text, "the agent asks: ") {
		t.Errorf("%d replies, the screen shows\n%s", len(f.replies), text)
	}
}

func TestAttendForms(t *testing.T) {
	const form = `{"id":"r/0","method":"elicitation/create","ours":true,"params":{"mode":"form","message":"Who?","requestedSchema":{"required":["n"],
		"properties":{"n":{"type":"string","title":"Name","minLength":2},"k":{"type":"integer"},"b":{"type":"boolean"},
		"m":{"type":"array","maxItems":2,"items":{"anyOf":[{"const":"S","title":"small","description":"cheap"},{"const":"L"},{"const":"X"}]}}}}}}`
	const visit = `{"id":"r/0","method":"elicitation/create","ours":true,"params":{"mode":"url","message":"Log in","url":"https://login.example.org/x"}}`
	for _, c := range []struct {
		question string
		typed    []string
		want     types.QuestionAnswer
	}{
		{form, []string{"y", "a", "ada", "4", "", "9", "1,2,3", "1, X"}, types.QuestionAnswer{Content: json.RawMessage(`{"k":4,"m":["S","X"],"n":"ada"}`)}},
		{form, []string{"y", "ada", "", "y", ""}, types.QuestionAnswer{Content: json.RawMessage(`{"b":true,"n":"ada"}`)}},
		{form, []string{"n"}, types.QuestionAnswer{Option: types.OptionDecline}},
		{visit, []string{"what", "d"}, types.QuestionAnswer{Content: json.RawMessage(`{}`)}},
		{visit, []string{"no"}, types.QuestionAnswer{Option: types.OptionDecline}},
	} {
		f := follow(t, nil, c.typed...)
		f.fail = errors.New("the question is not open any more")
		f.Attend(t.Context())
		f.print(t, f.event(types.EventQuestion, c.question))
		c.want.ID, c.want.By = "r/0", "handler attach"
		if diff := cmp.Diff(c.want, f.reply(t)); diff != "" {
			t.Errorf("%s: %s", c.typed, diff)
		}
		f.Leave()
		if text := f.text(); !strings.Contains(text, "not open any more") {
			t.Errorf("the screen shows\n%s", text)
		}
	}
}

// TestAttendApprovals: what Handler asks is asked once, and its events are not told besides.
func TestAttendApprovals(t *testing.T) {
	d := newDesk()
	f := follow(t, d.watch, "y")
	f.Viewer.r.opts.Answer = d.answer
	f.Attend(t.Context())
	d.tell(types.ApprovalAsked, "new", nil)
	<-f.asked
	f.print(t, f.event(types.EventApproval, `{"state":"asked","approval":{"id":"new","text":"twice told"}}`))
	for len(d.given()) == 0 {
		time.Sleep(time.Millisecond) // the answer has no event of its own here
	}
	f.Leave()
	want := types.ApprovalAnswer{Allow: true, Scope: types.ScopeOnce, By: "handler attach"}
	if got := d.given(); len(got) != 1 || got[0] != want || strings.Contains(f.text(), "twice told") {
		t.Errorf("%+v, the screen shows\n%s", got, f.text())
	}
}
