package acp

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/handlerd/handler/policy/rawjson"
)

// A Kind says what a message is.
type Kind int

const (
	Invalid Kind = iota
	Request
	Notification
	Response
)

// Codes of JSON-RPC errors that this package gives.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// maxID bounds an id: it is kept as long as its request is unanswered.
const maxID = 1024

// An Envelope is what a line is: where its parts lie, not what they hold.
type Envelope struct {
	Kind      Kind
	Method    string // decoded; "" in a response
	HasMethod bool
	ID        rawjson.Span // as it is written; absent in a notification
	Key       string       // the id, the same for every spelling of it; "" for none
	Params    rawjson.Span
	Result    rawjson.Span
	Error     rawjson.Span
}

// A ScanError says why a line is no message, and the JSON-RPC code that answers it.
type ScanError struct {
	Code   int
	Reason string
}

// Error gives the reason.
func (e *ScanError) Error() string { return e.Reason }

// envelopeKeys are the keys of JSON-RPC.
func envelopeKeys() [6]string {
	return [...]string{"jsonrpc", "method", "id", "params", "result", "error"}
}

// Scan finds the parts of the message that a line holds, in one pass and without decoding. The line has to be one
// JSON object in UTF-8, with no key of the envelope twice or in another case. After an error the Envelope holds what
// was found before it, so that a request can still be answered: its ID is either right or absent.
func Scan(line []byte) (Envelope, error) {
	var e Envelope
	i := rawjson.Space(line, 0)
	if i < len(line) && line[i] == '[' {
		return e, &ScanError{CodeInvalidRequest, "a batch; ACP has one message a line"}
	}
	if i >= len(line) || line[i] != '{' {
		return e, &ScanError{CodeParse, "the line is not JSON"}
	}
	var seen [6]bool
	end, err := rawjson.Walk(line, i, func(m rawjson.Member) error { return e.member(line, m, &seen) })
	if err == nil && rawjson.Space(line, end) != len(line) {
		err = &ScanError{CodeParse, "something follows the message on its line"}
	}
	if err != nil {
		return e, scanError(err)
	}
	return e, e.classify(line)
}

// member takes one member of the envelope.
func (e *Envelope) member(line []byte, m rawjson.Member, seen *[6]bool) error {
	at := -1
	for i, k := range envelopeKeys() {
		switch {
		case m.Name == k:
			at = i
		case strings.EqualFold(m.Name, k):
			return &ScanError{CodeInvalidRequest, "the key " + strconv.QuoteToASCII(m.Name) + " differs from " + strconv.Quote(k) + " only by case"}
		}
	}
	if at < 0 {
		return nil
	}
	if seen[at] {
		if m.Name == "id" {
			e.ID, e.Key = rawjson.Span{}, ""
		}
		return &ScanError{CodeInvalidRequest, "the key " + strconv.Quote(m.Name) + " stands twice"}
	}
	seen[at] = true
	switch m.Name {
	case "method":
		method, err := rawjson.String(line, m.Value)
		if err != nil {
			return &ScanError{CodeInvalidRequest, "the method is not a string"}
		}
		e.Method, e.HasMethod = method, true
	case "id":
		key, reason := idKey(line, m.Value)
		if reason != "" {
			return &ScanError{CodeInvalidRequest, reason}
		}
		e.ID, e.Key = m.Value, key
	case "params":
		e.Params = m.Value
	case "result":
		e.Result = m.Value
	case "error":
		e.Error = m.Value
	}
	return nil
}

// classify says what the message is, or why it is none.
func (e *Envelope) classify(line []byte) error {
	answer := e.Result.Present() || e.Error.Present()
	switch {
	case e.HasMethod && answer:
		return &ScanError{CodeInvalidRequest, "a method and an answer in one message"}
	case e.HasMethod && e.ID.Present():
		e.Kind = Request
	case e.HasMethod:
		e.Kind = Notification
	case !e.ID.Present():
		return &ScanError{CodeInvalidRequest, "a message with neither method nor id"}
	case e.Result.Present() && e.Error.Present() && !rawjson.IsNull(line, e.Error) && !rawjson.IsNull(line, e.Result):
		return &ScanError{CodeInvalidRequest, "an answer with both result and error"}
	default:
		e.Kind = Response
	}
	return nil
}

// idKey gives an id in one spelling. Peers echo ids as their JSON library writes them, so an escape in a string may
// come back as another; a number has to be a plain integer, since others come back changed.
func idKey(line []byte, s rawjson.Span) (key, reason string) {
	raw := s.Of(line)
	if len(raw) > maxID {
		return "", "an id of more than " + strconv.Itoa(maxID) + " bytes"
	}
	switch c := raw[0]; {
	case c == '"':
		id, err := rawjson.String(line, s)
		if err != nil {
			return "", "the id is half a surrogate pair"
		}
		return "s" + id, ""
	case c == 'n':
		return "null", ""
	case string(raw) == "-0":
		return "i0", ""
	case c == '-' || '0' <= c && c <= '9':
		if bytes.ContainsAny(raw, ".eE") {
			return "", "the id is not an integer"
		}
		return "i" + string(raw), ""
	}
	return "", "the id is neither a string nor an integer nor null"
}

// scanError gives an error of the JSON reader a code.
func scanError(err error) error {
	if e, ok := err.(*ScanError); ok {
		return e
	}
	if e, ok := err.(*rawjson.SyntaxError); ok && e.UTF8 {
		return &ScanError{CodeParse, "the line is not UTF-8"}
	}
	return &ScanError{CodeParse, "the line is not JSON: " + err.Error()}
}
