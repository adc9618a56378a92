package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A script is what the agent does in its turn; it gives the stop reason.
type script func(a *scripted) (stop string, err error)

// A scripted agent answers initialize and session/new and does its script at the prompt.
type scripted struct {
	t       *testing.T
	peer    *jsonrpc.Peer
	ctx     context.Context // ends with session/cancel
	prompt  jsonrpc.PromptParams
	init    jsonrpc.InitializeParams
	session error // what session/new is answered with
	deaf    bool  // session/cancel is ignored
	result  jsonrpc.InitializeResult
}

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// gif gives a picture that differs for each n.
func gif(n int) string { return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "GIF89a%d", n)) }

func (a *scripted) update(raw string) {
	a.raw(`{"sessionId":"s1","update":` + raw + `}`)
}

func (a *scripted) raw(params string) {
	if err := a.peer.Notify(context.Background(), jsonrpc.MethodSessionUpdate, json.RawMessage(params)); err != nil && !errors.Is(err, jsonrpc.ErrClosed) {
		a.t.Error(err)
	}
}

func (a *scripted) say(text string) {
	a.update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":` + quote(text) + `}}`)
}

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

// allOptions are the four kinds under ids that tell nothing.
const allOptions = `[{"optionId":"1","name":"Yes","kind":"allow_once"},{"optionId":"2","name":"Always","kind":"allow_always"},{"optionId":"3","name":"No","kind":"reject_once"},{"optionId":"4","name":"Never","kind":"reject_always"}]`

// ask puts a question and gives the chosen id, or the outcome if none was.
func (a *scripted) ask(toolCall, options string) string {
	var res jsonrpc.PermissionResult
	err := a.peer.Call(context.Background(), jsonrpc.MethodRequestPermission,
		json.RawMessage(`{"sessionId":"s1","toolCall":`+toolCall+`,"options":`+options+`}`), &res)
	if err != nil {
		return err.Error()
	}
	if res.Outcome.OptionID != "" {
		return res.Outcome.OptionID
	}
	return res.Outcome.Outcome
}

func (a *scripted) serve(run script) func(context.Context, *jsonrpc.Request) {
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithCancel(a.t.Context())
	return func(_ context.Context, r *jsonrpc.Request) {
		switch r.Method {
		case jsonrpc.MethodInitialize:
			a.peer = r.Peer()
			if err := r.Decode(&a.init); err != nil {
				a.t.Error(err)
			}
			r.Reply(a.result)
		case jsonrpc.MethodSessionNew:
			if string(r.Params) != `{"cwd":"/src","mcpServers":[]}` {
				a.t.Errorf("session/new has params %s", r.Params)
			}
			if a.session != nil {
				r.Refuse(a.session)
				return
			}
			r.Reply(jsonrpc.NewSessionResult{SessionID: "s1"})
		case jsonrpc.MethodSessionPrompt:
			if err := r.Decode(&a.prompt); err != nil {
				a.t.Error(err)
			}
			r.Go(func(context.Context) (any, error) {
				stop, err := run(a)
				return jsonrpc.PromptResult{StopReason: stop}, err
			})
		case jsonrpc.MethodSessionCancel:
			if !a.deaf {
				cancel()
			}
		default:
			r.Refuse(jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "no"))
		}
	}
}

// A typist is the terminal of a person: what is written to it as standard error and does not end its line is a
// question, and gets the next of answers typed.
type typist struct {
	mu      sync.Mutex
	out     bytes.Buffer
	w       *io.PipeWriter
	answers []string
	asked   func(question string) // called with each question before it is answered
	mute    bool                  // nothing is typed
}

// show is where standard output goes.
func (k *typist) show(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.out.Write(p)
}

// Write is where standard error goes.
func (k *typist) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out.Write(p)
	if bytes.HasSuffix(p, []byte("\n")) {
		return len(p), nil
	}
	if k.asked != nil {
		k.asked(string(p))
	}
	switch {
	case k.mute:
	case len(k.answers) == 0:
		go k.w.Close()
	default:
		answer := k.answers[0]
		k.answers = k.answers[1:]
		go io.WriteString(k.w, answer+"\n")
	}
	return len(p), nil
}

// typeLine types a line when the test says so.
func (k *typist) typeLine(line string) {
	k.mu.Lock()
	w := k.w
	k.mu.Unlock()
	io.WriteString(w, line+"\n")
}

// play runs a script against Run. The screen gets both streams, as a terminal does.
func play(t *testing.T, opts Options, a *scripted, run script, answers ...string) (Outcome, string, error) {
	t.Helper()
	here, there := net.Pipe()
	a.t = t
	if a.result.ProtocolVersion == 0 {
		a.result = jsonrpc.InitializeResult{ProtocolVersion: 1, AgentCapabilities: jsonrpc.AgentCapabilities{PromptCapabilities: jsonrpc.PromptCapabilities{Image: true}}}
	}
	agent := jsonrpc.New(t.Context(), there, jsonrpc.Options{Handler: a.serve(run)})
	defer agent.Close()
	in, w := io.Pipe()
	defer w.Close()
	screen, ok := opts.Stderr.(*typist)
	if !ok {
		screen = &typist{}
		opts.Stderr = screen
	}
	screen.w, screen.answers = w, answers
	if opts.Stdout == nil {
		opts.Stdout = writerFunc(screen.show)
	}
	opts.Stdin = in
	if opts.Prompt == "" {
		opts.Prompt = "do it"
	}
	opts.Cwd, opts.Agent, opts.Run = "/src", "web", "k3f9"
	now := time.Unix(0, 0)
	var mu sync.Mutex
	opts.Now = func() time.Time { // each look at the clock takes a fifth of a second
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(200 * time.Millisecond)
		return now
	}
	out, err := Run(t.Context(), here, opts)
	screen.mu.Lock()
	defer screen.mu.Unlock()
	return out, screen.out.String(), err
}

// everything is a turn with all that an agent can send.
func everything(a *scripted) (string, error) {
	a.update(`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Let me see.\nThe page"}}`)
	a.update(`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":" first."}}`)
	a.say("I'll look at ")
	a.say("the page first.")
	a.update(`{"sessionUpdate":"plan","entries":[{"content":"open","priority":"high","status":"in_progress"},{"content":"read","priority":"low","status":"pending"}]}`)
	a.update(`{"sessionUpdate":"available_commands_update","availableCommands":[]}`)
	a.update(`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"mcp__playwright__browser_navigate","kind":"fetch","status":"pending","rawInput":{}}`)
	a.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","rawInput":{"url":"http://127.0.0.1:5173"},"status":null,"title":null}`)
	a.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"### Page\n- Page URL: x\n- Page Title: Shop – cart\n"}}]}`)
	a.update(`{"sessionUpdate":"plan","entries":[{"content":"open","priority":"high","status":"completed"},{"content":"read","priority":"low","status":"in_progress"}]}`)
	a.update(`{"sessionUpdate":"tool_call","toolCallId":"c2","title":"playwright: browser_take_screenshot","status":"in_progress"}`)
	a.update(`{"sessionUpdate":"tool_call","toolCallId":"c3","name":"Bash","title":"npm test","kind":"execute","status":"in_progress","rawInput":{"command":"npm test"}}`)
	a.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c2","status":"completed","content":[{"type":"content","content":{"type":"image","data":"` + pixel + `","mimeType":"image/png"}}],"rawOutput":{"content":[{"type":"image","data":"` + pixel + `"}]}}`)
	a.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c3","status":"failed","content":[{"type":"content","content":{"type":"text","text":"### Error\nError: 2 tests failed\nmore"}}]}`)
	a.update(`{"sessionUpdate":"tool_call","toolCallId":"c4","name":"Edit","title":"Edit cart.js","kind":"edit","status":"completed","rawInput":{"file_path":"/src/cart.js"},"content":[{"type":"diff","path":"/src/cart.js","oldText":"a\nb\n","newText":"a\nc\nd\n"}]}`)
	a.update(`{"sessionUpdate":"notice","severity":"warning","title":"Slow","description":"the model is busy"}`)
	a.update(`{"sessionUpdate":"tool_call","toolCallId":"c5","title":"waits for more","status":"pending"}`)
	a.raw(`{"sessionId":"another","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"not ours"}}}`)
	a.raw(`["no update"]`)
	a.say("The cart total ignores the discount.\n")
	return jsonrpc.StopEndTurn, nil
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		opts Options
	}{
		{"plain.txt", Options{Terminal: true}},
		{"color.txt", Options{Terminal: true, Color: true, Width: 60}},
		{"events.json", Options{JSON: true, Terminal: true}},
		{"unattended.txt", Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.opts.Kept, c.opts.Home = keptIn(dir), dir
			c.opts.Summary = func(Outcome) []string { return []string{"3 refused by policy"} }
			out, screen, err := play(t, c.opts, &scripted{}, everything)
			if err != nil || out.Status != StatusDone || out.ToolCalls != 5 || len(out.Images) != 1 || out.Session != "s1" {
				t.Errorf("outcome %+v, %v", out, err)
			}
			if b, err := base64.StdEncoding.DecodeString(pixel); err != nil || fmt.Sprintf("%x", sha256.Sum256(b)) != out.Images[0].SHA256 {
				t.Errorf("the picture is not what was sent: %v", err)
			}
			golden(t, c.name, strings.ReplaceAll(screen, dir, "/home/ana"))
		})
	}
}

// Nothing that an agent sends may reach the terminal as a control sequence, wherever it stands.
func TestEscapeInjection(t *testing.T) {
	evil := "\x1b]0;owned\x07\x1b[2J\u009b31m\r\x08\x00\u202egnp\U000e0041\x7f"
	q := quote(evil)
	attack := func(a *scripted) (string, error) {
		a.say(evil)
		a.update(`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":` + q + `}}`)
		a.update(`{"sessionUpdate":"plan","entries":[{"content":` + q + `,"priority":"high","status":"x"}]}`)
		a.update(`{"sessionUpdate":"notice","severity":` + q + `,"title":` + q + `}`)
		a.update(`{"sessionUpdate":"tool_call","toolCallId":` + q + `,"title":` + q + `,"kind":` + q + `,"status":"pending","rawInput":{` + q + `:` + q + `,"command":` + q + `}}`)
		a.ask(`{"toolCallId":`+q+`}`, `[{"optionId":"1","name":"a","kind":"allow_once"},{"optionId":"2","name":`+q+`,"kind":`+q+`}]`)
		a.update(`{"sessionUpdate":"tool_call_update","toolCallId":` + q + `,"status":"failed","content":[{"type":"content","content":{"type":"text","text":` + q + `}}]}`)
		a.update(`{"sessionUpdate":"tool_call","toolCallId":"d","title":"d","status":"completed","content":[{"type":"diff","path":` + q + `,"newText":""}]}`)
		a.update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"resource_link","name":"x","uri":` + q + `}}`)
		a.update(`{"sessionUpdate":"tool_call","toolCallId":"e","title":` + q + `,"status":"completed","content":[{"type":"content","content":{"type":"image","data":"` + pixel + `"}}]}`)
		var res elicitationResult
		a.peer.Call(a.t.Context(), jsonrpc.MethodElicitation, json.RawMessage(`{"message":`+q+`,"mode":"url","url":`+q+`}`), &res)
		a.peer.Call(a.t.Context(), jsonrpc.MethodElicitation, json.RawMessage(`{"message":`+q+`,"requestedSchema":{"properties":{`+q+`:{"type":"string","title":`+q+`,"description":`+q+`,"default":`+q+`}}}}`), &res)
		return "", &jsonrpc.Error{Code: 1, Message: evil, Data: json.RawMessage(`{"details":` + q + `}`)}
	}
	for _, opts := range []Options{{Terminal: true, Kept: keptIn("/home/ana")}, {JSON: true, Terminal: true, Kept: keptIn("/home/ana")}, {Unattended: true, Kept: keptIn("/home/ana")}, {Yes: true, Terminal: true}} {
		_, screen, err := play(t, opts, &scripted{}, attack, "y", "y", "")
		for _, s := range []string{screen, fmt.Sprint(err)} {
			for i, r := range s {
				if r < 0x20 && r != '\n' && r != '\t' || r == 0x7f || hidden(r) {
					t.Fatalf("%U reached the terminal: %q", r, s[max(0, i-60):min(len(s), i+20)])
				}
			}
		}
		if !strings.Contains(screen, "owned") {
			t.Error("the attack did not arrive at all")
		}
	}
	refuse := &jsonrpc.Error{Code: 1, Message: "m", Data: json.RawMessage(`{"rule":` + q + `,"reason":` + q + `,"hint":` + q + `}`)}
	if _, _, err := play(t, Options{Unattended: true}, &scripted{session: refuse}, nil); strings.ContainsFunc(err.Error(), func(r rune) bool { return r < 0x20 || hidden(r) }) {
		t.Errorf("%q", err)
	}
}

// click is a tool call of the agent's by its id, and known announces it.
const click = `{"toolCallId":"c1"}`

func known(a *scripted, kind string) {
	a.update(`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"mcp.playwright.browser_click","kind":"` + kind + `","status":"pending","rawInput":{"server":"playwright","tool":"browser_click","arguments":{"target":"e6","element":"Order"}}}`)
}

func TestPermissions(t *testing.T) {
	onlyAlways := `[{"optionId":"2","name":"Always","kind":"allow_always"},{"optionId":"4","name":"Never","kind":"reject_always"}]`
	for _, c := range []struct {
		name          string
		opts          Options
		kind, options string
		typed         []string
		want          string
		refused       int
		shows         string
	}{
		{"yes", Options{Terminal: true}, "execute", allOptions, []string{"y"}, "1", 0, "? web wants to use  playwright: browser_click  \"Order\"\n    element: Order\n    target: e6\n    [y]es  [n]o  [a]lways this session  ne[v]er this session, then Enter "},
		{"no", Options{Terminal: true}, "execute", allOptions, []string{"NO"}, "3", 1, ""},
		{"always", Options{Terminal: true}, "execute", allOptions, []string{"a"}, "2", 0, ""},
		{"never", Options{Terminal: true}, "execute", allOptions, []string{"v"}, "4", 1, ""},
		{"again", Options{Terminal: true}, "execute", allOptions, []string{"", "what?", "y"}, "1", 0, "  one of: [y]es  [n]o"},
		{"by number", Options{Terminal: true}, "execute", `[{"optionId":"a","name":"A","kind":"allow_always"},{"optionId":"b","name":"This server","kind":"allow_always"},{"optionId":"c","name":"C","kind":"reject_once"}]`, []string{"2"}, "b", 0, "[n]o  [a]lways this session  [2] This server"},
		{"nobody there", Options{Terminal: true}, "execute", allOptions, nil, "3", 1, ""},
		{"--yes", Options{Yes: true}, "execute", allOptions, nil, "1", 0, `playwright: browser_click  "Order"  allowed (--yes)`},
		{"--yes never says always", Options{Yes: true}, "execute", onlyAlways, nil, "4", 1, "refused (--yes)"},
		{"--yes at a terminal", Options{Yes: true, Terminal: true}, "execute", allOptions, nil, "1", 0, ""},
		{"--read-only, a read", Options{ReadOnly: true, Terminal: true}, "read", allOptions, nil, "1", 0, "allowed (--read-only)"},
		{"--read-only, an act", Options{ReadOnly: true, Yes: true, Terminal: true}, "execute", allOptions, nil, "3", 1, "refused (--read-only)"},
		{"--read-only, a fetch", Options{ReadOnly: true}, "fetch", allOptions, nil, "3", 1, ""},
		{"--unattended", Options{Unattended: true, Terminal: true}, "read", allOptions, nil, "3", 1, "refused (--unattended)"},
		{"--unattended --yes", Options{Unattended: true, Yes: true}, "execute", allOptions, nil, "1", 0, ""},
		{"no terminal", Options{}, "execute", allOptions, nil, "3", 1, "refused (nobody was asked: no terminal)"},
		{"no options", Options{Yes: true}, "execute", `[]`, nil, "cancelled", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			out, screen, err := play(t, c.opts, &scripted{}, func(a *scripted) (string, error) {
				known(a, c.kind)
				got = a.ask(click, c.options)
				return jsonrpc.StopEndTurn, nil
			}, c.typed...)
			if err != nil || got != c.want || out.Refused != c.refused || !strings.Contains(screen, c.shows) {
				t.Errorf("answered %q, refused %d, %v, want %q, %d; on the screen:\n%s", got, out.Refused, err, c.want, c.refused, screen)
			}
		})
	}
}

// What Handler's rules answered without asking us is shown like any other question, with its tool call.
func TestAnsweredByHandler(t *testing.T) {
	out, screen, err := play(t, Options{Terminal: true}, &scripted{}, func(a *scripted) (string, error) {
		known(a, "execute")
		for _, params := range []string{
			`{"method":"session/request_permission","sessionId":"s1","toolCall":` + click + `,"answer":"reject_once","by":"agent web: answers[0]"}`,
			`{"method":"session/request_permission","sessionId":"s1","toolCall":{"title":"look"},"answer":"allow_once","by":"--yes"}`,
			`{"method":"elicitation/create","sessionId":"s1","message":"Key?","answer":"decline","by":"--unattended"}`,
		} {
			if err := a.peer.Notify(t.Context(), "_handler/answered", json.RawMessage(params)); err != nil {
				return "", err
			}
		}
		return jsonrpc.StopEndTurn, nil
	})
	if err != nil || out.Refused != 1 {
		t.Errorf("refused %d, %v", out.Refused, err)
	}
	for _, want := range []string{`playwright: browser_click  "Order"  refused (agent web: answers[0])`, "look  allowed (--yes)", "Key?"} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q on the screen:\n%s", want, screen)
		}
	}
}

// What Handler says of a question stands above it, and a form says which tool call it is about.
func TestHandlersOwnWords(t *testing.T) {
	_, screen, err := play(t, Options{Terminal: true}, &scripted{}, func(a *scripted) (string, error) {
		a.ask(`{"name":"sh","title":"[handler: announced as \"ls\"] rm -rf ~","kind":"other"}`, allOptions)
		var res elicitationResult
		params := `{"message":"Sure?","mode":"form","requestedSchema":{"properties":{}},"_meta":{"handler/toolCall":{"toolCallId":"t","title":"deploy","kind":"execute"}}}`
		return jsonrpc.StopEndTurn, a.peer.Call(t.Context(), jsonrpc.MethodElicitation, json.RawMessage(params), &res)
	}, "n", "n")
	if err != nil || !strings.Contains(screen, `! [handler: announced as "ls"] rm -rf ~`) || !strings.Contains(screen, "asks: Sure? (about deploy") {
		t.Errorf("%v; on the screen:\n%s", err, screen)
	}
}

// A person must see the whole of what they allow.
func TestQuestionsAreWhole(t *testing.T) {
	_, screen, _ := play(t, Options{Terminal: true}, &scripted{}, func(a *scripted) (string, error) {
		a.ask(`{"kind":"execute","title":"x","rawInput":{"command":"echo harmless `+strings.Repeat("x", 200)+`\n  rm -rf \r/"}}`, allOptions)
		return jsonrpc.StopEndTurn, nil
	}, "n")
	if !strings.Contains(screen, "\n        rm -rf ␍/\n    [y]es") || !strings.Contains(screen, "? web wants to run  echo harmless xxx") {
		t.Errorf("the screen shows\n%s", screen)
	}
}

// While a question is open, what the agent says waits; several questions come one after the other.
func TestQuestionsHaveTheTerminal(t *testing.T) {
	said := make(chan struct{})
	k := &typist{asked: func(string) { <-said }}
	_, screen, err := play(t, Options{Terminal: true, Stderr: k}, &scripted{}, func(a *scripted) (string, error) {
		var wg sync.WaitGroup
		a.update(`{"sessionUpdate":"tool_call","toolCallId":"1","name":"sh","kind":"execute","rawInput":{"command":"one"}}`)
		wg.Go(func() { a.ask(`{"toolCallId":"1"}`, allOptions) })
		a.say("meanwhile\n")
		close(said)
		wg.Wait()
		return jsonrpc.StopEndTurn, nil
	}, "y")
	if err != nil {
		t.Fatal(err)
	}
	question, text := strings.Index(screen, "wants to run"), strings.Index(screen, "meanwhile")
	if question < 0 || text < 0 || (text > question && text < strings.Index(screen, "never this")) {
		t.Errorf("the screen shows\n%s", screen)
	}
}

func TestElicitation(t *testing.T) {
	form := `{"message":"Which one?","mode":"form","sessionId":"s1","requestedSchema":{"type":"object","required":["name","size"],"properties":{
		"name":{"type":"string","title":"Your name","minLength":2},"size":{"type":"string","enum":["s","m"],"enumNames":["Small","Medium"]},
		"sure":{"type":"boolean"},"n":{"type":"integer","minimum":1},"note":{"type":"string"},"d":{"type":"number","default":1.5},
		"color":{"oneOf":[{"const":"#f00","title":"Red"}],"type":"string"},"list":{"type":"array"}}}}`
	url := `{"message":"Log in","mode":"url","elicitationId":"e","url":"https://login.test/x?y=1"}`
	for _, c := range []struct {
		name, params string
		opts         Options
		typed        []string
		want         string
	}{
		{"form", form, Options{Terminal: true}, []string{"y", "A", "Ana", "9", "2", "maybe", "y", "0", "1.5", "3", "", "", "1"}, `{"action":"accept","content":{"color":"#f00","d":1.5,"n":3,"name":"Ana","size":"m","sure":true}}`},
		{"form refused", form, Options{Terminal: true}, []string{"n"}, `{"action":"decline"}`},
		{"form, nobody", form, Options{Unattended: true, Terminal: true}, nil, `{"action":"decline"}`},
		{"form, --yes is no answer", form, Options{Yes: true}, nil, `{"action":"decline"}`},
		{"form that cannot be asked", `{"message":"m","requestedSchema":{"required":["x"],"properties":{"x":{"type":"object"}}}}`, Options{Terminal: true}, nil, `{"action":"decline"}`},
		{"no form", `{"message":"m"}`, Options{Terminal: true}, nil, `{"action":"decline"}`},
		{"terminal gone", form, Options{Terminal: true}, []string{"y"}, `{"action":"cancel"}`},
		{"url", url, Options{Terminal: true}, []string{"d"}, `{"action":"accept"}`},
		{"url refused", url, Options{Terminal: true}, []string{"x", "n"}, `{"action":"decline"}`},
		{"url, nobody", url, Options{}, nil, `{"action":"decline"}`},
		{"url http", `{"message":"m","mode":"url","url":"http://login.test"}`, Options{Terminal: true}, nil, `{"action":"decline"}`},
		{"url userinfo", `{"message":"m","mode":"url","url":"https://bank.test@evil.test"}`, Options{Terminal: true}, nil, `{"action":"decline"}`},
		{"url homograph", `{"message":"m","mode":"url","url":"https://bаnk.test"}`, Options{Terminal: true}, nil, `{"action":"decline"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got json.RawMessage
			_, screen, _ := play(t, c.opts, &scripted{}, func(a *scripted) (string, error) {
				if offered := a.init.ClientCapabilities.Elicitation != nil; offered != (c.opts.Terminal && !c.opts.Unattended) {
					t.Errorf("elicitation offered: %v", offered)
				}
				return jsonrpc.StopEndTurn, a.peer.Call(t.Context(), jsonrpc.MethodElicitation, json.RawMessage(c.params), &got)
			}, c.typed...)
			if string(got) != c.want {
				t.Errorf("got %s, want %s; on the screen:\n%s", got, c.want, screen)
			}
			if c.name == "url" && !strings.Contains(screen, "https://login.test/x?y=1\n") {
				t.Errorf("the address is not whole:\n%s", screen)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Run("first", func(t *testing.T) {
		interrupt := make(chan os.Signal, 1)
		outcome := ""
		out, screen, err := play(t, Options{Terminal: true, Interrupt: interrupt}, &scripted{}, func(a *scripted) (string, error) {
			interrupt <- os.Interrupt
			<-a.ctx.Done()
			outcome = a.ask(`{"title":"x"}`, allOptions)
			return jsonrpc.StopCancelled, nil
		})
		if err != nil || out.Status != StatusFailed || out.StopReason != jsonrpc.StopCancelled || outcome != "cancelled" || !strings.Contains(screen, "● cancelled after") {
			t.Errorf("%+v, %v, a question then got %q\n%s", out, err, outcome, screen)
		}
	})
	t.Run("open question", func(t *testing.T) {
		interrupt := make(chan os.Signal, 1)
		k := &typist{mute: true, asked: func(string) { interrupt <- os.Interrupt }}
		outcome := ""
		_, screen, err := play(t, Options{Terminal: true, Interrupt: interrupt, Stderr: k}, &scripted{}, func(a *scripted) (string, error) {
			outcome = a.ask(`{"title":"x"}`, allOptions)
			<-a.ctx.Done()
			return jsonrpc.StopCancelled, nil
		})
		if err != nil || outcome != "cancelled" {
			t.Errorf("%v, the question got %q\n%s", err, outcome, screen)
		}
	})
	t.Run("second", func(t *testing.T) {
		interrupt := make(chan os.Signal, 2)
		out, _, err := play(t, Options{Terminal: true, Interrupt: interrupt, Stdout: writerFunc(func(p []byte) (int, error) {
			if strings.Contains(string(p), "working") {
				interrupt <- os.Interrupt
				interrupt <- os.Interrupt
			}
			return len(p), nil
		})}, &scripted{deaf: true}, func(a *scripted) (string, error) {
			a.say("working\n")
			<-a.peer.Done() // it never answers
			return jsonrpc.StopEndTurn, nil
		})
		if !errors.Is(err, ErrInterrupted) || out.Status != StatusFailed {
			t.Errorf("%+v, %v", out, err)
		}
	})
	t.Run("silence after the first", func(t *testing.T) {
		interrupt := make(chan os.Signal, 1)
		_, _, err := play(t, Options{Terminal: true, Interrupt: interrupt, CancelGrace: time.Millisecond}, &scripted{deaf: true}, func(a *scripted) (string, error) {
			interrupt <- os.Interrupt
			<-a.peer.Done() // it never answers
			return jsonrpc.StopEndTurn, nil
		})
		if !errors.Is(err, ErrInterrupted) {
			t.Error(err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFailures(t *testing.T) {
	refusal := &jsonrpc.Error{Code: -32602, Message: "m", Data: json.RawMessage(`{"rule":"P1","reason":"/src lies outside the scopes of agent \"web\"","hint":"handler agent edit web"}`)}
	stop := func(s string) script { return func(*scripted) (string, error) { return s, nil } }
	for _, c := range []struct {
		name   string
		agent  scripted
		opts   Options
		script script
		status int
		says   string
	}{
		{"refused session", scripted{session: refusal}, Options{}, nil, StatusRefused, `refused by P1: /src lies outside the scopes of agent "web" — handler agent edit web`},
		{"refused prompt", scripted{}, Options{}, func(*scripted) (string, error) { return "", refusal }, StatusRefused, "refused by P1"},
		{"login", scripted{session: jsonrpc.Errorf(-32000, "Authentication required"), result: jsonrpc.InitializeResult{ProtocolVersion: 1, AuthMethods: []jsonrpc.AuthMethod{{ID: "x", Name: "Log in with X"}}}}, Options{}, nil, StatusFailed, "web wants a login first: Authentication required (it offers: Log in with X)"},
		{"version", scripted{result: jsonrpc.InitializeResult{ProtocolVersion: 2}}, Options{}, nil, StatusFailed, "version 2 of ACP"},
		{"error", scripted{}, Options{}, func(*scripted) (string, error) {
			return "", &jsonrpc.Error{Code: -32603, Message: "Internal error", Data: json.RawMessage(`{"details":"no credit"}`)}
		}, StatusFailed, "web answered the prompt with an error: Internal error: no credit (error -32603)"},
		{"killed", scripted{}, Options{}, func(*scripted) (string, error) {
			return "", &jsonrpc.Error{Code: -32603, Message: "the run was ended: the run was killed (handler kill)", Data: json.RawMessage(`{"ended":"kill"}`)}
		}, StatusFailed, "the run was ended: the run was killed (handler kill)"},
		{"gone", scripted{}, Options{}, func(a *scripted) (string, error) {
			go a.peer.Close()
			<-a.peer.Done()
			return "", errors.New("not sent")
		}, StatusFailed, "web ended before it answered the prompt"},
		{"max_tokens", scripted{}, Options{}, stop(jsonrpc.StopMaxTokens), StatusFailed, ""},
		{"refusal", scripted{}, Options{}, stop(jsonrpc.StopRefusal), StatusFailed, ""},
		{"new reason", scripted{}, Options{}, stop("tired"), StatusFailed, ""},
		{"output gone", scripted{}, Options{Stdout: writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })}, everything, StatusFailed, "write the output"},
		{"no pictures", scripted{result: jsonrpc.InitializeResult{ProtocolVersion: 1}}, Options{Images: []string{"testdata/pixel.png"}}, nil, StatusFailed, "takes no pictures"},
		{"no such picture", scripted{}, Options{Images: []string{"testdata/none.png"}}, nil, StatusFailed, "no such file"},
		{"not a picture", scripted{}, Options{Images: []string{"runner_test.go"}}, nil, StatusFailed, "is no png, jpeg, webp or gif"},
		{"a folder", scripted{}, Options{Images: []string{"testdata"}}, nil, StatusFailed, "is no regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Unattended = true
			out, screen, err := play(t, c.opts, &c.agent, c.script)
			if out.Status != c.status || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("status %d, %v\n%s", out.Status, err, screen)
			}
			if err != nil && !strings.Contains(screen, "handler: "+err.Error()+"\n") {
				t.Errorf("%v is not said on\n%s", err, screen)
			}
			if c.status == StatusRefused && (out.Verdict == nil || out.Verdict.Action != policy.Refuse || out.Verdict.Hint != "handler agent edit web") {
				t.Errorf("verdict %+v", out.Verdict)
			}
		})
	}
	if _, err := Run(t.Context(), nopConn{}, Options{}); err == nil {
		t.Error("an empty prompt was taken")
	}
}

type nopConn struct{ io.ReadWriter }

func (nopConn) Close() error { return nil }

func TestAgentThatNeverAnswers(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go io.Copy(io.Discard, there)
	out, err := Run(t.Context(), here, Options{Prompt: "x", Unattended: true, Stdout: io.Discard, Stderr: io.Discard, StartTimeout: time.Millisecond})
	if out.Status != StatusFailed || err == nil || !strings.Contains(err.Error(), "did not start a session within 1ms") {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestPromptWithImages(t *testing.T) {
	var got jsonrpc.PromptParams
	_, _, err := play(t, Options{Unattended: true, Prompt: "look", Images: []string{"testdata/pixel.png"}}, &scripted{}, func(a *scripted) (string, error) {
		got = a.prompt
		return jsonrpc.StopEndTurn, nil
	})
	want := []jsonrpc.ContentBlock{{Type: jsonrpc.BlockImage, Data: pixel, MimeType: "image/png"}, jsonrpc.Text("look")}
	if diff := cmp.Diff(want, got.Prompt); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// keptIn stands in for handlerd: the n-th picture is artifact n, in a file below dir.
func keptIn(dir string) func(context.Context, string) (id, path string, err error) {
	n := 0
	return func(_ context.Context, sum string) (string, string, error) {
		n++
		return fmt.Sprint(n), filepath.Join(dir, fmt.Sprintf("artifacts/runs/k3f9/shot-%d.png", n)), nil
	}
}

// Each picture is shown once, in whatever shape it comes; what is none is said (package pictures has the shapes).
func TestImages(t *testing.T) {
	shapes := []string{
		`"content":[{"type":"content","content":{"type":"image","data":"` + gif(1) + `","mimeType":"image/gif"}}]`,
		`"rawOutput":{"content":[{"type":"text","text":"x"},{"type":"image","data":"` + gif(2) + `","mimeType":"image/gif"}]}`,
		`"content":[{"type":"content","content":{"type":"image","data":"` + gif(1) + `"}}]`,                  // again
		`"content":[{"type":"content","content":{"type":"image","data":"PHN2Zy8+","mimeType":"image/png"}}]`, // an svg in disguise
		`"content":[{"type":"content","content":{"type":"image","data":"%%%"}}]`,
	}
	script := func(a *scripted) (string, error) {
		for i, s := range shapes {
			a.update(fmt.Sprintf(`{"sessionUpdate":"tool_call","toolCallId":"c%d","title":"shot","status":"completed",%s}`, i, s))
		}
		a.update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"` + gif(9) + `"}}`)
		return jsonrpc.StopEndTurn, nil
	}
	out, screen, err := play(t, Options{Unattended: true, Kept: keptIn("/home/ana")}, &scripted{}, script)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, img := range out.Images {
		ids = append(ids, img.ID+" "+img.MediaType)
	}
	if diff := cmp.Diff([]string{"1 image/gif", "2 image/gif", "3 image/gif"}, ids); diff != "" {
		t.Errorf("shown (-want +got):\n%s\n%s", diff, screen)
	}
	for _, s := range []string{"is no png, jpeg, webp or gif", "not valid base64", "shot-3.png"} {
		if !strings.Contains(screen, s) {
			t.Errorf("%q is not said:\n%s", s, screen)
		}
	}

	// A store that is full is said once, with where to read why.
	full := func(context.Context, string) (string, string, error) { return "", "", ErrNotKept }
	out, screen, err = play(t, Options{Unattended: true, Kept: full}, &scripted{}, script)
	if err != nil || len(out.Images) != 0 || strings.Count(screen, "was not kept; why, and what to do: handler logs k3f9") != 1 {
		t.Errorf("%v, %d pictures:\n%s", err, len(out.Images), screen)
	}
}

func TestLineAndFit(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{" a\r\n b\tc ", "a ⏎ b c"}, {"a\rb", "a␍b"}, {"\x1b[31mx", "␛[31mx"}, {"日本語", "日本語"}, {"a\u202eb", "a<U+202E>b"},
		{"\xff\xfea", "\uFFFD\uFFFDa"}, {"\uFFFDa", "\uFFFDa"}, {"zero\u200bwidth", "zero<U+200B>width"}, {"a\u200f\u061cb\u00ad", "a<U+200F><U+061C>b<U+00AD>"}, {"👩\u200d💻", "👩\u200d💻"},
	} {
		if got := Line(c.in); got != c.want {
			t.Errorf("Line(%q) = %q, want %q", c.in, got, c.want)
		}
	}
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"日本語です", 7, "日本語…"}, {"日本語です", 6, "日本…"}, {"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"}, {"ab  cd", 4, "ab…"},
	} {
		if got := Fit(c.in, c.width); got != c.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

func FuzzTextIsSafe(f *testing.F) {
	f.Add("\x1b[2J\xff\u009b\u202e\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Text(s) {
			if r < 0x20 && r != '\n' && r != '\t' || r == 0x7f || hidden(r) {
				t.Errorf("Text(%q) has %U", s, r)
			}
		}
		line := Line(s)
		if strings.ContainsAny(line, "\n\r\t\x1b") || columns(Fit(line, 20)) > 20 {
			t.Errorf("Line(%q) = %q", s, line)
		}
	})
}

func TestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0.0 s", 640 * time.Millisecond: "0.6 s", 9960 * time.Millisecond: "10 s", 41 * time.Second: "41 s", 125 * time.Second: "2 min 5 s"} {
		if got := duration(d); got != want {
			t.Errorf("%v is %q", d, got)
		}
	}
	for n, want := range map[int]string{0: "0 bytes", 999: "999 bytes", 88_400: "88 kB", 1_250_000: "1.2 MB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
