package types

import (
	"net/http"

	"github.com/handlerd/handler/handlerd/fault"
)

var kinds = []struct {
	kind   fault.Kind
	name   string
	status int
}{
	{fault.Failed, "failed", http.StatusInternalServerError},
	{fault.Usage, "usage", http.StatusBadRequest},
	{fault.Refused, "refused", http.StatusForbidden},
	{fault.NotFound, "not-found", http.StatusNotFound},
	{fault.Conflict, "conflict", http.StatusConflict},
}

// FromError gives err as the API writes it and the status that goes with it.
func FromError(err error) (*Error, int) {
	f := fault.Of(err)
	for _, k := range kinds {
		if k.kind == f.Kind {
			return &Error{Kind: k.name, Message: f.Text, Hint: f.Hint}, k.status
		}
	}
	return &Error{Kind: "failed", Message: f.Text, Hint: f.Hint}, http.StatusInternalServerError
}

// Fault gives the error back as it was before it travelled, without its cause.
func (e *Error) Fault() *fault.Fault {
	for _, k := range kinds {
		if k.name == e.Kind {
			return &fault.Fault{Kind: k.kind, Text: e.Message, Hint: e.Hint}
		}
	}
	return &fault.Fault{Kind: fault.Failed, Text: e.Message, Hint: e.Hint}
}
