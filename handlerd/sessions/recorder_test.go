package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/history"
	"github.com/handlerd/handler/sandbox/fake"
)

// withHistory gives a world's manager a history.
func withHistory(t *testing.T, w *world) *history.Store {
	t.Helper()
	s, err := history.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w.m.opts.History, w.m.opts.Feed = s, history.NewFeed()
	return s
}

// events gives what happened in a session, each as one word and its update.
func events(t *testing.T, s *history.Store, id string) (words []string, all []types.Event) {
	t.Helper()
	if _, err := s.Append(t.Context(), id, types.EventNotice, "", types.EventNoticeData{Text: "read"}); err != nil { // all that was queued is there
		t.Fatal(err)
	}
	all, err := s.Events(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all[:len(all)-1] {
		words = append(words, strings.TrimSpace(e.Kind+" "+e.Update))
	}
	return words, all
}

// talkTo opens a session in a run and has a prompt answered.
func talkTo(t *testing.T, peer *jsonrpc.Peer, w *world, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var session jsonrpc.NewSessionResult
	err := errors.Join(
		peer.Call(ctx, "initialize", map[string]any{"protocolVersion": 1}, nil),
		peer.Call(ctx, "session/new", map[string]any{"cwd": w.scope, "mcpServers": []any{}}, &session),
	)
	if err == nil {
		prompt := []map[string]any{{"type": "text", "text": text}}
		err = peer.Call(ctx, "session/prompt", map[string]any{"sessionId": session.SessionID, "prompt": prompt}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return session.SessionID
}

// TestRecorded: a conversation with a real agent is kept, goes on in another run under the same id, and what the agent
// tells again when it loads is not kept twice; a history that has not seen it takes it from what is told again.
func TestRecorded(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	s := withHistory(t, w)
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	peer, done := join(t, r)
	session := talkTo(t, peer, w, "say hello")
	peer.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	id, err := s.Known(t.Context(), "web", session)
	if err != nil || id == "" {
		t.Fatalf("the session is not kept: %q, %v", id, err)
	}
	v, err := s.Get(t.Context(), id)
	if err != nil || v.Title != "say hello" || v.Run != "" || v.LastRun == "" || v.Continues != "load" || v.Client != types.ClientEditor || v.Turn != "idle" {
		t.Errorf("%+v, %v", v, err)
	}
	first, all := events(t, s, id)
	want := []string{"run", "prompt", "turn", "update session_info_update", "update agent_message_chunk", "turn", "run"}
	if diff := cmp.Diff(want, leaving(first, "update available_commands_update")); diff != "" {
		t.Errorf("(-want +got):\n%s\n%v", diff, all)
	}
	loaded := func() {
		t.Helper()
		r, err := w.start(t, "web")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Abort()
		tell := func(kind string) {
			say(r.recorder, acp.Agent, acp.Notification, "session/update", session, "", `{"update":{"sessionUpdate":"`+kind+`"}}`)
		}
		say(r.recorder, acp.Client, acp.Request, "session/load", session, "1", `{"cwd":"/p"}`)
		tell("user_message_chunk")
		tell("agent_message_chunk")
		say(r.recorder, acp.Agent, acp.Response, "session/load", session, "1", `{}`)
		tell("plan")
	}
	loaded()
	again, _ := events(t, s, id)
	want = append(want, "notice", "run", "update plan", "run")
	if diff := cmp.Diff(want, leaving(again, "update available_commands_update")); diff != "" {
		t.Errorf("after it went on (-want +got):\n%s", diff)
	}
	if v, err := s.Get(t.Context(), id); err != nil || v.Cwd != "/p" || v.Title != "say hello" {
		t.Errorf("%+v, %v", v, err)
	}
	if err := s.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	loaded()
	if id, err = s.Known(t.Context(), "web", session); err != nil || id == "" {
		t.Fatalf("a session that is loaded is not kept: %q, %v", id, err)
	}
	words, _ := events(t, s, id)
	if diff := cmp.Diff([]string{"run", "update user_message_chunk", "update agent_message_chunk", "update plan", "run"}, words); diff != "" {
		t.Errorf("what is told of an unknown one (-want +got):\n%s", diff)
	}
}

func leaving(words []string, word string) (left []string) {
	for _, w := range words {
		if w != word {
			left = append(left, w)
		}
	}
	return left
}

// say has a recorder told of a message.
func say(c *recorder, from acp.Side, kind acp.Kind, method, session, id, body string) {
	m := acp.Carried{From: from, Kind: kind, Method: method, Session: session, Body: []byte(body)}
	if id != "" {
		m.ID = []byte(id)
	}
	if strings.HasPrefix(body, "!") {
		m.Failed, m.Body = true, []byte(body[1:])
	}
	c.carried(m)
}

// opened is a run of the page's with a session that is open.
func opened(t *testing.T, client string) (*Run, *history.Store, string) {
	t.Helper()
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	s := withHistory(t, w)
	r, err := w.m.Start(t.Context(), types.RunRequest{Agent: "web", Cwd: w.scope, Client: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Abort)
	c := r.recorder
	say(c, acp.Client, acp.Request, "initialize", "", "0", `{}`)
	say(c, acp.Agent, acp.Response, "initialize", "", "0", `{"agentCapabilities":{"sessionCapabilities":{"resume":{}},"promptCapabilities":{"image":true}}}`)
	say(c, acp.Client, acp.Request, "session/new", "", "1", `{"cwd":"/p"}`)
	say(c, acp.Agent, acp.Response, "session/new", "", "1", `{"sessionId":"s","modes":{"currentModeId":"a","availableModes":[]}}`)
	id, err := s.Known(t.Context(), "web", "s")
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	return r, s, id
}

// TestRecorder: questions and how they are answered, what the agent says of itself, a turn that fails, a session that is
// closed, and what nobody has spoken in.
func TestRecorder(t *testing.T) {
	r, s, id := opened(t, types.ClientPage)
	c := r.recorder
	get := func() types.Session {
		t.Helper()
		v, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := get(); !v.Ours || v.Continues != "resume" || !v.Images || v.Embeds || v.Cwd != "/p" || string(v.Modes) != `{"currentModeId":"a","availableModes":[]}` {
		t.Errorf("%+v", v)
	}
	say(c, acp.Client, acp.Request, "session/prompt", "s", "2", `{"sessionId":"s","prompt":[{"type":"image","data":"`+strings.Repeat("A", 8<<10)+`"},{"type":"text","text":"look"}]}`)
	if v := get(); v.Turn != "working" || v.Title != "look" {
		t.Errorf("in a turn: %+v", v)
	}
	say(c, acp.Agent, acp.Request, "session/request_permission", "s", `"q"`, `{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}`)
	if v := get(); v.Questions != 1 {
		t.Errorf("%d questions wait", v.Questions)
	}
	r.AnsweredBy("another", "nobody")
	r.AnsweredBy(types.QuestionID(r.id, json.RawMessage(`"q"`)), "handler attach"+strings.Repeat("!", 200))
	say(c, acp.Client, acp.Response, "session/request_permission", "s", `"q"`, `{"outcome":{"outcome":"cancelled"}}`)
	for kind, fields := range map[string]string{
		"available_commands_update": `"availableCommands":[{"name":"x"}]`, "current_mode_update": `"currentModeId":"b"`, "session_info_update": `"title":"T"`, "usage_update": `"used":1,"size":2`,
	} {
		say(c, acp.Agent, acp.Notification, "session/update", "s", "", `{"sessionId":"s","update":{"sessionUpdate":"`+kind+`",`+fields+`}}`)
	}
	say(c, acp.Agent, acp.Response, "session/prompt", "s", "2", `!{"code":-32603,"message":"it broke","data":{"hint":"mend it"}}`)
	v := get()
	if v.Turn != "idle" || v.Questions != 0 || string(v.Commands) != `[{"name":"x"}]` || !strings.Contains(string(v.Modes), `"currentModeId":"b"`) || v.Title != "T" || !strings.Contains(string(v.Usage), `"used":1`) {
		t.Errorf("%+v", v)
	}
	say(c, acp.Client, acp.Request, "session/close", "s", "3", `{"sessionId":"s"}`)
	say(c, acp.Agent, acp.Response, "session/close", "s", "3", `{}`)
	if v := get(); v.Run != "" || v.Ours {
		t.Errorf("after its end: %+v", v)
	}
	words, all := events(t, s, id)
	if got := strings.Join(words, " "); !strings.HasPrefix(got, "run prompt turn question answered update") || !strings.HasSuffix(got, "turn run") {
		t.Errorf("got %s", got)
	}
	r.Abort()
	r.m.ArtifactChanged(types.Artifact{ID: "x", Run: r.id, Agent: "web", Session: "s", Name: "late.png"}, true)
	if words, _ := events(t, s, id); words[len(words)-1] != types.EventArtifact {
		t.Errorf("an artifact of the session that was removed later is not told: %v", words)
	}
	var prompt types.EventPromptData
	var question types.EventQuestionData
	var answered types.EventAnsweredData
	for i, v := range map[int]any{1: &prompt, 3: &question, 4: &answered} {
		if err := json.Unmarshal(all[i].Data, v); err != nil {
			t.Fatal(err)
		}
	}
	if !prompt.Cut || !strings.Contains(string(prompt.Content), `"data":"artifact:"`) {
		t.Errorf("the prompt: %s", prompt.Content)
	}
	if want := types.QuestionID(r.id, json.RawMessage(`"q"`)); question.ID != want || answered.ID != want || !question.Ours || string(question.Params) != `{"toolCall":{"toolCallId":"t"},"options":[]}` || !strings.HasPrefix(answered.By, "handler attach!") || len(answered.By) > 120 {
		t.Errorf("%+v, %+v", question, answered)
	}
}

// TestUnspoken: a session of an editor's in which nobody has said anything is not kept.
func TestUnspoken(t *testing.T) {
	r, s, id := opened(t, "")
	r.Abort()
	if list, err := s.List(t.Context(), history.Filter{}); err != nil || len(list) > 0 {
		t.Errorf("%s is kept: %+v, %v", id, list, err)
	}
}

// TestNotLoaded: a session that the agent does not know is not kept for having been asked for; one that is open stays.
func TestNotLoaded(t *testing.T) {
	r, s, id := opened(t, types.ClientPage)
	for _, session := range []string{"none", "s"} {
		say(r.recorder, acp.Client, acp.Request, "session/load", session, "5", `{"sessionId":"`+session+`","cwd":"/p"}`)
		say(r.recorder, acp.Agent, acp.Notification, "session/update", session, "", `{"update":{"sessionUpdate":"plan"}}`)
		say(r.recorder, acp.Agent, acp.Response, "session/load", session, "5", `!{"code":-32002,"message":"no"}`)
	}
	if known, err := s.Known(t.Context(), "web", "none"); known != "" || err != nil {
		t.Errorf("kept as %q, %v", known, err)
	}
	say(r.recorder, acp.Agent, acp.Notification, "session/update", "s", "", `{"update":{"sessionUpdate":"plan"}}`)
	if words, _ := events(t, s, id); fmt.Sprint(words) != "[run update plan]" {
		t.Errorf("got %v", words)
	}
}

// TestTokenInTime: what the agent says is with who follows within 50 ms, and the relay waits for none of it.
func TestTokenInTime(t *testing.T) {
	r, s, id := opened(t, types.ClientPage)
	came := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	v, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- s.Follow(ctx, id, v.Events, func(list []types.Event) error {
			if list[len(list)-1].Kind == types.EventUpdate { // one at a time
				came <- time.Now()
			}
			return nil
		})
	}()
	var took, held []time.Duration
	for range 100 {
		start := time.Now()
		say(r.recorder, acp.Agent, acp.Notification, "session/update", "s", "", `{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"word "}}}`)
		held = append(held, time.Since(start))
		took = append(took, (<-came).Sub(start))
	}
	cancel()
	<-ended
	slices.Sort(took)
	slices.Sort(held)
	t.Logf("to a follower: half %v, 95 %% %v, most %v; in the relay's way: half %v, most %v", took[50], took[95], took[99], held[50], held[99])
	if took[50] > 50*time.Millisecond {
		t.Errorf("half of the tokens took more than %v", took[50])
	}
}
