package talk_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/talk"
)

func start(t *testing.T, a *agent) *talk.Talk {
	t.Helper()
	a.m = newMemory()
	busy := 0
	var mu sync.Mutex
	tk := talk.New(talk.Options{
		Runs: a, History: a.m, LoginHint: func(agent string) string { return "give " + agent + " a key" },
		Busy: func() func() {
			mu.Lock()
			defer mu.Unlock()
			busy++
			return func() { mu.Lock(); defer mu.Unlock(); busy-- }
		},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := tk.Close(ctx); err != nil {
			t.Error(err)
		}
		if busy != 0 {
			t.Errorf("%d sessions count as live", busy)
		}
	})
	return tk
}

func create(t *testing.T, tk *talk.Talk) types.Session {
	t.Helper()
	s, err := tk.Create(t.Context(), types.NewSession{Agent: "demo", Cwd: "/src"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func say(text string) types.Prompt {
	return types.Prompt{Content: mustJSON([]map[string]string{{"type": "text", "text": text}})}
}

func prompt(t *testing.T, tk *talk.Talk, id, text string) int64 {
	t.Helper()
	taken, err := tk.Prompt(t.Context(), id, say(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return taken.Seq
}

// want fails unless err is a fault of a kind whose text or hint says something.
func want(t *testing.T, err error, kind fault.Kind, says string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok || f.Kind != kind || !strings.Contains(f.Error(), says) {
		t.Errorf("got %v (%T), want kind %d and %q", err, err, kind, says)
	}
}

func TestSession(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	s := create(t, tk)
	if a.last.Client != types.ClientPage || !a.last.AsksItself || a.last.Unattended {
		t.Errorf("the run was asked for with %+v", a.last)
	}
	caps, err := json.Marshal(a.init.ClientCapabilities)
	if err != nil || string(caps) != `{"elicitation":{"form":{},"url":{}}}` {
		t.Errorf("capabilities %s, %v", caps, err)
	}
	seq := prompt(t, tk, s.ID, "hello")
	if seq != 1 {
		t.Errorf("the prompt is event %d", seq)
	}
	a.m.await(t, s.ID, types.EventTurn, seq)
	if again := prompt(t, tk, s.ID, "hello"); again != 3 {
		t.Errorf("the second prompt is event %d", again)
	}
	if err := tk.Title(t.Context(), s.ID, "Mine"); err != nil {
		t.Error(err)
	}
	want(t, tk.Title(t.Context(), s.ID, "two\nlines"), fault.Usage, "one line")
	if s, _ := a.m.Get(t.Context(), s.ID); s.Title != "Mine" {
		t.Errorf("title %q", s.Title)
	}
	if err := tk.End(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	if _, ours := tk.Live(s.ID); ours {
		t.Error("it lives after its end")
	}
	if err := tk.End(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
}

func TestPermission(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	s := create(t, tk)
	seq := prompt(t, tk, s.ID, "permission")
	e := a.m.await(t, s.ID, types.EventQuestion, seq)
	var q types.EventQuestionData
	if err := json.Unmarshal(e.Data, &q); err != nil {
		t.Fatal(err)
	}
	want(t, tk.Answer(t.Context(), s.ID, types.QuestionAnswer{ID: "other", Option: "yes"}), fault.NotFound, "not open")
	want(t, tk.Answer(t.Context(), s.ID, types.QuestionAnswer{ID: q.ID, Option: "no such"}), fault.Usage, "no option")
	want(t, tk.Answer(t.Context(), s.ID, types.QuestionAnswer{ID: q.ID}), fault.Usage, "exactly one")
	want(t, tk.Answer(t.Context(), s.ID, types.QuestionAnswer{ID: q.ID, Option: "yes", Cancel: true}), fault.Usage, "exactly one")
	want(t, tk.Answer(t.Context(), s.ID, types.QuestionAnswer{ID: q.ID, Content: json.RawMessage(`{}`)}), fault.Usage, "options")
	if n, _ := tk.Live(s.ID); n != 1 {
		t.Errorf("%d questions wait", n)
	}
	if err := tk.Answer(t.Context(), s.ID, types.QuestionAnswer{ID: q.ID, Option: "yes", By: "a test"}); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	if len(a.by) != 1 || a.by[0] != "a test" {
		t.Errorf("answered by %q", a.by)
	}
	a.mu.Unlock()
	answered(t, a, s.ID, e.Seq, `"optionId":"yes"`)
	want(t, tk.Answer(t.Context(), s.ID, types.QuestionAnswer{ID: q.ID, Option: "yes"}), fault.NotFound, "not open")
}

func answered(t *testing.T, a *agent, id string, after int64, says string) {
	t.Helper()
	e := a.m.await(t, id, types.EventAnswered, after)
	var d types.EventAnsweredData
	text := ""
	if json.Unmarshal(e.Data, &d) != nil || json.Unmarshal(d.Answer, &text) != nil || !strings.Contains(text, says) {
		t.Errorf("answered %s, want %s", text, says)
	}
}

func TestElicitation(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	s := create(t, tk)
	form := `"mode":"form","requestedSchema":{"type":"object","properties":{"n":{"type":"integer"},"c":{"type":"string","enum":["a","b"]}},"required":["n"]}`
	link := `"mode":"url","elicitationId":"1","url":"https://example.org/x"`
	for _, tt := range []struct {
		params string
		answer types.QuestionAnswer
		bad    string
		want   string
	}{
		{form, types.QuestionAnswer{Content: json.RawMessage(`{"n":3,"c":"b"}`)}, "", `{"action":"accept","content":{"n":3,"c":"b"}}`},
		{form, types.QuestionAnswer{Content: json.RawMessage(`{"n":"x"}`)}, "does not fit", ""},
		{form, types.QuestionAnswer{Content: json.RawMessage(`{"c":"a"}`)}, "an answer is needed", ""},
		{form, types.QuestionAnswer{Content: json.RawMessage(`{"n":1,"c":"z"}`)}, "none of the values", ""},
		{form, types.QuestionAnswer{Content: json.RawMessage(`{"n":1,"d":1}`)}, "no field", ""},
		{form, types.QuestionAnswer{Content: json.RawMessage(`[1]`)}, "an object", ""},
		{form, types.QuestionAnswer{Option: "yes"}, "declined with", ""},
		{form, types.QuestionAnswer{Option: types.OptionDecline}, "", `{"action":"decline"}`},
		{link, types.QuestionAnswer{Content: json.RawMessage(`{}`)}, "", `{"action":"accept"}`},
		{link, types.QuestionAnswer{Cancel: true}, "", `{"action":"cancel"}`},
	} {
		seq := prompt(t, tk, s.ID, "elicit "+tt.params)
		e := a.m.await(t, s.ID, types.EventQuestion, seq)
		var q types.EventQuestionData
		if err := json.Unmarshal(e.Data, &q); err != nil {
			t.Fatal(err)
		}
		tt.answer.ID = q.ID
		err := tk.Answer(t.Context(), s.ID, tt.answer)
		if tt.bad != "" {
			want(t, err, fault.Usage, tt.bad)
			tt.want = `{"action":"cancel"}`
			err = tk.Answer(t.Context(), s.ID, types.QuestionAnswer{ID: q.ID, Cancel: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		answered(t, a, s.ID, e.Seq, tt.want)
		a.m.await(t, s.ID, types.EventTurn, seq)
	}
	for params, says := range map[string]string{
		`"mode":"url","url":"http://example.org"`: "https",
		`"mode":"form","requestedSchema":7`:       "form",
	} {
		seq := prompt(t, tk, s.ID, "elicit "+params)
		answered(t, a, s.ID, seq, says)
		a.m.await(t, s.ID, types.EventTurn, seq)
	}
	seq := prompt(t, tk, s.ID, "foreign")
	answered(t, a, s.ID, seq, "no session")
}

func TestCancel(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	s := create(t, tk)
	if err := tk.Cancel(t.Context(), s.ID); err != nil {
		t.Errorf("without a turn: %v", err)
	}
	seq := prompt(t, tk, s.ID, "wait")
	if err := a.m.Change(t.Context(), s.ID, func(s *types.Session) { s.Turn = "working" }); err != nil {
		t.Fatal(err)
	}
	_, err := tk.Prompt(t.Context(), s.ID, say("more"))
	want(t, err, fault.Conflict, "still at work")
	if err := tk.Cancel(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	turn := a.m.await(t, s.ID, types.EventTurn, seq)
	if err := a.m.Change(t.Context(), s.ID, func(s *types.Session) { s.Turn = "idle" }); err != nil {
		t.Fatal(err)
	}
	seq = prompt(t, tk, s.ID, "permission")
	a.m.await(t, s.ID, types.EventQuestion, turn.Seq)
	if err := tk.Cancel(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	answered(t, a, s.ID, seq, `"outcome":"cancelled"`)
}

func TestContinue(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	s := create(t, tk)
	if err := tk.End(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	want(t, tk.Cancel(t.Context(), s.ID), fault.Refused, "continue it")
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			got, err := tk.Continue(t.Context(), s.ID, types.ContinueSession{Limits: types.Limits{Memory: "1GB"}})
			if err != nil || got.ID != s.ID || got.Run != "run2" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if a.runs != 2 || a.last.Limits.Memory != "1GB" || a.last.Cwd != "/src" {
		t.Errorf("%d runs; the last asked for %+v", a.runs, a.last)
	}
	// A prompt continues by itself.
	if err := tk.End(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	prompt(t, tk, s.ID, "hello")
	if a.runs != 3 {
		t.Errorf("%d runs", a.runs)
	}
	if err := tk.End(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	a.noLoad = true
	_, err := tk.Continue(t.Context(), s.ID, types.ContinueSession{})
	want(t, err, fault.NotFound, "knows session")
	a.m.sessions[s.ID].Continues = ""
	_, err = tk.Prompt(t.Context(), s.ID, say("x"))
	want(t, err, fault.Refused, "cannot continue")
	a.m.sessions[s.ID].Run, a.m.sessions[s.ID].Client = "k3f9", types.ClientEditor
	_, err = tk.Prompt(t.Context(), s.ID, say("x"))
	want(t, err, fault.Refused, "handler kill k3f9")
	want(t, tk.End(t.Context(), s.ID), fault.Refused, "editor")
	_, err = tk.Prompt(t.Context(), "none", say("x"))
	want(t, err, fault.NotFound, "none")
}

func TestOptions(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	s := create(t, tk)
	set := func(id, value string) error {
		return tk.Option(t.Context(), s.ID, types.SessionOption{ID: id, Value: json.RawMessage(value)})
	}
	for id, value := range map[string]string{"mode": `"code"`, "model": `"big"`, "fast": "true"} {
		if err := set(id, value); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	now, _ := a.m.Get(t.Context(), s.ID)
	if !strings.Contains(string(now.Modes), `"currentModeId":"code"`) || !strings.Contains(string(now.Modes), `"x":1`) || !strings.Contains(string(now.Options), "big") {
		t.Errorf("modes %s, options %s", now.Modes, now.Options)
	}
	want(t, set("mode", `"none"`), fault.Usage, "no mode")
	want(t, set("mode", `7`), fault.Usage, "no mode")
	want(t, set("colour", `"red"`), fault.NotFound, "no option")
	want(t, set("model", `{}`), fault.Usage, "text or true")
}

// What goes wrong with an agent is said, and nothing is left (TestMain looks for goroutines).
func TestTroubles(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	a.broken = fault.New(fault.NotFound, "", "there is no agent")
	_, err := tk.Create(t.Context(), types.NewSession{Agent: "x", Cwd: "/"})
	want(t, err, fault.NotFound, "no agent")
	a.broken, a.wantAuth = nil, "new"
	_, err = tk.Create(t.Context(), types.NewSession{Agent: "demo", Cwd: "/"})
	want(t, err, fault.Failed, "it offers: a key")
	want(t, err, fault.Failed, "give demo a key")
	a.wantAuth = ""
	s := create(t, tk)
	seq := prompt(t, tk, s.ID, "auth")
	if e := a.m.await(t, s.ID, types.EventNotice, seq); !strings.Contains(string(e.Data), "give demo a key") {
		t.Errorf("notice %s", e.Data)
	}
	_, err = tk.Prompt(t.Context(), s.ID, say("refuse"))
	want(t, err, fault.Refused, "P7")
	prompt(t, tk, s.ID, "crash")
	if err := tk.End(t.Context(), s.ID); err != nil { // the run takes a moment to go
		t.Error(err)
	}
	prompt(t, tk, s.ID, "hello") // in a fresh run
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tk.Create(gone, types.NewSession{Agent: "demo", Cwd: "/"}); err == nil {
		t.Error("a session was made for nobody")
	}
}

// The end of the daemon ends turns that are under way, and nothing begins after it.
func TestClose(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	for range 3 {
		prompt(t, tk, create(t, tk).ID, "permission")
	}
	if err := tk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := tk.Create(t.Context(), types.NewSession{Agent: "demo", Cwd: "/"})
	want(t, err, fault.Failed, "is ending")
}

func TestPrompts(t *testing.T) {
	a := &agent{}
	tk := start(t, a)
	s := create(t, tk)
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n0000"))
	for content, says := range map[string]string{
		`[]`:                           "empty",
		`[{"type":"text","text":""}]`:  "empty",
		`{"type":"text"}`:              "wrong shape",
		`[{"type":"video"}]`:           "none of text",
		`[{"type":"resource"}]`:        "has a resource",
		`[{"type":"resource_link"}]`:   "has a name",
		`[{"type":"audio","data":""}]`: "sound",
		`[{"type":"resource_link","name":"x","uri":"x y"}]`:                                               "no URI",
		`[{"type":"resource","resource":{"uri":"file:///x","text":"a","blob":"YQ=="}}]`:                   "not both",
		`[{"type":"image","data":"***","mimeType":"image/png"}]`:                                          "base64",
		`[{"type":"image","data":"aGVsbG8=","mimeType":"image/png"}]`:                                     "no png",
		`[{"type":"image","data":"` + png + `","mimeType":"image/gif"}]`:                                  "image/png and not",
		`[` + strings.Repeat(`{"type":"text","text":"a"},`, 256) + `{"type":"text","text":"a"}]`:          "at most 256",
		`[{"type":"resource","resource":{"uri":"file:///x","text":"a"}}]`:                                 "takes no embedded files",
		`[{"type":"audio","data":"YQ==","mimeType":"audio/wav"}]`:                                         "takes no sound",
		fmt.Sprintf(`[{"type":"text","text":"%s"}]`, strings.Repeat("a", talk.MaxPromptBytes)):            "at most 31 MiB",
		fmt.Sprintf(`[{"type":"image","data":"%s"}]`, strings.Repeat("AAAA", (20<<20)/3+1)):               "at most 20 MiB",
		`[{"type":"resource","resource":{"uri":"file:///x","blob":"*"}}]`:                                 "base64",
		`[{"type":"text","text":"a"},{"type":"image","data":"` + png + `","mimeType":"image/png","x":1}]`: "",
	} {
		_, err := tk.Prompt(t.Context(), s.ID, types.Prompt{Content: json.RawMessage(content)})
		if says == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, want %q", content, err, says)
		}
	}
}
