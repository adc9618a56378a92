package acp

import (
	"context"
	"math"
	"time"

	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/policy/rawjson"
)

// CancelGrace is how long a client may take to answer an agent's questions after it has cancelled their turn, as ACP
// says that it must. Then they are answered for it, since an agent that waits for an answer does not end its turn.
const CancelGrace = 5 * time.Second

// Bounds of what is remembered of a question for the audit log.
const (
	maxAsked   = 200
	maxOptions = 4 << 10
)

// A question is what is remembered of a request that asks the person: enough to say in the audit log what was asked
// and answered.
type question struct {
	what    string            // for people
	options map[string]string // kinds by id; nil where there are too many
}

// isQuestion tells the requests of an agent that wait for a person.
func isQuestion(method string) bool {
	return method == policy.MethodPermission || method == policy.MethodElicitation
}

// asked remembers a question that goes to the client.
func asked(m Message, edited []byte) *question {
	q := &question{what: "a question"}
	if m.Method == policy.MethodElicitation {
		if text := stringAt(m.Line, m.Params, "message"); text != "" {
			q.what = "the question " + quoted(text)
		}
		return q
	}
	p, err := policy.ParsePermission(paramsOf(edited))
	if err != nil {
		return q
	}
	q.what = p.ToolCall.Shown()
	size := 0
	for _, o := range p.Options {
		size += len(o.ID) + len(o.Kind)
	}
	if size <= maxOptions {
		q.options = make(map[string]string, len(p.Options))
		for _, o := range p.Options {
			q.options[o.ID] = o.Kind
		}
	}
	return q
}

// paramsOf gives the params of a request line that has been scanned before.
func paramsOf(line []byte) []byte { return memberOf(line, "params") }

// memberOf gives a member of a line that has been scanned before; nil for none.
func memberOf(line []byte, name string) []byte {
	at := rawjson.Lookup(line, rawjson.Space(line, 0), name)
	if at < 0 {
		return nil
	}
	end, err := rawjson.Skip(line, at)
	if err != nil {
		return nil
	}
	return line[at:end]
}

func quoted(s string) string {
	if r := []rune(s); len(r) > maxAsked {
		s = string(r[:maxAsked]) + "…"
	}
	return string(rawjson.AppendString(nil, s))
}

// clientAnswered tells the observer how the client answered a question.
func (r *Relay) clientAnswered(c call, m Message) {
	answer := "an error"
	if m.Result.Present() {
		switch c.method {
		case policy.MethodPermission:
			answer = stringAt(m.Line, m.Result, "outcome", "outcome")
			if answer == "selected" {
				answer = "an option"
				if kind := c.question.options[stringAt(m.Line, m.Result, "outcome", "optionId")]; kind != "" {
					answer = kind
				}
			}
		default:
			answer = stringAt(m.Line, m.Result, "action")
		}
	}
	action := policy.Refuse
	if answer == policy.AllowOnce || answer == policy.AllowAlways || answer == "accept" {
		action = policy.Allow
	}
	r.answeredQuestion(c.session, c.method, policy.Verdict{Action: action, Rule: "P5", Reason: c.question.what + " was answered " + printableAnswer(answer) + " (the client)"})
}

// printableAnswer makes an answer that is none of ACP's fit for the log.
func printableAnswer(answer string) string {
	switch answer {
	case policy.AllowOnce, policy.AllowAlways, policy.RejectOnce, policy.RejectAlways, "cancelled", "an option", "an error", "accept", "decline", "cancel":
		return answer
	}
	return "something else"
}

// answeredQuestion tells the observer of an answer.
func (r *Relay) answeredQuestion(session, method string, v policy.Verdict) {
	r.o.Observe(Event{Kind: Answered, From: Agent, Session: session, Method: method, Verdict: v})
}

// turnCancelled is what a client's session/cancel means for the agent's questions: the client has CancelGrace to
// answer them. One wait a session runs at a time.
func (r *Relay) turnCancelled(ctx context.Context, session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, live := r.turns[session]; !live {
		return
	}
	if _, waiting := r.cancels[session]; waiting {
		return
	}
	r.cancels[session] = false
	before := r.sides[Agent].pending.count()
	r.waits.Go(func() {
		r.pause(ctx, r.o.CancelGrace)
		if ctx.Err() == nil {
			r.answerCancelled(ctx, session, before)
		}
	})
}

// answerCancelled answers a session's questions for the client: those from before the cancel, and while the turn goes
// on all others, those to come included.
func (r *Relay) answerCancelled(ctx context.Context, session string, before uint64) {
	r.mu.Lock()
	if _, still := r.cancels[session]; still {
		r.cancels[session] = true
		before = math.MaxUint64
	}
	r.mu.Unlock()
	for _, c := range r.sides[Agent].pending.answerQuestions(session, before) {
		r.answerGone(ctx, c, "the turn was cancelled")
	}
}

// ask lets a question of the agent's go to the client, or answers it where the client has cancelled the turn and had
// its time.
func (r *Relay) ask(ctx context.Context, m Message, d Decision, c call) bool {
	edited, err := rawjson.Splice(m.Line, d.Edits)
	if err != nil {
		return true // forward says so
	}
	c.question = asked(m, edited)
	if r.isCancelled(c.session) {
		r.sides[Agent].pending.take(m.Key)
		r.answerGone(ctx, c, "the turn was cancelled")
		return false
	}
	r.sides[Agent].pending.remember(m.Key, c.question)
	return true
}

// isCancelled tells whether a session's questions are answered for its client.
func (r *Relay) isCancelled(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cancels[session]
}

// answerGone answers a question for a client that does not.
func (r *Relay) answerGone(ctx context.Context, c call, why string) {
	line := goneAnswer(c.id, c.method)
	r.inPlace(Client, c, line, why)
	r.answer(ctx, Agent, line)
	if c.question != nil {
		r.answeredQuestion(c.session, c.method, policy.Verdict{Action: policy.Refuse, Rule: "P5", Reason: c.question.what + " was answered cancelled (" + why + ")"})
	}
}
