package jsonrpc

import (
	"encoding/json"
	"fmt"
)

// ProtocolVersion is the ACP version that our ends speak (P9).
const ProtocolVersion = 1

// Methods of ACP that our ends call or serve.
const (
	MethodInitialize        = "initialize"
	MethodAuthenticate      = "authenticate"
	MethodSessionNew        = "session/new"
	MethodSessionLoad       = "session/load"
	MethodSessionResume     = "session/resume"
	MethodSessionFork       = "session/fork"
	MethodSessionList       = "session/list"
	MethodSessionClose      = "session/close"
	MethodSessionDelete     = "session/delete"
	MethodSessionPrompt     = "session/prompt"
	MethodSessionCancel     = "session/cancel"
	MethodSessionUpdate     = "session/update"
	MethodSetMode           = "session/set_mode"
	MethodSetConfigOption   = "session/set_config_option"
	MethodRequestPermission = "session/request_permission"
	MethodElicitation       = "elicitation/create"
	MethodCancelRequest     = "$/cancel_request"
)

// CancelRequestParams of $/cancel_request. The peer sends and serves it by itself.
type CancelRequestParams struct {
	RequestID json.RawMessage `json:"requestId"`
}

// Implementation names a program.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

// InitializeParams of initialize.
type InitializeParams struct {
	ProtocolVersion    int                `json:"protocolVersion"`
	ClientCapabilities ClientCapabilities `json:"clientCapabilities"`
	ClientInfo         *Implementation    `json:"clientInfo,omitempty"`
}

// Supported is a capability that has no settings: {} where it is there, absent where not.
type Supported struct{}

// ClientCapabilities are what a client offers. Ours never offers files or terminals of the host (P4).
type ClientCapabilities struct {
	Elicitation *Elicitation               `json:"elicitation,omitempty"`
	Meta        map[string]json.RawMessage `json:"_meta,omitempty"`
}

// Elicitation says which questions a client can put to its person.
type Elicitation struct {
	Form *Supported `json:"form,omitempty"`
	URL  *Supported `json:"url,omitempty"`
}

// InitializeResult of initialize.
type InitializeResult struct {
	ProtocolVersion   int               `json:"protocolVersion"`
	AgentCapabilities AgentCapabilities `json:"agentCapabilities"`
	AuthMethods       []AuthMethod      `json:"authMethods"`
	AgentInfo         *Implementation   `json:"agentInfo,omitempty"`
}

// AuthMethod is one way to log in to an agent.
type AuthMethod struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// AgentCapabilities are what an agent offers.
type AgentCapabilities struct {
	LoadSession         bool                `json:"loadSession"`
	PromptCapabilities  PromptCapabilities  `json:"promptCapabilities"`
	MCPCapabilities     MCPCapabilities     `json:"mcpCapabilities"`
	SessionCapabilities SessionCapabilities `json:"sessionCapabilities"`
}

// PromptCapabilities say what a prompt may hold besides text and links.
type PromptCapabilities struct {
	Image           bool `json:"image"`
	Audio           bool `json:"audio"`
	EmbeddedContext bool `json:"embeddedContext"`
}

// MCPCapabilities say which transports an agent takes besides stdio.
type MCPCapabilities struct {
	HTTP bool `json:"http"`
	SSE  bool `json:"sse"`
}

// SessionCapabilities say which of the optional session methods an agent has.
type SessionCapabilities struct {
	List   *Supported `json:"list,omitempty"`
	Resume *Supported `json:"resume,omitempty"`
	Close  *Supported `json:"close,omitempty"`
	Delete *Supported `json:"delete,omitempty"`
	Fork   *Supported `json:"fork,omitempty"`
}

// NewSessionParams of session/new.
type NewSessionParams struct {
	Cwd                   string      `json:"cwd"`
	AdditionalDirectories []string    `json:"additionalDirectories,omitempty"`
	MCPServers            []MCPServer `json:"mcpServers"` // required: never nil when sent
}

// NewSessionResult of session/new and session/fork.
type NewSessionResult struct {
	SessionID string `json:"sessionId"`
}

// LoadSessionParams of session/load, session/resume and session/fork; the last two may lack MCPServers.
type LoadSessionParams struct {
	SessionID             string      `json:"sessionId"`
	Cwd                   string      `json:"cwd"`
	AdditionalDirectories []string    `json:"additionalDirectories,omitempty"`
	MCPServers            []MCPServer `json:"mcpServers"`
}

// SessionParams of session/cancel, session/close and session/delete.
type SessionParams struct {
	SessionID string `json:"sessionId"`
}

// ListSessionsResult of session/list.
type ListSessionsResult struct {
	Sessions []SessionInfo `json:"sessions"`
}

// SessionInfo is one line of session/list.
type SessionInfo struct {
	SessionID string `json:"sessionId"`
	Cwd       string `json:"cwd"`
	Title     string `json:"title,omitempty"`
	UpdatedAt string `json:"updatedAt,omitempty"` // RFC 3339
}

// A Pair is ACP's {name, value}.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An MCPServer is one entry of mcpServers: stdio if Type is empty or "stdio", else http or sse with URL and Headers.
// Args, Env and Headers are required arrays; nil after decoding means that they were missing.
type MCPServer struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []Pair   `json:"env"`
	URL     string   `json:"url"`
	Headers []Pair   `json:"headers"`
}

// MarshalJSON writes only the fields of the server's transport; arrays are never null.
func (s MCPServer) MarshalJSON() ([]byte, error) {
	if s.Type == "" || s.Type == "stdio" {
		return json.Marshal(struct {
			Name    string   `json:"name"`
			Command string   `json:"command"`
			Args    []string `json:"args"`
			Env     []Pair   `json:"env"`
		}{s.Name, s.Command, append([]string{}, s.Args...), append([]Pair{}, s.Env...)})
	}
	return json.Marshal(struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		URL     string `json:"url"`
		Headers []Pair `json:"headers"`
	}{s.Type, s.Name, s.URL, append([]Pair{}, s.Headers...)})
}

// PromptParams of session/prompt.
type PromptParams struct {
	SessionID string         `json:"sessionId"`
	Prompt    []ContentBlock `json:"prompt"`
}

// Stop reasons of a turn.
const (
	StopEndTurn         = "end_turn"
	StopMaxTokens       = "max_tokens"
	StopMaxTurnRequests = "max_turn_requests"
	StopRefusal         = "refusal"
	StopCancelled       = "cancelled"
)

// PromptResult of session/prompt.
type PromptResult struct {
	StopReason string `json:"stopReason"`
}

// Types of a ContentBlock.
const (
	BlockText         = "text"
	BlockImage        = "image"
	BlockAudio        = "audio"
	BlockResource     = "resource"
	BlockResourceLink = "resource_link"
)

// A ContentBlock is a piece of a prompt or of an answer: the fields of its Type are set.
type ContentBlock struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	Data     string    `json:"data,omitempty"` // base64
	MimeType string    `json:"mimeType,omitempty"`
	URI      string    `json:"uri,omitempty"`
	Name     string    `json:"name,omitempty"`
	Resource *Resource `json:"resource,omitempty"`
}

// Resource is the content of a block of type "resource": text or base64.
type Resource struct {
	URI      string `json:"uri"`
	MimeType string `json:"mimeType,omitempty"`
	Text     string `json:"text,omitempty"`
	Blob     string `json:"blob,omitempty"`
}

// Text makes a text block.
func Text(s string) ContentBlock { return ContentBlock{Type: BlockText, Text: s} }

// MarshalJSON writes "text" in a text block even if empty, since it is required there.
func (b ContentBlock) MarshalJSON() ([]byte, error) {
	if b.Type == BlockText {
		return json.Marshal(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{b.Type, b.Text})
	}
	type plain ContentBlock
	return json.Marshal(plain(b))
}

// Kinds of an Update.
const (
	UpdateUserMessage    = "user_message_chunk"
	UpdateAgentMessage   = "agent_message_chunk"
	UpdateAgentThought   = "agent_thought_chunk"
	UpdateToolCall       = "tool_call"
	UpdateToolCallUpdate = "tool_call_update"
	UpdatePlan           = "plan"
	UpdateNotice         = "notice"
	UpdateSessionInfo    = "session_info_update"
)

// Kinds of a tool call that our ends name.
const (
	KindRead    = "read"
	KindSearch  = "search"
	KindThink   = "think"
	KindFetch   = "fetch"
	KindEdit    = "edit"
	KindDelete  = "delete"
	KindMove    = "move"
	KindExecute = "execute"
	KindOther   = "other"
)

// Statuses of a tool call and of a plan's entry.
const (
	StatusPending    = "pending"
	StatusInProgress = "in_progress"
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
)

// UpdateParams of session/update.
type UpdateParams struct {
	SessionID string `json:"sessionId"`
	Update    Update `json:"update"`
}

// An Update is one session/update: the fields of its kind are set.
type Update struct {
	SessionUpdate string `json:"sessionUpdate"`
	// Content is a ContentBlock in chunks, a list of ToolContent in tool calls: see Block and ToolContents.
	Content json.RawMessage `json:"content,omitempty"`

	ToolCall
	Entries []PlanEntry `json:"entries,omitempty"`

	Severity    string `json:"severity,omitempty"`
	Description string `json:"description,omitempty"`
	UpdatedAt   string `json:"updatedAt,omitempty"`
}

// ToolCall is what an update and a permission request say of a tool call. In an update that changes one, empty means
// unchanged. Title is also that of a notice and of a session.
type ToolCall struct {
	ToolCallID string          `json:"toolCallId,omitempty"`
	Title      string          `json:"title,omitempty"`
	Name       string          `json:"name,omitempty"`
	Kind       string          `json:"kind,omitempty"`
	Status     string          `json:"status,omitempty"`
	RawInput   json.RawMessage `json:"rawInput,omitempty"`
	RawOutput  json.RawMessage `json:"rawOutput,omitempty"`
}

// Block gives the content of a chunk.
func (u *Update) Block() (ContentBlock, error) {
	var b ContentBlock
	if err := json.Unmarshal(u.Content, &b); err != nil {
		return b, fmt.Errorf("content of %s: %w", u.SessionUpdate, err)
	}
	return b, nil
}

// ToolContents gives the content of a tool call; nil if there is none.
func (u *Update) ToolContents() ([]ToolContent, error) {
	if len(u.Content) == 0 || string(u.Content) == "null" {
		return nil, nil
	}
	var c []ToolContent
	if err := json.Unmarshal(u.Content, &c); err != nil {
		return nil, fmt.Errorf("content of %s: %w", u.SessionUpdate, err)
	}
	return c, nil
}

// ToolContent is one piece of a tool call's content: type "content" with Content, or "diff" with Path, OldText and
// NewText; others are left as they are.
type ToolContent struct {
	Type    string        `json:"type"`
	Content *ContentBlock `json:"content,omitempty"`
	Path    string        `json:"path,omitempty"`
	OldText string        `json:"oldText,omitempty"`
	NewText string        `json:"newText,omitempty"`
}

// A PlanEntry is one line of a plan.
type PlanEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

// Kinds of a PermissionOption.
const (
	AllowOnce    = "allow_once"
	AllowAlways  = "allow_always"
	RejectOnce   = "reject_once"
	RejectAlways = "reject_always"
)

// PermissionParams of session/request_permission.
type PermissionParams struct {
	SessionID string             `json:"sessionId"`
	ToolCall  PermissionToolCall `json:"toolCall"`
	Options   []PermissionOption `json:"options"`
}

// PermissionToolCall is the tool call that a permission request speaks of; often only its id is there, and the rest
// is known from an earlier update.
type PermissionToolCall struct {
	ToolCall
	Content json.RawMessage `json:"content,omitempty"`
}

// A PermissionOption is one answer a person may give.
type PermissionOption struct {
	OptionID string `json:"optionId"`
	Name     string `json:"name"`
	Kind     string `json:"kind"`
}

// PermissionResult of session/request_permission.
type PermissionResult struct {
	Outcome PermissionOutcome `json:"outcome"`
}

// PermissionOutcome is "selected" with an option, or "cancelled".
type PermissionOutcome struct {
	Outcome  string `json:"outcome"`
	OptionID string `json:"optionId,omitempty"`
}

// Selected makes the result of a permission request that was answered with one of its options.
func Selected(optionID string) PermissionResult {
	return PermissionResult{PermissionOutcome{Outcome: "selected", OptionID: optionID}}
}

// Cancelled says that nobody will answer, because the turn ends.
func Cancelled() PermissionResult {
	return PermissionResult{PermissionOutcome{Outcome: "cancelled"}}
}
