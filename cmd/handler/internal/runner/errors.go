package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/handlerd/handler/handlerd/acp/acpclient"
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
	if more := Line(acpclient.Detail(e.e)); more != "" {
		s += ": " + more
	}
	return fmt.Sprintf("%s (error %d)", Fit(s, maxMessage), e.e.Code)
}

// verdictOf reads the refusal that an error carries, with its words made safe.
func verdictOf(e *jsonrpc.Error) (policy.Verdict, bool) {
	v, ok := acpclient.Refusal(e)
	v.Rule, v.Reason, v.Hint = Fit(Line(v.Rule), 20), Fit(Line(v.Reason), maxMessage), Fit(Line(v.Hint), maxMessage)
	return v, ok
}

// endedText is what handlerd says of a run that was ended, made safe; "" for any other error.
func endedText(e *jsonrpc.Error) string {
	message, hint, ok := acpclient.Ended(e)
	if !ok {
		return ""
	}
	text := Fit(Line(message), maxMessage)
	if hint != "" {
		text += "\n  " + Fit(Line(hint), maxMessage)
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
