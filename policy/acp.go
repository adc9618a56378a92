package policy

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/handlerd/handler/policy/rawjson"
)

// JSON-RPC codes of refusals. A refused session method is an invalid parameter: clients show its message, and agents
// give the same code for what they refuse themselves.
const (
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

// Bounds of what the rules read (P7). A request over one gets an error that names it.
const (
	MaxServers     = 64  // MCP servers in one session, the plan's included
	MaxServerItems = 256 // args, env or headers of one server
	MaxDirectories = 64  // additionalDirectories
	maxAuthMethods = 64
	maxOptions     = 64 // of a permission request
)

// Config is what the rules over ACP messages (P1 to P6, P8, P9) know of a run. It does not change; its methods are
// pure and safe for concurrent use where its functions are.
type Config struct {
	Agent  string  // whose rules these are, for reasons and hints
	Scopes []Scope // P1, P2

	// Resolve gives a path with every symlink in it followed. The last element need not exist: then the folder is
	// resolved and the element stays. A dangling link, a missing folder and a relative path are errors. Nil
	// refuses every path.
	Resolve func(path string) (string, error)

	// ReadOnly tells resolved paths that host_fs never writes although their scope is rw: the files that the
	// person's own tools would run (A.9). Nil for none.
	ReadOnly func(resolved string) bool

	// Servers are added to every session (P8). A run whose agent reads its servers elsewhere has none here.
	Servers []MCPServer

	// Transports are what the agent is known to take, besides what it says itself: of "http", "sse", "acp".
	Transports []string

	// Reach judges the destination of an http or sse server (P3), as Network.Decide does. Nil refuses every one.
	Reach func(host string, port uint16) Verdict

	// Answers answer the agent's questions by rule (P5). Nil leaves every one to the client.
	Answers *Answers

	HostFS        bool // P2 and P4: fs/* is the client's
	HostTerminal  bool // P4: terminal/* and terminal logins are the client's
	DenyClientMCP bool // P6
}

// A Scope is a host folder the agent sees at the same path.
type Scope struct {
	Path string // absolute, symlinks resolved
	RW   bool
}

// Caps is what the agent said of itself in its answer to initialize, as far as a rule needs it.
type Caps struct {
	HTTP, SSE, ACP bool // mcpCapabilities
}

// A Ruling is the verdict on one message and what follows from it. The zero Ruling lets the message pass as it is.
type Ruling struct {
	Verdict
	Code  int            // of the JSON-RPC error, for Refuse
	Edits []rawjson.Edit // for Edit: over the bytes that were judged, in order
	Notes []Verdict      // every verdict but a plain allow, for the audit log; a refusal is the last
}

// edit adds an edit and what to say about it.
func (r *Ruling) edit(rule, reason string, edits ...rawjson.Edit) {
	v := Verdict{Action: Edit, Rule: rule, Reason: reason}
	r.Verdict = v
	r.Edits = append(r.Edits, edits...)
	r.Notes = append(r.Notes, v)
}

// A refusal is the error by which the parts of a rule give up; [ruled] makes it a Ruling.
type refusal struct {
	code int
	v    Verdict
}

func (r *refusal) Error() string { return r.v.String() }

func refuse(rule, reason, hint string) *refusal {
	return &refusal{codeInvalidParams, Verdict{Action: Refuse, Rule: rule, Reason: reason, Hint: hint}}
}

// ruled gives r, or where err is not nil the refusal that err is. Notes of what was judged before stay.
func ruled(r Ruling, err error) Ruling {
	if err == nil {
		slices.SortStableFunc(r.Edits, func(a, b rawjson.Edit) int { return a.Start - b.Start })
		return r
	}
	var no *refusal
	if !errors.As(err, &no) {
		no = malformed("", err)
	}
	return Ruling{Verdict: no.v, Code: no.code, Notes: append(r.Notes, no.v)}
}

// malformed is the refusal of what a rule could not read: P9, or P7 where a bound was passed.
func malformed(what string, err error) *refusal {
	reason := err.Error()
	var syntax *rawjson.SyntaxError
	if errors.As(err, &syntax) {
		reason = syntax.Reason
	}
	if what != "" {
		reason = what + ": " + reason
	}
	var bound *rawjson.BoundError
	if errors.As(err, &bound) {
		return refuse("P7", reason, "")
	}
	return refuse("P9", reason, "")
}

// wrongType is the refusal of a value that is not what ACP says it is.
func wrongType(what, want string) *refusal {
	return refuse("P9", what+" is not "+want, "")
}

// object reads the object at s, which messages call what. An absent or null one gives an Object that is not Present.
func object(b []byte, s rawjson.Span, what string, known ...string) (rawjson.Object, error) {
	if !s.Present() || rawjson.IsNull(b, s) {
		return rawjson.Object{}, nil
	}
	if b[s.Start] != '{' {
		return rawjson.Object{}, wrongType(what, "an object")
	}
	o, err := rawjson.ParseObject(b, s, known...)
	if err != nil {
		return o, malformed(what, err)
	}
	return o, nil
}

// params reads the params of a method that a rule concerns: they have to be there.
func params(b []byte, method string, known ...string) (rawjson.Object, error) {
	return required(b, method+".params", known...)
}

// required reads an object that has to be there.
func required(b []byte, what string, known ...string) (rawjson.Object, error) {
	if len(b) == 0 {
		return rawjson.Object{}, refuse("P9", "there is no "+what, "")
	}
	s, err := rawjson.Whole(b)
	if err != nil {
		return rawjson.Object{}, malformed(what, err)
	}
	if b[s.Start] != '{' {
		return rawjson.Object{}, wrongType(what, "an object")
	}
	return object(b, s, what, known...)
}

// array reads the array at s; none where it is absent or null.
func array(b []byte, s rawjson.Span, what string, limit int) ([]rawjson.Span, error) {
	if !s.Present() || rawjson.IsNull(b, s) {
		return nil, nil
	}
	if b[s.Start] != '[' {
		return nil, wrongType(what, "an array")
	}
	elements, err := rawjson.ParseArray(b, s, limit)
	if err != nil {
		return nil, malformed(what, err)
	}
	return elements, nil
}

// text reads the string at s; ok is false where it is absent or null.
func text(b []byte, s rawjson.Span, what string) (value string, ok bool, err error) {
	if !s.Present() || rawjson.IsNull(b, s) {
		return "", false, nil
	}
	if b[s.Start] != '"' {
		return "", false, wrongType(what, "a string")
	}
	if value, err = rawjson.String(b, s); err != nil {
		return "", false, malformed(what, err)
	}
	return value, true, nil
}

// insert puts members into an object: behind its opening brace, so that nothing else moves.
func insert(o rawjson.Object, members string) rawjson.Edit {
	if len(o.Members) > 0 {
		members += ","
	}
	at := o.Span.Start + 1
	return rawjson.Edit{Span: rawjson.Span{Start: at, End: at}, New: []byte(members)}
}

// replace puts value where s is.
func replace(s rawjson.Span, value string) rawjson.Edit {
	return rawjson.Edit{Span: s, New: []byte(value)}
}

// quote makes what somebody else wrote fit for a message: bounded, one line.
func quote(s string) string {
	const limit = 120
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit]) + "…"
	}
	out, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(out))
}

// editAgent is the hint that names the command by which the person changes the agent, with what to change.
func (c *Config) editAgent(change string) string {
	name := c.Agent
	if name == "" {
		name = "NAME"
	}
	return change + ": handler agent edit " + name
}
