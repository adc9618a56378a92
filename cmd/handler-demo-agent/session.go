package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// A session is one conversation, open on this connection.
type session struct {
	peer    *jsonrpc.Peer
	store   store
	stderr  io.Writer
	servers []*server       // set before the session is published
	ctx     context.Context // of the servers' start; ends when the session is closed
	stop    context.CancelFunc

	mu       sync.Mutex
	rec      *record         // the history under mu; ID and Cwd never change
	granted  map[string]bool // what "always" was said to: true to allow, false to refuse
	turn     *turn           // nil between turns
	callSeq  int
	groups   []int // process groups that steps left behind
	reported bool  // servers that did not start were told of
}

func newSession(peer *jsonrpc.Peer, rec *record, st store, stderr io.Writer) *session {
	s := &session{peer: peer, store: st, stderr: stderr, rec: rec, granted: map[string]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// notify sends an update that is in the history already.
func (s *session) notify(update json.RawMessage) {
	// Errors mean that the client has gone, which ends the turn by itself.
	_ = s.peer.Notify(context.Background(), jsonrpc.MethodSessionUpdate, struct {
		SessionID string          `json:"sessionId"`
		Update    json.RawMessage `json:"update"`
	}{s.rec.ID, update})
}

// send sends an update and puts it into the history.
func (s *session) send(u jsonrpc.Update) {
	raw := mustJSON(u)
	s.mu.Lock()
	s.rec.add(raw)
	s.mu.Unlock()
	s.notify(raw)
}

// keep writes the session's file. A folder that cannot be written costs only the memory of sessions.
func (s *session) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.UpdatedAt = time.Now().UTC()
	if err := s.store.save(s.rec); err != nil {
		fmt.Fprintln(s.stderr, "handler-demo-agent:", err)
	}
}

// begin makes the session's turn. There is one at a time.
func (s *session) begin(ctx context.Context) (*turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "a turn of this session is going on: wait for it or cancel it")
	}
	t := &turn{s: s, done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(ctx)
	s.turn = t
	return t, nil
}

// end makes room for the next turn.
func (t *turn) end() {
	t.cancel()
	t.s.keep()
	t.s.mu.Lock()
	t.s.turn = nil
	t.s.mu.Unlock()
	close(t.done)
}

// cancel ends the turn that is going on, if one is, and gives what is closed at its end.
func (s *session) cancel() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == nil {
		over := make(chan struct{})
		close(over)
		return over
	}
	s.turn.cancel()
	return s.turn.done
}

// close ends the turn and the servers, and waits for both.
func (s *session) close() {
	<-s.cancel()
	s.stop()
	s.endLeftBehind()
	var wg sync.WaitGroup
	for _, srv := range s.servers {
		wg.Go(srv.close)
	}
	wg.Wait()
}

// find gives the server that has a tool: one named playwright before others, then in order. It waits for servers
// that are still starting.
func (s *session) find(ctx context.Context, tool string) (*server, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	name := ""
	if before, after, ok := strings.Cut(tool, "."); ok && s.named(before) != nil {
		name, tool = before, after
	}
	var found *server
	var failed []string
	for _, srv := range s.servers {
		if err := srv.failure(); err != nil {
			failed = append(failed, fmt.Sprintf("%s did not start: %v", srv.cfg.Name, err))
		}
		if (name == "" || name == srv.cfg.Name) && srv.has(tool) && (found == nil || srv.cfg.Name == "playwright") {
			found = srv
		}
	}
	if found == nil {
		err := fmt.Errorf("no MCP server of this session has the tool %s", tool)
		if len(failed) > 0 {
			err = fmt.Errorf("%w; %s", err, strings.Join(failed, "; "))
		}
		return nil, err
	}
	return found, nil
}

func (s *session) named(name string) *server {
	for _, srv := range s.servers {
		if srv.cfg.Name == name {
			return srv
		}
	}
	return nil
}

func (s *session) wait(ctx context.Context) error {
	for _, srv := range s.servers {
		select {
		case <-srv.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
