package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Bounds of a model: a script that goes wrong must not turn into a loop of an agent with its model.
const (
	modelRequests = 120
	modelBody     = 32 << 20
)

// A model is a scripted endpoint with Anthropic's /v1/messages, outside every sandbox on 127.0.0.1. It keeps nothing
// between requests: what it answers follows from the conversation that it is sent, as with a real one. The last
// prompt of a person chooses a part of its script, and the tool results since then choose the step of it.
type model struct {
	http   *httptest.Server
	script modelScript

	mu    sync.Mutex
	saw   [][]byte // protected by mu; each a JSON object, see note
	bound bool     // protected by mu; it was asked too often
}

// A modelScript is what a model does.
type modelScript struct {
	parts []modelPart
	finds map[string]*regexp.Regexp // what {{NAME}} in arguments stands for
}

// A modelPart is what it does about prompts that fit.
type modelPart struct {
	prompt *regexp.Regexp
	steps  []modelStep
}

// A modelStep calls a tool whose name fits, or says text.
type modelStep struct {
	tool *regexp.Regexp
	args json.RawMessage
	text string
}

// parseModel reads a script, a directive a line:
//
//	# …               nothing
//	prompt REGEXP     begins a part, for prompts that fit
//	call REGEXP JSON  calls the first tool offered whose name fits
//	text TEXT         says TEXT and ends the turn
//	find NAME REGEXP  {{NAME}} in arguments is what the first group of REGEXP holds where it fits last in what was said
//	                  and what tools answered
func parseModel(text string) (modelScript, error) {
	s := modelScript{finds: map[string]*regexp.Regexp{}}
	for i, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		if err := s.directive(word, rest); err != nil {
			return modelScript{}, fmt.Errorf("line %d: %s: %w", i+1, line, err)
		}
	}
	return s, nil
}

func (s *modelScript) directive(word, rest string) error {
	name, args, _ := strings.Cut(rest, " ")
	switch {
	case word == "prompt":
		re, err := regexp.Compile(rest)
		s.parts = append(s.parts, modelPart{prompt: re})
		return err
	case word == "find":
		re, err := regexp.Compile(args)
		if err == nil && re.NumSubexp() == 0 {
			err = errors.New("its REGEXP has no group")
		}
		s.finds[name] = re
		return err
	case len(s.parts) == 0:
		return errors.New("a prompt comes first")
	}
	last := &s.parts[len(s.parts)-1]
	switch word {
	case "text":
		last.steps = append(last.steps, modelStep{text: rest})
		return nil
	case "call":
		re, err := regexp.Compile(name)
		if err == nil && !json.Valid([]byte(args)) {
			err = errors.New("its arguments are no JSON")
		}
		last.steps = append(last.steps, modelStep{tool: re, args: json.RawMessage(args)})
		return err
	}
	return errors.New("it is no directive")
}

// modelCommands are what scripts have about models:
//
//	model NAME FILE     starts one with the script in FILE; sets NAME to host:port
//	asked NAME COND…    it saw a request that meets every condition, such as headers.X-Api-Key=…; see note
//
// Scripts run one after the other, so one table is enough.
func modelCommands() map[string]command {
	models := map[string]*model{}
	return map[string]command{
		"model": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != 2 {
				ts.Fatalf("usage: model NAME FILE")
			}
			text := variable.ReplaceAllStringFunc(ts.ReadFile(args[1]), func(m string) string { return ts.Getenv(m[2 : len(m)-1]) })
			script, err := parseModel(text)
			ts.Check(err)
			m := &model{script: script}
			m.http = httptest.NewServer(m)
			models[args[0]] = m
			ts.Defer(func() {
				delete(models, args[0])
				m.http.CloseClientConnections()
				m.http.Close()
			})
			ts.Setenv(args[0], strings.TrimPrefix(m.http.URL, "http://"))
		},
		"asked": func(ts *testscript.TestScript, neg bool, args []string) {
			if len(args) < 2 || models[args[0]] == nil {
				ts.Fatalf("usage: asked NAME COND…, for a NAME of model")
			}
			models[args[0]].asked(ts, neg, parseConds(ts, args[1:]))
		},
	}
}

func (m *model) asked(ts *testscript.TestScript, neg bool, conds condList) {
	m.mu.Lock()
	saw, bound := m.saw, m.bound
	m.mu.Unlock()
	if bound {
		ts.Fatalf("it was asked more than %d times", modelRequests)
	}
	var all strings.Builder
	for _, request := range saw {
		vars, err := conds.match(request)
		if err == nil && neg {
			ts.Fatalf("it was asked that: %s", clip(request))
		}
		if err == nil {
			setAll(ts, vars)
			return
		}
		fmt.Fprintf(&all, "\n  %s", clip(request))
	}
	if !neg {
		ts.Fatalf("it was never asked that, but:%s", all.String())
	}
}

// A modelRequest is what matters of a request.
type modelRequest struct {
	Stream   bool           `json:"stream"`
	Model    string         `json:"model"`
	Messages []modelMessage `json:"messages"`
	Tools    []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

type modelMessage struct {
	Role    string       `json:"role"`
	Content modelContent `json:"content"`
}

// modelContent is a list of blocks; a text alone is written as a string. A tool's result has blocks of its own.
type modelContent []struct {
	Type    string       `json:"type"`
	Text    string       `json:"text"`
	Content modelContent `json:"content"`
}

func (c *modelContent) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		data, err = json.Marshal([]map[string]string{{"type": "text", "text": text}})
		if err != nil {
			return err
		}
	}
	type plain modelContent
	return json.Unmarshal(data, (*plain)(c))
}

// reminders are what agents add to prompts and results by themselves.
var reminders = regexp.MustCompile(`(?s)<system-reminder>.*?</system-reminder>`)

// words gives the text of a message, without reminders, and whether it brings tool results.
func (m modelMessage) words() (text string, results bool) {
	var b strings.Builder
	for _, block := range m.Content {
		b.WriteString(block.Text + "\n")
		results = results || block.Type == "tool_result"
	}
	return strings.TrimSpace(reminders.ReplaceAllString(b.String(), "")), results
}

// place finds the last prompt and how many answers to it have called tools.
func (q modelRequest) place() (prompt string, step int) {
	for i := len(q.Messages) - 1; i >= 0; i-- {
		text, results := q.Messages[i].words()
		switch {
		case q.Messages[i].Role != "user":
		case results:
			step++
		case text != "":
			return text, step
		}
	}
	return "", step
}

// named is {{NAME}} in the arguments of a call.
var named = regexp.MustCompile(`\{\{(\w+)\}\}`)

// fill gives arguments with what the conversation says in place of {{NAME}}, and the name of what it does not say.
func (s modelScript) fill(args json.RawMessage, q modelRequest) (filled json.RawMessage, missing string) {
	filled = named.ReplaceAllFunc(args, func(m []byte) []byte {
		name := string(m[2 : len(m)-2])
		if re := s.finds[name]; re != nil {
			for _, message := range slices.Backward(q.Messages) {
				for _, text := range slices.Backward(message.Content.texts()) {
					if all := re.FindAllStringSubmatch(text, -1); len(all) > 0 {
						return []byte(all[len(all)-1][1])
					}
				}
			}
		}
		missing = name
		return m
	})
	return filled, missing
}

// texts gives all that blocks say, in order.
func (c modelContent) texts() []string {
	var all []string
	for _, b := range c {
		all = append(append(all, b.Text), b.Content.texts()...)
	}
	return all
}

// next is the step that the conversation has come to.
func (m *model) next(q modelRequest) modelStep {
	if len(q.Tools) == 0 {
		return modelStep{text: "A title"} // agents ask for titles and summaries without tools
	}
	prompt, step := q.place()
	for _, p := range m.script.parts {
		if !p.prompt.MatchString(prompt) {
			continue
		}
		if step < len(p.steps) {
			s := p.steps[step]
			var missing string
			if s.args, missing = m.script.fill(s.args, q); missing != "" {
				return modelStep{text: fmt.Sprintf("NOBODY SAID %s before step %d", missing, step+1)}
			}
			return s
		}
		return modelStep{text: fmt.Sprintf("THE SCRIPT HAS ENDED after %d steps", len(p.steps))}
	}
	return modelStep{text: fmt.Sprintf("THE SCRIPT HAS NO PART for %q", prompt)}
}

// note keeps a request for asked: {method, path, query, headers: {Name: value}, model, tools: [name…], body}. The
// body is the request's JSON, or a string where it is none.
func (m *model) note(r *http.Request, q modelRequest, body []byte) (ok bool) {
	headers := map[string]string{}
	for name, values := range r.Header {
		headers[name] = strings.Join(values, ", ")
	}
	names := []string{}
	for _, t := range q.Tools {
		names = append(names, t.Name)
	}
	prompt, _ := q.place()
	raw := json.RawMessage(body)
	if !json.Valid(body) {
		raw, _ = json.Marshal(string(body)) // a string always can be
	}
	line, err := json.Marshal(map[string]any{
		"method": r.Method, "path": r.URL.Path, "query": r.URL.RawQuery, "headers": headers, "model": q.Model, "tools": names,
		"prompt": prompt, "body": raw,
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bound = m.bound || len(m.saw) >= modelRequests || err != nil; m.bound {
		return false
	}
	m.saw = append(m.saw, line)
	return true
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, modelBody))
	if err != nil {
		return // the client is gone
	}
	var q modelRequest
	unread := json.Unmarshal(body, &q)
	if !m.note(r, q, body) {
		modelError(w, http.StatusBadRequest, "invalid_request_error", "the scripted model was asked too often")
		return
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages/count_tokens":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"input_tokens":10}`)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages" && unread == nil:
		m.answer(w, q)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages":
		modelError(w, http.StatusBadRequest, "invalid_request_error", unread.Error())
	default:
		modelError(w, http.StatusNotFound, "not_found_error", r.Method+" "+r.URL.Path)
	}
}

func modelError(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"type": "error", "error": object{"type": kind, "message": message}})
}

type object = map[string]any

// block writes a step as a content block and says why the answer ends.
func (s modelStep) block(q modelRequest, id string) (block object, reason string) {
	if s.tool == nil {
		return object{"type": "text", "text": s.text}, "end_turn"
	}
	offered := []string{}
	for _, t := range q.Tools {
		if s.tool.MatchString(t.Name) {
			return object{"type": "tool_use", "id": id, "name": t.Name, "input": s.args}, "tool_use"
		}
		offered = append(offered, t.Name)
	}
	return object{"type": "text", "text": fmt.Sprintf("NO TOOL FITS %s among %v", s.tool, offered)}, "end_turn"
}

// answer sends the next step, as one message or as a stream of events.
func (m *model) answer(w http.ResponseWriter, q modelRequest) {
	m.mu.Lock()
	n := len(m.saw)
	m.mu.Unlock()
	block, reason := m.next(q).block(q, fmt.Sprintf("toolu_e2e%04d", n))
	usage := object{"input_tokens": 10, "output_tokens": 5}
	message := object{
		"id": fmt.Sprintf("msg_e2e%04d", n), "type": "message", "role": "assistant", "model": q.Model,
		"content": []any{block}, "stop_reason": reason, "stop_sequence": nil, "usage": usage,
	}
	if !q.Stream {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(message) // the client may be gone
		return
	}
	message["content"], message["stop_reason"] = []any{}, nil
	start, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": block["text"]}
	if block["type"] == "tool_use" {
		start = object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": string(block["input"].(json.RawMessage))}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []object{
		{"type": "message_start", "message": message},
		{"type": "content_block_start", "index": 0, "content_block": start},
		{"type": "content_block_delta", "index": 0, "delta": delta},
		{"type": "content_block_stop", "index": 0},
		{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": usage},
		{"type": "message_stop"},
	} {
		data, err := json.Marshal(event)
		if err != nil {
			return // what the script holds is JSON
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event["type"], data)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
	}
}

func TestModelPlace(t *testing.T) {
	for _, c := range []struct {
		name, messages, prompt string
		step                   int
	}{
		{"text alone", `[{"role":"user","content":"go"}]`, "go", 0},
		{"blocks", `[{"role":"user","content":[{"type":"text","text":"<system-reminder>no</system-reminder>"},{"type":"text","text":"go"}]}]`, "go", 0},
		{"after a call", `[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use"}]},
			{"role":"user","content":[{"type":"tool_result"},{"type":"text","text":"<system-reminder>x</system-reminder>"}]}]`, "go", 1},
		{"a reminder comes last", `[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use"}]},
			{"role":"user","content":[{"type":"tool_result"}]},{"role":"user","content":"<system-reminder>x\ny</system-reminder>"}]`, "go", 1},
		{"a second prompt", `[{"role":"user","content":"go"},{"role":"assistant","content":[]},{"role":"user","content":[{"type":"tool_result"}]},
			{"role":"assistant","content":"done"},{"role":"user","content":"more"}]`, "more", 0},
		{"nothing", `[]`, "", 0},
	} {
		var q modelRequest
		if err := json.Unmarshal([]byte(`{"messages":`+c.messages+`}`), &q); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if prompt, step := q.place(); prompt != c.prompt || step != c.step {
			t.Errorf("%s: %q, %d; want %q, %d", c.name, prompt, step, c.prompt, c.step)
		}
	}
}

func TestModelScript(t *testing.T) {
	for _, wrong := range []string{"call x {}", "text x", "prompt (", "prompt x\ncall y {", "prompt x\nnonsense y", "find X y", "find X ("} {
		if _, err := parseModel(wrong); err == nil {
			t.Errorf("%q is no error", wrong)
		}
	}
	s, err := parseModel("prompt ^go\ncall x$ {\"target\":\"{{BUY}}\"}\ntext done\nprompt more\ntext no\nfind BUY \"Buy\" .ref=(\\w+)")
	if err != nil || len(s.parts) != 2 || len(s.parts[0].steps) != 2 {
		t.Fatalf("%v, %v", s, err)
	}
	var q modelRequest
	if err := json.Unmarshal([]byte(`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"\"Buy\" [ref=e1] \"Buy\" [ref=e2]"}]}]},
		{"role":"user","content":[{"type":"tool_result","content":"nothing"}]}]}`), &q); err != nil {
		t.Fatal(err)
	}
	if got, missing := s.fill(s.parts[0].steps[0].args, q); missing != "" || string(got) != `{"target":"e2"}` {
		t.Errorf("%s, missing %q", got, missing)
	}
	if _, missing := s.fill(s.parts[0].steps[0].args, modelRequest{}); missing != "BUY" {
		t.Errorf("missing %q", missing)
	}
}

func TestModelAnswers(t *testing.T) {
	script, err := parseModel("# a script\nprompt ^go\n  call navigate$ {\"url\":\"x\"}\n  text done\nprompt more\n  text no\n")
	if err != nil {
		t.Fatal(err)
	}
	m := &model{script: script}
	srv := httptest.NewServer(m)
	defer srv.Close()
	ask := func(stream bool, messages, tools string) string {
		res, err := http.Post(srv.URL+"/v1/messages?beta=true", "application/json",
			strings.NewReader(fmt.Sprintf(`{"stream":%v,"model":"m","messages":%s,"tools":%s}`, stream, messages, tools)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const goes, after = `[{"role":"user","content":"go"}]`, `[{"role":"user","content":"go"},{"role":"user","content":[{"type":"tool_result"}]}]`
	const tools = `[{"name":"mcp__p__browser_navigate"}]`
	for _, c := range []struct {
		stream                bool
		messages, tools, want string
	}{
		{false, goes, tools, `"input":{"url":"x"},"name":"mcp__p__browser_navigate","type":"tool_use"`},
		{true, goes, tools, `"partial_json":"{\"url\":\"x\"}"`},
		{false, after, tools, `"text":"done"`},
		{true, after, tools, `"text":"done"`},
		{false, goes, `[]`, "A title"},
		{false, goes, `[{"name":"other"}]`, "NO TOOL FITS"},
		{false, `[{"role":"user","content":"what"}]`, tools, "THE SCRIPT HAS NO PART"},
	} {
		if got := ask(c.stream, c.messages, c.tools); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for range modelRequests {
		ask(false, goes, tools)
	}
	if got := ask(false, goes, tools); !strings.Contains(got, "too often") {
		t.Errorf("it has no bound: %s", got)
	}
}
