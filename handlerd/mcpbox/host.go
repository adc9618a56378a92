package mcpbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/gateway"
)

// Bounds of hosted servers.
const (
	MaxServers  = 16 // boxes of hosted servers at one time, of the whole daemon
	MaxSessions = 4  // sessions of one run that use one server at one time

	ServerIdle = 30 * time.Minute // without a call
	ServerLife = 12 * time.Hour   // in all; the next call starts it afresh

	ServerLaunchTime  = 30 * time.Second // from the start of the sandbox to the server's answer
	ServerCallTime    = 6 * time.Minute  // a server that answers nothing for so long is ended; the gateway's own is shorter
	ServerCallGrace   = time.Minute      // what it has beyond the gateway's own, where a person chose that
	ServerConnections = 512              // of all servers' proxies together

	ServerMemory    = 1 << 30 // bytes of the whole tree, tmpfs counted in
	ServerProcesses = 512     // processes and threads
	ServerTmp       = 256 << 20
	ServerHome      = 256 << 20
	ServerShm       = 64 << 20
)

// Room is how many boxes of hosted servers there may be at one time.
type Room struct{ places chan struct{} }

// NewRoom makes room for n.
func NewRoom(n int) *Room { return &Room{make(chan struct{}, n)} }

func (r *Room) enter() bool {
	select {
	case r.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r *Room) leave() { <-r.places }

// HostOptions are what a [Host] is made of. All are needed but those that say otherwise.
type HostOptions struct {
	Name     string // of the server
	Launcher *Launcher
	Room     *Room
	// Spec makes what a box is, at each start of one: it reads the secrets. An error is told to the agent.
	Spec func(ctx context.Context, session string) (Spec, error)
	// Session gives the ACP session that a token stands for; "" where it is not known.
	Session func(token string) string
	// Idle and Life are ServerIdle and ServerLife where they are 0.
	Idle, Life time.Duration
	Logger     *slog.Logger // may be nil
}

// A Host is one MCP server of one run, as the gateway serves it. Each session that uses it has a box of its own, which
// starts with the first call or list of tools, and ends with the session's last connection, when it is idle or old, with
// the person's stop, and with the run. It implements [gateway.Server].
type Host struct {
	o   HostOptions
	log *slog.Logger

	mu    sync.Mutex
	over  error            // why no box starts any more; protected by mu
	seats map[string]*seat // by token; protected by mu
	tools []mcp.Tool       // that the server listed last; protected by mu
}

// errRunOver is why boxes end with their run.
var errRunOver = errors.New("the run is over")

// NewHost makes a host; it starts nothing.
func NewHost(o HostOptions) *Host {
	h := &Host{o: o, log: o.Logger, seats: map[string]*seat{}}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.o.Idle <= 0 {
		h.o.Idle = ServerIdle
	}
	if h.o.Life <= 0 {
		h.o.Life = ServerLife
	}
	return h
}

// A seat is one session's use of the server. Connections that say the same token share it.
type seat struct {
	h     *Host
	token string

	starting chan struct{} // holds one token while somebody starts the box

	// All of these are protected by h.mu.
	users int   // connections
	over  error // why it starts no box any more
	now   *tenure
	lost  error // why the box before this one ended, until the agent is told
}

// A tenure is one box of a seat.
type tenure struct {
	*Box
	calls int         // under way; protected by h.mu
	idle  *time.Timer // runs while there are none
	life  *time.Timer
	told  bool // the agent knows that it ended; protected by h.mu
}

// Open implements [gateway.Server].
func (h *Host) Open(_ context.Context, c gateway.Caller) (gateway.Instance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over != nil {
		return nil, h.over
	}
	s := h.seats[c.Token]
	if s == nil {
		if len(h.seats) >= MaxSessions {
			return nil, fmt.Errorf("%d sessions of this run use the server %s already, which is the most there can be: end one first", MaxSessions, h.o.Name)
		}
		s = &seat{h: h, token: c.Token, starting: make(chan struct{}, 1)}
		h.seats[c.Token] = s
	}
	s.users++
	return &sitter{s}, nil
}

// SessionClosed ends the box of an ACP session, for good. It does not wait for it.
func (h *Host) SessionClosed(session string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for token, s := range h.seats {
		if session != "" && h.o.Session(token) == session {
			s.end(errors.New("its session is over"))
		}
	}
}

// Stop is the person's kill switch: every box ends, and none starts any more. It returns when nothing is left.
func (h *Host) Stop() { h.endAll(gateway.ErrStopped) }

// Close ends every box, with the run. It is idempotent.
func (h *Host) Close() error {
	h.endAll(errRunOver)
	return nil
}

// Recheck cuts what its boxes have open and the rules refuse by now.
func (h *Host) Recheck() {
	h.mu.Lock()
	var boxes []*Box
	for _, s := range h.seats {
		if s.now != nil {
			boxes = append(boxes, s.now.Box)
		}
	}
	h.mu.Unlock()
	for _, b := range boxes {
		b.RecheckNetwork()
	}
}

func (h *Host) endAll(why error) {
	h.mu.Lock()
	if h.over == nil {
		h.over = why
	}
	var boxes []*Box
	for _, s := range h.seats {
		if s.now != nil {
			boxes = append(boxes, s.now.Box)
		}
		s.end(why)
	}
	h.mu.Unlock()
	for _, b := range boxes {
		<-b.Done()
	}
}

// end ends the seat's box, and has it start no other. The caller holds h.mu.
func (s *seat) end(why error) {
	if s.over == nil {
		s.over = why
	}
	if s.now != nil {
		_ = s.now.Fail(why)
	}
}

// A sitter is one connection.
type sitter struct{ s *seat }

// Tools implements [gateway.Instance]: what the server listed for an earlier connection of the run is not asked again.
func (i *sitter) Tools(ctx context.Context) ([]mcp.Tool, error) {
	h := i.s.h
	h.mu.Lock()
	tools, over := h.tools, h.over
	h.mu.Unlock()
	if over != nil || tools != nil {
		return tools, over
	}
	box, err := i.s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer i.s.release(box)
	if tools, err = box.Tools(ctx); err != nil {
		return nil, i.s.told(box, err)
	}
	h.mu.Lock()
	h.tools = tools
	h.mu.Unlock()
	return tools, nil
}

// Call implements [gateway.Instance].
func (i *sitter) Call(ctx context.Context, c gateway.Call) (*mcp.CallToolResult, error) {
	box, err := i.s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer i.s.release(box)
	result, err := box.Call(ctx, Call{Tool: c.Tool, Args: c.Args, Progress: c.Progress})
	if err != nil {
		return nil, i.s.told(box, err)
	}
	if lost := i.s.takeLost(); lost != nil {
		text := fmt.Sprintf("[the server %s was started afresh, and what it held before is gone: %v]", i.s.h.o.Name, lost)
		result.Content = append(result.Content, mcp.NewTextContent(text))
	}
	return result, nil
}

// Close implements [gateway.Instance]: a server ends with its last client.
func (i *sitter) Close() error {
	s, h := i.s, i.s.h
	h.mu.Lock()
	s.users--
	if s.users > 0 {
		h.mu.Unlock()
		return nil
	}
	s.end(errors.New("nobody uses it any more"))
	if h.seats[s.token] == s {
		delete(h.seats, s.token)
	}
	now := s.now
	h.mu.Unlock()
	if now == nil {
		return nil
	}
	return now.Close()
}

// told says, where a call failed because the box ended, what that means.
func (s *seat) told(t *tenure, err error) error {
	if t.Gone() == nil {
		return err
	}
	s.h.mu.Lock()
	t.told = true
	s.h.mu.Unlock()
	if errors.Is(err, gateway.ErrStopped) {
		return err
	}
	return fmt.Errorf("the server %s ended: %w; the next call starts it afresh, without what it held", s.h.o.Name, err)
}

func (s *seat) takeLost() error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	lost := s.lost
	s.lost = nil
	return lost
}

// use gives the seat's box, and starts one where there is none. Until release it is not idle.
func (s *seat) use(ctx context.Context) (*tenure, error) {
	if t, err := s.there(); t != nil || err != nil {
		return t, err
	}
	select {
	case s.starting <- struct{}{}:
		defer func() { <-s.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if t, err := s.there(); t != nil || err != nil { // somebody else started it meanwhile
		return t, err
	}
	return s.start(ctx)
}

// there takes the box into use, if it lives.
func (s *seat) there() (*tenure, error) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.over != nil {
		return nil, s.over
	}
	if s.now == nil || s.now.Gone() != nil {
		return nil, nil
	}
	s.now.calls++
	s.now.idle.Stop()
	return s.now, nil
}

func (s *seat) release(t *tenure) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if t.calls--; t.calls == 0 && t.Gone() == nil {
		t.idle.Reset(s.h.o.Idle)
	}
}

// start starts a box, in use. One that ended before it is gone by then.
func (s *seat) start(ctx context.Context) (*tenure, error) {
	h := s.h
	h.mu.Lock()
	last := s.now
	h.mu.Unlock()
	if last != nil {
		select {
		case <-last.Done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if !h.o.Room.enter() {
		return nil, fmt.Errorf("%d hosted servers run at this time, which is the most there can be: try again when one has ended", cap(h.o.Room.places))
	}
	box, err := s.launch(ctx)
	if err != nil {
		h.o.Room.leave()
		return nil, err
	}
	t := &tenure{Box: box, calls: 1,
		idle: time.AfterFunc(h.o.Idle, func() { _ = box.Fail(fmt.Errorf("nobody called it for %v", h.o.Idle)) }),
		life: time.AfterFunc(h.o.Life, func() { _ = box.Fail(fmt.Errorf("it was %v old", h.o.Life)) })}
	t.idle.Stop()
	go func() {
		<-box.Done()
		t.idle.Stop()
		t.life.Stop()
		h.o.Room.leave()
	}()
	if over := s.settle(t, last); over != nil { // while it started
		_ = box.Fail(over)
		<-box.Done()
		return nil, over
	}
	return t, nil
}

// settle makes t the seat's box after last, or says why there is none any more.
func (s *seat) settle(t, last *tenure) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.over != nil {
		return s.over
	}
	if last != nil && !last.told {
		s.lost = last.Err()
	}
	s.now = t
	return nil
}

func (s *seat) launch(ctx context.Context) (*Box, error) {
	spec, err := s.h.o.Spec(ctx, s.h.o.Session(s.token))
	if err != nil {
		return nil, err
	}
	spec.ToolsChanged = func() {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		s.h.tools = nil
	}
	return s.h.o.Launcher.Launch(ctx, spec)
}
