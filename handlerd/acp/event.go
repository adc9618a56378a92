package acp

import "github.com/handlerd/handler/policy"

// A Side is one end of a relay.
type Side int

const (
	Client Side = iota
	Agent
)

// String gives "client" or "agent".
func (s Side) String() string {
	if s == Client {
		return "client"
	}
	return "agent"
}

func (s Side) other() Side { return 1 - s }

// An EventKind says what an Event tells of.
type EventKind int

const (
	// TurnStarted: a session/prompt went to the agent. Session is set.
	TurnStarted EventKind = iota
	// TurnEnded: it was answered, or one of the ends is gone. Session is set.
	TurnEnded
	// TurnCancelled: the client asked for its end; it has not come yet. Session is set.
	TurnCancelled
	// SessionOpened: the agent accepted a session/new, load, resume or fork. Session and Method are set.
	SessionOpened
	// SessionClosed: the agent accepted a session/close or delete. Session is set.
	SessionClosed
	// ToolCalled: the agent began a tool call in a turn (a replayed history has none). Session, Tool and Name are set.
	ToolCalled
	// Pictured: what the agent says of a tool call, or its answer, may hold a picture, in a turn. Session, Tool, Name and
	// Line are set; Name may be empty. It comes before the line goes to the client.
	Pictured
	// Judged: a rule said something other than a plain allow. Verdict, From and Method are set.
	Judged
	// Answered: a question of the agent's was answered, by a rule, by the client, or in its place. Verdict says how and by
	// whom; Session and Method are set.
	Answered
	// LineDropped: a line was no message and went nowhere; Text says why and how it began, as far as it is
	// printable. From is set. Agents print banners on standard output.
	LineDropped
)

// An Event is what an observer of a relay sees.
type Event struct {
	Kind    EventKind
	From    Side
	Session string
	Method  string
	Verdict policy.Verdict
	Text    string
	Tool    string // the tool call's id; "" for a part of the answer
	Name    string // the tool's name, or else its title
	Line    []byte // the whole message; valid until Observe returns
}

// A Carried is a message that goes on to the other side, as that gets it, or the answer that Handler gives in a side's
// place. Whoever keeps the conversation takes it from these.
type Carried struct {
	From    Side // who says it, or in whose place Handler does
	Kind    Kind
	Method  string // of a response that of its request
	Session string // params.sessionId, where there is one; of a response its request's
	ID      []byte // of the request, as it was written; nil for a notification
	// Body is the params, the result, or where Failed the error; nil for none. It is valid until the observer returns.
	Body   []byte
	Failed bool
	// By says why Handler answered in the side's place; "" where it did not.
	By string
}
