package runner

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/acp/jsonrpc"
	"github.com/handlerd/handler/handlerd/api/types"
)

// A desk is the daemon's queue: what the test tells, and what was answered.
type desk struct {
	events chan types.ApprovalEvent
	fail   error // of Answer

	mu       sync.Mutex
	answers  []types.ApprovalAnswer
	watching bool
}

func newDesk() *desk { return &desk{events: make(chan types.ApprovalEvent, 10)} }

func (d *desk) watch(ctx context.Context, each func(types.ApprovalEvent) error) error {
	d.mu.Lock()
	d.watching = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.watching = false
		d.mu.Unlock()
	}()
	if err := each(types.ApprovalEvent{State: types.ApprovalWatching}); err != nil {
		return err
	}
	for {
		select {
		case e := <-d.events:
			if err := each(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answer tells the watcher before it comes back, as the daemon may.
func (d *desk) answer(ctx context.Context, id string, a types.ApprovalAnswer) (types.ApprovalDone, error) {
	if d.fail != nil {
		return types.ApprovalDone{}, d.fail
	}
	d.mu.Lock()
	d.answers = append(d.answers, a)
	d.mu.Unlock()
	q := question(id)
	d.events <- types.ApprovalEvent{State: types.ApprovalAnswered, Approval: &q, Answer: &a}
	for len(d.events) > 0 && ctx.Err() == nil { // the watcher has it now
		time.Sleep(time.Millisecond) // the fake's own channel has no event for "was read"
	}
	return types.ApprovalDone{Approval: q, Answer: a, Note: "saved in \x1b[2Jweb.toml"}, ctx.Err()
}

func (d *desk) tell(state, id string, a *types.ApprovalAnswer) {
	q := question(id)
	d.events <- types.ApprovalEvent{State: state, Approval: &q, Answer: a}
}

func (d *desk) given() []types.ApprovalAnswer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]types.ApprovalAnswer(nil), d.answers...)
}

func question(id string) types.Approval {
	return types.Approval{
		ID: id, Kind: types.ApprovalNetwork, Run: "k3f9", Agent: "web", Subject: id + ".example.org:443",
		Text: "web wants to reach " + id + ".example.org:443, which no rule names", Detail: "for this run, or always: " + id,
		Scopes: []string{types.ScopeOnce, types.ScopeRun, types.ScopeAlways}, Expires: time.Now().Add(time.Minute),
	}
}

// TestNetworkQuestions answers them at the terminal; flags that answer the agent's questions do not answer these.
func TestNetworkQuestions(t *testing.T) {
	for typed, want := range map[string]types.ApprovalAnswer{
		"y":      {Allow: true, Scope: types.ScopeOnce},
		"run":    {Allow: true, Scope: types.ScopeRun},
		"Always": {Allow: true, Scope: types.ScopeAlways},
		"n":      {Scope: types.ScopeOnce},
		"v":      {Scope: types.ScopeRun},
	} {
		d := newDesk()
		asked := make(chan string, 3)
		screen := &typist{asked: func(q string) { asked <- q }}
		shown := make(chan bool, 10)
		stdout := writerFunc(func(p []byte) (int, error) {
			defer func() { shown <- true }()
			return screen.show(p)
		})
		turn := func(a *scripted) (string, error) {
			a.say("working")
			<-shown
			d.tell(types.ApprovalAsked, "new", nil)
			<-asked // what was typed does not fit
			<-asked
			a.say(" on\n") // held back, or printed after the answer: never within the question
			for len(d.given()) == 0 {
				time.Sleep(time.Millisecond) // the answer has no event of its own for the agent
			}
			return jsonrpc.StopEndTurn, nil
		}
		out, text, err := play(t, Options{Terminal: true, Yes: true, Watch: d.watch, Answer: d.answer, Stderr: screen, Stdout: stdout}, &scripted{}, turn, "what", typed)
		if err != nil || out.Status != StatusDone {
			t.Fatalf("%+v %v", out, err)
		}
		want.By = "terminal of handler run"
		if got := d.given(); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v", typed, got)
		}
		if !strings.Contains(text, "working\n? web wants to reach new.example.org:443, which no rule names  (refused in ") ||
			!strings.Contains(text, "\n    for this run, or always: new\n  [y]es, once  yes, this [r]un  [a]lways  [n]o  ne[v]er in this run, then Enter ") ||
			!strings.Contains(text, "  saved in ␛[2Jweb.toml\n") || strings.Contains(text, "\x1b") {
			t.Errorf("%s: the screen shows\n%s", typed, text)
		}
		if refused := !want.Allow; refused != (out.Refused == 1) {
			t.Errorf("%s: %d refused", typed, out.Refused)
		}
	}
}

// TestNetworkQuestionEndsElsewhere takes a question back that was answered in another place, expired or withdrawn.
func TestNetworkQuestionEndsElsewhere(t *testing.T) {
	for _, test := range []struct {
		state  string
		answer *types.ApprovalAnswer
		shows  string
	}{
		{types.ApprovalAnswered, &types.ApprovalAnswer{Allow: true}, "? network  new.example.org:443  allowed (elsewhere)"},
		{types.ApprovalAnswered, &types.ApprovalAnswer{}, "? network  new.example.org:443  refused (elsewhere)"},
		{types.ApprovalExpired, nil, "? network  new.example.org:443  refused"},
		{types.ApprovalWithdrawn, nil, "? network  new.example.org:443  withdrawn"},
	} {
		d := newDesk()
		asked, over := make(chan string, 3), make(chan bool)
		screen := &typist{mute: true, asked: func(q string) { asked <- q }}
		stdout := writerFunc(func(p []byte) (int, error) {
			n, err := screen.show(p)
			if strings.Contains(string(p), "? network") {
				close(over)
			}
			return n, err
		})
		turn := func(*scripted) (string, error) {
			d.tell(types.ApprovalAsked, "new", nil)
			<-asked
			d.tell(test.state, "new", test.answer)
			<-over
			return jsonrpc.StopEndTurn, nil
		}
		out, text, err := play(t, Options{Terminal: true, Watch: d.watch, Answer: d.answer, Stderr: screen, Stdout: stdout}, &scripted{}, turn)
		if err != nil || out.Status != StatusDone || !strings.Contains(text, test.shows) || len(d.given()) > 0 {
			t.Errorf("%+v %v\n%s", out, err, text)
		}
	}
}

// TestAnswerOfAnotherQuestion: what a person types for a question that has just been taken back answers no other one.
func TestAnswerOfAnotherQuestion(t *testing.T) {
	d := newDesk()
	asked := make(chan string, 9)
	screen := &typist{mute: true, asked: func(q string) { asked <- q }}
	turn := func(*scripted) (string, error) {
		d.tell(types.ApprovalAsked, "harmless", nil)
		<-asked
		d.tell(types.ApprovalWithdrawn, "harmless", nil)
		d.tell(types.ApprovalAsked, "evil", nil)
		if q := <-asked; !strings.Contains(q, "the question above is gone") {
			t.Errorf("shown: %q", q)
		}
		screen.typeLine("y") // for the harmless one
		if q := <-asked; !strings.Contains(q, "reach evil.example.org:443") {
			t.Errorf("shown: %q", q)
		}
		if got := d.given(); len(got) != 0 {
			t.Errorf("answered: %+v", got)
		}
		screen.typeLine("n")
		for len(d.given()) == 0 {
			time.Sleep(time.Millisecond) // the answer has no event of its own for the agent
		}
		return jsonrpc.StopEndTurn, nil
	}
	out, text, err := play(t, Options{Terminal: true, Watch: d.watch, Answer: d.answer, Stderr: screen}, &scripted{}, turn)
	if err != nil || out.Status != StatusDone || len(d.given()) != 1 || d.given()[0].Allow {
		t.Errorf("%+v %v %+v\n%s", out, err, d.given(), text)
	}
}

// TestNobodyWatches counts as nobody where no person is at a terminal, and stops counting when the terminal ends.
func TestNobodyWatches(t *testing.T) {
	for _, opts := range []Options{{}, {Unattended: true, Terminal: true}, {Yes: true}} {
		d := newDesk()
		opts.Watch, opts.Answer = d.watch, d.answer
		turn := func(*scripted) (string, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.watching {
				t.Errorf("%+v: somebody is said to be there", opts)
			}
			return jsonrpc.StopEndTurn, nil
		}
		if _, _, err := play(t, opts, &scripted{}, turn); err != nil {
			t.Error(err)
		}
	}
	d := newDesk()
	turn := func(*scripted) (string, error) {
		d.tell(types.ApprovalAsked, "new", nil) // the terminal ends at it
		for watching := true; watching; {
			d.mu.Lock()
			watching = d.watching
			d.mu.Unlock()
			time.Sleep(time.Millisecond) // the fake has no event for the end of a watcher
		}
		return jsonrpc.StopEndTurn, nil
	}
	if _, _, err := play(t, Options{Terminal: true, Watch: d.watch, Answer: d.answer}, &scripted{}, turn); err != nil {
		t.Error(err)
	}
}

// TestAnswerNotTaken says why an answer did not count, and that questions come no more.
func TestAnswerNotTaken(t *testing.T) {
	d := newDesk()
	d.fail = errors.New("question new has expired")
	said := make(chan bool)
	screen := &typist{}
	watch := func(ctx context.Context, each func(types.ApprovalEvent) error) error {
		d.tell(types.ApprovalAsked, "new", nil)
		go func() { <-said }()
		_ = each(types.ApprovalEvent{State: types.ApprovalWatching})
		if err := each(<-d.events); err != nil {
			return err
		}
		said <- true
		return errors.New("handlerd has ended")
	}
	over := make(chan bool)
	stdout := writerFunc(func(p []byte) (int, error) {
		n, err := screen.show(p)
		if strings.Contains(string(p), "? network") {
			close(over)
		}
		return n, err
	})
	turn := func(*scripted) (string, error) { <-over; return jsonrpc.StopEndTurn, nil }
	_, text, err := play(t, Options{Terminal: true, Watch: watch, Answer: d.answer, Stderr: screen, Stdout: stdout}, &scripted{}, turn, "y")
	if err != nil || !strings.Contains(text, "you are no longer asked what Handler asks, which is refused instead: handlerd has ended") {
		t.Errorf("%v\n%s", err, text)
	}
}

// browserQuestion is one about a click, with what a hostile page would have in it.
func browserQuestion(id string) types.Approval {
	return types.Approval{
		ID: id, Kind: types.ApprovalBrowser, Run: "k3f9", Agent: "web", Subject: "browser_click on https://xn--pple-43d.com",
		Text: `web wants to act on https://xn--pple-43d.com: click "Buy" (button)`, Detail: "this, once: if anything of it has changed when you answer, it is not done",
		Scopes: []string{types.ScopeOnce}, Expires: time.Now().Add(time.Minute),
		Browser: &types.BrowserApproval{
			Tool: "browser_click", Action: "click", Title: `x" (button)`, Says: "sure?\x1b[2J", Digest: "00",
			Pages: []types.BrowserPlace{{Site: "https://xn--pple-43d.com", URL: "https://xn--pple-43d.com/\u202e"}}, Frame: &types.BrowserPlace{Site: "https://f.example", URL: "https://f.example/in"},
			Elements: []types.BrowserElement{{Role: "button", Name: "Buy"}, {Role: "textbox", Name: "Name"}}, Values: []string{"a", "b"},
			Targets: []types.BrowserPlace{{Site: "https://to.example", URL: "https://to.example/x"}}, More: 3, Picture: &types.BrowserPicture{Width: 10, Height: 5, Bytes: 100},
		},
	}
}

func TestDetails(t *testing.T) {
	want := `site      https://xn--pple-43d.com (xn--… stands for other letters than it may look like)
page      https://xn--pple-43d.com/<U+202E>
titled    "x' (button)"
in frame  https://f.example
          https://f.example/in
element   "Buy" (button)
value     "a"
element   "Name" (textbox)
value     "b"
it says   "sure?␛[2J"
leads to  https://to.example
          https://to.example/x
          and 3 more of these, which are not shown
this, once: if anything of it has changed when you answer, it is not done`
	if diff := cmp.Diff(want, strings.Join(Details(browserQuestion("x")), "\n")); diff != "" {
		t.Error(diff)
	}
	if got := Details(question("new")); len(got) != 1 || got[0] != "for this run, or always: new" {
		t.Errorf("%q", got)
	}
	a := browserQuestion("x")
	a.Browser.Values = a.Browser.Values[:1]
	if got := strings.Join(Details(a), "\n"); !strings.Contains(got, "\"Name\" (textbox)\nvalue     \"a\"\n") {
		t.Errorf("%s", got)
	}
}

// TestBrowserQuestions takes a yes or a no, for once; --yes is none.
func TestBrowserQuestions(t *testing.T) {
	for typed, allow := range map[string]bool{"y": true, "n": false} {
		d := newDesk()
		asked := make(chan string, 4)
		screen := &typist{asked: func(q string) { asked <- q }}
		turn := func(*scripted) (string, error) {
			a := browserQuestion("new")
			d.events <- types.ApprovalEvent{State: types.ApprovalAsked, Approval: &a}
			for range 3 { // neither "r" nor "always" is an answer to it
				<-asked
			}
			for len(d.given()) == 0 {
				time.Sleep(time.Millisecond) // the answer has no event of its own for the agent
			}
			return jsonrpc.StopEndTurn, nil
		}
		shown := func(_ context.Context, a types.Approval) string { return "picture of " + a.ID + "\n" }
		_, text, err := play(t, Options{Terminal: true, Yes: true, Watch: d.watch, Answer: d.answer, Picture: shown, Stderr: screen}, &scripted{}, turn, "r", "always", typed)
		if err != nil {
			t.Fatal(err)
		}
		want := types.ApprovalAnswer{Allow: allow, Scope: types.ScopeOnce, By: "terminal of handler run"}
		if got := d.given(); len(got) != 1 || got[0] != want {
			t.Errorf("%+v", got)
		}
		if !strings.Contains(text, "picture of new\n? web wants to act on") || !strings.Contains(text, "\n  [y]es, once  [n]o, then Enter ") || strings.Contains(text, "\x1b") {
			t.Errorf("the screen shows\n%s", text)
		}
	}
}
