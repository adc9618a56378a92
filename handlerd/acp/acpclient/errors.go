package acpclient

import (
	"encoding/json"
	"strings"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/policy"
)

// Refusal reads the refusal by a rule that an error carries. An agent could write one, too: it gains nothing by it.
func Refusal(e *jsonrpc.Error) (policy.Verdict, bool) {
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
	return policy.Verdict{Action: policy.Refuse, Rule: data.Rule, Reason: data.Reason, Hint: data.Hint}, true
}

// Ended reads what handlerd says of a run that somebody or a limit ended. An agent could write that, too: it gains
// nothing by it.
func Ended(e *jsonrpc.Error) (text, hint string, ok bool) {
	var data struct {
		Ended string `json:"ended"`
		Hint  string `json:"hint"`
	}
	if json.Unmarshal(e.Data, &data) != nil || data.Ended == "" {
		return "", "", false
	}
	return e.Message, data.Hint, true
}

// Detail is the useful part that agents put into an error's data and not into its message; "" for none.
func Detail(e *jsonrpc.Error) string {
	var data struct {
		Details string `json:"details"`
		Message string `json:"message"`
	}
	more := ""
	if json.Unmarshal(e.Data, &more) != nil && json.Unmarshal(e.Data, &data) == nil {
		more = data.Details
		if more == "" {
			more = data.Message
		}
	}
	if strings.Contains(e.Message, more) {
		return ""
	}
	return more
}
