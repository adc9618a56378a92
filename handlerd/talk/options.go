package talk

import (
	"encoding/json"
	"slices"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// modeOption is the SessionOption.ID of a session's mode.
const modeOption = "mode"

// modeState is ACP's SessionModeState, as far as it is read.
type modeState struct {
	Available []named `json:"availableModes"`
}

// named is a mode, or a SessionConfigOption of ACP's, as far as it is read.
type named struct {
	ID string `json:"id"`
}

// has tells whether one of list has an id.
func has(list []named, id string) bool {
	return slices.ContainsFunc(list, func(n named) bool { return n.ID == id })
}

// optionsResult answers session/set_config_option.
type optionsResult struct {
	Options json.RawMessage `json:"configOptions"`
}

// setting gives the request that sets an option, and what it changes of the session once it is answered.
func setting(s types.Session, acp string, o types.SessionOption) (method string, params any, change func(*types.Session, optionsResult), err error) {
	var modes modeState
	_ = json.Unmarshal(s.Modes, &modes) // none is none
	var options []named
	_ = json.Unmarshal(s.Options, &options)
	switch {
	case o.ID == modeOption && len(modes.Available) > 0:
		var mode string
		if json.Unmarshal(o.Value, &mode) != nil || !has(modes.Available, mode) {
			return "", nil, nil, fault.New(fault.Usage, "", "the session has no mode %s", clip(string(o.Value)))
		}
		return jsonrpc.MethodSetMode, map[string]any{"sessionId": acp, "modeId": mode}, func(s *types.Session, _ optionsResult) {
			s.Modes = withMode(s.Modes, mode)
		}, nil
	case !has(options, o.ID):
		return "", nil, nil, fault.New(fault.NotFound, "", "the session has no option %q", clip(o.ID))
	}
	p := map[string]any{"sessionId": acp, "configId": o.ID, "value": o.Value}
	var text string
	var flag bool
	switch {
	case json.Unmarshal(o.Value, &flag) == nil:
		p["type"] = "boolean"
	case json.Unmarshal(o.Value, &text) != nil || len(text) > maxMessage:
		return "", nil, nil, fault.New(fault.Usage, "", "the value of an option is a text or true or false")
	}
	return jsonrpc.MethodSetConfigOption, p, func(s *types.Session, r optionsResult) {
		if len(r.Options) > 0 {
			s.Options = r.Options
		}
	}, nil
}

// withMode gives a mode state with another current mode; the rest stays as the agent wrote it.
func withMode(state json.RawMessage, mode string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(state, &fields) != nil {
		return state
	}
	current, err := json.Marshal(mode)
	if err != nil {
		return state // a string always encodes
	}
	fields["currentModeId"] = current
	changed, err := json.Marshal(fields)
	if err != nil {
		return state
	}
	return changed
}
