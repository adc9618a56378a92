package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/policy"
)

// Who answered a question.
const (
	byPerson     = "person"
	byYes        = "--yes"
	byReadOnly   = "--read-only"
	byUnattended = "--unattended"
	byNobody     = "nobody" // the question was withdrawn, or the terminal has ended
)

// reads are the kinds of tool call that --read-only allows. A fetch is not one: it may carry something out.
var reads = []string{jsonrpc.KindRead, jsonrpc.KindSearch, jsonrpc.KindThink}

// permission takes a session/request_permission, joins it with the tool call that it speaks of and answers it outside
// the order, since a person may take long.
func (r *run) permission(req *jsonrpc.Request) {
	var p jsonrpc.PermissionParams
	if err := req.Decode(&p); err != nil {
		req.Refuse(err)
		return
	}
	r.mu.Lock()
	t := &tool{}
	if p.ToolCall.ToolCallID != "" {
		known := r.tool(p.ToolCall.ToolCallID)
		known.merge(p.ToolCall.ToolCall)
		if !known.shown {
			r.show(known)
		}
		*t = *known
	} else {
		t.merge(p.ToolCall.ToolCall)
		r.flushTools()
	}
	r.mu.Unlock()
	req.Go(func(ctx context.Context) (any, error) {
		option, by := r.decide(ctx, t, p.Options)
		e := event{Event: evQuestion, Tool: t.ToolCallID, Name: t.label(), Detail: t.detail(), Answer: "cancelled", By: by}
		if option == nil {
			r.answered(e)
			return jsonrpc.Cancelled(), nil
		}
		e.Answer = option.Kind
		r.answered(e)
		return jsonrpc.Selected(option.OptionID), nil
	})
}

// An answeredParams is a policy.MethodAnswered: a question that Handler answered by its rules.
type answeredParams struct {
	SessionID string                     `json:"sessionId"`
	ToolCall  jsonrpc.PermissionToolCall `json:"toolCall"`
	Message   string                     `json:"message"`
	Answer    string                     `json:"answer"`
	By        string                     `json:"by"`
}

// answeredFor shows a question that Handler answered without asking us.
func (r *run) answeredFor(req *jsonrpc.Request) {
	var p answeredParams
	if req.Decode(&p) != nil {
		return
	}
	req.Reply(nil)
	t := &tool{}
	t.merge(p.ToolCall.ToolCall)
	e := event{Event: evQuestion, Name: "question", Detail: p.Message, Answer: p.Answer, By: p.By}
	r.mu.Lock()
	if known := r.tools[p.ToolCall.ToolCallID]; known != nil && p.SessionID == r.session {
		known.merge(p.ToolCall.ToolCall)
		if !known.shown {
			r.show(known)
		}
		*t = *known
	} else {
		r.flushTools()
	}
	r.mu.Unlock()
	if p.Message == "" {
		e.Tool, e.Name, e.Detail = p.ToolCall.ToolCallID, t.label(), t.detail()
	}
	r.answered(e)
}

func (r *run) answered(e event) {
	if e.Answer == jsonrpc.RejectOnce || e.Answer == jsonrpc.RejectAlways || e.Answer == rejectRun {
		r.mu.Lock()
		r.refused++
		r.mu.Unlock()
	}
	r.screen.emit(e)
}

// decide gives the option to answer with, nil for none, and who chose it.
func (r *run) decide(ctx context.Context, t *tool, options []jsonrpc.PermissionOption) (*jsonrpc.PermissionOption, string) {
	allow := pick(options, jsonrpc.AllowOnce)
	reject := pick(options, jsonrpc.RejectOnce, jsonrpc.RejectAlways)
	switch {
	case r.over.Err() != nil:
		return nil, byNobody
	case r.opts.ReadOnly && slices.Contains(reads, t.Kind) && allow != nil:
		return allow, byReadOnly
	case r.opts.ReadOnly:
		return reject, byReadOnly
	case r.opts.Yes && allow != nil:
		return allow, byYes
	case r.opts.Yes:
		return reject, byYes // there is only an "always" to say yes to
	case r.opts.Unattended:
		return reject, r.unattendedBy()
	}
	option, err := r.askPermission(ctx, t, options)
	switch {
	case errors.Is(err, errNobody):
		return reject, byNobody
	case option == nil:
		return nil, byNobody
	}
	return option, byPerson
}

// unattendedBy says who refuses where nobody is asked: the person who said so, or the lack of a terminal.
func (r *run) unattendedBy() string {
	if r.noTerminal {
		return policy.NoTerminal
	}
	return byUnattended
}

// pick gives the first option of the first kind that there is one of.
func pick(options []jsonrpc.PermissionOption, kinds ...string) *jsonrpc.PermissionOption {
	for _, kind := range kinds {
		for i := range options {
			if options[i].Kind == kind {
				return &options[i]
			}
		}
	}
	return nil
}

// thenEnter ends the keys of a question: a terminal gives what was typed by the line.
const thenEnter = ", then Enter "

// A choice is one answer to a question at the terminal.
type choice struct {
	key, label string
	option     *jsonrpc.PermissionOption
}

// choices gives the keys for options: y, n and a for the common kinds, numbers for what is left, at most nine.
func choices(options []jsonrpc.PermissionOption) []choice {
	var list []choice
	used := map[string]bool{}
	for _, c := range []struct{ key, label, kind string }{
		{"y", "[y]es", jsonrpc.AllowOnce}, {"n", "[n]o", jsonrpc.RejectOnce},
		{"a", "[a]lways this session", jsonrpc.AllowAlways}, {"v", "ne[v]er this session", jsonrpc.RejectAlways},
	} {
		if o := pick(options, c.kind); o != nil {
			list = append(list, choice{c.key, c.label, o})
			used[o.OptionID] = true
		}
	}
	for i := range options {
		if o := &options[i]; !used[o.OptionID] && len(list) < 13 {
			n := strconv.Itoa(i + 1)
			list = append(list, choice{n, "[" + n + "] " + Fit(Line(o.Name), 40), o})
		}
	}
	return list
}

// askPermission asks the person. It gives no option when the question was withdrawn or has none to choose from, and
// errNobody when nobody is there any more.
func (r *run) askPermission(ctx context.Context, t *tool, options []jsonrpc.PermissionOption) (*jsonrpc.PermissionOption, error) {
	list := choices(options)
	if len(list) == 0 {
		return nil, nil
	}
	var labels []string
	for _, c := range list {
		labels = append(labels, c.label)
	}
	question := r.permissionText(t) + "   " + strings.Join(labels, "  ") + thenEnter
	var chosen *jsonrpc.PermissionOption
	err := r.dialogue(ctx, func(ctx context.Context) error {
		for {
			line, err := r.term.ask(ctx, question)
			if err != nil {
				return err
			}
			line = strings.ToLower(strings.TrimSpace(line))
			for _, c := range list {
				if line == c.key || c.key == "y" && line == "yes" || c.key == "n" && line == "no" || c.key == "a" && line == "always" {
					chosen = c.option
					return nil
				}
			}
			question = "  one of: " + strings.Join(labels, "  ") + thenEnter
		}
	})
	return chosen, err
}

// dialogue lets one question at a time have the terminal; its context ends when the question is withdrawn.
func (r *run) dialogue(ctx context.Context, talk func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	r.screen.hold()
	defer r.screen.release()
	err := talk(ctx)
	if err != nil && ctx.Err() != nil {
		r.term.say("\n")
	}
	return err
}

// verbs are the kinds of tool call in words.
var verbs = map[string]string{
	jsonrpc.KindExecute: "run", jsonrpc.KindEdit: "edit", jsonrpc.KindDelete: "delete", jsonrpc.KindMove: "move",
	jsonrpc.KindRead: "read", jsonrpc.KindSearch: "search", jsonrpc.KindFetch: "fetch",
}

// permissionText says what the agent wants. What does not fit the line stands whole below it: nobody is to allow what
// was cut away.
func (r *run) permissionText(t *tool) string {
	detail := t.detail()
	verb, what := verbs[t.Kind], Line(detail)
	if verb == "" || t.mcp() || what == "" {
		verb, what = "use", joinDetail(Line(t.label()), detail)
	}
	head := fmt.Sprintf("? %s wants to %s  ", r.opts.Agent, verb)
	short := Fit(what, max(r.opts.Width-columns(head)-40, 20))
	text := head + short
	if short != what || len(t.arguments()) > 1 || strings.Contains(strings.TrimSpace(detail), "\n") {
		text += "\n" + whole(t)
	}
	if strings.HasPrefix(t.Title, "[handler: ") { // what Handler says of the question (P5)
		text = "! " + Line(t.Title) + "\n" + text
	}
	return text
}

// maxShownInput bounds one argument in a question, in bytes.
const maxShownInput = 4000

// whole gives every argument of a call, indented.
func whole(t *tool) string {
	in := t.arguments()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(in)) {
		value := text(in[key])
		more := ""
		if len(value) > maxShownInput {
			more = fmt.Sprintf("\n… and %d bytes more, which are not shown", len(value)-maxShownInput)
			value = strings.ToValidUTF8(value[:maxShownInput], "")
		}
		value = strings.ReplaceAll(Text(strings.ReplaceAll(value, "\r", "␍"))+more, "\n", "\n      ")
		fmt.Fprintf(&b, "    %s: %s\n", Line(key), value)
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "    %s\n", Line(t.detail()))
	}
	return b.String() + " "
}
