package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/handlerd/handler/policy/rawjson"
)

// terminalAuthMeta is how clients and agents spoke of terminal logins before auth.terminal, and still do: under _meta.
const terminalAuthMeta = "terminal-auth"

// Initialize judges the params of initialize: version 1 is what the agent gets (P9), and no capability that would let
// the agent act on the host (P4).
func (c *Config) Initialize(b []byte) Ruling {
	var r Ruling
	err := func() error {
		o, err := params(b, "initialize", "protocolVersion", "clientCapabilities", "clientInfo")
		if err != nil {
			return err
		}
		version(b, o, &r)
		caps, err := object(b, o.Get("clientCapabilities"), "clientCapabilities", "fs", "terminal", "auth", "session", "elicitation", "_meta")
		if err != nil || !caps.Span.Present() {
			return err
		}
		return c.clientCapabilities(b, caps, &r)
	}()
	return ruled(r, err)
}

// version is P9: what the client offers becomes 1, and an agent that answers otherwise was asked for 1.
func version(b []byte, o rawjson.Object, r *Ruling) {
	at := o.Get("protocolVersion")
	switch {
	case !at.Present():
		r.edit("P9", "the client named no protocol version and gets 1", insert(o, `"protocolVersion":1`))
	case string(at.Of(b)) != "1":
		r.edit("P9", "the client offered protocol version "+quote(short(at.Of(b)))+" and gets 1", replace(at, "1"))
	}
}

func short(b []byte) string { return string(b[:min(len(b), 40)]) }

func (c *Config) clientCapabilities(b []byte, caps rawjson.Object, r *Ruling) error {
	if !c.HostFS {
		if err := stripFS(b, caps, r); err != nil {
			return err
		}
	}
	if c.HostTerminal {
		return nil
	}
	if at := caps.Get("terminal"); at.Present() && !off(b, at) {
		r.edit("P4", "the client's capability terminal was taken out", replace(at, "false"))
	}
	auth, err := object(b, caps.Get("auth"), "clientCapabilities.auth", "terminal")
	if err != nil {
		return err
	}
	if at := auth.Get("terminal"); at.Present() && !off(b, at) {
		r.edit("P4", "the client's capability auth.terminal was taken out", replace(at, "false"))
	}
	meta, err := object(b, caps.Get("_meta"), "clientCapabilities._meta", terminalAuthMeta)
	if err != nil {
		return err
	}
	if at := meta.Get(terminalAuthMeta); at.Present() && !off(b, at) {
		r.edit("P4", "the client's capability _meta.terminal-auth was taken out", replace(at, "false"))
	}
	return nil
}

// stripFS sets every fs capability to false, those of later versions too.
func stripFS(b []byte, caps rawjson.Object, r *Ruling) error {
	at := caps.Get("fs")
	if !at.Present() || off(b, at) {
		return nil
	}
	if b[at.Start] != '{' {
		r.edit("P4", "the client's capability fs was taken out", replace(at, "{}"))
		return nil
	}
	fs, err := object(b, at, "clientCapabilities.fs", "readTextFile", "writeTextFile")
	if err != nil {
		return err
	}
	var out []string
	for _, m := range fs.Members {
		if m.Name != "_meta" && !off(b, m.Value) {
			out = append(out, "fs."+quote(m.Name))
			r.Edits = append(r.Edits, replace(m.Value, "false"))
		}
	}
	if out != nil {
		r.edit("P4", "the client's capabilities were taken out: "+strings.ReplaceAll(strings.Join(out, ", "), `"`, ""))
	}
	return nil
}

// off tells a capability that says no.
func off(b []byte, s rawjson.Span) bool {
	v := string(s.Of(b))
	return v == "false" || v == "null"
}

// InitializeAnswer judges the agent's answer to initialize, and reads from it what later rules need. An agent that
// does not speak version 1 is refused, since the rules are about version 1 (P9). Terminal logins, which are command
// lines that the client would start on the host, are taken out (P4).
func (c *Config) InitializeAnswer(b []byte) (Ruling, Caps) {
	var r Ruling
	var caps Caps
	err := func() error {
		o, err := required(b, "the agent's answer to initialize", "protocolVersion", "agentCapabilities", "authMethods", "agentInfo")
		if err != nil {
			return err
		}
		switch at := o.Get("protocolVersion"); {
		case !at.Present():
			r.edit("P9", "the agent named no protocol version, and version 1 is what the client gets", insert(o, `"protocolVersion":1`))
		case string(at.Of(b)) != "1":
			return refuse("P9", "the agent answers with protocol version "+quote(short(at.Of(b)))+", and Handler speaks version 1", "use a version of the agent that speaks ACP 1")
		}
		if caps, err = readCaps(b, o.Get("agentCapabilities")); err != nil {
			return err
		}
		return c.authMethods(b, o.Get("authMethods"), &r)
	}()
	r = ruled(r, err)
	if r.Action == Refuse {
		r.Code, caps = codeInternal, Caps{}
	}
	return r, caps
}

func readCaps(b []byte, at rawjson.Span) (Caps, error) {
	agent, err := object(b, at, "agentCapabilities", "mcpCapabilities")
	if err != nil {
		return Caps{}, err
	}
	mcp, err := object(b, agent.Get("mcpCapabilities"), "mcpCapabilities", typeHTTP, typeSSE, typeACP)
	if err != nil {
		return Caps{}, err
	}
	says := func(name string) bool { s := mcp.Get(name); return s.Present() && !off(b, s) }
	return Caps{HTTP: says(typeHTTP), SSE: says(typeSSE), ACP: says(typeACP)}, nil
}

// AgentError judges the error of an agent's answer: data.authMethods of "authentication required" is filtered as in
// the answer to initialize (P4).
func (c *Config) AgentError(b []byte) Ruling {
	var r Ruling
	err := func() error {
		s, err := rawjson.Whole(b)
		if err != nil || b[s.Start] != '{' {
			return err
		}
		o, err := object(b, s, "the agent's error", "data")
		if err != nil {
			return err
		}
		at := o.Get("data")
		if !at.Present() || b[at.Start] != '{' {
			return nil
		}
		data, err := object(b, at, "data of the agent's error", "authMethods")
		if err != nil {
			return err
		}
		return c.authMethods(b, data.Get("authMethods"), &r)
	}()
	r = ruled(r, err)
	if r.Action == Refuse {
		r.Code = codeInternal
	}
	return r
}

// authMethods takes the terminal logins out of a list.
func (c *Config) authMethods(b []byte, at rawjson.Span, r *Ruling) error {
	methods, err := array(b, at, "authMethods", maxAuthMethods)
	if err != nil || c.HostTerminal {
		return err
	}
	var kept [][]byte
	var out []string
	for i, s := range methods {
		id, terminal, err := terminalAuth(b, s, "authMethods["+strconv.Itoa(i)+"]")
		if err != nil {
			return err
		}
		if terminal {
			out = append(out, quote(id))
		} else {
			kept = append(kept, s.Of(b))
		}
	}
	if out != nil {
		r.edit("P4", "the agent's terminal logins were taken out, which the client would have started on the host: "+strings.Join(out, ", "),
			replace(at, string(rawjson.Join('[', ']', kept))))
	}
	return nil
}

// terminalAuth tells a login by command line, in any of the ways agents write one.
func terminalAuth(b []byte, s rawjson.Span, what string) (id string, terminal bool, err error) {
	o, err := object(b, s, what, "type", "id", "_meta", "args", "env", "command")
	if err != nil {
		return "", false, err
	}
	if id, _, err = text(b, o.Get("id"), what+".id"); err != nil {
		return "", false, err
	}
	kind, _, err := text(b, o.Get("type"), what+".type")
	if err != nil {
		return "", false, err
	}
	meta, err := object(b, o.Get("_meta"), what+"._meta", terminalAuthMeta, "type")
	if err != nil {
		return "", false, err
	}
	metaKind := ""
	if at := meta.Get("type"); at.Present() && b[at.Start] == '"' {
		if metaKind, _, err = text(b, at, what+"._meta.type"); err != nil {
			return "", false, err
		}
	}
	command := o.Get("args").Present() || o.Get("command").Present()
	return id, strings.EqualFold(kind, "terminal") || metaKind == "terminal" || meta.Get(terminalAuthMeta).Present() || command, nil
}

// AgentCall judges a request of the agent to the client (P4): what may pass is an allow-list. fs/* and terminal/* pass
// where the agent's settings say so, fs/* under P2; permission requests and elicitations under P5, joined with what
// calls knows of their tool calls (nil: nothing).
func (c *Config) AgentCall(method string, b []byte, caps Caps, calls *ToolCalls) Ruling {
	switch {
	case method == MethodPermission:
		return checkPermission(b, calls)
	case method == MethodElicitation:
		return checkElicitation(b, calls)
	case method == "fs/read_text_file", method == "fs/write_text_file":
		r, err := c.hostFS(method, b)
		return ruled(r, err)
	case slices.Contains(terminalMethods(), method):
		if c.HostTerminal {
			return Ruling{}
		}
		return ruled(Ruling{}, notFound(quote(method)+" would act on the host", c.editAgent("host_terminal = true allows it")))
	case method == "mcp/message" && caps.ACP:
		return Ruling{} // to a server of the client's own, which it gave with type acp
	}
	return ruled(Ruling{}, notFound("the agent's request "+quote(method)+" is not one that a client answers", ""))
}

func terminalMethods() []string {
	return []string{"terminal/create", "terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"}
}

// AgentNotice judges a notification of the agent to the client: those of ACP and extensions pass, others are dropped.
func (c *Config) AgentNotice(method string, caps Caps) Ruling {
	switch method {
	case "session/update", "elicitation/complete", "$/cancel_request", "auth/status_update":
		return Ruling{}
	case "mcp/message":
		if caps.ACP {
			return Ruling{}
		}
	}
	if strings.HasPrefix(method, handlerMethods) {
		return ruled(Ruling{}, notFound("the agent's notification "+quote(method)+" would speak for Handler", ""))
	}
	if strings.HasPrefix(method, "_") {
		return Ruling{}
	}
	return ruled(Ruling{}, notFound("the agent's notification "+quote(method)+" is not one that a client takes", ""))
}

// ClientCall judges a request or notification of the client to the agent that is neither initialize nor sets up a
// session. Only proxy/* is refused: it would carry such a request inside of it, past the rules.
func (c *Config) ClientCall(method string) Ruling {
	if strings.HasPrefix(method, "proxy/") {
		return ruled(Ruling{}, &refusal{codeMethodNotFound, Verdict{Action: Refuse, Rule: "P9", Reason: quote(method) + " would carry messages past the rules"}})
	}
	return Ruling{}
}

// notFound is the refusal of a method that Handler does not let through (P4): to the agent the client has none.
func notFound(reason, hint string) *refusal {
	return &refusal{codeMethodNotFound, Verdict{Action: Refuse, Rule: "P4", Reason: reason, Hint: hint}}
}
