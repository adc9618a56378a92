package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/handlerd/handler/policy/rawjson"
)

// Types of an MCPServer as ACP writes them. A stdio server has none.
const (
	typeHTTP = "http"
	typeSSE  = "sse"
	typeACP  = "acp" // the server stands in the client, and is reached over ACP itself
)

// An MCPServer is one server of the plan: a stdio one has Command, Args and Env; an http or sse one has Type, URL and
// Headers.
type MCPServer struct {
	Type    string // "" for stdio, "http", "sse"
	Name    string
	Command string
	Args    []string
	Env     []Pair
	URL     string
	Headers []Pair
}

// A Pair is ACP's {name, value}.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// MarshalJSON writes the server as ACP wants it, always in the same order of keys: arrays are there even if empty, and
// a stdio server has no type (B.2).
func (m MCPServer) MarshalJSON() ([]byte, error) {
	str := func(s string) string { return string(rawjson.AppendString(nil, s)) }
	pairs := func(of []Pair) string {
		parts := make([][]byte, len(of))
		for i, p := range of {
			parts[i] = []byte(`{"name":` + str(p.Name) + `,"value":` + str(p.Value) + `}`)
		}
		return string(rawjson.Join('[', ']', parts))
	}
	if m.Type != "" {
		return []byte(`{"type":` + str(m.Type) + `,"name":` + str(m.Name) + `,"url":` + str(m.URL) + `,"headers":` + pairs(m.Headers) + `}`), nil
	}
	args := make([][]byte, len(m.Args))
	for i, a := range m.Args {
		args[i] = rawjson.AppendString(nil, a)
	}
	return []byte(`{"name":` + str(m.Name) + `,"command":` + str(m.Command) + `,"args":` + string(rawjson.Join('[', ']', args)) + `,"env":` + pairs(m.Env) + `}`), nil
}

// A server is one element of mcpServers, read.
type server struct {
	json    []byte // as it goes on
	changed bool   // json is not what the client wrote
	ours    bool   // of the plan
	name    string
	kind    string // "" for stdio
	command string
	args    []string
	url     string
}

// of says whose a server is and what it is called, for messages.
func (s server) of() string {
	if s.ours {
		return "the agent's MCP server " + quote(s.name)
	}
	return "the client's MCP server " + quote(s.name)
}

// readServer reads one element. It refuses what two agents might read as two servers (P9).
func readServer(b []byte, at rawjson.Span, i int) (server, error) {
	what := "mcpServers[" + strconv.Itoa(i) + "]"
	s := server{json: at.Of(b)}
	o, err := object(b, at, what, "type", "name", "command", "args", "env", "url", "headers", "serverId")
	if err != nil {
		return s, err
	}
	var ok bool
	if s.name, ok, err = text(b, o.Get("name"), what+".name"); err != nil {
		return s, err
	}
	if !ok || s.name == "" {
		return s, refuse("P9", what+" has no name", "")
	}
	if s.kind, _, err = text(b, o.Get("type"), what+".type"); err != nil {
		return s, err
	}
	var arrays []string
	switch s.kind {
	case "", "stdio":
		s.kind, arrays = "", []string{"args", "env"}
		err = s.readCommand(b, o, what)
	case typeHTTP, typeSSE:
		arrays = []string{"headers"}
		err = s.readURL(b, o, what)
	case typeACP:
	default:
		err = refuse("P3", s.of()+" is of the type "+quote(s.kind)+", which Handler does not know", "use stdio, http or sse")
	}
	if err != nil {
		return s, err
	}
	s.makeWhole(b, o, arrays)
	return s, nil
}

func (s *server) readCommand(b []byte, o rawjson.Object, what string) (err error) {
	if o.Get("url").Present() {
		return refuse("P9", what+" has a url but no type", `say "type": "http" or "sse", or leave url out`)
	}
	var ok bool
	if s.command, ok, err = text(b, o.Get("command"), what+".command"); err != nil {
		return err
	}
	if !ok || s.command == "" {
		return refuse("P9", what+" has no command", "")
	}
	args, err := array(b, o.Get("args"), what+".args", MaxServerItems)
	if err != nil {
		return err
	}
	for i, at := range args {
		arg, ok, err := text(b, at, what+".args["+strconv.Itoa(i)+"]")
		if err != nil {
			return err
		}
		if !ok {
			return wrongType(what+".args["+strconv.Itoa(i)+"]", "a string")
		}
		s.args = append(s.args, arg)
	}
	return readPairs(b, o.Get("env"), what+".env")
}

func (s *server) readURL(b []byte, o rawjson.Object, what string) (err error) {
	if o.Get("command").Present() {
		return refuse("P9", what+" is of the type "+s.kind+" and has a command", "leave one of the two out")
	}
	var ok bool
	if s.url, ok, err = text(b, o.Get("url"), what+".url"); err != nil {
		return err
	}
	if !ok {
		return refuse("P9", what+" has no url", "")
	}
	return readPairs(b, o.Get("headers"), what+".headers")
}

// readPairs checks an array of {name, value}.
func readPairs(b []byte, at rawjson.Span, what string) error {
	if at.Present() && b[at.Start] == '{' {
		return refuse("P9", what+" is an object, and ACP wants an array", `write [{"name": "KEY", "value": "VALUE"}]`)
	}
	pairs, err := array(b, at, what, MaxServerItems)
	if err != nil {
		return err
	}
	for i, at := range pairs {
		what := what + "[" + strconv.Itoa(i) + "]"
		o, err := object(b, at, what, "name", "value")
		if err != nil {
			return err
		}
		for _, key := range []string{"name", "value"} {
			_, ok, err := text(b, o.Get(key), what+"."+key)
			if err != nil {
				return err
			}
			if !ok {
				return wrongType(what+"."+key, "a string")
			}
		}
	}
	return nil
}

// makeWhole gives the server the arrays that agents insist on, and takes the type off a stdio server, which some
// refuse (B.2). All else keeps its bytes.
func (s *server) makeWhole(b []byte, o rawjson.Object, arrays []string) {
	var missing []string
	for _, name := range arrays {
		if at := o.Get(name); !at.Present() || rawjson.IsNull(b, at) {
			missing = append(missing, name)
		}
	}
	typed := s.kind == "" && o.Get("type").Present()
	if len(missing) == 0 && !typed {
		return
	}
	var parts [][]byte
	for _, m := range o.Members {
		if m.Name == "type" && typed || slices.Contains(missing, m.Name) {
			continue
		}
		parts = append(parts, m.Pair.Of(b))
	}
	for _, name := range missing {
		parts = append(parts, []byte(`"`+name+`":[]`))
	}
	s.json, s.changed = rawjson.Join('{', '}', parts), true
}

// windows tells a command that only Windows has.
func (s server) windows() bool {
	c := strings.ToLower(s.command)
	drive := len(c) > 2 && 'a' <= c[0] && c[0] <= 'z' && c[1] == ':' && (c[2] == '\\' || c[2] == '/')
	for _, end := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		if strings.HasSuffix(c, end) {
			return true
		}
	}
	shell := c == "cmd" && len(s.args) > 0 && strings.EqualFold(s.args[0], "/c")
	return drive || shell || strings.Contains(c, `\`)
}

// SessionToken as an argument of a server of the run's own stands for a token that is another in each session; see
// Config.WithToken.
const SessionToken = "{session}"

// WithToken gives the Config for one session: SessionToken in the arguments of its servers is replaced by token.
func (c *Config) WithToken(token string) *Config {
	one := *c
	one.Servers = slices.Clone(c.Servers)
	for i, s := range one.Servers {
		if at := slices.Index(s.Args, SessionToken); at >= 0 {
			s.Args = slices.Clone(s.Args)
			if s.Args[at] = token; token == "" {
				s.Args = slices.Delete(s.Args, at, at+1)
			}
			one.Servers[i] = s
		}
	}
	return &one
}
