package acp

import (
	"encoding/json"
	"strconv"

	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/policy/rawjson"
)

// errorData is the data of every JSON-RPC error that Handler gives for a refusal (C.4).
type errorData struct {
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
}

// resultLine is an answer, without its newline. id is written as the request wrote it.
func resultLine(id, result []byte) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + string(result) + `}`)
}

// errorLine is the answer that carries a refusal. Where the request's id is not known, id is nil and null is written.
func errorLine(id []byte, code int, v policy.Verdict) []byte {
	data, err := json.Marshal(errorData{v.Rule, v.Reason, v.Hint})
	if err != nil {
		data = []byte("null") // a struct of strings always encodes
	}
	return failLine(id, code, v.String(), data)
}

// failLine is an error answer; data is JSON, nil for none.
func failLine(id []byte, code int, message string, data []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	line := `{"jsonrpc":"2.0","id":` + string(id) + `,"error":{"code":` + strconv.Itoa(code) +
		`,"message":` + string(rawjson.AppendString(nil, message))
	if data != nil {
		line += `,"data":` + string(data)
	}
	return []byte(line + `}}`)
}

// cancelLine is the notification that ends a session's turn.
func cancelLine(session string) []byte {
	return []byte(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":` + string(rawjson.AppendString(nil, session)) + `}}`)
}
