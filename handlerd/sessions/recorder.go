package sessions

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/history"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/policy/rawjson"
)

// Bounds of what is recorded.
const (
	// recordWait is how long a message waits for the file of the sessions: a prompt is written down before the agent has
	// it. A disk that is slower than this delays a conversation no further, and the prompt is kept when it can be.
	recordWait = 2 * time.Second
	// maxRecorded is how many requests that mean something to the record are remembered until they are answered.
	maxRecorded = 256
)

// A recorder keeps a run's sessions in the history: what the relay carries, and what Handler asks, refuses and notices
// meanwhile. It is in nobody's way: only a prompt and the opening of a session wait for the disk, and not for long.
type recorder struct {
	r      *Run
	store  *history.Store // nil keeps nothing; set by Manager.reserve, as the run's first
	client string         // types.Client*; set by start

	mu      sync.Mutex
	caps    agentCaps            // protected by mu
	open    map[string]*recorded // sessions of the run by the agent's id; protected by mu
	current string               // the agent's id of the one with the youngest turn; protected by mu
	asked   map[string]awaited   // requests that change what is known, by their ids; protected by mu
	tools   map[[32]byte]string  // which tool call showed a picture, by its digest; protected by mu
}

// A recorded session is one that is open in the run.
type recorded struct {
	id        string            // of the history
	begun     bool              // the agent has said that it is open, or it is new
	replay    bool              // what comes is told again: it is there already
	fresh     bool              // it was not known before
	spoken    bool              // the agent has told of a message in it
	turns     int               // under way
	questions map[string]string // those that are open, and who is about to answer them
}

// An awaited is a request of the client's that is not answered yet.
type awaited struct{ method, session, cwd, mode string }

// agentCaps are what an agent says of itself that matters here.
type agentCaps struct {
	LoadSession        bool            `json:"loadSession"`
	PromptCapabilities promptCaps      `json:"promptCapabilities"`
	Session            json.RawMessage `json:"sessionCapabilities"`
}

type promptCaps struct {
	Image           bool `json:"image"`
	EmbeddedContext bool `json:"embeddedContext"`
}

// continues says how the agent takes a session up again.
func (c agentCaps) continues() string {
	if c.LoadSession {
		return "load"
	}
	var s struct {
		Resume json.RawMessage `json:"resume"`
	}
	if json.Unmarshal(c.Session, &s) == nil && len(s.Resume) > 0 && string(s.Resume) != "null" {
		return "resume"
	}
	return ""
}

func newRecorder(r *Run) *recorder {
	return &recorder{r: r, open: map[string]*recorded{}, asked: map[string]awaited{}}
}

// carried is what the relay tells.
func (c *recorder) carried(m acp.Carried) {
	if c.store == nil {
		return
	}
	switch {
	case m.Kind == acp.Notification && m.From == acp.Agent && m.Method == "session/update":
		c.update(m)
	case m.Kind == acp.Request && m.From == acp.Client:
		c.requested(m)
	case m.Kind == acp.Response && m.From == acp.Agent:
		c.responded(m)
	case m.Kind == acp.Request && isQuestion(m.Method):
		c.question(m)
	case m.Kind == acp.Response && isQuestion(m.Method):
		c.answered(m)
	}
}

func isQuestion(method string) bool {
	return method == policy.MethodPermission || method == policy.MethodElicitation
}

// find gives an open session.
func (c *recorder) find(session string) *recorded {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[session]
}

// requested looks at what the client asks of the agent.
func (c *recorder) requested(m acp.Carried) {
	switch m.Method {
	case "session/prompt":
		c.prompt(m)
		return
	case "session/load":
		c.loading(m.Session)
	case "initialize", "session/new", "session/resume", "session/fork", "session/set_mode", "session/set_config_option", "session/close", "session/delete":
	default:
		return
	}
	a := awaited{method: m.Method, session: m.Session, cwd: text(m.Body, "cwd"), mode: text(m.Body, "modeId")}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) < maxRecorded {
		c.asked[string(m.ID)] = a
	}
}

// loading prepares for what an agent tells of a session before it has said that the session is open: of one that is
// known that is known too.
func (c *recorder) loading(session string) {
	c.soon(func(ctx context.Context) {
		id, err := c.store.Known(ctx, c.r.plan.Agent, session)
		if err != nil || session == "" {
			return
		}
		if id != "" {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.open[session] == nil {
				c.open[session] = &recorded{id: id, questions: map[string]string{}}
			}
			c.open[session].replay = true
			return
		}
		c.begin(ctx, session, types.Session{})
	})
}

// begin has a session in the history, as one of this run.
func (c *recorder) begin(ctx context.Context, session string, v types.Session) {
	c.mu.Lock()
	caps := c.caps
	c.mu.Unlock()
	v.Agent, v.Harness, v.ACP, v.Client, v.Run, v.LastRun = c.r.plan.Agent, c.r.plan.Harness, session, c.client, c.r.id, c.r.id
	v.Continues, v.Ours = caps.continues(), c.client == types.ClientPage
	v.Images, v.Embeds = caps.PromptCapabilities.Image, caps.PromptCapabilities.EmbeddedContext
	kept, known, err := c.store.Begin(ctx, v)
	if err != nil {
		c.r.say("session %.40q is not kept: %v", session, err)
		return
	}
	c.mu.Lock()
	s := c.open[session]
	if s == nil || s.id != kept.ID {
		s = &recorded{id: kept.ID, fresh: !known, questions: map[string]string{}}
	}
	begun := s.begun
	s.begun, s.replay = true, false
	c.open[session], c.current = s, session
	c.mu.Unlock()
	if begun {
		return // when it was asked for, or it was open before
	}
	c.store.Queue(kept.ID, types.EventRun, "", types.EventRunData{Run: c.r.id, State: "started"})
	c.r.mu.Lock()
	notices := append([]string{}, c.r.notices...)
	c.r.mu.Unlock()
	for _, text := range notices {
		c.store.Queue(kept.ID, types.EventNotice, "", types.EventNoticeData{Text: text})
	}
}

// responded looks at what the agent answers.
func (c *recorder) responded(m acp.Carried) {
	if m.Method == "session/prompt" {
		c.turnEnded(m)
		return
	}
	c.mu.Lock()
	a, known := c.asked[string(m.ID)]
	delete(c.asked, string(m.ID))
	c.mu.Unlock()
	if !known || a.method != m.Method {
		return
	}
	switch m.Method {
	case "initialize":
		var said struct {
			AgentCapabilities agentCaps `json:"agentCapabilities"`
		}
		if !m.Failed && json.Unmarshal(m.Body, &said) == nil {
			c.mu.Lock()
			c.caps = said.AgentCapabilities
			c.mu.Unlock()
		}
	case "session/new", "session/load", "session/resume", "session/fork":
		c.opened(m, a)
	case "session/set_mode":
		if s := c.find(a.session); s != nil && !m.Failed {
			c.store.Note(s.id, func(v *types.Session) { v.Modes = withMode(v.Modes, a.mode) })
		}
	case "session/set_config_option":
		if s := c.find(a.session); s != nil && !m.Failed {
			if options := part(m.Body, "configOptions"); options != nil {
				c.store.Note(s.id, func(v *types.Session) { v.Options = options })
			}
		}
	case "session/close", "session/delete":
		if !m.Failed {
			c.closed(a.session, m.Method == "session/delete")
		}
	}
}

// opened is the agent's answer to a request for a session.
func (c *recorder) opened(m acp.Carried, a awaited) {
	session := a.session
	if id := text(m.Body, "sessionId"); id != "" && !m.Failed {
		session = id
	}
	if m.Failed {
		if a.method == "session/load" {
			c.notLoaded(session)
		}
		return
	}
	v := types.Session{Cwd: a.cwd, Modes: part(m.Body, "modes"), Options: part(m.Body, "configOptions")}
	c.soon(func(ctx context.Context) { c.begin(ctx, session, v) })
}

// notLoaded takes back what loading did.
func (c *recorder) notLoaded(session string) {
	c.mu.Lock()
	s := c.open[session]
	switch {
	case s == nil:
		c.mu.Unlock()
		return
	case s.replay && s.begun: // it is open already
		s.replay = false
		c.mu.Unlock()
		return
	}
	delete(c.open, session)
	c.mu.Unlock()
	if s.fresh {
		c.soon(func(ctx context.Context) { _ = c.store.Remove(ctx, s.id) }) // there is no such session
	}
}

// soon does something with the file that a message waits for, but not for long: what takes longer is done behind it.
func (c *recorder) soon(f func(ctx context.Context)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), teardownLimit)
		defer cancel()
		f(ctx)
	}()
	select {
	case <-done:
	case <-time.After(recordWait):
	}
}

// prompt writes down what the person said before the agent has it.
func (c *recorder) prompt(m acp.Carried) {
	s := c.find(m.Session)
	if s == nil {
		return
	}
	c.mu.Lock()
	s.turns++
	c.current = m.Session
	c.mu.Unlock()
	data := types.EventPromptData{Content: json.RawMessage("[]")}
	content := at(m.Body, "prompt")
	if content != nil {
		short := history.Shorten(content, history.MaxEventBytes-1024)
		data.Content, data.Cut = bytes.Clone(short), len(short) != len(content)
	}
	c.store.NotePrompt(s.id, firstText(data.Content))
	c.soon(func(ctx context.Context) {
		// Whether it could be written down is the history's to say, and no reason to keep it from the agent.
		_, _ = c.store.Append(ctx, s.id, types.EventPrompt, "", data)
	})
	if data.Cut {
		c.r.pictures.prompted(m.Session, content)
	}
	c.store.Note(s.id, func(v *types.Session) { v.Turn = "working" })
	c.store.Queue(s.id, types.EventTurn, "", types.EventTurnData{State: "started"})
}

// firstText gives the first text of a prompt.
func firstText(content []byte) string {
	var blocks []struct {
		Type, Text string
	}
	if json.Unmarshal(content, &blocks) == nil {
		for _, b := range blocks {
			if b.Type == "text" && b.Text != "" {
				return b.Text
			}
		}
	}
	return ""
}

func (c *recorder) turnEnded(m acp.Carried) {
	s := c.find(m.Session)
	if s == nil {
		return
	}
	data := types.EventTurnData{State: "ended"}
	if m.Failed {
		data.Error = acpError(m.Body)
	} else {
		data.StopReason = text(m.Body, "stopReason")
	}
	c.endTurn(s, data)
}

// endTurn writes down that a turn has ended. One that was not under way does nothing.
func (c *recorder) endTurn(s *recorded, data types.EventTurnData) {
	c.mu.Lock()
	if s.turns == 0 {
		c.mu.Unlock()
		return
	}
	s.turns--
	idle := s.turns == 0
	c.mu.Unlock()
	c.store.Queue(s.id, types.EventTurn, "", data)
	if idle {
		c.store.Note(s.id, func(v *types.Session) { v.Turn = "idle" })
	}
}

// acpError gives an error of JSON-RPC as the API says one.
func acpError(body []byte) *types.Error {
	var e struct {
		Message string `json:"message"`
		Data    struct {
			Hint string `json:"hint"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &e) != nil || e.Message == "" {
		e.Message = text(body, "message")
	}
	return &types.Error{Kind: "failed", Message: cut(e.Message, 8*maxReason), Hint: cut(e.Data.Hint, maxReason)}
}

// closed ends a session in a run that goes on.
func (c *recorder) closed(session string, removed bool) {
	c.mu.Lock()
	s := c.open[session]
	delete(c.open, session)
	if c.current == session {
		c.current = ""
	}
	c.mu.Unlock()
	if removed {
		c.soon(func(ctx context.Context) {
			id := ""
			if s != nil {
				id = s.id
			} else if id, _ = c.store.Known(ctx, c.r.plan.Agent, session); id == "" {
				return
			}
			_ = c.store.Remove(ctx, id) // a session that is gone already
		})
		return
	}
	if s != nil {
		c.endSession(s, nil)
	}
}

// endSession says that a session is open no more.
func (c *recorder) endSession(s *recorded, end *types.Error) {
	for {
		c.mu.Lock()
		left := s.turns
		c.mu.Unlock()
		if left == 0 {
			break
		}
		c.endTurn(s, types.EventTurnData{State: "ended", Error: end})
	}
	if c.client != types.ClientPage && s.fresh && !s.spoken && c.store.Prompts(s.id) == 0 {
		// An editor opens a session with every window. Nobody has said anything in this one.
		c.soon(func(ctx context.Context) { _ = c.store.Remove(ctx, s.id) })
		return
	}
	c.store.Note(s.id, func(v *types.Session) {
		if v.Run == c.r.id {
			v.Run, v.Turn, v.Ours, v.Questions = "", "idle", false, 0
		}
	})
	c.soon(func(ctx context.Context) {
		_, _ = c.store.Append(ctx, s.id, types.EventRun, "", types.EventRunData{Run: c.r.id, State: "ended", Error: end})
	})
}

// end ends every session of the run, which has ended by cause.
func (c *recorder) end(cause error) {
	if c.store == nil {
		return
	}
	var end *types.Error
	if cause != nil {
		end, _ = types.FromError(cause)
		end.Message = cut(end.Message, MaxLogLine)
	}
	c.mu.Lock()
	open := c.open
	c.open, c.current = map[string]*recorded{}, ""
	c.mu.Unlock()
	var ending sync.WaitGroup
	for _, s := range open {
		if !s.replay {
			ending.Go(func() { c.endSession(s, end) })
		}
	}
	ending.Wait()
}

// at gives a member of an object; nil for none. It is a part of body.
func at(body []byte, path ...string) []byte {
	if len(body) == 0 {
		return nil
	}
	i := rawjson.Lookup(body, rawjson.Space(body, 0), path...)
	if i < 0 {
		return nil
	}
	return body[i:rawjson.End(body, i)] // the relay has checked it
}

// part is a copy of a member that is neither null nor too long.
func part(body []byte, path ...string) json.RawMessage {
	b := at(body, path...)
	if b == nil || string(b) == "null" || len(b) > history.MaxEventBytes {
		return nil
	}
	return bytes.Clone(b)
}

// text gives a member that is a short string.
func text(body []byte, path ...string) string {
	b := at(body, path...)
	var s string
	if len(b) > 8*maxReason || json.Unmarshal(b, &s) != nil {
		return ""
	}
	return s
}

// withMode gives the modes with another current one.
func withMode(modes json.RawMessage, mode string) json.RawMessage {
	i := rawjson.Lookup(modes, rawjson.Space(modes, 0), "currentModeId")
	if len(modes) == 0 || i < 0 || mode == "" {
		return modes
	}
	end, err := rawjson.Skip(modes, i)
	if err != nil {
		return modes
	}
	out := append(bytes.Clone(modes[:i]), rawjson.AppendString(nil, mode)...)
	return append(out, modes[end:]...)
}
