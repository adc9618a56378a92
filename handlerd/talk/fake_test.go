package talk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/talk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a history, and the recorder of the fake runs.
type memory struct {
	mu       sync.Mutex
	changed  chan struct{}
	sessions map[string]*types.Session
	events   map[string][]types.Event
}

func newMemory() *memory {
	return &memory{changed: make(chan struct{}), sessions: map[string]*types.Session{}, events: map[string][]types.Event{}}
}

func (m *memory) Get(_ context.Context, id string) (types.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if s == nil {
		return types.Session{}, fault.New(fault.NotFound, "", "there is no session %q", id)
	}
	return *s, nil
}

func (m *memory) Known(_ context.Context, agent, acp string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.sessions {
		if s.Agent == agent && s.ACP == acp {
			return id, nil
		}
	}
	return "", nil
}

func (m *memory) Change(_ context.Context, id string, change func(*types.Session)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m.sessions[id])
	return nil
}

func (m *memory) Rename(ctx context.Context, id, title string) error {
	return m.Change(ctx, id, func(s *types.Session) { s.Title = title })
}

func (m *memory) Append(_ context.Context, id, kind, _ string, data any) (int64, error) {
	m.add(id, kind, data)
	return 0, nil
}

func (m *memory) Follow(ctx context.Context, id string, after int64, each func([]types.Event) error) error {
	for {
		m.mu.Lock()
		list, more := m.events[id], m.changed
		m.mu.Unlock()
		for _, e := range list {
			if e.Seq <= after {
				continue
			}
			after = e.Seq
			if err := each([]types.Event{e}); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *memory) add(id, kind string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	s.Events++
	m.events[id] = append(m.events[id], types.Event{Seq: s.Events, Kind: kind, Data: raw})
	close(m.changed)
	m.changed = make(chan struct{})
}

// await waits for an event of a kind after a number.
func (m *memory) await(t *testing.T, id, kind string, after int64) types.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var found types.Event
	err := m.Follow(ctx, id, after, func(e []types.Event) error {
		if e[0].Kind == kind {
			found = e[0]
			return fmt.Errorf("found")
		}
		return nil
	})
	if found.Seq == 0 {
		t.Fatalf("no %s: %v", kind, err)
	}
	return found
}

// An agent is a scripted one: what the first text of a prompt says is done.
type agent struct {
	m    *memory
	runs int
	mu   sync.Mutex
	last types.RunRequest
	init jsonrpc.InitializeParams

	by       []string // who answered
	noLoad   bool
	wantAuth string // "new" or "prompt"
	broken   error  // what Start gives
}

func (a *agent) Start(_ context.Context, req types.RunRequest) (talk.Run, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		return nil, a.broken
	}
	a.runs++
	a.last = req
	return &run{a: a, id: fmt.Sprintf("run%d", a.runs), req: req}, nil
}

type run struct {
	a       *agent
	id      string
	req     types.RunRequest
	aborted bool
	crash   context.CancelCauseFunc
	cancels chan struct{}
	session string
}

func (r *run) ID() string { return r.id }
func (r *run) Abort()     { r.aborted = true }

func (r *run) AnsweredBy(_, by string) {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	r.a.by = append(r.a.by, by)
}

func (r *run) Serve(ctx context.Context, client net.Conn) error {
	ctx, r.crash = context.WithCancelCause(ctx)
	defer r.crash(nil)
	r.cancels = make(chan struct{}, 4)
	peer := jsonrpc.New(ctx, client, jsonrpc.Options{Handler: r.handle})
	select {
	case <-peer.Done():
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	_ = peer.Close()
	r.a.m.mu.Lock()
	defer r.a.m.mu.Unlock()
	for _, s := range r.a.m.sessions {
		if s.Run == r.id {
			s.Run, s.LastRun, s.Turn = "", r.id, "idle"
		}
	}
	return err
}

func (r *run) handle(_ context.Context, req *jsonrpc.Request) {
	switch req.Method {
	case jsonrpc.MethodInitialize:
		_ = req.Decode(&r.a.init)
		req.Reply(json.RawMessage(`{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true}},
			"authMethods":[{"id":"k","name":"a key"}]}`))
	case jsonrpc.MethodSessionNew:
		if r.a.wantAuth == "new" {
			req.Refuse(jsonrpc.Errorf(jsonrpc.CodeAuthRequired, "log in"))
			return
		}
		r.open("acp-" + r.id)
		req.Reply(map[string]any{"sessionId": "acp-" + r.id})
	case jsonrpc.MethodSessionLoad:
		var p jsonrpc.LoadSessionParams
		_ = req.Decode(&p)
		if r.a.noLoad {
			req.Refuse(jsonrpc.Errorf(jsonrpc.CodeResourceNotFound, "no such session"))
			return
		}
		r.open(p.SessionID)
		req.Reply(nil)
	case jsonrpc.MethodSetMode:
		req.Reply(nil)
	case jsonrpc.MethodSetConfigOption:
		req.Reply(json.RawMessage(`{"configOptions":[{"id":"model","currentValue":"big"},{"id":"fast"}]}`))
	case jsonrpc.MethodSessionCancel:
		r.cancels <- struct{}{}
	case jsonrpc.MethodSessionPrompt:
		r.prompt(req)
	default:
		req.Refuse(jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "no"))
	}
}

// open writes down what a recorder would.
func (r *run) open(acp string) {
	r.a.m.mu.Lock()
	defer r.a.m.mu.Unlock()
	for id, s := range r.a.m.sessions {
		if s.ACP == acp {
			s.Run, s.Client, r.session = r.id, r.req.Client, id
			return
		}
	}
	r.session = "s" + r.id
	r.a.m.sessions[r.session] = &types.Session{
		ID: r.session, Agent: r.req.Agent, ACP: acp, Cwd: r.req.Cwd, Run: r.id, Client: r.req.Client, Turn: "idle", Continues: "load",
		Modes:   json.RawMessage(`{"currentModeId":"ask","availableModes":[{"id":"ask"},{"id":"code"}],"x":1}`),
		Options: json.RawMessage(`[{"id":"model"},{"id":"fast","type":"boolean"}]`),
	}
}

func (r *run) prompt(req *jsonrpc.Request) {
	var p struct {
		Prompt []jsonrpc.ContentBlock `json:"prompt"`
	}
	_ = req.Decode(&p)
	text := p.Prompt[0].Text
	if text == "refuse" {
		req.Refuse(&jsonrpc.Error{Code: -32600, Message: "refused", Data: json.RawMessage(`{"rule":"P7","reason":"too much","hint":"less"}`)})
		return
	}
	r.a.m.add(r.session, types.EventPrompt, types.EventPromptData{})
	req.Go(func(ctx context.Context) (any, error) {
		result, err := r.work(ctx, req.Peer(), text)
		r.a.m.add(r.session, types.EventTurn, types.EventTurnData{State: "ended"})
		return result, err
	})
}

func (r *run) work(ctx context.Context, peer *jsonrpc.Peer, text string) (any, error) {
	s, _ := r.a.m.Get(ctx, r.session)
	acp := s.ACP
	question := func(method, params string) (string, error) {
		var raw json.RawMessage
		err := peer.Call(ctx, method, json.RawMessage(params), &raw)
		return string(raw), err
	}
	stop := jsonrpc.StopEndTurn
	kind, rest, _ := strings.Cut(text, " ")
	switch kind {
	case "auth":
		return nil, jsonrpc.Errorf(jsonrpc.CodeAuthRequired, "log in")
	case "crash":
		r.crash(fault.New(fault.Failed, "handler logs "+r.id, "the agent ended with exit code 1"))
		<-ctx.Done()
		return nil, ctx.Err()
	case "wait":
		<-r.cancels
		stop = jsonrpc.StopCancelled
	case "permission", "elicit", "foreign":
		if kind == "foreign" {
			acp = "another"
		}
		method, params := jsonrpc.MethodRequestPermission, `{"sessionId":"`+acp+`","toolCall":{"toolCallId":"1"},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}`
		if kind == "elicit" {
			method, params = jsonrpc.MethodElicitation, `{"sessionId":"`+acp+`","message":"m",`+rest+`}`
		}
		// A recorder has seen it before the client has.
		r.a.m.add(r.session, types.EventQuestion, types.EventQuestionData{ID: types.QuestionID(r.id, json.RawMessage(fmt.Sprint(r.asks()))), Method: method})
		answer, err := question(method, params)
		if err != nil {
			answer = err.Error()
		}
		r.a.m.add(r.session, types.EventAnswered, types.EventAnsweredData{Answer: mustJSON(answer)})
	}
	return map[string]string{"stopReason": stop}, nil
}

// asks counts the questions of a run: its peer numbers its requests the same way.
func (r *run) asks() int {
	r.a.m.mu.Lock()
	defer r.a.m.mu.Unlock()
	n := 0
	for _, e := range r.a.m.events[r.session] {
		var q types.EventQuestionData
		if e.Kind == types.EventQuestion && json.Unmarshal(e.Data, &q) == nil && strings.HasPrefix(q.ID, r.id+"/") {
			n++
		}
	}
	return n
}

func mustJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
