package acp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/handlerd/handler/handlerd/acp/pictures"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/policy/rawjson"
)

// pump carries one direction until its side says nothing more. A nil error is a plain end.
func (r *Relay) pump(ctx context.Context, from Side) error {
	in := NewReader(r.sides[from].conn, r.o.MaxLine)
	in.spare = &attic{}
	out := r.sides[from.other()].out
	home := make(chan *buffer, 2)
	for range cap(home) {
		home <- &buffer{home: home, big: in.spare}
	}
	for {
		var buf *buffer
		select {
		case buf = <-home:
		case <-out.done: // then nothing comes home, and nothing is sent either
			buf = &buffer{home: make(chan *buffer, 1), big: in.spare}
		case <-ctx.Done():
			return nil
		}
		line, err := in.Next(buf.b)
		buf.b = line.Bytes
		if err != nil {
			return r.readError(from, line, err)
		}
		if !r.carry(ctx, from, line, buf) {
			buf.release()
		}
	}
}

// readError tells a plain end from others.
func (r *Relay) readError(from Side, line Line, err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, ErrHalfLine):
		r.dropped(from, line.Bytes, fmt.Sprintf("half a line of %d bytes at the end of the input", line.Size))
	}
	return err
}

// carry does with one line what the rules say. It tells whether buf went along with it.
func (r *Relay) carry(ctx context.Context, from Side, line Line, buf *buffer) bool {
	e, err := Scan(line.Bytes)
	m := Message{Envelope: e, Line: line.Bytes}
	if r.paced(ctx, from, m) {
		return false
	}
	if bound, over := r.overBound(from, line); over {
		r.oversized(ctx, from, line, e, bound)
		return false
	}
	if err != nil {
		r.malformed(ctx, from, line.Bytes, e, err)
		return false
	}
	switch e.Kind {
	case Request:
		return r.request(ctx, from, m, buf)
	case Notification:
		return r.notification(ctx, from, m, buf)
	default:
		return r.response(ctx, from, m, buf)
	}
}

// overBound gives the bound that a line passes: that of all lines, or that of what an agent takes.
func (r *Relay) overBound(from Side, line Line) (int, bool) {
	if line.TooLong {
		return r.o.MaxLine, true
	}
	return r.o.MaxRequest, from == Client && line.Size > int64(r.o.MaxRequest)
}

func (r *Relay) request(ctx context.Context, from Side, m Message, buf *buffer) bool {
	if from == Agent && r.clientGone.Load() {
		r.answer(ctx, from, goneAnswer(m.ID.Of(m.Line), m.Method))
		return false
	}
	c := newCall(m.Line, m.Envelope)
	prompts := m.Method == "session/prompt" && from == Client
	if prompts {
		if v, over := r.tooManyPrompts(c.session); over {
			r.refuse(ctx, from, m, CodeInvalidRequest, v)
			return false
		}
	}
	asks := from == Agent && isQuestion(m.Method)
	m.InTurn = asks && r.inTurn(c.session)
	switch r.sides[from].pending.add(m.Key, c) {
	case duplicate:
		r.refuse(ctx, from, m, CodeInvalidRequest, verdict("P9", "a request with this id is not answered yet", "give each request an id of its own"))
		return false
	case full:
		r.refuse(ctx, from, m, CodeInvalidRequest, verdict("P7", fmt.Sprintf("%d requests are not answered yet", r.sides[from].pending.max), "wait for their answers"))
		return false
	case sealed:
		r.answerEnded(ctx, from, c)
		return false
	}
	d := r.judge(from, m)
	if d.Action != Forward {
		r.sides[from].pending.take(m.Key)
		r.answerDecided(ctx, from, m, d)
		return false
	}
	if asks && !r.ask(ctx, m, d, c) {
		return false
	}
	if prompts {
		r.turnStarted(c.session)
	}
	return r.forward(ctx, from.other(), m, d, buf)
}

// answerEnded answers a request that comes when the other side has ended.
func (r *Relay) answerEnded(ctx context.Context, from Side, c call) {
	if from == Agent {
		r.answer(ctx, from, goneAnswer(c.id, c.method))
		return
	}
	r.mu.Lock()
	text, data := r.ended, r.data
	r.mu.Unlock()
	r.answer(ctx, from, failLine(c.id, CodeInternal, text, data))
	r.tellOnce.Do(func() { close(r.told) })
}

// answerDecided answers a request as the rules decided.
func (r *Relay) answerDecided(ctx context.Context, from Side, m Message, d Decision) {
	id := slices.Clone(m.ID.Of(m.Line))
	if d.Tell != nil {
		r.answer(ctx, from.other(), d.Tell)
	}
	if a := d.Answered; a != nil {
		c := call{id: id, method: m.Method, session: stringAt(m.Line, m.Params, "sessionId")}
		r.carried(from, m, m.Line)
		r.inPlace(from.other(), c, resultLine(id, d.Result), "rule")
		r.answeredQuestion(stringAt(m.Line, m.Params, "sessionId"), m.Method, a.Verdict)
	}
	if d.Result != nil && d.Action == Answer {
		r.answer(ctx, from, resultLine(id, d.Result))
		return
	}
	r.answer(ctx, from, errorLine(id, d.Code, d.Refusal))
}

func (r *Relay) notification(ctx context.Context, from Side, m Message, buf *buffer) bool {
	if m.Method == "$/cancel_request" && m.Params.Present() {
		// What Handler has answered itself, the other side knows nothing of.
		if key := requestID(m); key != "" && !r.sides[from].pending.has(key) {
			return false
		}
	}
	d := r.judge(from, m)
	if d.Action != Forward {
		return false
	}
	if from == Agent && m.Method == "session/update" {
		r.sawUpdate(m)
	}
	if from == Client && m.Method == "session/cancel" {
		session := stringAt(m.Line, m.Params, "sessionId")
		r.o.Observe(Event{Kind: TurnCancelled, From: Client, Session: session})
		r.turnCancelled(ctx, session)
	}
	return r.forward(ctx, from.other(), m, d, buf)
}

// requestID gives the key of the request that a $/cancel_request is about; "" for none that can be read.
func requestID(m Message) string {
	at := rawjson.Lookup(m.Line, m.Params.Start, "requestId")
	if at < 0 {
		return ""
	}
	end, err := rawjson.Skip(m.Line, at)
	if err != nil {
		return ""
	}
	key, _ := idKey(m.Line, rawjson.Span{Start: at, End: end})
	return key
}

// sawUpdate tells of tool calls and of pictures. It looks only as far into the line as it has to.
func (r *Relay) sawUpdate(m Message) {
	kind := stringAt(m.Line, m.Params, "update", "sessionUpdate")
	called := kind == "tool_call"
	if !called && kind != "tool_call_update" && kind != "agent_message_chunk" {
		return
	}
	pictured := pictures.May(m.Line)
	if !called && !pictured {
		return
	}
	session := stringAt(m.Line, m.Params, "sessionId")
	if !r.inTurn(session) {
		return
	}
	e := Event{From: Agent, Session: session, Tool: stringAt(m.Line, m.Params, "update", "toolCallId")}
	e.Name = cmp.Or(stringAt(m.Line, m.Params, "update", "name"), stringAt(m.Line, m.Params, "update", "title"))
	if called {
		e.Kind = ToolCalled
		r.o.Observe(e)
	}
	if pictured {
		e.Kind, e.Line = Pictured, m.Line
		r.o.Observe(e)
	}
}

func (r *Relay) response(ctx context.Context, from Side, m Message, buf *buffer) bool {
	if r.ownAnswer(from, m) {
		return false
	}
	if from == Agent && r.over() != nil {
		return false // the last words of one that is being killed: its client is told why instead
	}
	c, ok := r.sides[from.other()].pending.take(m.Key)
	if c.answered {
		return false // too late; Handler has answered in its place
	}
	if !ok {
		if m.Key == "null" && m.Error.Present() {
			return r.forward(ctx, from.other(), m, r.judge(from, m), buf) // about a line that it could not read
		}
		r.note(from, "", verdict("P9", "the "+from.String()+" answered what nobody asked, or twice", ""))
		return false
	}
	m.For, m.ForSession, m.forID = c.method, c.session, c.id
	d := r.judge(from, m)
	r.answered(from, m)
	if c.question != nil {
		r.clientAnswered(c, m)
	}
	switch d.Action {
	case Forward:
		return r.forward(ctx, from.other(), m, d, buf)
	case Answer:
		line := errorLine(c.id, d.Code, d.Refusal)
		r.inPlace(from, c, line, "rule")
		r.answer(ctx, from.other(), line)
	default:
		r.answer(ctx, from.other(), failLine(c.id, CodeInternal, "the answer was dropped", nil))
	}
	return false
}

// carried tells of a message that goes on as line.
func (r *Relay) carried(from Side, m Message, line []byte) {
	if r.o.Carried == nil {
		return
	}
	c := Carried{From: from, Kind: m.Kind, Method: m.Method}
	part, at := "params", m.Params
	switch {
	case m.Kind == Response:
		c.Method, c.Session, c.ID, part, at = m.For, m.ForSession, m.forID, "result", m.Result
		if c.Failed = m.Error.Present() && !rawjson.IsNull(m.Line, m.Error); c.Failed {
			part, at = "error", m.Error
		}
	case m.Kind == Request:
		c.ID = m.ID.Of(m.Line)
		fallthrough
	default:
		c.Session = stringAt(m.Line, m.Params, "sessionId")
	}
	if &line[0] != &m.Line[0] { // it was edited, so that the parts lie elsewhere
		c.Body = memberOf(line, part)
	} else if at.Present() {
		c.Body = at.Of(line)
	}
	r.o.Carried(c)
}

// inPlace tells of an answer to c that Handler gives in the place of from.
func (r *Relay) inPlace(from Side, c call, line []byte, by string) {
	if r.o.Carried == nil {
		return
	}
	told := Carried{From: from, Kind: Response, Method: c.method, Session: c.session, ID: c.id, By: by}
	if told.Body = memberOf(line, "result"); told.Body == nil {
		told.Body, told.Failed = memberOf(line, "error"), true
	}
	r.o.Carried(told)
}

// answered tells the observer what an agent's answer means.
func (r *Relay) answered(from Side, m Message) {
	if from != Agent {
		return
	}
	good := !m.Error.Present() || rawjson.IsNull(m.Line, m.Error)
	switch {
	case m.For == "session/prompt":
		r.turnEnded(m.ForSession)
	case policy.SetsUpSession(m.For) && good:
		r.o.Observe(Event{Kind: SessionOpened, From: Agent, Session: openedSession(m), Method: m.For})
	case (m.For == "session/close" || m.For == "session/delete") && good:
		r.o.Observe(Event{Kind: SessionClosed, From: Agent, Session: m.ForSession, Method: m.For})
	}
}

// forward passes a line on, with its edits made; the buffer goes along when the line is still in it.
func (r *Relay) forward(ctx context.Context, to Side, m Message, d Decision, buf *buffer) bool {
	out := r.sides[to].out
	if len(d.Edits) > 0 {
		line, err := rawjson.Splice(m.Line, d.Edits)
		if err != nil {
			r.o.Log.Error("a rule's edits do not fit", "method", m.Method, "err", err)
			r.unfit(ctx, to, m)
			return false
		}
		r.carried(to.other(), m, line)
		_ = out.line(ctx, line)
		return false
	}
	r.carried(to.other(), m, m.Line)
	buf.b = append(m.Line, '\n') // a Line has room for it
	return out.send(ctx, parcel{bytes: buf.b, from: buf}) == nil
}

// unfit answers a request whose edits cannot be made: a fault of ours, which must not let the line pass.
func (r *Relay) unfit(ctx context.Context, to Side, m Message) {
	id := slices.Clone(m.ID.Of(m.Line))
	switch m.Kind {
	case Request:
		r.sides[to.other()].pending.take(m.Key)
		r.answer(ctx, to.other(), failLine(id, CodeInternal, "handler could not edit this request", nil))
	case Response:
		r.answer(ctx, to, failLine(id, CodeInternal, "handler could not edit this answer", nil))
	}
}

// answer sends a line of Handler's own.
func (r *Relay) answer(ctx context.Context, to Side, line []byte) {
	_ = r.sides[to].out.line(ctx, line) // a side that takes nothing any more needs no answer
}

func (r *Relay) judge(from Side, m Message) Decision {
	var d Decision
	if from == Client {
		d = r.o.Rules.FromClient(m)
	} else {
		d = r.o.Rules.FromAgent(m)
	}
	for _, v := range d.Notes {
		r.note(from, m.Method, v)
	}
	return d
}

func (r *Relay) note(from Side, method string, v policy.Verdict) {
	r.o.Observe(Event{Kind: Judged, From: from, Method: method, Verdict: v})
}

func verdict(rule, reason, hint string) policy.Verdict {
	return policy.Verdict{Action: policy.Refuse, Rule: rule, Reason: reason, Hint: hint}
}

// refuse answers a request with a refusal of the relay's own, and notes it.
func (r *Relay) refuse(ctx context.Context, from Side, m Message, code int, v policy.Verdict) {
	r.note(from, m.Method, v)
	r.answer(ctx, from, errorLine(slices.Clone(m.ID.Of(m.Line)), code, v))
}

// malformed deals with a line that is no message.
func (r *Relay) malformed(ctx context.Context, from Side, line []byte, e Envelope, err error) {
	code, reason := CodeParse, err.Error()
	var scan *ScanError
	if errors.As(err, &scan) {
		code, reason = scan.Code, scan.Reason
	}
	r.unreadable(ctx, from, line, e, code, verdict("P9", reason, ""))
}

// oversized deals with a line over a bound.
func (r *Relay) oversized(ctx context.Context, from Side, line Line, e Envelope, bound int) {
	v := verdict("P7", "a message of "+mib(line.Size)+" is over the bound of "+mib(int64(bound)), "send less at a time: a file by its path, a picture smaller")
	r.unreadable(ctx, from, line.Bytes, e, CodeInvalidRequest, v)
}

func mib(n int64) string {
	if n < 1<<20 {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
}

// unreadable answers what can be answered of a line that does not pass: a request gets the error, and whoever waits
// for an answer gets it too. What else a client sends is answered without an id, as JSON-RPC says; what else an agent
// prints is dropped.
func (r *Relay) unreadable(ctx context.Context, from Side, line []byte, e Envelope, code int, v policy.Verdict) {
	id := slices.Clone(e.ID.Of(line))
	switch {
	case e.ID.Present() && e.HasMethod:
		r.note(from, e.Method, v)
		r.answer(ctx, from, errorLine(id, code, v))
	case e.ID.Present() && (r.sides[from.other()].pending.has(e.Key) || r.sides[from].own.has(e.Key)):
		r.note(from, "", v)
		r.failAnswer(ctx, from, id, v)
	case from == Client && e.Kind == Invalid:
		r.note(from, e.Method, v)
		r.answer(ctx, from, errorLine(nil, code, v))
	case e.HasMethod:
		r.note(from, e.Method, v)
	default:
		r.dropped(from, line, v.Reason)
	}
}

// failAnswer puts an error in the place of an answer that could not be read, and lets it go the way of any answer.
func (r *Relay) failAnswer(ctx context.Context, from Side, id []byte, v policy.Verdict) {
	v.Reason = "the " + from.String() + "'s answer could not be passed on: " + v.Reason
	line := errorLine(id, CodeInternal, v)
	e, err := Scan(line)
	if err != nil {
		r.o.Log.Error("an answer of handler's own is not readable", "err", err)
		return
	}
	line = append(line, '\n')[:len(line)]
	buf := &buffer{b: line, home: make(chan *buffer, 1), big: &attic{}}
	r.response(ctx, from, Message{Envelope: e, Line: line}, buf)
}

// maxNoise bounds how many dropped lines are told of one by one.
const maxNoise = 20

// dropped tells of a line that goes nowhere.
func (r *Relay) dropped(from Side, line []byte, why string) {
	r.mu.Lock()
	r.noise++
	n := r.noise
	r.mu.Unlock()
	if n > maxNoise {
		return
	}
	beginning := strconv.QuoteToASCII(string(bytes.TrimSpace(line[:min(len(line), 120)])))
	if n == maxNoise {
		why += "; further such lines are dropped without a word"
	}
	r.o.Observe(Event{Kind: LineDropped, From: from, Text: why + ": " + beginning})
	r.o.Log.Warn("dropped a line that is no message", "from", from.String(), "why", why)
}
