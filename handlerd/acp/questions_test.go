package acp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/policy"
)

// ask is a permission request about the tool call t.
func ask(id, toolCall string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/request_permission","params":{"sessionId":"s","toolCall":%s,"options":[`+
		`{"optionId":"aa","name":"Always","kind":"allow_always"},{"optionId":"a","name":"Yes","kind":"allow_once"},{"optionId":"r","name":"No","kind":"reject_once"}]}}`, id, toolCall)
}

func chosen(id, option string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":%q}}}`, id, option)
}

func cancelledAnswer(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, id)
}

func withAnswers(a policy.Answers) func(*acp.Options) {
	return func(o *acp.Options) {
		c := config()
		c.Answers = &a
		o.Rules = acp.NewRules(c, 0)
	}
}

// inTurn begins a prompt.
func (g *rig) inTurn() {
	g.client.send(prompt)
	g.agent.expect(prompt)
}

// TestUnattended: an unattended run's questions are answered by its rules, in a turn and never by waiting; a client
// that wants to know is told what was asked, whole.
func TestUnattended(t *testing.T) {
	g := start(t, withAnswers(policy.Answers{Unattended: true, Agent: policy.AnswerReads}))
	g.client.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"handler/answered":true}}}}`)
	g.agent.expectPart(`"initialize"`)
	g.agent.send(ask("1", `{"toolCallId":"t","kind":"read"}`)) // outside of a turn
	g.agent.expect(chosen("1", "r"))
	g.client.expectPart(`{"jsonrpc":"2.0","method":"_handler/answered","params":{"method":"session/request_permission","sessionId":"s","toolCall":{"toolCallId":"t","kind":"read"},"answer":"reject_once","by":"no prompt is being answered"}}`)
	g.inTurn()
	update := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"look","kind":"read"}}}`
	g.agent.send(update, ask("1", `{"toolCallId":"t"}`))
	g.client.expect(update)
	g.agent.expect(chosen("1", "a"))
	g.client.expectPart(`"toolCall":{"title":"look","kind":"read","toolCallId":"t"},"answer":"allow_once","by":"agent web: unattended"}}`)
	g.agent.send(ask("1", `{"toolCallId":"t","kind":"execute"}`)) // it was announced as a read
	g.agent.expect(chosen("1", "r"))
	g.client.expectPart(`"kind":"other"`, `"answer":"reject_once"`)
	g.agent.send(`{"id":2,"method":"elicitation/create","params":{"mode":"form","message":"Key?"}}`)
	g.agent.expect(`{"jsonrpc":"2.0","id":2,"result":{"action":"decline"}}`)
	g.client.expectPart(`"message":"Key?","answer":"decline","by":"--unattended"`)
	g.agent.send(`{"jsonrpc":"2.0","method":"_handler/answered","params":{"answer":"allow_once"}}`, `{"jsonrpc":"2.0","id":"p","result":{}}`)
	g.client.expect(`{"jsonrpc":"2.0","id":"p","result":{}}`) // what speaks for Handler is dropped
	events := strings.Join(g.seen(), "\n")
	for _, want := range []string{
		`session/request_permission in s: "look" ("read") was answered allow_once (agent web: unattended)`,
		`session/request_permission in s: "look" was answered reject_once (agent web: unattended)`,
		`elicitation/create in : the question "Key?" was answered decline (--unattended)`,
	} {
		if !strings.Contains(events, want) {
			t.Errorf("no %q in\n%s", want, events)
		}
	}
}

// TestDenied: what an agent's rules deny is refused although somebody is there; the rest reaches them.
func TestDenied(t *testing.T) {
	g := start(t, withAnswers(policy.Answers{Rules: []policy.AnswerRule{
		{Title: "*deploy*", Answer: policy.AnswerDeny}, {Kind: "execute", Answer: policy.AnswerAllow},
	}}))
	g.inTurn()
	g.agent.send(ask("1", `{"toolCallId":"t","title":"make  Deploy-prod","kind":"execute"}`), ask("1", `{"toolCallId":"u","title":"ls","kind":"execute"}`))
	g.agent.expect(chosen("1", "r"))
	g.client.expect(ask("1", `{"toolCallId":"u","title":"ls","kind":"execute"}`))
}

// TestCancelledTurn: a client that cancels a turn and does not answer its questions is answered for; what it says too
// late goes nowhere, and the id is not free for another question until then: the answer would be taken for that one's.
func TestCancelledTurn(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.CancelGrace = time.Millisecond })
	g.inTurn()
	q := ask("1", `{"toolCallId":"t","title":"ls"}`)
	elicit := `{"id":2,"method":"elicitation/create","params":{"sessionId":"s","mode":"form","message":"x"}}`
	other := strings.Replace(ask("3", `{"toolCallId":"t"}`), `"sessionId":"s"`, `"sessionId":"z"`, 1)
	g.agent.send(q, elicit, other)
	g.client.expect(q, elicit, other)
	cancel := `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`
	g.client.send(cancel)
	g.agent.expect(cancel, cancelledAnswer("1"), `{"jsonrpc":"2.0","id":2,"result":{"action":"cancel"}}`)
	g.agent.send(ask("1", `{"toolCallId":"evil","title":"rm -rf ~"}`))
	g.agent.expectPart(`"id":1,"error":{"code":-32600,"message":"refused by P9: a request with this id is not answered yet`)
	g.agent.send(ask("4", `{"toolCallId":"t"}`)) // the turn is still cancelled
	g.agent.expect(cancelledAnswer("4"))
	g.client.send(chosen("1", "a"), chosen("3", "r"))
	g.agent.expect(chosen("3", "r"))
	g.agent.send(ask("1", `{"toolCallId":"t"}`)) // now the id is free
	g.agent.expect(cancelledAnswer("1"))
	g.agent.send(`{"id":"p","result":{"stopReason":"cancelled"}}`)
	g.client.expectPart(`"stopReason":"cancelled"`)
	g.inTurn() // another turn's questions reach the client again
	g.agent.send(q)
	g.client.expect(q)
}

// TestCancelAnswered: a client that answers in time is not answered for.
func TestCancelAnswered(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.CancelGrace = time.Hour })
	g.inTurn()
	q := ask("1", `{"toolCallId":"t"}`)
	g.agent.send(q)
	g.client.expect(q)
	cancel := `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`
	g.client.send(cancel, cancel, cancelledAnswer("1"))
	g.agent.expect(cancel, cancel, cancelledAnswer("1"))
}

// TestCall: a request of Handler's own reaches one side alone and its answer nobody else, whatever the other does.
func TestCall(t *testing.T) {
	g := start(t, nil)
	type result struct {
		a   acp.OwnAnswer
		err error
	}
	call := func(to acp.Side) chan result {
		done := make(chan result, 1)
		go func() {
			a, err := g.relay.Call(t.Context(), to, "session/request_permission", []byte(`{"sessionId":"s","n":1.50}`))
			done <- result{a, err}
		}()
		return done
	}
	for _, to := range []acp.Side{acp.Client, acp.Agent} {
		p, q := g.client, g.agent
		if to == acp.Agent {
			p, q = q, p
		}
		done := call(to)
		line := p.expectPart(`"method":"session/request_permission","params":{"sessionId":"s","n":1.50}}`)
		id := line[strings.Index(line, `"id":`)+5 : strings.Index(line, `,"method"`)]
		if !strings.HasPrefix(id, `"handler-`) || len(id) < len(`"handler-"`)+26 {
			t.Errorf("the id is %s", id)
		}
		q.send(chosen(id, "a"), chosen(`"handler-x"`, "a"), chosen(`"handler-`+strings.Repeat("A", 26)+`"`, "a")) // nobody asked q
		p.send(chosen(id, "r"), chosen(id, "a"))                                                                  // and p only once
		if r := <-done; r.err != nil || string(r.a.Result) != `{"outcome":{"outcome":"selected","optionId":"r"}}` {
			t.Errorf("%s: %+v", to, r)
		}
		q.send(`{"jsonrpc":"2.0","method":"_x/mark"}`)
		p.expect(`{"jsonrpc":"2.0","method":"_x/mark"}`)
		p.send(`{"jsonrpc":"2.0","method":"_x/mark"}`)
		q.expect(`{"jsonrpc":"2.0","method":"_x/mark"}`)
	}
	done := call(acp.Client)
	line := g.client.expectPart(`"session/request_permission"`)
	id := line[strings.Index(line, `"id":`)+5 : strings.Index(line, `,"method"`)]
	g.client.send(`{"id":` + id + `,"error":{"code":1},"error":{"code":2}}`) // an answer that is no message
	if r := <-done; r.err != nil || !strings.Contains(string(r.a.Error), "could not be passed on") {
		t.Errorf("%+v", r)
	}
	done = call(acp.Client)
	g.client.expectPart(`"session/request_permission"`)
	g.client.conn.Close()
	if r := <-done; !errors.Is(r.err, acp.ErrGone) {
		t.Errorf("a client that has gone: %v", r.err)
	}
}

// TestCallWithdrawn: a question that nobody waits for any more is taken back, and what comes to it late goes nowhere.
func TestCallWithdrawn(t *testing.T) {
	g := start(t, nil)
	ctx, cancel := contextWithCause(t)
	done := make(chan error, 1)
	go func() {
		_, err := g.relay.Call(ctx, acp.Client, "x", []byte(`{}`))
		done <- err
	}()
	line := g.client.expectPart(`"method":"x"`)
	id := line[strings.Index(line, `"id":`)+5 : strings.Index(line, `,"method"`)]
	late := errors.New("too late")
	cancel(late)
	if err := <-done; !errors.Is(err, late) {
		t.Error(err)
	}
	g.client.expect(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + id + `}}`)
	g.client.send(`{"id":`+id+`,"result":{}}`, `{"jsonrpc":"2.0","method":"_x/mark"}`)
	g.agent.expect(`{"jsonrpc":"2.0","method":"_x/mark"}`)
	g.wantEvents(t)
	for _, bad := range []string{"", "[]", "{}\n", "{", `{},"id":1`} {
		if _, err := g.relay.Call(t.Context(), acp.Client, "x", []byte(bad)); err == nil {
			t.Errorf("params %q were sent", bad)
		}
	}
	ended, stop := contextWithCause(t)
	stop(late)
	for range 3 * acp.MaxCalls { // that many may be unanswered by a client that never answers: none is waited for
		if _, err := g.relay.Call(ended, acp.Agent, "x", []byte(`{}`)); !errors.Is(err, late) {
			t.Fatal(err)
		}
	}
}

// TestRate: a request over the rate is refused and the connection lives; anything else waits and is not lost.
func TestRate(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.Rate, o.Burst = 50, 2 })
	note := func(i int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","method":"_x/n","params":{"n":%d}}`, i) }
	begun := time.Now()
	for i := range 12 {
		g.agent.send(note(i))
	}
	for i := range 12 {
		g.client.expect(note(i))
	}
	if took := time.Since(begun); took < 10*time.Second/50/2 {
		t.Errorf("10 messages over a burst of 2 at 50 a second took %v", took)
	}
	for i := range 4 {
		g.client.send(fmt.Sprintf(`{"id":%d,"method":"session/list"}`, i))
	}
	g.client.expectPart(`"error":{"code":-32600,"message":"refused by P7: the client sends more than 50 messages a second — send it again a little later"`)
	g.client.send(note(99))
	for {
		if line := g.agent.line(); line == note(99) {
			break
		} else if !strings.Contains(line, "session/list") {
			t.Fatal(line)
		}
	}
}

// TestPrompts: the unanswered prompts of a session are bounded, each session's by itself.
func TestPrompts(t *testing.T) {
	g := start(t, func(o *acp.Options) { o.MaxPrompts = 2 })
	send := func(id int, session string) {
		g.client.send(fmt.Sprintf(`{"id":%d,"method":"session/prompt","params":{"sessionId":%q,"prompt":[]}}`, id, session))
	}
	send(1, "s")
	send(2, "s")
	send(3, "s")
	g.client.expectPart(`"id":3,"error":{"code":-32600,"message":"refused by P7: 2 prompts of this session are not answered yet`)
	send(4, "t")
	for _, id := range []int{1, 2, 4} {
		g.agent.expectPart(fmt.Sprintf(`"id":%d,`, id))
	}
	g.agent.send(`{"id":1,"result":{}}`)
	g.client.expectPart(`"id":1,`)
	send(3, "s")
	g.agent.expectPart(`"id":3,`)
}

// TestSessions: the sessions of a run are bounded whatever the agent says of itself.
func TestSessions(t *testing.T) {
	g := start(t, nil)
	for i := range acp.MaxSessions {
		g.client.send(fmt.Sprintf(`{"id":%d,"method":"session/new","params":{"cwd":"/src","mcpServers":[]}}`, i))
		g.agent.expectPart(fmt.Sprintf(`"id":%d,`, i))
		g.agent.send(fmt.Sprintf(`{"id":%d,"result":{"sessionId":"s%d"}}`, i, i))
		g.client.expectPart(fmt.Sprintf(`"id":%d,`, i))
	}
	over := `{"id":"over","method":"session/new","params":{"cwd":"/src","mcpServers":[]}}`
	g.client.send(over)
	g.client.expectPart(`"id":"over","error":{"code":-32602,"message":"refused by P7: 128 sessions of this run are open, the most there can be — close one (session/close)`)
	g.client.send(`{"id":"close","method":"session/close","params":{"sessionId":"s7"}}`)
	g.agent.expectPart(`"close"`)
	g.agent.send(`{"id":"close","result":{}}`)
	g.client.expectPart(`"close"`)
	g.client.send(over)
	g.agent.expectPart(`"over"`)
}

func contextWithCause(t *testing.T) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}
