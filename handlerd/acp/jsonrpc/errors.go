package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Error codes of JSON-RPC and of ACP.
const (
	CodeParse            = -32700 // the line is not JSON
	CodeInvalidRequest   = -32600 // JSON, but not a JSON-RPC message
	CodeMethodNotFound   = -32601
	CodeInvalidParams    = -32602
	CodeInternal         = -32603
	CodeCancelled        = -32800 // by $/cancel_request
	CodeAuthRequired     = -32000 // ACP: the agent wants a login first
	CodeResourceNotFound = -32002 // ACP: no such session or file
)

var (
	// ErrClosed is what Call and Notify give after Close, or after the other end has gone.
	ErrClosed = errors.New("the connection is closed")
	// ErrTooManyPending is what Call gives when Options.MaxPending calls wait for an answer already.
	ErrTooManyPending = errors.New("too many calls wait for an answer on this connection")
	// ErrLineTooLong says that the other end sent a line over Options.MaxLine.
	ErrLineTooLong = errors.New("a line is longer than this connection takes")
)

// An Error is a JSON-RPC error: what Call gives when the other end refused, and what a handler gives to refuse.
// Message and Data come from the other end and are not safe to print to a terminal as they are.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"` // anything; a refusal by policy has rule, reason and hint
}

// Error gives the message and the code.
func (e *Error) Error() string { return fmt.Sprintf("%s (error %d)", e.Message, e.Code) }

// Errorf makes an Error of a code and a formatted message.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// toError turns what a handler gave into what goes on the wire.
func toError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}
