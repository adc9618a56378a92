package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/handlerd/handler/handlerd/acp/acpclient"
	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// Answers to an elicitation.
const (
	elicitAccept  = "accept"
	elicitDecline = "decline"
	elicitCancel  = "cancel"
)

// An elicitationParams is an elicitation/create.
type elicitationParams struct {
	Message string          `json:"message"`
	Mode    string          `json:"mode"`
	Schema  json.RawMessage `json:"requestedSchema"`
	URL     string          `json:"url"`
	// Meta holds the tool call that it is about, where the agent names one: Handler puts it in (P5).
	Meta struct {
		ToolCall *jsonrpc.PermissionToolCall `json:"handler/toolCall"`
	} `json:"_meta"`
}

// about names the tool call that an elicitation is about; "" for none.
func (p elicitationParams) about() string {
	if p.Meta.ToolCall == nil {
		return ""
	}
	t := &tool{}
	t.merge(p.Meta.ToolCall.ToolCall)
	return " (about " + Fit(joinDetail(Line(t.label()), t.detail()), 60) + ")"
}

type elicitationResult struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content,omitempty"`
}

// elicitation takes an elicitation/create: a form to fill in, or an address to open. Nobody there declines.
func (r *run) elicitation(req *jsonrpc.Request) {
	var p elicitationParams
	if err := req.Decode(&p); err != nil {
		req.Refuse(err)
		return
	}
	r.mu.Lock()
	r.flushTools()
	r.mu.Unlock()
	req.Go(func(ctx context.Context) (any, error) {
		e := event{Event: evQuestion, Name: "question", Detail: p.Message, Answer: elicitDecline, By: byPerson}
		res := elicitationResult{Action: elicitDecline}
		switch {
		case r.over.Err() != nil:
			res.Action, e.By = elicitCancel, byNobody
		case !r.opts.Terminal || r.opts.Unattended:
			e.By = r.unattendedBy()
		case p.Mode == "url":
			res, _ = r.askURL(ctx, p)
		default:
			res, _ = r.askForm(ctx, p)
		}
		if e.Answer = res.Action; res.Action == elicitCancel {
			e.Answer, e.By = "cancelled", byNobody
		}
		r.screen.emit(e)
		return res, nil
	})
}

// askURL shows an address, whole, for the person to open. It is never opened by us. The error says why the dialogue came to
// no end; the result is a cancel then.
func (r *run) askURL(ctx context.Context, p elicitationParams) (elicitationResult, error) {
	u, plain := acpclient.PlainURL(p.URL)
	if !plain {
		r.remark(fmt.Sprintf("%s asked to open an address that is not plain https; it was declined: %s", r.opts.Agent, Line(p.URL)))
		return elicitationResult{Action: elicitDecline}, nil
	}
	res := elicitationResult{Action: elicitCancel} // what stays if the dialogue comes to no end
	err := r.dialogue(ctx, func(ctx context.Context) error {
		question := fmt.Sprintf("? %s asks: %s\n  it wants you to open  %s\n  the site is  %s   [d]one  [n]o ", r.opts.Agent, Line(p.Message)+p.about(), p.URL, u.Host)
		for {
			line, err := r.term.ask(ctx, question)
			if err != nil {
				return err
			}
			switch strings.ToLower(strings.TrimSpace(line)) {
			case "d", "done":
				res.Action = elicitAccept
				return nil
			case "n", "no":
				res.Action = elicitDecline
				return nil
			}
			question = "  one of: [d]one  [n]o "
		}
	})
	return res, err
}

// askForm asks for one field after the other. The error is askURL's.
func (r *run) askForm(ctx context.Context, p elicitationParams) (elicitationResult, error) {
	fields, err := acpclient.ParseForm(p.Schema)
	if err != nil {
		r.remark(fmt.Sprintf("%s asked with a form that was declined: %s", r.opts.Agent, Line(err.Error())))
		return elicitationResult{Action: elicitDecline}, nil
	}
	res := elicitationResult{Action: elicitCancel} // what stays if the dialogue comes to no end
	err = r.dialogue(ctx, func(ctx context.Context) error {
		line, err := r.term.ask(ctx, fmt.Sprintf("? %s asks: %s   [y] answer  [n]o ", r.opts.Agent, Line(p.Message)+p.about()))
		if err != nil {
			return err
		}
		if l := strings.ToLower(strings.TrimSpace(line)); l != "y" && l != "yes" {
			res.Action = elicitDecline
			return nil
		}
		content := map[string]any{}
		for _, f := range fields {
			v, err := r.askField(ctx, f)
			if err != nil {
				return err
			}
			if v != nil {
				content[f.Name] = v
			}
		}
		res = elicitationResult{Action: elicitAccept, Content: content}
		return nil
	})
	return res, err
}

// askField asks until the answer fits; nil is an optional field left empty.
func (r *run) askField(ctx context.Context, f acpclient.Field) (any, error) {
	question := fieldQuestion(f)
	for {
		line, err := r.term.ask(ctx, question)
		if err != nil {
			return nil, err
		}
		v, err := parseField(f, strings.TrimSpace(line))
		if err == nil {
			return v, nil
		}
		question = "    " + err.Error() + ": "
	}
}

// fieldQuestion is how a field is asked for.
func fieldQuestion(f acpclient.Field) string {
	title := f.Title
	if title == "" {
		title = f.Name
	}
	q := "  " + Line(title)
	if d := Line(f.Description); d != "" {
		q += " (" + d + ")"
	}
	if f.Type == "boolean" {
		q += " [y/n]"
	}
	if list := f.Choices(); len(list) > 0 {
		for i, c := range list {
			q += fmt.Sprintf("\n    [%d] %s", i+1, Line(c.Title))
			if c.Description != "" {
				q += ": " + Line(c.Description)
			}
		}
		q += "\n   "
		if f.Type == "array" {
			q += " [numbers, such as 1,2]"
		}
	}
	if given(f.Default) {
		q += fmt.Sprintf(" [enter: %s]", Line(text(f.Default)))
	} else if !f.Required {
		q += " [enter: leave empty]"
	}
	return q + ": "
}

// parseField turns what was typed into the field's value.
func parseField(f acpclient.Field, s string) (any, error) {
	if s == "" {
		switch {
		case given(f.Default):
			return f.Default, nil
		case f.Required:
			return nil, errors.New("an answer is needed")
		}
		return nil, nil
	}
	if f.Type == "array" {
		return parseList(f, s)
	}
	if len(f.Choices()) > 0 {
		return parseChoice(f, s)
	}
	switch f.Type {
	case "boolean":
		switch strings.ToLower(s) {
		case "y", "yes", "true":
			return true, nil
		case "n", "no", "false":
			return false, nil
		}
		return nil, errors.New("y or n")
	case "number", "integer":
		return parseNumber(f, s)
	}
	return s, f.CheckText(s)
}

// parseChoice turns the number or the value that was typed into one of the field's choices.
func parseChoice(f acpclient.Field, s string) (string, error) {
	list := f.Choices()
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= len(list) {
		return list[n-1].Const, nil
	}
	if slices.ContainsFunc(list, func(c acpclient.Constant) bool { return c.Const == s }) {
		return s, nil
	}
	return "", fmt.Errorf("a number from 1 to %d", len(list))
}

// parseList turns numbers with commas between them into some of the field's choices.
func parseList(f acpclient.Field, s string) ([]string, error) {
	values := []string{}
	for part := range strings.SplitSeq(s, ",") {
		v, err := parseChoice(f, strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("numbers from 1 to %d, with commas between them", len(f.Choices()))
		}
		values = append(values, v)
	}
	return values, f.CheckList(values)
}

func parseNumber(f acpclient.Field, s string) (any, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !json.Valid([]byte(s)) {
		return nil, errors.New("a number is needed")
	}
	if err := f.CheckNumber(n); err != nil {
		return nil, err
	}
	return json.Number(s), nil
}
