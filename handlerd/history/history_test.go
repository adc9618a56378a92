package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store in a folder of the test's, or again in one.
func open(t testing.TB, path string, o Options) *Store {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "sessions.db") }

func begin(t testing.TB, s *Store, acp string) types.Session {
	t.Helper()
	v, _, err := s.Begin(t.Context(), types.Session{Agent: "web", ACP: acp, Cwd: "/p", Client: types.ClientEditor, Run: "r1", LastRun: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// all reads a session's events, and wants their numbers without a gap.
func all(t testing.TB, s *Store, id string) []types.Event {
	t.Helper()
	var found []types.Event
	for {
		events, err := s.Events(t.Context(), id, int64(len(found)), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if found = append(found, e); e.Seq != int64(len(found)) {
				t.Fatalf("event %d has number %d", len(found), e.Seq)
			}
		}
		if len(events) == 0 {
			return found
		}
	}
}

func kinds(events []types.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Kind + " ")
	}
	return strings.TrimSpace(b.String())
}

// TestSession: a session's life, its title's three sources, its going on in another run, and its end.
func TestSession(t *testing.T) {
	path := file(t)
	s := open(t, path, Options{})
	v := begin(t, s, "a1")
	if v.ID == "" || v.Turn != "idle" || v.Created.IsZero() {
		t.Errorf("got %+v", v)
	}
	s.NotePrompt(v.ID, "  fix\nthe \x1b[31m\u202etest ")
	if seq, err := s.Append(t.Context(), v.ID, types.EventPrompt, "", types.EventPromptData{Content: json.RawMessage(`[]`)}); seq != 1 || err != nil {
		t.Fatal(seq, err)
	}
	title := func(want string) {
		t.Helper()
		got, err := s.Get(t.Context(), v.ID[:3])
		if err != nil || got.Title != want {
			t.Errorf("title %q, %v; want %q", got.Title, err, want)
		}
	}
	title("fix the [31mtest")
	s.NoteTitle(v.ID, "Test fixed")
	title("Test fixed")
	if err := s.Rename(t.Context(), v.ID, "mine"); err != nil {
		t.Fatal(err)
	}
	title("mine")
	s.Queue(v.ID, types.EventUpdate, "agent_message_chunk", json.RawMessage(`{"x":1}`))
	if err := s.Change(t.Context(), v.ID, func(v *types.Session) { v.Run, v.ID = "", "forged" }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, Options{})
	title("mine")
	again, known, err := s.Begin(t.Context(), types.Session{Agent: "web", ACP: "a1", Run: "r2", LastRun: "r2", Client: types.ClientCommand})
	if err != nil || !known || again.ID != v.ID || again.Run != "r2" || again.Client != types.ClientCommand || again.Cwd != "/p" || again.Title != "mine" || !again.Created.Equal(v.Created) {
		t.Errorf("got %+v, known %v, %v", again, known, err)
	}
	if _, err := s.Append(t.Context(), v.ID, types.EventTurn, "", types.EventTurnData{State: "started"}); err != nil {
		t.Fatal(err)
	}
	events := all(t, s, v.ID)
	if got := kinds(events); got != "prompt update turn" || events[1].Update != "agent_message_chunk" || string(events[1].Data) != `{"x":1}` {
		t.Errorf("got %s: %+v", got, events)
	}
	if err := s.Remove(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Remove(t.Context(), v.ID), second(s.Get(t.Context(), v.ID)), second(s.Append(t.Context(), v.ID, types.EventNotice, "", nil))} {
		if fault.Of(err).Kind != fault.NotFound {
			t.Errorf("of a removed session: %v", err)
		}
	}
	var rows int
	if err := s.db.QueryRow("SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM details)").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestList: the last used first, by every filter, a page at a time.
func TestList(t *testing.T) {
	now := time.Now()
	s := open(t, file(t), Options{Now: func() time.Time { now = now.Add(time.Second); return now }})
	var ids []string
	for i := range 5 {
		ids = append(ids, begin(t, s, fmt.Sprint("a", i)).ID)
	}
	if _, err := s.Append(t.Context(), ids[1], types.EventPrompt, "", types.EventPromptData{Content: json.RawMessage(`[{"type":"text","text":"where is the Needle_100%?"}]`)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Change(t.Context(), ids[3], func(v *types.Session) { v.Run = "" }); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		f    Filter
		want []int
	}{
		{Filter{}, []int{1, 4, 3, 2, 0}},
		{Filter{Limit: 2}, []int{1, 4}},
		{Filter{Before: ids[4], Limit: 2}, []int{3, 2}},
		{Filter{Live: true, ACP: "a3"}, nil},
		{Filter{Query: "needle_100%"}, []int{1}},
		{Filter{Query: "needle.100%"}, nil},
		{Filter{Query: ids[2]}, []int{2}},
		{Filter{Agent: "none"}, nil},
		{Filter{Agent: "web", Cwd: "/p", ACP: "a0"}, []int{0}},
	} {
		list, err := s.List(t.Context(), test.f)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, v := range list {
			got = append(got, v.ID)
		}
		for _, i := range test.want {
			want = append(want, ids[i])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: %s", test.f, diff)
		}
	}
}

// TestFollow: who follows gets every event once and in order, from wherever, whatever it missed, and ends when the session
// is removed.
func TestFollow(t *testing.T) {
	s := open(t, file(t), Options{})
	id := begin(t, s, "a").ID
	const n = 3000
	for range n / 2 {
		s.Queue(id, types.EventUpdate, "plan", json.RawMessage(`{}`))
	}
	ended := make(chan error, 3)
	var all []chan bool
	if err := s.Change(t.Context(), id, func(*types.Session) {}); err != nil { // all of them are there
		t.Fatal(err)
	}
	if err := s.Follow(t.Context(), id, n, nil); fault.Of(err).Kind != fault.Usage {
		t.Errorf("after what is not there: %v", err)
	}
	for _, after := range []int64{0, 10, n / 2} {
		seen, there := after, make(chan bool)
		all = append(all, there)
		go func() {
			ended <- s.Follow(context.Background(), id, after, func(events []types.Event) error {
				for _, e := range events {
					if seen++; e.Seq != seen {
						return fmt.Errorf("event %d came as %d", e.Seq, seen)
					}
				}
				if seen == n+1 {
					close(there)
				}
				return nil
			})
		}()
	}
	for range n / 2 {
		s.Queue(id, types.EventUpdate, "plan", json.RawMessage(`{}`))
	}
	fourth := errors.New("enough")
	err := s.Follow(t.Context(), id, 0, func(events []types.Event) error {
		if events[len(events)-1].Seq >= n {
			return fourth
		}
		return nil
	})
	if !errors.Is(err, fourth) {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), id, types.EventNotice, "", types.EventNoticeData{}); err != nil {
		t.Fatal(err)
	}
	for _, there := range all {
		<-there
	}
	if err := s.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestKilled: what a daemon that was killed left as live is ended at the next start, with an event for each.
func TestKilled(t *testing.T) {
	path := file(t)
	s := open(t, path, Options{})
	id := begin(t, s, "a").ID
	s.Note(id, func(v *types.Session) { v.Turn, v.Ours, v.Questions = "working", true, 2 })
	if _, err := s.Append(t.Context(), id, types.EventUpdate, "plan", json.RawMessage(`{}`)); err != nil {
		t.Fatal(err)
	}
	idle := begin(t, s, "b").ID
	if err := s.Close(); err != nil { // as a killed one: nothing tells the store that the runs have ended
		t.Fatal(err)
	}
	s = open(t, path, Options{})
	v, err := s.Get(t.Context(), id)
	if err != nil || v.Turn != "idle" || v.Run != "" || v.LastRun != "r1" || v.Ours || v.Questions != 0 || v.Events != 3 {
		t.Errorf("got %+v, %v", v, err)
	}
	if got := kinds(all(t, s, id)); got != "update turn run" {
		t.Errorf("got %s", got)
	}
	if got := kinds(all(t, s, idle)); got != "run" {
		t.Errorf("got %s", got)
	}
}

// TestFeed: who follows is told of what changes, once of what changes often, in any number.
func TestFeed(t *testing.T) {
	f := NewFeed()
	s := open(t, file(t), Options{Feed: f})
	ctx, cancel := context.WithCancel(t.Context())
	begun, got, ended := make(chan bool), make(chan types.Change, 100), make(chan error, 1)
	go func() {
		first := true
		ended <- f.Follow(ctx, func(changes []types.Change) error {
			if first {
				close(begun)
				first = false
			}
			for _, c := range changes {
				got <- c
			}
			return nil
		})
	}()
	<-begun
	v := begin(t, s, "a")
	if c := <-got; c.Session == nil || c.Session.ID != v.ID {
		t.Errorf("got %+v", c)
	}
	for i := range 50 {
		s.Note(v.ID, func(v *types.Session) { v.Questions = i })
	}
	if err := s.Remove(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	f.Announce(types.Change{Ended: "r1"})
	n := 0
	for c := range got {
		if n++; c.Ended != "" {
			break
		}
		if c.Removed == "" && c.Session == nil {
			t.Errorf("got %+v", c)
		}
	}
	if n > 10 {
		t.Errorf("%d changes, and most are of one session", n)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
