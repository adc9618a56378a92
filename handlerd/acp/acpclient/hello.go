// Package acpclient is what Handler's own ACP clients have in common, `handler run` and the daemon where it is the client
// itself: the greeting, what an error of the other end means, and the questions that a person is asked in a form.
//
// What comes from an agent comes out as it was written: whoever shows it makes it safe for where it is shown.
package acpclient

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// Greet sends initialize. It offers no files and no terminals of this machine (P4); asks tells whether there is a person
// to fill in forms and open addresses, and meta goes along. The error is a *jsonrpc.Error where the agent refused.
func Greet(ctx context.Context, peer *jsonrpc.Peer, asks bool, meta map[string]json.RawMessage) (jsonrpc.InitializeResult, error) {
	caps := jsonrpc.ClientCapabilities{Meta: meta}
	if asks {
		caps.Elicitation = &jsonrpc.Elicitation{Form: &jsonrpc.Supported{}, URL: &jsonrpc.Supported{}}
	}
	var init jsonrpc.InitializeResult
	err := peer.Call(ctx, jsonrpc.MethodInitialize, jsonrpc.InitializeParams{
		ProtocolVersion:    jsonrpc.ProtocolVersion,
		ClientCapabilities: caps,
		ClientInfo:         &jsonrpc.Implementation{Name: "handler", Title: "Handler", Version: "1"},
	}, &init)
	if err != nil {
		return init, err
	}
	if init.ProtocolVersion != jsonrpc.ProtocolVersion {
		return init, fmt.Errorf("the agent speaks version %d of ACP, handler version %d", init.ProtocolVersion, jsonrpc.ProtocolVersion)
	}
	return init, nil
}
