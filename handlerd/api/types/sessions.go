package types

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Paths of the sessions (contract K.2). An id is accepted by its unique beginning.
const (
	// PathSessions: GET ?agent=&query=&live=1&before=ID&limit=N gives []Session, the newest first; POST takes NewSession
	// and gives Session: handlerd itself is the ACP client of such a session. Below it /{id}: GET gives Session, DELETE
	// removes it with its events and artifacts and ends its run where handlerd is the client.
	//
	// Below that: events (GET ?after=SEQ&follow=1: Event, as server-sent events or a line each, by Accept), prompt (POST
	// Prompt: PromptTaken), cancel (POST), answer (POST QuestionAnswer), option (POST SessionOption), title (POST
	// SessionTitle), continue (POST ContinueSession: Session), end (POST: ends the run, keeps the session).
	PathSessions = "/v1/sessions"
	// PathFeed: GET gives server-sent events of Change: what is new in the lists, for whoever shows them. With watch=1
	// somebody counts as being there to be asked (PathApprovals) for as long.
	PathFeed = "/v1/feed"
)

// Clients of a Session.
const (
	ClientEditor  = "acp"  // a program that speaks ACP: an editor through `handler acp`
	ClientCommand = "run"  // `handler run`
	ClientPage    = "page" // handlerd itself, for its page and its API
)

// A Session is one conversation with an agent, whoever its client is. It outlives its run.
type Session struct {
	ID      string    `json:"id"` // Handler's own: short, the same in every run
	Agent   string    `json:"agent"`
	Harness string    `json:"harness"`
	ACP     string    `json:"acp"` // the agent's id of it
	Cwd     string    `json:"cwd"`
	Title   string    `json:"title"` // the person's, else the agent's, else how the first prompt begins
	Client  string    `json:"client"`
	Run     string    `json:"run,omitempty"` // the live run, "" for none
	LastRun string    `json:"lastRun"`
	Turn    string    `json:"turn"` // "idle" or "working"
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Events  int64     `json:"events"` // the number of the last one
	// Continues tells how it can go on in a fresh run: "load", "resume" or "" for not at all.
	Continues string `json:"continues"`
	// Ours: handlerd is its client now, so that it takes prompts, answers and options here.
	Ours bool `json:"ours"`
	// Questions are how many of the agent's wait for the person here; only where Ours.
	Questions int `json:"questions"`
	// What the agent said of itself; nil where it said nothing.
	Modes    json.RawMessage `json:"modes,omitempty"`    // ACP's SessionModeState
	Options  json.RawMessage `json:"options,omitempty"`  // ACP's []SessionConfigOption
	Commands json.RawMessage `json:"commands,omitempty"` // ACP's []AvailableCommand
	Usage    json.RawMessage `json:"usage,omitempty"`    // the last usage_update
	// Images: the agent takes pictures in a prompt; Embeds: and embedded files.
	Images bool `json:"images"`
	Embeds bool `json:"embeds"`
}

// Kinds of an Event, with what its Data is.
const (
	EventPrompt   = "prompt"   // EventPromptData
	EventUpdate   = "update"   // the update of ACP's session/update, with Event.Update saying which
	EventTurn     = "turn"     // EventTurnData
	EventQuestion = "question" // EventQuestionData: the agent asks its person
	EventAnswered = "answered" // EventAnsweredData
	EventApproval = "approval" // ApprovalEvent: Handler asks, and how that ended
	EventArtifact = "artifact" // EventArtifactData
	EventRefused  = "refused"  // NetworkVerdict: a rule refused something
	EventRun      = "run"      // EventRunData
	EventNotice   = "notice"   // EventNoticeData: what the person should know
	EventCut      = "cut"      // EventCutData: the session is at its bounds; events are left out
)

// An Event is one thing that happened in a session. Seq counts from 1 without a gap.
type Event struct {
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	// Update is ACP's sessionUpdate of an EventUpdate: "agent_message_chunk", "tool_call", …
	Update string          `json:"update,omitempty"`
	Data   json.RawMessage `json:"data"`
}

// EventPromptData is what the person, or a client in its place, sent.
type EventPromptData struct {
	Content json.RawMessage `json:"content"` // ACP's []ContentBlock; long data is replaced by "artifact:ID" or cut
	Cut     bool            `json:"cut,omitempty"`
}

// EventTurnData says that a turn began or ended.
type EventTurnData struct {
	State      string `json:"state"`                // "started" or "ended"
	StopReason string `json:"stopReason,omitempty"` // ACP's
	Error      *Error `json:"error,omitempty"`
}

// EventQuestionData is a session/request_permission or an elicitation of the agent's.
type EventQuestionData struct {
	ID     string          `json:"id"`     // for QuestionAnswer
	Method string          `json:"method"` // ACP's
	Params json.RawMessage `json:"params"` // ACP's, without the session's id
	Ours   bool            `json:"ours"`   // it can be answered here
}

// MaxQuestionID bounds the part of a question's id that is the agent's own, in bytes.
const MaxQuestionID = 64

// QuestionID gives the EventQuestionData.ID of a request of the agent's: id is its JSON-RPC id as it was written. Whoever
// sees the request on its way makes the same one; it is unique as long as the question is open. A long id is replaced by
// its digest.
func QuestionID(run string, id json.RawMessage) string {
	text := string(id)
	if len(text) > MaxQuestionID {
		sum := sha256.Sum256(id)
		text = hex.EncodeToString(sum[:])[:32]
	}
	return run + "/" + text
}

// EventAnsweredData is how it was answered.
type EventAnsweredData struct {
	ID     string          `json:"id"`
	Answer json.RawMessage `json:"answer,omitempty"` // ACP's result
	By     string          `json:"by,omitempty"`     // "rule", "client", or where the person was
}

// EventArtifactData is an artifact of the session that was kept or removed.
type EventArtifactData struct {
	Artifact Artifact `json:"artifact"`
	Tool     string   `json:"tool,omitempty"` // the tool call that it belongs to
	Removed  bool     `json:"removed,omitempty"`
}

// EventRunData says that a run of the session began or ended.
type EventRunData struct {
	Run   string `json:"run"`
	State string `json:"state"` // "started" or "ended"
	Error *Error `json:"error,omitempty"`
}

// EventNoticeData is a sentence for the person.
type EventNoticeData struct {
	Text string `json:"text"`
}

// EventCutData says how much is left out so far.
type EventCutData struct {
	Events int64  `json:"events"`
	Reason string `json:"reason"`
}

// NewSession asks for a session whose client is handlerd.
type NewSession struct {
	Agent   string  `json:"agent"`
	Cwd     string  `json:"cwd"`
	Display bool    `json:"display,omitempty"` // as a run's
	VNC     bool    `json:"vnc,omitempty"`     // as a run's
	Wayland Wayland `json:"wayland"`
	Limits  Limits  `json:"limits"`
}

// A Prompt starts a turn. Answered once it is written down: the agent's answer comes as events.
type Prompt struct {
	Content json.RawMessage `json:"content"` // ACP's []ContentBlock
}

// PromptTaken says where a turn's events begin.
type PromptTaken struct {
	Seq int64 `json:"seq"` // of its EventPrompt
}

// A QuestionAnswer answers an EventQuestion; exactly one of Option, Cancel and Content is set.
type QuestionAnswer struct {
	ID      string          `json:"id"`
	Option  string          `json:"option,omitempty"`  // of a permission request; of an elicitation OptionDecline
	Cancel  bool            `json:"cancel,omitempty"`  // neither yes nor no
	Content json.RawMessage `json:"content,omitempty"` // of an elicitation that is accepted
	By      string          `json:"by,omitempty"`      // for the history: "the page", "handler attach"; at most 100 bytes are kept
}

// OptionDecline is the QuestionAnswer.Option that says no to an elicitation.
const OptionDecline = "decline"

// A SessionOption sets a mode (ID "mode") or a configuration option of the agent's.
type SessionOption struct {
	ID    string          `json:"id"`
	Value json.RawMessage `json:"value"`
}

// A SessionTitle names a session; "" goes back to the agent's.
type SessionTitle struct {
	Title string `json:"title"`
}

// ContinueSession asks for a fresh run in which handlerd continues a session that has none.
type ContinueSession struct {
	Display bool    `json:"display,omitempty"`
	VNC     bool    `json:"vnc,omitempty"`
	Wayland Wayland `json:"wayland"`
	Limits  Limits  `json:"limits"`
}

// A Change says what of the lists is new; whoever shows it asks again for the whole, or takes what is there.
type Change struct {
	Session  *Session       `json:"session,omitempty"` // new or changed
	Removed  string         `json:"removed,omitempty"` // the id of a session that was removed
	Run      *Run           `json:"run,omitempty"`     // without what it uses of the machine
	Ended    string         `json:"ended,omitempty"`   // the id of a run that ended
	Approval *ApprovalEvent `json:"approval,omitempty"`
	Agents   bool           `json:"agents,omitempty"` // agents' files changed
}
