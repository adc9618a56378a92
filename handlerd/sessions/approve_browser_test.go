package sessions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox/fake"
)

func pngOf(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 20, 10))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func clickIn(t *testing.T, r *Run) browser.Question {
	return browser.Question{
		Run: r.id, Agent: "web", Tool: "browser_click", Action: "click", Pages: []string{"https://shop.example.org/`cart`"},
		Elements: []browser.Element{{Role: "button", Name: "Place `order`\u202e [x](https://evil.example)"}},
		Values:   []string{"sesame"}, Digest: strings.Repeat("ab", 32), Picture: pngOf(t), Expiry: time.Minute,
	}
}

func visitIn(r *Run, url string) browser.Question {
	return browser.Question{Run: r.id, Agent: "web", Tool: "browser_navigate", Action: "go to", Visit: true, Targets: []string{url}}
}

// TestAskBrowser has clicks and visits answered. A click is for once; a visit can become a rule.
func TestAskBrowser(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": strings.Replace(asking, "unknown = \"ask\"\n", "", 1)})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	if allow, err := w.m.AskBrowser(t.Context(), clickIn(t, r)); allow || err == nil || err.Error() != "nobody is there to be asked" {
		t.Errorf("nobody there: %v %v", allow, err)
	}
	for _, test := range []struct {
		q      browser.Question
		answer types.ApprovalAnswer
		host   string
		want   policy.Action // of the agent's rules on host, after it
	}{
		{clickIn(t, r), types.ApprovalAnswer{Allow: true}, "shop.example.org", policy.Refuse},
		{clickIn(t, r), types.ApprovalAnswer{}, "shop.example.org", policy.Refuse},
		{visitIn(r, "https://once.example.org/"), types.ApprovalAnswer{Allow: true}, "once.example.org", policy.Refuse},
		{visitIn(r, "https://run.example.org/"), types.ApprovalAnswer{Allow: true, Scope: types.ScopeRun}, "run.example.org", policy.Allow},
		{visitIn(r, "https://always.example.org/"), types.ApprovalAnswer{Allow: true, Scope: types.ScopeAlways}, "always.example.org", policy.Allow},
		{visitIn(r, "https://never.example.org/"), types.ApprovalAnswer{Scope: types.ScopeRun}, "never.example.org", policy.Refuse},
	} {
		var allow bool
		var err error
		answer(t, w, test.answer, func() { allow, err = w.m.AskBrowser(t.Context(), test.q) })
		if err != nil || allow != test.answer.Allow || decide(r, test.host, 443) != test.want {
			t.Errorf("%s: %v %v, then %v", test.host, allow, err, decide(r, test.host, 443))
		}
	}
	if _, denied := r.network.get().Denies("never.example.org", 443); !denied {
		t.Error("a no for the run is no rule")
	}
	for name, q := range map[string]browser.Question{
		"another run": {Run: "none"}, "nowhere": visitIn(r, "javascript:alert(1)"), "two": {Run: r.id, Visit: true},
	} {
		if _, err := w.m.AskBrowser(t.Context(), q); err == nil {
			t.Errorf("%s is asked about", name)
		}
	}
	var secret []string
	for _, rec := range records(t, w.audit) {
		if rec.Kind == audit.KindApproval && strings.Contains(rec.Subject+rec.Reason, "sesame") || strings.Contains(rec.Subject+rec.Reason, "order") {
			secret = append(secret, rec.Subject+" "+rec.Reason)
		}
	}
	if len(secret) > 0 {
		t.Errorf("values and a page's words are in the audit log: %q", secret)
	}
}

// records reads an audit log.
func records(t *testing.T, path string) []audit.Record {
	t.Helper()
	var all []audit.Record
	err := audit.Stream(t.Context(), path, 1000, false, func(audit.Record) bool { return true }, func(r audit.Record) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestVisitDecidedMeanwhile takes a rule of the person's as the answer.
func TestVisitDecidedMeanwhile(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	watcher, err := w.m.opts.Approvals.Watch("")
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	for kind, want := range map[string]bool{policy.KindAllow: true, policy.KindDeny: false} {
		host := kind + ".example.org"
		got := make(chan bool, 1)
		go func() {
			allow, err := w.m.AskBrowser(t.Context(), visitIn(r, "https://"+host+"/"))
			if err != nil {
				t.Error(err)
			}
			got <- allow
		}()
		for {
			e, err := watcher.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if e.State == types.ApprovalAsked {
				break
			}
		}
		if _, err := w.m.ChangeRules(types.RuleChange{Run: r.id, Kind: kind, Rule: host, Scope: types.ScopeRun}); err != nil {
			t.Fatal(err)
		}
		if allow := <-got; allow != want {
			t.Errorf("%s: %v", kind, allow)
		}
	}
}

// TestUnattendedBrowser asks nobody, whoever watches.
func TestUnattendedBrowser(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": plain})
	r, err := w.m.Start(t.Context(), types.RunRequest{Agent: "web", Cwd: w.scope, NeverAsk: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	watcher, err := w.m.opts.Approvals.Watch("")
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	if _, err := w.m.AskBrowser(t.Context(), clickIn(t, r)); err == nil || !strings.Contains(err.Error(), "unattended") {
		t.Errorf("%v", err)
	}
	if list := w.m.opts.Approvals.List(""); len(list) > 0 {
		t.Errorf("%+v", list)
	}
}

// A client answers requests for permission; it is an editor.
type client struct {
	peer   *jsonrpc.Peer
	done   <-chan error
	asked  chan map[string]any
	answer func(context.Context) (any, error)
}

// editor serves the run to a client and opens a session.
func editor(t *testing.T, w *world, r *Run, answer func(context.Context) (any, error)) *client {
	t.Helper()
	c := &client{asked: make(chan map[string]any, 10), answer: answer}
	ours, theirs := socketPair(t)
	done := make(chan error, 1)
	go func() { done <- r.Serve(context.Background(), theirs) }()
	c.done = done
	c.peer = jsonrpc.New(context.Background(), ours, jsonrpc.Options{Handler: func(_ context.Context, req *jsonrpc.Request) {
		if req.Method != jsonrpc.MethodRequestPermission {
			return
		}
		var p map[string]any
		if err := req.Decode(&p); err != nil {
			t.Error(err)
		}
		c.asked <- p
		req.Go(c.answer)
	}})
	t.Cleanup(func() { c.peer.Close() })
	if err := c.peer.Call(t.Context(), "initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.peer.Call(t.Context(), "session/new", map[string]any{"cwd": w.scope, "mcpServers": []any{}}, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// leave ends the run from the client's side.
func (c *client) leave(t *testing.T) {
	t.Helper()
	c.peer.Close()
	if err := <-c.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

const withACP = plain + "[policy]\napprovals = [\"acp\"]\n"

// askThere asks once the client of a run counts as somebody who is there.
func askThere(t *testing.T, w *world, q browser.Question) (bool, error) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // that it counts has no event
		allow, err := w.m.AskBrowser(t.Context(), q)
		if !errors.Is(err, approvals.ErrNobody) || time.Now().After(deadline) {
			return allow, err
		}
	}
}

// TestClientIsAsked asks the ACP client, where the agent says so: only one chosen answer of it is a yes.
func TestClientIsAsked(t *testing.T) {
	for name, test := range map[string]struct {
		answer any
		want   bool
	}{
		"yes":            {jsonrpc.Selected(jsonrpc.AllowOnce), true},
		"no":             {jsonrpc.Selected(jsonrpc.RejectOnce), false},
		"cancelled":      {jsonrpc.Cancelled(), false},
		"an option more": {jsonrpc.Selected(jsonrpc.AllowAlways), false},
		"nothing":        {map[string]any{}, false},
	} {
		w := newWorld(t, fake.Options{}, map[string]string{"web": withACP})
		r, err := w.start(t, "web")
		if err != nil {
			t.Fatal(err)
		}
		c := editor(t, w, r, func(context.Context) (any, error) { return test.answer, nil })
		allow, err := askThere(t, w, clickIn(t, r))
		if err != nil || allow != test.want {
			t.Errorf("%s: %v %v", name, allow, err)
		}
		asked, _ := json.Marshal(<-c.asked)
		for _, want := range []string{
			`"optionId":"allow_once"`, `"optionId":"reject_once"`, `"toolCallId":"handler-`, `"mimeType":"image/png"`,
			"site: `https://shop.example.org`", "element, as the page says: `\\\"Place 'order' [x](https://evil.example)\\\" (button)`", "value: `sesame`",
			`"title":"Handler asks: web wants to act in the browser (browser_click on https://shop.example.org)"`,
		} {
			if !strings.Contains(string(asked), want) {
				t.Errorf("%s: no %s in\n%s", name, want, asked)
			}
		}
		if strings.Contains(string(asked), "always") || strings.Contains(string(asked), w.m.opts.Owner) {
			t.Errorf("%s: %s", name, asked)
		}
		c.leave(t)
		if _, err := w.m.opts.Approvals.Ask(t.Context(), approvals.Question{Run: r.id}); !errors.Is(err, approvals.ErrNobody) {
			t.Errorf("the client is gone and still counts as there: %v", err)
		}
		w.nothingLeft(t)
	}
}

// TestClientIsNotAsked keeps questions from a client that may not be asked, that asks its person itself, or that cannot.
func TestClientIsNotAsked(t *testing.T) {
	for name, test := range map[string]struct {
		toml string
		req  types.RunRequest
	}{
		"the agent does not say so": {plain, types.RunRequest{}},
		"handler run":               {withACP, types.RunRequest{AsksItself: true}},
		"unattended":                {withACP, types.RunRequest{NeverAsk: true}},
	} {
		w := newWorld(t, fake.Options{}, map[string]string{"web": test.toml})
		test.req.Agent, test.req.Cwd = "web", w.scope
		r, err := w.m.Start(t.Context(), test.req)
		if err != nil {
			t.Fatal(err)
		}
		c := editor(t, w, r, func(context.Context) (any, error) { return jsonrpc.Selected(jsonrpc.AllowOnce), nil })
		if allow, err := w.m.AskBrowser(t.Context(), clickIn(t, r)); allow || err == nil {
			t.Errorf("%s: %v %v", name, allow, err)
		}
		c.leave(t)
		if len(c.asked) > 0 {
			t.Errorf("%s: the client was asked", name)
		}
	}
}

// TestClientCannotBeAsked leaves the question to others, and tells.
func TestClientCannotBeAsked(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": withACP})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	c := editor(t, w, r, func(context.Context) (any, error) {
		return nil, &jsonrpc.Error{Code: -32601, Message: "no such method"}
	})
	got := make(chan bool, 1)
	go func() {
		allow, err := askThere(t, w, clickIn(t, r))
		if err != nil {
			t.Error(err)
		}
		got <- allow
	}()
	<-c.asked
	for deadline := time.Now().Add(20 * time.Second); len(r.noticed()) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // a notice has no event
	}
	if got := strings.Join(r.noticed(), "\n"); !strings.Contains(got, "no longer asked what Handler asks: it answered") {
		t.Errorf("%q", got)
	}
	if _, err := w.m.opts.Approvals.Answer(w.m.opts.Approvals.List(r.id)[0].ID, types.ApprovalAnswer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	if !<-got {
		t.Error("the person's yes did not count")
	}
	c.leave(t)
}

// TestClientHearsOfTheEnd takes the question back at the client when it was answered elsewhere.
func TestClientHearsOfTheEnd(t *testing.T) {
	w := newWorld(t, fake.Options{}, map[string]string{"web": withACP})
	r, err := w.start(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan bool, 1)
	c := editor(t, w, r, func(ctx context.Context) (any, error) {
		<-ctx.Done() // by $/cancel_request
		told <- true
		return jsonrpc.Selected(jsonrpc.AllowOnce), nil // too late
	})
	got := make(chan bool, 1)
	go func() {
		allow, err := askThere(t, w, clickIn(t, r))
		if err != nil {
			t.Error(err)
		}
		got <- allow
	}()
	<-c.asked
	id := w.m.opts.Approvals.List(r.id)[0].ID
	if _, err := w.m.opts.Approvals.Answer(id, types.ApprovalAnswer{}); err != nil {
		t.Fatal(err)
	}
	if <-got {
		t.Error("it was allowed")
	}
	<-told
	c.leave(t)
}

// noticed gives what the person was told.
func (r *Run) noticed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.notices...)
}
