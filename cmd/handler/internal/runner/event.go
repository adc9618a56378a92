package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
)

// Kinds of an event, as JSON names them.
const (
	evStart    = "start"
	evPrompt   = "prompt" // of a Viewer alone
	evText     = "text"
	evThought  = "thought"
	evPlan     = "plan"
	evTool     = "tool"
	evToolDone = "tool_done"
	evImage    = "image"
	evQuestion = "question"
	evNotice   = "notice"
	evDone     = "done"
)

// An event is one thing that happened, rendered as text or as JSON. The package's documentation says which fields an
// event has; their names are stable.
type event struct {
	Event string `json:"event"`

	Agent   string `json:"agent,omitempty"`
	Run     string `json:"run,omitempty"`
	Session string `json:"session,omitempty"`
	Cwd     string `json:"cwd,omitempty"`

	Text     string              `json:"text,omitempty"`
	Severity string              `json:"severity,omitempty"`
	Entries  []jsonrpc.PlanEntry `json:"entries,omitempty"`

	Tool   string          `json:"tool,omitempty"`
	Name   string          `json:"name,omitempty"`
	Kind   string          `json:"kind,omitempty"`
	Detail string          `json:"detail,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	Answer string          `json:"answer,omitempty"`
	By     string          `json:"by,omitempty"`

	Path      string `json:"path,omitempty"`
	Artifact  string `json:"artifact,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	Bytes     int    `json:"bytes,omitempty"`
	SHA256    string `json:"sha256,omitempty"`

	// A string in tool_done, a number in done.
	Status     any      `json:"status,omitempty"`
	StopReason string   `json:"stop_reason,omitempty"`
	Seconds    *float64 `json:"seconds,omitempty"`
	ToolCalls  *int     `json:"tool_calls,omitempty"`
	Refused    *int     `json:"refused,omitempty"`
	Images     *int     `json:"images,omitempty"`
	Error      *failure `json:"error,omitempty"`

	summary []string // of done, for people
}

// A failure is why a run did not come to its end.
type failure struct {
	Message string `json:"message"`
	Code    int    `json:"code,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// A printer renders events; it is called by one goroutine at a time.
type printer interface {
	print(event) error
}

// jsonPrinter writes an event a line.
type jsonPrinter struct{ w io.Writer }

func (p jsonPrinter) print(e event) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	_, err := p.w.Write(escapeHidden(b.Bytes()))
	return err
}

// escapeHidden writes as \u what encoding/json leaves as it is and a terminal would obey. Such runes stand only
// within strings.
func escapeHidden(line []byte) []byte {
	if !bytes.ContainsFunc(line, unsafeInJSON) {
		return line
	}
	var b bytes.Buffer
	for _, r := range string(line) {
		switch {
		case !unsafeInJSON(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

func unsafeInJSON(r rune) bool { return r == 0x7f || hidden(r) }
