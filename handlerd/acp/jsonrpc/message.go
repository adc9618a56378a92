package jsonrpc

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// A message is one line, taken apart. A request has method and id, a notification method alone, an answer id and
// result or fault.
type message struct {
	method string
	id     json.RawMessage // as it was written; nil if absent
	params json.RawMessage
	result json.RawMessage
	fault  *Error
}

// parse takes a line apart. Keys are compared exactly: encoding/json would take "METHOD" for "method" when decoding
// into a struct.
func parse(line []byte) (message, *Error) {
	if !utf8.Valid(line) {
		return message{}, Errorf(CodeParse, "the line is not UTF-8")
	}
	if trimmed := bytes.TrimLeft(line, " \t\r"); len(trimmed) > 0 && trimmed[0] == '[' && json.Valid(line) {
		return message{}, Errorf(CodeInvalidRequest, "batches are not part of ACP version 1: send one message a line")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		if json.Valid(line) {
			return message{}, Errorf(CodeInvalidRequest, "the line is not a JSON object")
		}
		return message{}, Errorf(CodeParse, "the line is not JSON: %v", err)
	}
	m := message{id: fields["id"], params: fields["params"], result: fields["result"]}
	if !validID(m.id) {
		return message{}, Errorf(CodeInvalidRequest, "an id must be a string, a number or null")
	}
	if raw, ok := fields["method"]; ok {
		if err := json.Unmarshal(raw, &m.method); err != nil || m.method == "" {
			return message{id: m.id}, Errorf(CodeInvalidRequest, "method must be a string that is not empty")
		}
		if string(fields["jsonrpc"]) != `"2.0"` {
			return message{id: m.id}, Errorf(CodeInvalidRequest, `jsonrpc must be "2.0"`)
		}
		return m, nil
	}
	if raw, ok := fields["error"]; ok && string(raw) != "null" {
		m.fault = new(Error)
		if err := json.Unmarshal(raw, m.fault); err != nil {
			m.fault = &Error{Code: CodeInternal, Message: "an error of a wrong shape", Data: raw}
		}
		return m, nil
	}
	if _, ok := fields["result"]; ok && m.id != nil {
		return m, nil
	}
	return message{id: m.id}, Errorf(CodeInvalidRequest, "neither method nor result nor error")
}

// validID says whether raw is absent, a string, a number or null.
func validID(raw json.RawMessage) bool {
	if raw == nil {
		return true
	}
	switch c := raw[0]; {
	case c == '"', c == '-', c >= '0' && c <= '9':
		return true
	default:
		return string(raw) == "null"
	}
}

// wire is the written form; the order of its keys is that of most ACP programs.
type wire struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// encode gives a line with its line ending. HTML is not escaped: agents' texts are full of < and &.
func encode(w wire) ([]byte, error) {
	w.JSONRPC = "2.0"
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(w); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
