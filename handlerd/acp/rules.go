package acp

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/policy/rawjson"
)

// Rules say what becomes of a message. A Relay asks from two goroutines, one a direction, and each message before the
// next of its direction is read: answers are quick, and the rules safe for concurrent use.
type Rules interface {
	FromClient(Message) Decision
	FromAgent(Message) Decision
}

// A Message is one line and what Scan found in it. It is the callee's only during the call.
type Message struct {
	Envelope
	Line []byte
	// For is the method of the request that a Response answers; "" otherwise.
	For string
	// ForSession is the sessionId of that request's params; "" for none.
	ForSession string
	forID      []byte // its id, as it was written
	// InTurn tells of an agent's Request that a prompt of its session is being answered.
	InTurn bool
}

// part gives the bytes of a part; nil where it is absent.
func (m Message) part(s rawjson.Span) []byte {
	if !s.Present() {
		return nil
	}
	return s.Of(m.Line)
}

// An Action is what becomes of a message.
type Action int

const (
	// Forward passes the line on, with Edits made.
	Forward Action = iota
	// Answer gives a request's sender Result, or where that is nil the error of Refusal with Code. A Response is
	// passed on as that error; a Notification is dropped.
	Answer
	// Drop passes nothing on and answers nothing: for notifications.
	Drop
)

// A Decision is the answer of Rules. The zero Decision forwards the line as it is.
type Decision struct {
	Action  Action
	Edits   []rawjson.Edit // over Message.Line, in order
	Result  []byte         // JSON
	Code    int
	Refusal policy.Verdict
	Notes   []policy.Verdict // what the audit log is told, refusals too
	// Answered is set where the rules answered a question of the agent's (P5); Tell is then the line that tells the
	// client of it, nil for none.
	Answered *policy.Answered
	Tell     []byte
}

// MaxSessions is how many sessions of one run may be open at a time (P7). It holds for every agent; B.8 may say less.
const MaxSessions = 128

// PolicyRules are the rules of contract C over the messages of one run.
type PolicyRules struct {
	config   *policy.Config
	sessions int // how many sessions may be open (B.8); 0 for MaxSessions
	calls    policy.ToolCalls
	session  Sessions

	mu      sync.Mutex
	caps    policy.Caps         // protected by mu
	open    map[string]struct{} // sessions; protected by mu
	opening int                 // requests under way that open one; protected by mu
	tokens  map[string]string   // of sessions that are being opened, by the request's key; protected by mu
	tell    bool                // the client wants policy.MethodAnswered; protected by mu
}

// NewRules makes the rules of one run. sessionsPerRun bounds how many sessions are open at a time (B.8), for agents
// that leak servers between them; 0 for no bound but MaxSessions.
func NewRules(config *policy.Config, sessionsPerRun int) *PolicyRules {
	return &PolicyRules{config: config, sessions: sessionsPerRun, open: make(map[string]struct{}), tokens: make(map[string]string)}
}

// Sessions is how the servers that handlerd hosts learn which session they were given to: each request that opens one
// carries a token of its own, and the agent's answer says whose it is.
type Sessions struct {
	Token  func() string               // makes a token; nil for none
	Opened func(token, session string) // is told when the agent has accepted the session
}

// Tell makes the rules give each session's servers a token. It is called before the rules are asked anything.
func (p *PolicyRules) Tell(s Sessions) { p.session = s }

var _ Rules = (*PolicyRules)(nil)

// FromClient judges what goes to the agent.
func (p *PolicyRules) FromClient(m Message) Decision {
	switch {
	case m.Kind == Response:
		return Decision{}
	case m.Method == "initialize":
		p.wants(m)
		return decide(p.config.Initialize(m.part(m.Params)), m.Params)
	case policy.SetsUpSession(m.Method):
		if m.Kind != Request {
			return decide(policy.Ruling{Verdict: noRequest(m.Method), Notes: []policy.Verdict{noRequest(m.Method)}}, m.Params)
		}
		return p.setUp(m)
	}
	return decide(p.config.ClientCall(m.Method), m.Params)
}

// wants remembers whether the client wants to be told of questions that are answered for it.
func (p *PolicyRules) wants(m Message) {
	at := -1
	if m.Params.Present() {
		at = rawjson.Lookup(m.Line, m.Params.Start, "clientCapabilities", "_meta", policy.MetaAnswered)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell = at >= 0 && bytes.HasPrefix(m.Line[at:], []byte("true"))
}

func noRequest(method string) policy.Verdict {
	return policy.Verdict{Action: policy.Refuse, Rule: "P9", Reason: method + " without an id"}
}

// setUp judges a request that opens a session, under the bound on them.
func (p *PolicyRules) setUp(m Message) Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	session := stringAt(m.Line, m.Params, "sessionId")
	_, again := p.open[session] // a session/load of one that is open
	if v, full := p.full(!again || m.Method == "session/fork"); full {
		return Decision{Action: Answer, Code: CodeInvalidParams, Refusal: v, Notes: []policy.Verdict{v}}
	}
	token := ""
	if p.session.Token != nil {
		token = p.session.Token()
	}
	d := decide(p.config.WithToken(token).SetUpSession(m.Method, m.part(m.Params), p.caps), m.Params)
	if d.Action == Forward {
		p.opening++
		if token != "" {
			p.tokens[m.Key] = token // as many as requests are pending
		}
	}
	return d
}

// full tells why no other session can be opened. The caller holds mu.
func (p *PolicyRules) full(another bool) (policy.Verdict, bool) {
	n := len(p.open) + p.opening
	switch {
	case !another:
	case p.sessions > 0 && n >= p.sessions:
		return policy.Verdict{
			Action: policy.Refuse, Rule: "B.8",
			Reason: "this agent keeps its sessions apart only in runs of their own, and one is open",
			Hint:   "close it, or start the agent once more",
		}, true
	case n >= MaxSessions:
		return policy.Verdict{
			Action: policy.Refuse, Rule: "P7",
			Reason: strconv.Itoa(MaxSessions) + " sessions of this run are open, the most there can be",
			Hint:   "close one (session/close), or start the agent once more",
		}, true
	}
	return policy.Verdict{}, false
}

// FromAgent judges what goes to the client.
func (p *PolicyRules) FromAgent(m Message) Decision {
	switch m.Kind {
	case Request:
		d := decide(p.config.AgentCall(m.Method, m.part(m.Params), p.known(), &p.calls), m.Params)
		if d.Action == Forward {
			p.answer(m, &d)
		}
		return d
	case Notification:
		if m.Method == "session/update" {
			return decide(p.calls.Update(m.part(m.Params)), m.Params)
		}
		return decide(p.config.AgentNotice(m.Method, p.known()), m.Params)
	}
	failed := m.Error.Present() && !rawjson.IsNull(m.Line, m.Error)
	switch {
	case policy.SetsUpSession(m.For):
		p.setUpDone(m, failed)
	case m.For == "session/close" || m.For == "session/delete":
		if !failed {
			p.mu.Lock()
			delete(p.open, m.ForSession)
			p.mu.Unlock()
		}
	}
	if failed {
		return decide(p.config.AgentError(m.part(m.Error)), m.Error)
	}
	if m.For != "initialize" {
		return Decision{}
	}
	ruling, caps := p.config.InitializeAnswer(m.part(m.Result))
	p.mu.Lock()
	p.caps = caps
	p.mu.Unlock()
	return decide(ruling, m.Result)
}

// answer answers a question of the agent's by rule, where one does (P5).
func (p *PolicyRules) answer(m Message, d *Decision) {
	var a *policy.Answered
	switch m.Method {
	case policy.MethodPermission:
		if ask, err := policy.ParsePermission(m.part(m.Params)); err == nil {
			a = p.config.Answers.Permission(p.config.Agent, ask, &p.calls, m.InTurn)
		}
	case policy.MethodElicitation:
		a = p.config.Answers.Elicitation(m.part(m.Params))
	}
	if a == nil {
		return
	}
	p.mu.Lock()
	tell := p.tell
	p.mu.Unlock()
	if tell {
		d.Tell = answeredLine(m, d.Edits, a)
	}
	d.Action, d.Edits, d.Result, d.Answered = Answer, nil, a.Result, a
}

// answeredLine tells a client of a question that a rule answered, as it would have got it.
func answeredLine(m Message, edits []rawjson.Edit, a *policy.Answered) []byte {
	params := m.part(m.Params)
	within := make([]rawjson.Edit, len(edits))
	for i, e := range edits {
		within[i] = rawjson.Edit{Span: rawjson.Span{Start: e.Start - m.Params.Start, End: e.End - m.Params.Start}, New: e.New}
	}
	if joined, err := rawjson.Splice(params, within); err == nil {
		params = joined
	}
	return []byte(`{"jsonrpc":"2.0","method":"` + policy.MethodAnswered + `","params":` + string(a.Notice(m.Method, params)) + `}`)
}

func (p *PolicyRules) known() policy.Caps {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caps
}

func (p *PolicyRules) setUpDone(m Message, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening--
	token := p.tokens[m.Key]
	delete(p.tokens, m.Key)
	if failed {
		return
	}
	session := openedSession(m)
	p.open[session] = struct{}{} // bounded, since each needs a request that was let through
	if token != "" {
		p.session.Opened(token, session)
	}
}

// openedSession gives the session that an answer is about: the one it names, else the one that was asked for.
func openedSession(m Message) string {
	if id := stringAt(m.Line, m.Result, "sessionId"); id != "" {
		return id
	}
	return m.ForSession
}

// decide makes a Decision of a Ruling over the part at s.
func decide(r policy.Ruling, s rawjson.Span) Decision {
	d := Decision{Notes: r.Notes}
	switch r.Action {
	case policy.Refuse:
		d.Action, d.Code, d.Refusal = Answer, r.Code, r.Verdict
	case policy.Edit:
		d.Edits = make([]rawjson.Edit, len(r.Edits))
		for i, e := range r.Edits {
			d.Edits[i] = rawjson.Edit{Span: rawjson.Span{Start: e.Start + s.Start, End: e.End + s.Start}, New: e.New}
		}
	}
	return d
}
