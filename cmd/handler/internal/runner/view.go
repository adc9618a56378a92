package runner

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
)

// A Viewer prints a session's events as Run prints what an agent does while it is there.
type Viewer struct {
	r     *run
	now   time.Time
	err   error
	asked map[string]string // what questions are about, by their ids
	kept  map[string]string // files of artifacts, by their ids
	at    attendance
}

// NewViewer makes one of Options' Stdout, Color, Width and Home, and for Attend of Agent, Terminal, Stdin, Stderr, By, Reply,
// Watch, Answer and Picture.
func NewViewer(o Options) *Viewer {
	v := &Viewer{asked: map[string]string{}, kept: map[string]string{}, at: attendance{open: map[string]bool{}}}
	o.Prompt = "shown"
	o.Now = func() time.Time { return v.now }
	_ = o.complete() // there is a prompt
	v.r = &run{opts: o, tools: map[string]*tool{}, session: "s", screen: newScreen(o, func(err error) { v.err = err })}
	return v
}

// Print prints an event. Its error is the output's.
func (v *Viewer) Print(e types.Event) error {
	v.now = e.Time
	if e.Kind == types.EventRun || e.Kind == types.EventTurn && turnEnded(e) {
		v.endAsking("")
	}
	switch e.Kind {
	case types.EventPrompt:
		var p types.EventPromptData
		if json.Unmarshal(e.Data, &p) == nil {
			v.emit(event{Event: evPrompt, Text: promptText(p)})
		}
	case types.EventUpdate:
		var u jsonrpc.Update
		if json.Unmarshal(e.Data, &u) != nil {
			break // of a shape that we do not know
		}
		if u.SessionUpdate == jsonrpc.UpdateUserMessage {
			if b, err := u.Block(); err == nil && b.Text != "" {
				v.emit(event{Event: evPrompt, Text: b.Text})
			}
			break
		}
		v.r.update(context.Background(), "s", &u)
	case types.EventTurn:
		v.turn(e)
	case types.EventQuestion, types.EventAnswered, types.EventApproval:
		v.question(e)
	case types.EventArtifact:
		v.artifact(e)
	default:
		v.remark(e)
	}
	return v.err
}

func (v *Viewer) emit(e event) {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	v.r.flushTools()
	_ = v.r.screen.emit(e) // an error ends by abort
}

func promptText(p types.EventPromptData) string {
	var blocks []jsonrpc.ContentBlock
	_ = json.Unmarshal(p.Content, &blocks) // of another shape, it is shown as none
	var parts []string
	for _, b := range blocks {
		switch {
		case b.Type == jsonrpc.BlockText:
			parts = append(parts, b.Text)
		case b.Type == jsonrpc.BlockResourceLink:
			parts = append(parts, b.URI)
		default:
			parts = append(parts, "("+b.Type+")")
		}
	}
	return strings.Join(parts, " ")
}

func (v *Viewer) turn(e types.Event) {
	var t types.EventTurnData
	if json.Unmarshal(e.Data, &t) != nil || t.State != "ended" {
		return
	}
	switch {
	case t.Error != nil:
		v.emit(event{Event: evNotice, Severity: "error", Text: strings.TrimSpace("the turn failed: " + t.Error.Message + "\n" + t.Error.Hint)})
	case t.StopReason != jsonrpc.StopEndTurn:
		text := strings.TrimSuffix(endings[t.StopReason], " after ")
		if text == "" {
			text = "stopped (" + t.StopReason + ")"
		}
		v.emit(event{Event: evNotice, Text: text})
	}
}

func (v *Viewer) question(e types.Event) {
	switch e.Kind {
	case types.EventQuestion:
		var q types.EventQuestionData
		var params struct {
			ToolCall jsonrpc.ToolCall `json:"toolCall"`
			Message  string           `json:"message"`
		}
		if json.Unmarshal(e.Data, &q) != nil || json.Unmarshal(q.Params, &params) != nil {
			return
		}
		v.r.mu.Lock()
		t := v.r.tools[params.ToolCall.ToolCallID]
		v.r.mu.Unlock()
		if t == nil {
			t = &tool{}
		}
		named := tool{ToolCall: t.ToolCall}
		named.merge(params.ToolCall)
		about := strings.TrimSpace(joinDetail(named.label(), named.detail()) + " " + params.Message)
		if len(v.asked) < maxTools {
			v.asked[q.ID] = about
		}
		if !v.askHere(e, q) {
			v.emit(event{Event: evNotice, Text: "the agent asks: " + about})
		}
	case types.EventAnswered:
		var a types.EventAnsweredData
		if json.Unmarshal(e.Data, &a) != nil {
			break
		}
		if !v.endAsking(a.ID) {
			v.emit(event{Event: evNotice, Text: "answered " + answerText(a.Answer) + " by " + a.By + ": " + v.asked[a.ID]})
		}
		delete(v.asked, a.ID)
	case types.EventApproval:
		var a types.ApprovalEvent
		if json.Unmarshal(e.Data, &a) == nil && a.Approval != nil && !v.attends(e) {
			text := "Handler asks: " + a.Approval.Text
			if a.State != types.ApprovalAsked {
				text = a.State + ": " + a.Approval.Text
			}
			if a.Answer != nil {
				text = map[bool]string{true: "allowed", false: "refused"}[a.Answer.Allow] + " (" + a.Answer.Scope + "): " + a.Approval.Text
			}
			v.emit(event{Event: evNotice, Text: text})
		}
	}
}

// answerText says how a question was answered.
func answerText(raw json.RawMessage) string {
	var a struct {
		Outcome struct{ Outcome, OptionID string } `json:"outcome"`
		Action  string                             `json:"action"`
	}
	_ = json.Unmarshal(raw, &a) // of another shape, there is no more to say
	for _, text := range []string{a.Outcome.OptionID, a.Outcome.Outcome, a.Action} {
		if text != "" {
			return text
		}
	}
	return "nothing"
}

func (v *Viewer) artifact(e types.Event) {
	var a types.EventArtifactData
	if json.Unmarshal(e.Data, &a) != nil || v.kept[a.Artifact.ID] != "" || len(v.kept) >= maxTools {
		return
	}
	if a.Removed {
		v.emit(event{Event: evNotice, Text: "removed " + a.Artifact.Name})
		return
	}
	v.kept[a.Artifact.ID] = a.Artifact.Path
	v.emit(event{
		Event: evImage, Tool: a.Tool, Path: a.Artifact.Path, Artifact: a.Artifact.ID, MediaType: a.Artifact.Type,
		Bytes: int(a.Artifact.Bytes), SHA256: a.Artifact.SHA256,
	})
}

// remark prints what Handler says of the session.
func (v *Viewer) remark(e types.Event) {
	var d struct {
		types.EventRunData
		types.EventNoticeData
		Subject string `json:"subject"`
		Reason  string `json:"reason"`
		Events  int64  `json:"events"`
	}
	if json.Unmarshal(e.Data, &d) != nil {
		return
	}
	text := d.Text
	switch e.Kind {
	case types.EventRun:
		text = "run " + d.Run + " " + d.State
		if d.Error != nil {
			text += ": " + d.Error.Message
		}
	case types.EventRefused:
		text = strings.TrimSpace("refused: " + d.Subject + " " + d.Reason)
	case types.EventCut:
		text = count(int(d.Events), "event is", "events are") + " left out: " + d.Reason
	}
	if text != "" {
		v.emit(event{Event: evNotice, Text: text})
	}
}

// End ends the last line.
func (v *Viewer) End() error {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	v.r.flushTools()
	v.r.screen.mu.Lock()
	defer v.r.screen.mu.Unlock()
	if v.r.screen.text != nil {
		v.r.screen.text.endLine()
	}
	return v.err
}
