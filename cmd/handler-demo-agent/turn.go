package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// A turn is one prompt being worked on. Its methods are called from one goroutine.
type turn struct {
	s      *session
	ctx    context.Context // ends when the turn is cancelled, the session closed or the client gone
	cancel context.CancelFunc
	done   chan struct{}
}

// errRefused ends a turn in order: the client said no to a step, with a person or without, and what follows it makes no sense any more.
var errRefused = errors.New("it was refused")

// errCancelled ends a turn because the client did not answer a question but cancelled it.
var errCancelled = errors.New("the question was cancelled")

// run works on a prompt and gives the stop reason.
func (t *turn) run(prompt []jsonrpc.ContentBlock) string {
	text := t.receive(prompt)
	t.s.keep() // who is killed in mid-turn has lost nothing of what came before
	steps, err := parseSteps(text)
	if err != nil {
		t.say(err.Error() + "\n")
		return jsonrpc.StopEndTurn
	}
	if len(steps) == 0 {
		t.say(helpText)
		return jsonrpc.StopEndTurn
	}
	for i, st := range steps {
		t.plan(steps, i)
		err := t.do(st)
		switch {
		case t.ctx.Err() != nil, errors.Is(err, errCancelled):
			return jsonrpc.StopCancelled
		case err == nil:
			if i+1 < len(steps) {
				t.s.keep()
			}
			continue
		case errors.Is(err, errRefused):
			t.say(fmt.Sprintf("I did not %s, since %v.%s\n", st, err, notDone(len(steps)-i-1)))
		default:
			t.say(fmt.Sprintf("I could not %s: %v.%s\n", st, strings.TrimRight(err.Error(), "."), notDone(len(steps)-i-1)))
		}
		return jsonrpc.StopEndTurn
	}
	t.plan(steps, len(steps))
	return jsonrpc.StopEndTurn
}

func notDone(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " The step after it was not done."
	default:
		return fmt.Sprintf(" The %d steps after it were not done.", n)
	}
}

// receive puts the prompt into the history, says what it cannot use, and gives its text.
func (t *turn) receive(prompt []jsonrpc.ContentBlock) string {
	var text []string
	var notes []string
	for _, b := range prompt {
		raw := mustJSON(jsonrpc.Update{SessionUpdate: jsonrpc.UpdateUserMessage, Content: mustJSON(b)})
		t.s.mu.Lock()
		t.s.rec.add(raw)
		t.s.mu.Unlock()
		switch {
		case b.Type == jsonrpc.BlockText:
			text = append(text, b.Text)
		case b.Type == jsonrpc.BlockResource && b.Resource != nil:
			notes = append(notes, fmt.Sprintf("a resource, %s, %d bytes of text", b.Resource.URI, len(b.Resource.Text)))
		case b.Type == jsonrpc.BlockResourceLink:
			notes = append(notes, "a link to "+b.URI)
		default:
			notes = append(notes, fmt.Sprintf("%s of type %s, %d bytes", b.Type, b.MimeType, len(b.Data)/4*3))
		}
	}
	t.title(strings.Join(text, " "))
	if len(notes) > 0 {
		t.say("I got with your prompt: " + strings.Join(notes, "; ") + ".\n")
	}
	return strings.Join(text, "\n")
}

// title names the session after its first prompt.
func (t *turn) title(text string) {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 60 {
		text = string(r[:59]) + "…"
	}
	t.s.mu.Lock()
	named := t.s.rec.Title != "" || text == ""
	if !named {
		t.s.rec.Title = text
	}
	t.s.mu.Unlock()
	if !named {
		t.s.send(jsonrpc.Update{SessionUpdate: jsonrpc.UpdateSessionInfo, ToolCall: jsonrpc.ToolCall{Title: text}})
	}
}

func (t *turn) say(text string) {
	t.s.send(jsonrpc.Update{SessionUpdate: jsonrpc.UpdateAgentMessage, Content: mustJSON(jsonrpc.Text(text))})
}

// plan tells the steps, of which those before now are done. One step needs no plan.
func (t *turn) plan(steps []step, now int) {
	if len(steps) < 2 {
		return
	}
	u := jsonrpc.Update{SessionUpdate: jsonrpc.UpdatePlan}
	for i, st := range steps {
		status := jsonrpc.StatusPending
		if i < now {
			status = jsonrpc.StatusCompleted
		} else if i == now {
			status = jsonrpc.StatusInProgress
		}
		u.Entries = append(u.Entries, jsonrpc.PlanEntry{Content: st.String(), Priority: "medium", Status: status})
	}
	t.s.send(u)
}

// do does one step.
func (t *turn) do(st step) error {
	switch st.Verb {
	case verbUnknown:
		t.say(fmt.Sprintf("I do not understand %q. %s", st.Text, helpText))
		return nil
	case verbHelp:
		t.say(helpText)
		return nil
	case verbSay:
		t.say(st.Text + "\n")
		return nil
	case verbWait:
		return t.wait(st.Wait)
	case verbRun:
		return t.runCommand(st.Text)
	case verbFetch:
		return t.fetch(st.Text)
	}
	if err := t.reportServers(); err != nil {
		return err
	}
	switch st.Verb {
	case verbTools:
		return t.listTools()
	case verbCall:
		return t.callTool(st.Text, st.Args)
	case verbOpen:
		return t.openPage(st.Text)
	case verbClick:
		return t.click(st.Text)
	case verbPress:
		return t.press(st.Text)
	case verbType:
		return t.typeText(st.Text, st.Field)
	case verbScreenshot:
		return t.screenshot()
	case verbRead:
		return t.readPage()
	}
	return fmt.Errorf("there is no step %q", st.Verb)
}

func (t *turn) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		t.say(fmt.Sprintf("I waited %s.\n", d))
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

// reportServers says once in a session which of its servers did not start.
func (t *turn) reportServers() error {
	if err := t.s.wait(t.ctx); err != nil {
		return err
	}
	t.s.mu.Lock()
	told := t.s.reported
	t.s.reported = true
	t.s.mu.Unlock()
	if told {
		return nil
	}
	for _, srv := range t.s.servers {
		if err := srv.failure(); err != nil {
			t.say(fmt.Sprintf("The MCP server %s did not start: %v.\n", srv.cfg.Name, err))
		}
	}
	return nil
}

func (t *turn) listTools() error {
	var b strings.Builder
	for _, srv := range t.s.servers {
		srv.mu.Lock()
		if srv.err == nil {
			fmt.Fprintf(&b, "%s (%s): %s\n", srv.cfg.Name, cmp.Or(srv.cfg.Type, "stdio"), strings.Join(srv.tools, ", "))
		}
		srv.mu.Unlock()
	}
	if b.Len() == 0 {
		b.WriteString("This session has no MCP server.\n")
	}
	t.say(b.String())
	return nil
}
