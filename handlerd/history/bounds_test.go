package history

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// TestShorten: what is short stays as it is; pictures are marked, long text is cut at a character's end, and what comes
// out is JSON within the bound, whatever went in.
func TestShorten(t *testing.T) {
	picture := strings.Repeat("iVBORw0K", 1<<15)
	long := strings.Repeat(`a\n\"\u00e9\ud83d\ude00é😀`, 20_000)
	many := strings.Repeat(`"`+strings.Repeat("x", 900)+`",`, 3000)
	deep := strings.Repeat("[", 900) + strings.Repeat("]", 900)
	for name, test := range map[string]struct{ in, want string }{
		"short":   {`{"a": 1}`, `{"a": 1}`},
		"picture": {`{"content":{"type":"image","data":"` + picture + `","mimeType":"image/png"}, "x" : [1,{"blob":"` + picture + `"}]}`, `{"content":{"type":"image","data":"artifact:","mimeType":"image/png"},"x":[1,{"blob":"artifact:"}]}`},
		"text":    {`{"text":"` + long + `","data":"` + strings.Repeat("é ", 9000) + `"}`, ""},
		"many":    {`[` + many + `1]`, ""},
		"numbers": {`[` + strings.Repeat("123456,", 100_000) + `1]`, `{"cut":700003}`},
		"deep":    {`{"d":` + deep + `,"t":"` + long + `"}`, ""},
		"spaces":  {`{"a" : [ ` + strings.Repeat(" ", MaxEventBytes) + ` ] , "b":{ } }`, ""},
	} {
		got := Shorten([]byte(test.in), MaxEventBytes)
		if test.want != "" && string(got) != test.want {
			t.Errorf("%s: got %.300s", name, got)
		}
		if len(got) > MaxEventBytes+64 && name != "spaces" || !json.Valid(got) || !utf8.Valid(got) {
			t.Errorf("%s: %d bytes, valid %v", name, len(got), json.Valid(got))
		}
	}
	text := Shorten([]byte(`{"text":"`+long+`"}`), MaxEventBytes)
	var v struct{ Text string }
	if err := json.Unmarshal(text, &v); err != nil || !strings.HasSuffix(v.Text, " bytes, cut)") || strings.Contains(v.Text, "\ufffd") {
		t.Errorf("%v: … %q", err, v.Text[max(0, len(v.Text)-60):])
	}
}

func FuzzShorten(f *testing.F) {
	f.Add([]byte(`{"data":"`+strings.Repeat("A", 5000)+`","x":["\ud83d\ude00",1.5e3,null]}`), 256)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		if !json.Valid(in) || !utf8.Valid(in) || limit < 128 || limit > MaxEventBytes {
			return
		}
		in = append(append([]byte(`{"pad":"`+strings.Repeat(`\n`, maxData)+`","v":`), in...), '}')
		if got := Shorten(bytes.Clone(in), limit); !json.Valid(got) {
			t.Errorf("%s became %s", in, got)
		}
	})
}

// TestBounds: a session at its bounds keeps its prompts and turns, says how much is left out, and counts on without a gap.
func TestBounds(t *testing.T) {
	s := open(t, file(t), Options{MaxEvents: 10})
	id := begin(t, s, "a").ID
	for range 3 {
		if _, err := s.Append(t.Context(), id, types.EventPrompt, "", types.EventPromptData{}); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			s.Queue(id, types.EventUpdate, "plan", json.RawMessage(`{}`))
		}
		if _, err := s.Append(t.Context(), id, types.EventTurn, "", types.EventTurnData{State: "ended"}); err != nil {
			t.Fatal(err)
		}
	}
	events := all(t, s, id)
	if got := kinds(events[10:]); got != "cut turn prompt turn cut" && got != "turn cut prompt turn cut" {
		t.Errorf("past the bound: %s", got)
	}
	var cut types.EventCutData
	if err := json.Unmarshal(events[len(events)-1].Data, &cut); err != nil || cut.Events != 11 || cut.Reason == "" {
		t.Errorf("%+v, %v", cut, err)
	}
	if _, err := s.Append(t.Context(), id, types.EventNotice, "", types.EventNoticeData{}); err == nil {
		t.Error("an event over the bound was kept")
	}
}

// TestPruned: the oldest sessions without a run make room, live ones never.
func TestPruned(t *testing.T) {
	now := time.Now()
	s := open(t, file(t), Options{MaxSessions: 3, Now: func() time.Time { now = now.Add(time.Second); return now }})
	var ids []string
	for i := range 3 {
		ids = append(ids, begin(t, s, fmt.Sprint(i)).ID)
	}
	if _, _, err := s.Begin(t.Context(), types.Session{Agent: "web", ACP: "more"}); fault.Of(err).Kind != fault.Refused {
		t.Errorf("where all are live: %v", err)
	}
	for _, id := range ids[1:] {
		if err := s.Change(t.Context(), id, func(v *types.Session) { v.Run = "" }); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, s, "more")
	if _, err := s.Get(t.Context(), ids[0]); err != nil {
		t.Errorf("a live session went: %v", err)
	}
	if _, err := s.Get(t.Context(), ids[1]); fault.Of(err).Kind != fault.NotFound {
		t.Errorf("the oldest is there: %v", err)
	}
}

// TestFullDisk: a file that takes nothing more ends nothing. What is left out is counted and said when there is room again,
// whoever waits is told why, and the numbers have no gap.
func TestFullDisk(t *testing.T) {
	s := open(t, file(t), Options{})
	id := begin(t, s, "a").ID
	if _, err := s.Append(t.Context(), id, types.EventPrompt, "", types.EventPromptData{}); err != nil {
		t.Fatal(err)
	}
	var pages int
	if err := s.db.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	limit := func(n int) {
		t.Helper()
		if _, err := s.db.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	limit(pages)
	big := types.EventNoticeData{Text: strings.Repeat("x", 100<<10)}
	s.Note(id, func(v *types.Session) { v.Turn = "working" })
	_, err := s.Append(t.Context(), id, types.EventNotice, "", big)
	if fault.Of(err).Kind != fault.Failed || !strings.Contains(fault.Of(err).Hint, "free some space") {
		t.Errorf("on a full disk: %v", err)
	}
	limit(1 << 30)
	if _, err := s.Append(t.Context(), id, types.EventTurn, "", types.EventTurnData{State: "ended"}); err != nil {
		t.Fatal(err)
	}
	events := all(t, s, id)
	if got := kinds(events); got != "prompt turn cut" || !strings.Contains(string(events[2].Data), "the disk was full") {
		t.Errorf("got %s: %s", got, events[len(events)-1].Data)
	}
	if list, err := s.List(t.Context(), Filter{}); err != nil || list[0].Turn != "working" {
		t.Errorf("what was changed meanwhile: %+v, %v", list, err)
	}
}

// TestTenThousand: 10,000 events are read in well under a second.
func TestTenThousand(t *testing.T) {
	s := open(t, file(t), Options{})
	id := begin(t, s, "a").ID
	for i := range 10_000 {
		s.Queue(id, types.EventUpdate, "agent_message_chunk", json.RawMessage(fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"word number %d of the answer "}}`, i)))
	}
	began := time.Now()
	if err := s.Change(context.Background(), id, func(*types.Session) {}); err != nil {
		t.Fatal(err)
	}
	wrote := time.Since(began)
	began = time.Now()
	if n := len(all(t, s, id)); n != 10_000 {
		t.Fatalf("%d events", n)
	}
	t.Logf("written in %v, read in %v", wrote, time.Since(began))
}

// BenchmarkShorten is what a long line costs the relay that carries it: its picture or its text is left out without a copy.
func BenchmarkShorten(b *testing.B) {
	for kind, fill := range map[string]string{"picture": `"data":"` + strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA", 20<<20/24), "source": `"text":"` + strings.Repeat(`func f() {\n\treturn \"x\"\n}\n`, 20<<20/29)} {
		line := []byte(`{"sessionUpdate":"tool_call_update","content":[{"type":"content","content":{` + fill + `"}}]}`)
		b.Run(kind, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if got := Shorten(line, MaxEventBytes); len(got) > MaxEventBytes {
					b.Fatal(len(got))
				}
			}
		})
	}
}
