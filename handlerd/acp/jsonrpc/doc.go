// Package jsonrpc is a typed JSON-RPC 2.0 peer over newline-delimited lines, for programs that are one end of an ACP
// connection: the demo agent, `handler run`, tests. It decodes and encodes; the relay between two ends must not, and
// has its own package.
//
// What comes in is handled in the order in which it came: notifications, requests and answers share one reader, so a
// session/update is always handled before the answer that followed it. What goes out leaves in the order in which it
// was given, through one writer.
//
// The ACP structs hold what an end of ours reads or writes (protocol version 1, design §3); fields that nobody here
// reads are left out, and what has no fixed shape stays a json.RawMessage.
package jsonrpc
