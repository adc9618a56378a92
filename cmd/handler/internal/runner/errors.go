package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/policy"
)

// maxMessage bounds what is shown of an error of the other end, in columns.
const maxMessage = 1000

// explain turns an error of a call into one for a person: refused by policy, not logged in, gone, silent.
func (r *run) explain(ctx context.Context, what string, err error, auth []jsonrpc.AuthMethod) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		if v, ok := verdictOf(e); ok {
			return &refusedError{v}
		}
		if e.Code == jsonrpc.CodeAuthRequired {
			var names []string
			for _, m := range auth {
				names = append(names, Line(m.Name))
			}
			hint := ""
			if len(names) > 0 {
				hint = " (it offers: " + Fit(strings.Join(names, ", "), 200) + ")"
			}
			if r.opts.LoginHint != "" {
				hint += "\n  " + r.opts.LoginHint
			}
			return fmt.Errorf("%s wants a login first: %s%s", r.opts.Agent, Fit(Line(e.Message), maxMessage), hint)
		}
		if text := endedText(e); text != "" {
			return errors.New(text)
		}
		return fmt.Errorf("%s answered %s with an error: %w", r.opts.Agent, what, &agentError{e})
	}
	if errors.Is(err, jsonrpc.ErrClosed) {
		return fmt.Errorf("%s ended before it answered %s: handler logs %s tells why", r.opts.Agent, what, r.opts.Run)
	}
	if cause := context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) && cause != nil {
		return cause
	}
	return fmt.Errorf("%s: %w", what, err)
}

// An agentError is an error of the other end with its text made safe.
type agentError struct{ e *jsonrpc.Error }

// Error gives the message and, where agents put the useful part there, the data.
func (e *agentError) Error() string {
	s := Line(e.e.Message)
	var data struct {
		Details string `json:"details"`
		Message string `json:"message"`
	}
	more := ""
	if json.Unmarshal(e.e.Data, &more) != nil && json.Unmarshal(e.e.Data, &data) == nil {
		more = data.Details
		if more == "" {
			more = data.Message
		}
	}
	if more = Line(more); more != "" && !strings.Contains(s, more) {
		s += ": " + more
	}
	return fmt.Sprintf("%s (error %d)", Fit(s, maxMessage), e.e.Code)
}

// verdictOf reads the refusal that an error carries. An agent could write one, too: its words are made safe, and it
// gains nothing but an exit status.
func verdictOf(e *jsonrpc.Error) (policy.Verdict, bool) {
	var data struct {
		Rule   string `json:"rule"`
		Reason string `json:"reason"`
		Hint   string `json:"hint"`
	}
	if json.Unmarshal(e.Data, &data) != nil || data.Rule == "" {
		return policy.Verdict{}, false
	}
	if data.Reason == "" {
		data.Reason = e.Message
	}
	return policy.Verdict{
		Action: policy.Refuse, Rule: Fit(Line(data.Rule), 20),
		Reason: Fit(Line(data.Reason), maxMessage), Hint: Fit(Line(data.Hint), maxMessage),
	}, true
}

// endedText is what handlerd says of a run that it ended at a limit; "" for any other error. An agent could write one,
// too: its words are made safe, and it gains nothing.
func endedText(e *jsonrpc.Error) string {
	var data struct {
		Ended string `json:"ended"`
		Hint  string `json:"hint"`
	}
	if json.Unmarshal(e.Data, &data) != nil || data.Ended == "" {
		return ""
	}
	text := Fit(Line(e.Message), maxMessage)
	if data.Hint != "" {
		text += "\n  " + Fit(Line(data.Hint), maxMessage)
	}
	return text
}

// describe gives an error as JSON shows it.
func describe(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Message: err.Error()}
	if e, ok := errors.AsType[*agentError](err); ok {
		f.Code = e.e.Code
	}
	if e, ok := errors.AsType[*refusedError](err); ok {
		f.Rule, f.Reason, f.Hint = e.verdict.Rule, e.verdict.Reason, e.verdict.Hint
	}
	return f
}
