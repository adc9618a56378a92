package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// maxOpen bounds the sessions that are open at once.
const maxOpen = 64

// An agent serves one connection.
type agent struct {
	store  store
	stderr io.Writer

	mu       sync.Mutex
	sessions map[string]*session
}

// serve speaks ACP over conn until it ends or ctx does. Sessions are kept in dir, or not at all if that is empty.
// Nothing that it started is left when it returns.
func serve(ctx context.Context, conn io.ReadWriteCloser, dir string, stderr io.Writer) error {
	a := &agent{store: store{dir: dir}, stderr: &lockedWriter{w: stderr}, sessions: map[string]*session{}}
	peer := jsonrpc.New(ctx, conn, jsonrpc.Options{Handler: a.handle})
	select {
	case <-peer.Done():
		a.closeAll()
		_ = peer.Close() // a client that has gone cannot be told anything
		return nil
	case <-ctx.Done():
		// The peer is not waited for: a read of a terminal or a plain pipe cannot be interrupted.
		a.closeAll()
		return nil
	}
}

// A lockedWriter keeps the lines of several servers whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// handle is called in order, one message at a time; only what takes long leaves that order.
func (a *agent) handle(ctx context.Context, r *jsonrpc.Request) {
	var result any
	var err error
	switch r.Method {
	case jsonrpc.MethodInitialize:
		result, err = a.initialize(r)
	case jsonrpc.MethodAuthenticate:
	case jsonrpc.MethodSessionNew:
		result, err = a.newSession(r)
	case jsonrpc.MethodSessionLoad:
		result, err = a.loadSession(r, true)
	case jsonrpc.MethodSessionResume:
		result, err = a.loadSession(r, false)
	case jsonrpc.MethodSessionFork:
		result, err = a.forkSession(r)
	case jsonrpc.MethodSessionList:
		result, err = a.listSessions(r)
	case jsonrpc.MethodSessionClose, jsonrpc.MethodSessionDelete:
		a.endSession(r)
		return
	case jsonrpc.MethodSessionCancel:
		a.cancelTurn(r)
		return
	case jsonrpc.MethodSessionPrompt:
		a.prompt(ctx, r)
		return
	default:
		err = jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "the demo agent has no method %q", r.Method)
	}
	if err != nil {
		r.Refuse(err)
		return
	}
	r.Reply(result)
}

func (a *agent) initialize(r *jsonrpc.Request) (any, error) {
	var params jsonrpc.InitializeParams
	if err := r.Decode(&params); err != nil {
		return nil, err
	}
	return jsonrpc.InitializeResult{
		ProtocolVersion: jsonrpc.ProtocolVersion,
		AgentCapabilities: jsonrpc.AgentCapabilities{
			LoadSession:        true,
			PromptCapabilities: jsonrpc.PromptCapabilities{Image: true, EmbeddedContext: true},
			MCPCapabilities:    jsonrpc.MCPCapabilities{HTTP: true, SSE: true},
			SessionCapabilities: jsonrpc.SessionCapabilities{
				List: &jsonrpc.Supported{}, Resume: &jsonrpc.Supported{}, Close: &jsonrpc.Supported{},
				Delete: &jsonrpc.Supported{}, Fork: &jsonrpc.Supported{},
			},
		},
		AuthMethods: []jsonrpc.AuthMethod{},
		AgentInfo:   &jsonrpc.Implementation{Name: "handler-demo-agent", Title: "Demo", Version: version},
	}, nil
}

func (a *agent) newSession(r *jsonrpc.Request) (any, error) {
	var params jsonrpc.NewSessionParams
	if err := r.Decode(&params); err != nil {
		return nil, err
	}
	if params.MCPServers == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "mcpServers is required; [] if there are none")
	}
	s, err := a.open(r, &record{Version: 1, ID: newSessionID()}, params.Cwd, params.MCPServers)
	if err != nil {
		return nil, err
	}
	return jsonrpc.NewSessionResult{SessionID: s.rec.ID}, nil
}

// loadSession serves session/load, which replays the history before it answers, and session/resume, which does not.
func (a *agent) loadSession(r *jsonrpc.Request, replay bool) (any, error) {
	var params jsonrpc.LoadSessionParams
	if err := r.Decode(&params); err != nil {
		return nil, err
	}
	if replay && params.MCPServers == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "mcpServers is required; [] if there are none")
	}
	a.close(params.SessionID) // the same session, open already: its servers are replaced
	rec, err := a.store.load(params.SessionID)
	if err != nil {
		return nil, err
	}
	s, err := a.open(r, rec, params.Cwd, params.MCPServers)
	if err != nil {
		return nil, err
	}
	if replay {
		for _, u := range s.rec.History {
			s.notify(u)
		}
	}
	return struct{}{}, nil
}

// forkSession makes a new session with the history of another.
func (a *agent) forkSession(r *jsonrpc.Request) (any, error) {
	var params jsonrpc.LoadSessionParams
	if err := r.Decode(&params); err != nil {
		return nil, err
	}
	rec, err := a.store.load(params.SessionID)
	if err != nil {
		return nil, err
	}
	rec.ID = newSessionID()
	s, err := a.open(r, rec, params.Cwd, params.MCPServers)
	if err != nil {
		return nil, err
	}
	return jsonrpc.NewSessionResult{SessionID: s.rec.ID}, nil
}

// open makes a session live: its servers begin to start, and its file is written.
func (a *agent) open(r *jsonrpc.Request, rec *record, cwd string, servers []jsonrpc.MCPServer) (*session, error) {
	if !filepath.IsAbs(cwd) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "cwd must be an absolute path, not %q", cwd)
	}
	if err := checkServers(servers); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sessions) >= maxOpen {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%d sessions are open already: close one", maxOpen)
	}
	rec.Cwd = cwd
	s := newSession(r.Peer(), rec, a.store, a.stderr)
	s.keep()
	for _, cfg := range servers {
		s.servers = append(s.servers, startServer(s.ctx, cfg, cwd, a.stderr))
	}
	a.sessions[rec.ID] = s
	return s, nil
}

func (a *agent) listSessions(r *jsonrpc.Request) (any, error) {
	var params struct {
		Cwd string `json:"cwd"`
	}
	if len(r.Params) > 0 {
		if err := r.Decode(&params); err != nil {
			return nil, err
		}
	}
	list, err := a.store.list(params.Cwd)
	if err != nil {
		return nil, err
	}
	return jsonrpc.ListSessionsResult{Sessions: list}, nil
}

// find gives an open session; the error is what to answer.
func (a *agent) find(raw *jsonrpc.Request) (*session, error) {
	var params jsonrpc.SessionParams
	if err := raw.Decode(&params); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[params.SessionID]
	if s == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeResourceNotFound, "no session %q is open: load it first", params.SessionID)
	}
	return s, nil
}

// endSession serves session/close and session/delete. Stopping servers may take seconds, so it leaves the order.
func (a *agent) endSession(r *jsonrpc.Request) {
	var params jsonrpc.SessionParams
	if err := r.Decode(&params); err != nil {
		r.Refuse(err)
		return
	}
	_, err := a.find(r)
	if err != nil && r.Method == jsonrpc.MethodSessionClose {
		r.Refuse(err)
		return
	}
	r.Go(func(context.Context) (any, error) {
		a.close(params.SessionID)
		if r.Method == jsonrpc.MethodSessionDelete {
			return nil, a.store.remove(params.SessionID)
		}
		return nil, nil
	})
}

func (a *agent) cancelTurn(r *jsonrpc.Request) {
	if s, err := a.find(r); err == nil {
		s.cancel()
	}
}

// prompt begins a turn in order, so that a session/cancel right behind it finds it, and works on it outside.
func (a *agent) prompt(ctx context.Context, r *jsonrpc.Request) {
	s, err := a.find(r)
	if err != nil {
		r.Refuse(err)
		return
	}
	var params jsonrpc.PromptParams
	if err := r.Decode(&params); err != nil {
		r.Refuse(err)
		return
	}
	t, err := s.begin(ctx)
	if err != nil {
		r.Refuse(err)
		return
	}
	r.Go(func(context.Context) (any, error) {
		defer t.end()
		return jsonrpc.PromptResult{StopReason: t.run(params.Prompt)}, nil
	})
}

func (a *agent) close(id string) {
	a.mu.Lock()
	s := a.sessions[id]
	delete(a.sessions, id)
	a.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// closeAll ends every session at once; each may take seconds.
func (a *agent) closeAll() {
	a.mu.Lock()
	sessions := a.sessions
	a.sessions = map[string]*session{}
	a.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(s.close)
	}
	wg.Wait()
}

// mustJSON encodes what cannot fail to encode: structs of strings and raw messages that were checked.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("handler-demo-agent: encode %T: %v", v, err))
	}
	return b
}
