package policy

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/handlerd/handler/policy/rawjson"
)

// Kinds of a PermissionOption.
const (
	AllowOnce    = "allow_once"
	AllowAlways  = "allow_always"
	RejectOnce   = "reject_once"
	RejectAlways = "reject_always"
)

// A Permission is what an agent asks by session/request_permission, read strictly. What it says of itself (title,
// kind) is the agent's word: good for showing, and for rules that only ever refuse more because of it.
type Permission struct {
	SessionID string
	ToolCall  ToolCall
	Options   []PermissionOption // in the agent's order
}

// A PermissionOption is one answer the agent offers.
type PermissionOption struct {
	ID, Name, Kind string
}

// A ToolCall is what is known of a tool call. Empty fields were not said.
type ToolCall struct {
	ID       string
	Title    string // for people: "npm test"
	Name     string // of the tool, where the agent says it: "mcp__playwright__browser_click"
	Kind     string // "read", "edit", "execute", …
	RawInput string // JSON, as the agent wrote it
}

// ParsePermission reads the params of session/request_permission.
func ParsePermission(b []byte) (Permission, error) {
	var p Permission
	o, err := params(b, "session/request_permission", "sessionId", "toolCall", "options")
	if err != nil {
		return p, err
	}
	if p.SessionID, _, err = text(b, o.Get("sessionId"), "sessionId"); err != nil {
		return p, err
	}
	if p.ToolCall, err = readToolCall(b, o.Get("toolCall"), "toolCall"); err != nil {
		return p, err
	}
	options, err := array(b, o.Get("options"), "options", maxOptions)
	if err != nil {
		return p, err
	}
	for i, at := range options {
		what := "options[" + strconv.Itoa(i) + "]"
		o, err := object(b, at, what, "optionId", "name", "kind")
		if err != nil {
			return p, err
		}
		var option PermissionOption
		for key, to := range map[string]*string{"optionId": &option.ID, "name": &option.Name, "kind": &option.Kind} {
			if *to, _, err = text(b, o.Get(key), what+"."+key); err != nil {
				return p, err
			}
		}
		p.Options = append(p.Options, option)
	}
	return p, nil
}

func readToolCall(b []byte, at rawjson.Span, what string) (ToolCall, error) {
	var t ToolCall
	o, err := object(b, at, what, "toolCallId", "title", "name", "kind", "rawInput")
	if err != nil {
		return t, err
	}
	for key, to := range map[string]*string{"toolCallId": &t.ID, "title": &t.Title, "name": &t.Name, "kind": &t.Kind} {
		if *to, _, err = text(b, o.Get(key), what+"."+key); err != nil {
			return t, err
		}
	}
	if in := o.Get("rawInput"); in.Present() && !rawjson.IsNull(b, in) {
		t.RawInput = string(in.Of(b))
	}
	return t, nil
}

// Option gives the first option of one of the kinds, tried in their order; ok is false when the agent offers none.
func (p Permission) Option(kinds ...string) (id string, ok bool) {
	for _, kind := range kinds {
		for _, o := range p.Options {
			if o.Kind == kind {
				return o.ID, true
			}
		}
	}
	return "", false
}

// Allow gives the answer that allows this one call. It never picks "always": a rule that answers for a person gives no
// more than was asked. An agent that offers no single yes gets [PermissionCancelled].
func (p Permission) Allow() []byte { return p.answer(AllowOnce) }

// Reject gives the answer that refuses this call: for once, or for good where that is the only no.
func (p Permission) Reject() []byte { return p.answer(RejectOnce, RejectAlways) }

func (p Permission) answer(kinds ...string) []byte {
	if id, ok := p.Option(kinds...); ok {
		return PermissionSelected(id)
	}
	return PermissionCancelled()
}

// PermissionSelected is the result that picks an option.
func PermissionSelected(optionID string) []byte {
	return []byte(`{"outcome":{"outcome":"selected","optionId":` + string(rawjson.AppendString(nil, optionID)) + `}}`)
}

// PermissionCancelled is the result that ends the question without an answer, as when the turn was cancelled or the
// client is gone.
func PermissionCancelled() []byte { return []byte(`{"outcome":{"outcome":"cancelled"}}`) }

// Reads tells whether the tool call is of a kind that changes nothing: read, search or think. fetch is none of them,
// since what is asked for on the network can carry out what was read. A call that says no kind is not a read.
func (t ToolCall) Reads() bool {
	return t.Kind == "read" || t.Kind == "search" || t.Kind == "think"
}

// checkElicitation is P5 for elicitation/create: a link is https, and in full what is shown.
func checkElicitation(b []byte, calls *ToolCalls) Ruling {
	var r Ruling
	err := func() error {
		o, err := params(b, "elicitation/create", "mode", "message", "url", "elicitationId", "requestedSchema", "sessionId", "requestId", "toolCallId", "_meta")
		if err != nil {
			return err
		}
		mode, _, err := text(b, o.Get("mode"), "mode")
		if err != nil {
			return err
		}
		link, there, err := text(b, o.Get("url"), "url")
		switch {
		case err != nil:
			return err
		case mode != "form" && mode != "url":
			return refuse("P5", "an elicitation of the mode "+quote(mode)+", which Handler does not know", "use form or url")
		case mode == "form" && there:
			return refuse("P5", "an elicitation of the mode form that brings a url", "")
		case mode == "url":
			err = checkLink(link)
		}
		if err != nil {
			return err
		}
		return calls.joinElicitation(b, o, &r)
	}()
	return ruled(r, err)
}

func checkLink(link string) error {
	odd := strings.ContainsFunc(link, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' })
	u, err := url.Parse(link)
	shown := link // without what may hold a secret
	if i := strings.IndexAny(link, "?#"); i >= 0 {
		shown = link[:i]
	}
	switch {
	case link == "":
		return refuse("P5", "an elicitation of the mode url without one", "")
	case len(link) > 2048:
		return refuse("P5", "an elicitation's url is longer than 2048 bytes, which nobody reads", "")
	case odd || err != nil || u.Host == "" || u.User != nil:
		return refuse("P5", "an elicitation's url "+quote(shown)+" is not a plain one", "")
	case u.Scheme != "https":
		return refuse("P5", "an elicitation's url "+quote(shown)+" is not https", "")
	}
	return nil
}
