package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
)

// A soak is the state that workers and killers share.
type soak struct {
	options
	daemon *daemon
	kills  bool

	mu     sync.Mutex
	rand   *rand.Rand        // protected by mu
	live   []*life           // protected by mu
	killed map[string]string // by run: how; protected by mu
	count  map[string]int    // protected by mu

	starts, turns, cut, loads atomic.Int64
	refused                   atomic.Int64 // starts that failed while podman's service was being killed
	serviceKilled             atomic.Int64 // when, in Unix nanoseconds
}

// A life is one run as its client sees it.
type life struct {
	id   string
	conn interface{ Close() error }
	peer *jsonrpc.Peer

	mu   sync.Mutex
	said strings.Builder // what the agent said in this turn; protected by mu
}

func (s *soak) pick(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

// doomed notes that a run is about to be killed, before it is.
func (s *soak) doomed(run, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed[run] = how
}

func (s *soak) wasKilled(run string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed[run] != ""
}

// wave keeps every worker busy for a time, and gives their first errors.
func (s *soak) wave(ctx context.Context, length time.Duration) error {
	until := time.Now().Add(length)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopKills := s.killRandomly(ctx)
	defer stopKills()
	var wg sync.WaitGroup
	for i := range s.runs {
		wg.Go(func() {
			if err := s.work(ctx, i, until); err != nil {
				cancel(fmt.Errorf("worker %d: %w", i, err))
			}
		})
	}
	wg.Wait()
	if !s.daemon.alive() {
		return errors.New("the daemon has ended")
	}
	return context.Cause(ctx)
}

// A conversation is what a worker knows of its session: what was answered must never be forgotten.
type conversation struct {
	id       string
	answered []string
}

// turnsOfSession is after how many turns a worker begins a new session: the agent writes the whole history each turn.
const turnsOfSession = 40

// work has one run after the other, in a scope of its own.
func (s *soak) work(ctx context.Context, worker int, until time.Time) error {
	scope := filepath.Join(s.daemon.dir, fmt.Sprintf("scope%d", worker))
	if err := os.MkdirAll(scope, 0o700); err != nil {
		return err
	}
	var c *conversation
	for n := 0; time.Now().Before(until) && ctx.Err() == nil; n++ {
		l, err := s.begin(ctx, scope)
		if err != nil {
			if since := time.Since(time.Unix(0, s.serviceKilled.Load())); since < 10*time.Second {
				if s.refused.Add(1) <= 5 {
					say("refused: %v", err)
				}
				continue
			}
			return fmt.Errorf("start %d: %w", n, err)
		}
		err = s.converse(ctx, l, scope, &c, fmt.Sprintf("%d.%d", worker, n), until)
		s.end(ctx, l)
		if err != nil && ctx.Err() == nil {
			if lost := (errLost{}); !s.wasKilled(l.id) || errors.As(err, &lost) {
				return fmt.Errorf("run %s, which nobody killed: %w", l.id, err)
			}
			s.cut.Add(1)
		}
	}
	return nil
}

// begin starts a run and makes it known to the killers.
func (s *soak) begin(ctx context.Context, scope string) (*life, error) {
	stream, err := s.daemon.api.Start(ctx, types.RunRequest{Agent: plainAgent, Cwd: scope})
	if err != nil {
		return nil, err
	}
	s.starts.Add(1)
	l := &life{id: stream.RunID, conn: stream}
	l.peer = jsonrpc.New(ctx, stream, jsonrpc.Options{Handler: l.hear})
	s.mu.Lock()
	s.live = append(s.live, l)
	s.mu.Unlock()
	return l, nil
}

// end closes a run's connection, or has the daemon kill it, and returns when nothing of it is left.
func (s *soak) end(ctx context.Context, l *life) {
	s.mu.Lock()
	for i, other := range s.live {
		if other == l {
			s.live = append(s.live[:i], s.live[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	l.peer.Close()
	// Its log ends when nothing is left of it. An error says that it is gone.
	_ = s.daemon.api.Log(ctx, l.id, true, func(types.LogLine) error { return nil })
}

// hear notes what the agent says.
func (l *life) hear(_ context.Context, r *jsonrpc.Request) {
	var p jsonrpc.UpdateParams
	if r.Method != jsonrpc.MethodSessionUpdate || r.Decode(&p) != nil || p.Update.SessionUpdate != jsonrpc.UpdateAgentMessage {
		return
	}
	if block, err := p.Update.Block(); err == nil {
		l.mu.Lock()
		l.said.WriteString(block.Text)
		l.mu.Unlock()
	}
}

// heard gives what was said since it was last called.
func (l *life) heard() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.said.String()
	l.said.Reset()
	return text
}

// callLimit bounds one request on a machine that has forty runs on two cores.
const callLimit = time.Minute

func (l *life) call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := l.peer.Call(ctx, method, params, result); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// converse loads the session of the last run, where there is one, or makes one, and has turns with it.
func (s *soak) converse(ctx context.Context, l *life, scope string, c **conversation, name string, until time.Time) error {
	if err := l.call(ctx, jsonrpc.MethodInitialize, map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}}, nil); err != nil {
		return err
	}
	if *c != nil {
		params := map[string]any{"sessionId": (*c).id, "cwd": scope, "mcpServers": []any{}}
		if err := l.call(ctx, jsonrpc.MethodSessionLoad, params, nil); err != nil {
			return err
		}
		s.loads.Add(1)
		if err := inOrder(l.heard(), (*c).answered); err != nil {
			return fmt.Errorf("the history of session %s: %w", (*c).id, err)
		}
	} else {
		var made jsonrpc.NewSessionResult
		if err := l.call(ctx, jsonrpc.MethodSessionNew, map[string]any{"cwd": scope, "mcpServers": []any{}}, &made); err != nil {
			return err
		}
		*c = &conversation{id: made.SessionID}
	}
	for turn, last := 0, 5+s.pick(60); turn < last && time.Now().Before(until) && ctx.Err() == nil; turn++ {
		if err := s.turn(ctx, l, *c, fmt.Sprintf("<%s.%d>", name, turn)); err != nil {
			return err
		}
		if len((*c).answered) >= turnsOfSession {
			*c = nil
			return nil
		}
		select {
		case <-time.After(time.Duration(s.pick(300)) * time.Millisecond): // people think, too
		case <-ctx.Done():
		}
	}
	return nil
}

// turn is one prompt, whose answer must repeat its token, once, and nothing of another turn.
func (s *soak) turn(ctx context.Context, l *life, c *conversation, token string) error {
	params := map[string]any{"sessionId": c.id, "prompt": []any{map[string]any{"type": "text", "text": "say " + token}}}
	var res jsonrpc.PromptResult
	if err := l.call(ctx, jsonrpc.MethodSessionPrompt, params, &res); err != nil {
		return err
	}
	c.answered = append(c.answered, token)
	s.turns.Add(1)
	if said := strings.TrimSpace(l.heard()); said != token || res.StopReason != "end_turn" {
		return errLost{fmt.Errorf("turn %s was answered %q, %s", token, said, res.StopReason)}
	}
	return nil
}

// errLost is a message lost, doubled or out of order, which no kill excuses.
type errLost struct{ error }

// inOrder holds that text has every token, in their order. Tokens between are of turns that were cut.
func inOrder(text string, tokens []string) error {
	for _, token := range tokens {
		_, after, ok := strings.Cut(text, token)
		if !ok {
			return errLost{fmt.Errorf("%s is missing or out of order in %.2000q", token, text)}
		}
		text = after
	}
	return nil
}
