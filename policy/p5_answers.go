package policy

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/handlerd/handler/policy/rawjson"
)

// handlerMethods begin the notifications that Handler itself sends to a client which asked for them. An agent's of
// that name are dropped.
const handlerMethods = "_handler/"

// MethodAnswered is the notification that tells a client of a question which a rule answered, where the client's
// _meta said that it wants to know (MetaAnswered).
const MethodAnswered = handlerMethods + "answered"

// MetaAnswered is the key in the _meta of a client's capabilities that asks for MethodAnswered.
const MetaAnswered = "handler/answered"

// Answers by rule.
const (
	AnswerAllow  = "allow"
	AnswerReads  = "reads"  // allow what calls itself a read, refuse the rest
	AnswerRefuse = "refuse" // also what "" means where nobody is there
	AnswerDeny   = "deny"   // of an AnswerRule
)

// Answers are how a run answers its agent's questions by itself (P5).
type Answers struct {
	// Unattended: nobody is there to be asked, so that every question is answered and none waits.
	Unattended bool
	// UnattendedBy is why nobody is there, for who answers where nothing else does; "" for "--unattended".
	UnattendedBy string
	// Run is what whoever started the run said, AnswerAllow or AnswerReads; "" for nothing. RunBy is what they said it
	// with, for the audit log: "--yes".
	Run, RunBy string
	// Agent is what the agent's settings say; "" is AnswerRefuse.
	Agent string
	// Rules are the agent's single answers. Those that deny hold where somebody is there, too.
	Rules []AnswerRule
}

// An AnswerRule answers what it fits. Tool and Title are patterns in which "*" stands for any text; what is "" fits
// everything. Tool is held against the tool's name; of a rule that denies also against the title of what has no name.
type AnswerRule struct {
	Tool   string `json:"tool,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Title  string `json:"title,omitempty"`
	Answer string `json:"answer"` // AnswerAllow or AnswerDeny
}

// byUnattended is what a run without a person was asked for with.
const byUnattended = "--unattended"

// NoTerminal is an Answers.UnattendedBy: nobody said that nobody is to be asked.
const NoTerminal = "nobody was asked: no terminal"

// An Answered is how a question was answered by a rule.
type Answered struct {
	Result  []byte  // the answer's result
	Answer  string  // kind of the option that was chosen, "cancelled", or "decline"
	By      string  // who said so: "--yes", "agent web: answers[0]"
	Verdict Verdict // for the audit log
}

// Permission answers a permission request, or gives nil where the person is to be asked. p is what the agent asks and
// calls what it said before. inTurn tells whether a prompt of the session is being answered: outside of a turn an
// agent has no authority to act, so nothing is allowed there.
func (a *Answers) Permission(agent string, p Permission, calls *ToolCalls, inTurn bool) *Answered {
	if a == nil {
		return nil
	}
	joined := calls.Join(p).ToolCall
	said := calls.said(p.SessionID, p.ToolCall.ID)
	views := []ToolCall{p.ToolCall, said.toolCall(p.ToolCall.ID), joined}
	for i, rule := range a.Rules {
		// Whichever of the agent's words fits: it must not get past by calling the thing otherwise the second time.
		if rule.Answer == AnswerDeny && (rule.fits(views[0]) || rule.fits(views[1]) || rule.fits(joined)) {
			return answerPermission(p, joined, false, fmt.Sprintf("agent %s: answers[%d]", agent, i))
		}
	}
	if !a.Unattended {
		return nil
	}
	allow, by := a.decide(agent, p, joined, views)
	if allow && !inTurn {
		allow, by = false, "no prompt is being answered"
	}
	return answerPermission(p, joined, allow, by)
}

// decide says what becomes of a permission request in a run without a person.
func (a *Answers) decide(agent string, p Permission, joined ToolCall, views []ToolCall) (allow bool, by string) {
	if a.Run != "" {
		return a.Run == AnswerAllow || a.Run == AnswerReads && joined.Reads(), a.RunBy
	}
	for i, rule := range a.Rules {
		// All of the agent's words have to fit.
		if rule.Answer == AnswerAllow && rule.allows(views[0], views[1], joined) {
			return true, fmt.Sprintf("agent %s: answers[%d]", agent, i)
		}
	}
	switch a.Agent {
	case AnswerAllow:
		return true, "agent " + agent + ": unattended"
	case AnswerReads:
		return joined.Reads(), "agent " + agent + ": unattended"
	case AnswerRefuse:
		return false, "agent " + agent + ": unattended"
	}
	return false, a.byNobody()
}

// byNobody is who answers where nothing else does.
func (a *Answers) byNobody() string { return cmp.Or(a.UnattendedBy, byUnattended) }

// answerPermission picks the option. "Always" is never allowed by a rule: it gives no more than was asked.
func answerPermission(p Permission, joined ToolCall, allow bool, by string) *Answered {
	kinds := []string{RejectOnce, RejectAlways}
	if allow {
		kinds = []string{AllowOnce, RejectOnce, RejectAlways}
	}
	a := &Answered{Result: PermissionCancelled(), Answer: "cancelled", By: by}
	for _, kind := range kinds {
		if id, ok := p.Option(kind); ok {
			a.Result, a.Answer = PermissionSelected(id), kind
			break
		}
	}
	a.Verdict = Verdict{Action: Refuse, Rule: "P5", Reason: joined.Shown() + " was answered " + a.Answer + " (" + by + ")"}
	if a.Answer == AllowOnce {
		a.Verdict.Action = Allow
	}
	return a
}

// Elicitation answers an elicitation, or gives nil where the person is to be asked: no rule fills in a form.
func (a *Answers) Elicitation(b []byte) *Answered {
	if a == nil || !a.Unattended {
		return nil
	}
	o, err := params(b, MethodElicitation)
	what := ""
	if err == nil {
		what, _, _ = text(b, o.Get("message"), "message") // what cannot be shown is declined all the same
	}
	return &Answered{
		Result: []byte(`{"action":"decline"}`), Answer: "decline", By: a.byNobody(),
		Verdict: Verdict{Action: Refuse, Rule: "P5", Reason: "the question " + quote(what) + " was answered decline (" + a.byNobody() + ")"},
	}
}

// Notice is the params of MethodAnswered: what was asked, as the client would have got it, and the answer.
func (a *Answered) Notice(method string, b []byte) []byte {
	o, err := params(b, method)
	if err != nil {
		return nil
	}
	out := `{"method":` + string(rawjson.AppendString(nil, method))
	for _, key := range []string{"sessionId", "toolCall", "message"} {
		if at := o.Get(key); at.Present() {
			out += `,"` + key + `":` + string(at.Of(b))
		}
	}
	return []byte(out + `,"answer":` + string(rawjson.AppendString(nil, a.Answer)) + `,"by":` + string(rawjson.AppendString(nil, a.By)) + `}`)
}

// fits tells whether a rule that denies is about a tool call. A title stands in for a name that is missing: it denies more.
func (r AnswerRule) fits(t ToolCall) bool {
	return (r.Kind == "" || r.Kind == t.Kind) && glob(r.Tool, cmp.Or(t.Name, t.Title)) && glob(r.Title, t.Title)
}

// allows tells whether a rule that allows is about a tool call: about what is asked together with what was said, and
// about neither in words that it does not fit. A title, which may be any text, is never taken for a name; and a request
// that contradicts what was announced is another call than the one that the rule may be about.
func (r AnswerRule) allows(asked, said, joined ToolCall) bool {
	if differ(asked, said) != (difference{}) || asked.Name != "" && said.Name != "" && asked.Name != said.Name {
		return false
	}
	return (r.Kind == "" || r.Kind == joined.Kind) && glob(r.Tool, joined.Name) && glob(r.Title, joined.Title) &&
		r.fitsWhereSaid(asked) && r.fitsWhereSaid(said)
}

// fitsWhereSaid is fits for words of which some were not said.
func (r AnswerRule) fitsWhereSaid(t ToolCall) bool {
	return (t.Kind == "" || r.Kind == "" || r.Kind == t.Kind) && (t.Name == "" || glob(r.Tool, t.Name)) && (t.Title == "" || glob(r.Title, t.Title))
}

// glob holds s against a pattern in which "*" is any text; "" fits everything. Case and runs of white space are folded,
// since a title is written for people.
func glob(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	fold := func(s string) string { return strings.Join(strings.Fields(strings.ToLower(s)), " ") }
	parts := strings.Split(fold(pattern), "*")
	s = fold(s)
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	if len(parts) == 1 {
		return s == parts[0]
	}
	s = s[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s = s[at+len(part):]
	}
	return len(s) >= len(last) && strings.HasSuffix(s, last)
}

// Shown names a tool call to a person in a few words.
func (t ToolCall) Shown() string {
	name := t.Title
	if name == "" {
		name = t.Name
	}
	switch {
	case name == "" && t.Kind == "":
		return "a tool call without a name"
	case name == "":
		return "a tool call of the kind " + quote(t.Kind)
	case t.Kind == "":
		return quote(name)
	}
	return quote(name) + " (" + quote(t.Kind) + ")"
}
