package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/history"
)

// kept is a server with a history, and a session in it.
func kept(t *testing.T) (*history.Store, types.Session, string) {
	t.Helper()
	feed := history.NewFeed()
	h, err := history.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), history.Options{Feed: feed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	v, _, err := h.Begin(t.Context(), types.Session{Agent: "web", ACP: "a", Cwd: "/p", Run: "r1", LastRun: "r1", Client: types.ClientEditor})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Mux(api.New(api.Options{History: h, Feed: feed})))
	t.Cleanup(server.Close)
	return h, v, server.URL
}

func get(t *testing.T, ctx context.Context, url string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestSessionsAPI: lists, one, events as lines, and what is asked wrongly.
func TestSessionsAPI(t *testing.T) {
	h, v, url := kept(t)
	if _, err := h.Append(t.Context(), v.ID, types.EventPrompt, "", types.EventPromptData{Content: json.RawMessage(`[{"type":"text","text":"find me"}]`)}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/v1/sessions":                             `"id":"` + v.ID,
		"/v1/sessions?query=FIND+me&agent=web":     `"id":"` + v.ID,
		"/v1/sessions?agent=other":                 `[]`,
		"/v1/sessions?limit=0":                     `no number from 1 to 500`,
		"/v1/sessions?limit=1&limit=2":             `not there once`,
		"/v1/sessions?x=1":                         `is not what /v1/sessions takes`,
		"/v1/sessions?before=none":                 `there is no session`,
		"/v1/sessions/" + v.ID[:3]:                 `"agent":"web"`,
		"/v1/sessions/none":                        `there is no session`,
		"/v1/sessions/" + v.ID + "/events":         `{"seq":1,`,
		"/v1/sessions/" + v.ID + "/events?after=1": ``,
		"/v1/sessions/" + v.ID + "/events?after=9": `has 1 events`,
		"/v1/sessions/" + v.ID + "/events?after=x": `no event's number`,
	} {
		resp := get(t, t.Context(), url+path)
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(body), want) || want == "" && len(body) > 0 {
			t.Errorf("%s: %s, %v; want %s", path, body, err, want)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, url+"/v1/sessions/"+v.ID, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a live session was removed: %v, %v", resp, err)
	}
	resp.Body.Close()
}

// TestEventStream: server-sent events go on behind Last-Event-ID, and what comes later comes.
func TestEventStream(t *testing.T) {
	h, v, url := kept(t)
	for range 3 {
		h.Queue(v.ID, types.EventUpdate, "plan", json.RawMessage(`{"a":"b\nc"}`))
	}
	if _, err := h.Append(t.Context(), v.ID, types.EventNotice, "", types.EventNoticeData{Text: "last"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := get(t, ctx, url+"/v1/sessions/"+v.ID+"/events?after=1&follow=1", "Accept", "text/event-stream", "Last-Event-ID", "3")
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	in := bufio.NewReader(resp.Body)
	expect := func(want string) {
		t.Helper()
		id, _ := in.ReadString('\n')
		data, _ := in.ReadString('\n')
		end, _ := in.ReadString('\n')
		if id != "id: "+want+"\n" || !strings.HasPrefix(data, `data: {"seq":`+want+",") || end != "\n" {
			t.Errorf("got %q %q %q, want %s", id, data, end, want)
		}
	}
	expect("4")
	h.Queue(v.ID, types.EventUpdate, "plan", json.RawMessage(`{}`))
	expect("5")
}

// TestFeedAPI: what changes is told to who follows.
func TestFeedAPI(t *testing.T) {
	h, v, url := kept(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := get(t, ctx, url+"/v1/feed", "Accept", "text/event-stream")
	if err := h.Rename(t.Context(), v.ID, "named"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, `data: {"session":{`) || !strings.Contains(line, `"title":"named"`) {
		t.Errorf("got %s, %v", line, err)
	}
}

// TestNoHistory: where the file cannot be used, whoever asks is told.
func TestNoHistory(t *testing.T) {
	w := httptest.NewRecorder()
	api.Mux(api.New(api.Options{})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/sessions", nil))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no sessions are kept") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestManyEvents: 10,000 events are read through the API in well under a second.
func TestManyEvents(t *testing.T) {
	h, v, url := kept(t)
	for range 10_000 {
		h.Queue(v.ID, types.EventUpdate, "agent_message_chunk", json.RawMessage(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"some words of the answer "}}`))
	}
	if err := h.Change(t.Context(), v.ID, func(*types.Session) {}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	resp := get(t, t.Context(), url+"/v1/sessions/"+v.ID+"/events")
	body, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(body), "\n") != 10_000 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	t.Logf("10,000 events, %d bytes, in %v", len(body), time.Since(began)) // told, and not asserted: make bench compares
}
