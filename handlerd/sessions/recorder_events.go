package sessions

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/history"
	"github.com/handlerd/handler/policy/rawjson"
)

// maxToolCalls is how many pictures' tool calls are remembered of one run.
const maxToolCalls = 512

// update records what the agent says of a session, and keeps what it says of itself.
func (c *recorder) update(m acp.Carried) {
	s := c.find(m.Session)
	if s == nil {
		return
	}
	raw := at(m.Body, "update")
	kind := text(raw, "sessionUpdate")
	c.learn(s.id, kind, raw)
	c.mu.Lock()
	replay := s.replay
	s.spoken = s.spoken || kind == "user_message_chunk" || kind == "agent_message_chunk"
	c.mu.Unlock()
	if replay {
		return
	}
	short := history.Shorten(raw, history.MaxEventBytes)
	if len(short) == len(raw) {
		short = bytes.Clone(raw) // the line's buffer is used again
	}
	c.store.Queue(s.id, types.EventUpdate, kind, json.RawMessage(short))
}

// learn keeps what an update says of the agent.
func (c *recorder) learn(id, kind string, raw []byte) {
	switch kind {
	case "available_commands_update":
		commands := part(raw, "availableCommands")
		c.store.Note(id, func(v *types.Session) { v.Commands = commands })
	case "current_mode_update":
		mode := text(raw, "currentModeId")
		c.store.Note(id, func(v *types.Session) { v.Modes = withMode(v.Modes, mode) })
	case "config_option_update":
		options := part(raw, "configOptions")
		c.store.Note(id, func(v *types.Session) { v.Options = options })
	case "session_info_update":
		if title := text(raw, "title"); title != "" {
			c.store.NoteTitle(id, title)
		}
	case "usage_update":
		usage := json.RawMessage(bytes.Clone(raw))
		c.store.Note(id, func(v *types.Session) { v.Usage = usage })
	}
}

// question records what the agent asks its person.
func (c *recorder) question(m acp.Carried) {
	s := c.of(m.Session)
	if s == nil {
		return
	}
	id := types.QuestionID(c.r.id, m.ID)
	c.mu.Lock()
	s.questions[id] = ""
	n := len(s.questions)
	c.mu.Unlock()
	ours := c.client == types.ClientPage
	c.store.Queue(s.id, types.EventQuestion, "", types.EventQuestionData{
		ID: id, Method: m.Method, Params: history.Shorten(without(m.Body, "sessionId"), history.MaxEventBytes-4096), Ours: ours,
	})
	if ours {
		c.store.Note(s.id, func(v *types.Session) { v.Questions = n })
	}
}

// AnsweredBy says who is about to answer a question of the agent's, such as "handler attach"; the history has it. Without, it is
// the page or another client.
func (r *Run) AnsweredBy(question, by string) {
	c := r.recorder
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.open {
		if _, waits := s.questions[question]; waits {
			s.questions[question] = cut(by, maxAnsweredBy)
		}
	}
}

// maxAnsweredBy bounds the name of who answered, in bytes.
const maxAnsweredBy = 100

// answered records how it was answered.
func (c *recorder) answered(m acp.Carried) {
	id := types.QuestionID(c.r.id, m.ID)
	c.mu.Lock()
	var s *recorded
	for _, open := range c.open {
		if _, waits := open.questions[id]; waits {
			s = open
		}
	}
	if s == nil {
		c.mu.Unlock()
		return
	}
	by := s.questions[id]
	delete(s.questions, id)
	n := len(s.questions)
	c.mu.Unlock()
	data := types.EventAnsweredData{ID: id, By: cmp.Or(m.By, by)}
	switch {
	case data.By == "" && c.client == types.ClientPage && m.Failed:
		data.By = "Handler" // the page gives no errors: it was withdrawn, or is none that a person could answer
	case data.By == "" && c.client == types.ClientPage:
		data.By = "the page"
	case data.By == "":
		data.By = "client"
	}
	if !m.Failed && len(m.Body) > 0 {
		data.Answer = bytes.Clone(history.Shorten(m.Body, history.MaxEventBytes-4096))
	}
	c.store.Queue(s.id, types.EventAnswered, "", data)
	if c.client == types.ClientPage {
		c.store.Note(s.id, func(v *types.Session) { v.Questions = n })
	}
}

// without is a copy of an object without one of its members.
func without(body []byte, name string) []byte {
	out := []byte{'{'}
	err := rawjson.Members(body, rawjson.Span{Start: 0, End: len(body)}, func(m rawjson.Member) error {
		if m.Name == name {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(rawjson.AppendString(out, m.Name), ':'), m.Value.Of(body)...)
		return nil
	})
	if err != nil {
		return []byte("{}")
	}
	return append(out, '}')
}

// of gives the session of something that says which; what is about the whole run goes to the one with the youngest turn.
func (c *recorder) of(session string) *recorded {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.open[session]; s != nil {
		return s
	}
	return c.open[c.current]
}

// notice tells every open session what the person should know.
func (c *recorder) notice(text string) {
	if c.store == nil {
		return
	}
	c.mu.Lock()
	var ids []string
	for _, s := range c.open {
		if !s.replay {
			ids = append(ids, s.id)
		}
	}
	c.mu.Unlock()
	for _, id := range ids {
		c.store.Queue(id, types.EventNotice, "", types.EventNoticeData{Text: text})
	}
}

// refused records what a rule refused.
func (c *recorder) refused(rec audit.Record) {
	if c.store == nil || rec.Verdict != audit.Refused {
		return
	}
	if s := c.of(rec.Session); s != nil {
		c.store.Queue(s.id, types.EventRefused, "", types.NetworkVerdict{
			Time: time.Now().UTC(), Run: c.r.id, Agent: c.r.plan.Agent, Kind: rec.Kind, Rule: rec.Rule, Verdict: rec.Verdict,
			Subject: rec.Subject, Reason: rec.Reason, Hint: rec.Hint,
		})
	}
}

// approval records what happens to a question of Handler's.
func (c *recorder) approval(e types.ApprovalEvent) {
	if c.store == nil || e.Approval == nil {
		return
	}
	if s := c.of(e.Approval.Session); s != nil {
		c.store.Queue(s.id, types.EventApproval, "", e)
	}
}

// shown remembers which tool call showed a picture.
func (c *recorder) shown(sum [32]byte, tool string) {
	if c.store == nil || tool == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tools == nil || len(c.tools) >= maxToolCalls {
		c.tools = map[[32]byte]string{}
	}
	c.tools[sum] = tool
}

// artifact records one that was kept or removed, with the tool call that showed it.
func (c *recorder) artifact(a types.Artifact, removed bool) {
	if c.store == nil {
		return
	}
	s := c.of(a.Session)
	if s == nil {
		return
	}
	data := types.EventArtifactData{Artifact: a, Removed: removed}
	var sum [32]byte
	if n, err := hex.Decode(sum[:], []byte(a.SHA256)); err == nil && n == len(sum) {
		c.mu.Lock()
		data.Tool = c.tools[sum]
		c.mu.Unlock()
	}
	c.store.Queue(s.id, types.EventArtifact, "", data)
}
