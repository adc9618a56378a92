package api_test

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/client"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
)

// ruleBook is Rules that remembers.
type ruleBook struct{ changes []types.RuleChange }

func (b *ruleBook) ChangeRules(c types.RuleChange) (types.RuleChanged, error) {
	if c.Agent == "nobody" {
		return types.RuleChanged{}, fault.New(fault.NotFound, "see: handler agent list", "no agent")
	}
	b.changes = append(b.changes, c)
	return types.RuleChanged{Agent: c.Agent, Kind: c.Kind, Rule: c.Rule, Scope: c.Scope, Runs: []string{"k3f9"}}, nil
}

func (b *ruleBook) Rules(id string) ([]types.LiveRule, error) {
	return []types.LiveRule{{Kind: "allow", Rule: id, By: "agent web"}}, nil
}

// serveApprovals serves a queue and an audit log.
func serveApprovals(t *testing.T) (socket string, q *approvals.Queue, log *audit.Log, book *ruleBook) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := audit.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	q, book = approvals.New(approvals.Options{Audit: log.Append}), &ruleBook{}
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := api.New(api.Options{Runs: &echoRuns{}, Rules: book, Approvals: q, AuditFile: path, Images: noImages{}, Stop: func() {}})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(context.Background()), <-done); err != nil {
			t.Error(err)
		}
	})
	return socket, q, log, book
}

// TestApprovals has somebody come, see a question, answer it and go.
func TestApprovals(t *testing.T) {
	socket, q, _, _ := serveApprovals(t)
	c := client.New(socket)
	question := approvals.Question{Kind: types.ApprovalNetwork, Run: "k3f9", Agent: "web", Subject: "x:443", Text: "may it", Scopes: []string{types.ScopeRun}}
	if _, err := q.Ask(t.Context(), question); !errors.Is(err, approvals.ErrNobody) {
		t.Errorf("%v", err)
	}
	if list, err := c.Approvals(t.Context(), ""); err != nil || list == nil || len(list) > 0 {
		t.Errorf("%v %v", list, err)
	}
	ctx, leave := context.WithCancel(t.Context())
	events, left := make(chan types.ApprovalEvent), make(chan error, 1)
	go func() {
		left <- c.WatchApprovals(ctx, "k3f9", func(e types.ApprovalEvent) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	if e := <-events; e.State != types.ApprovalWatching {
		t.Fatalf("%+v", e)
	}
	got := make(chan types.ApprovalAnswer, 1)
	go func() {
		a, err := q.Ask(t.Context(), question)
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	e := <-events
	if e.State != types.ApprovalAsked || e.Approval.Subject != "x:443" {
		t.Fatalf("%+v", e)
	}
	id := e.Approval.ID
	if list, err := c.Approvals(t.Context(), "k3f9"); err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("%+v %v", list, err)
	}
	if a, err := c.Approval(t.Context(), id[:4]); err != nil || a.ID != id {
		t.Errorf("%+v %v", a, err)
	}
	if _, err := c.Answer(t.Context(), id[:4], types.ApprovalAnswer{Allow: true, Scope: types.ScopeAlways}); fault.Of(err).Kind != fault.Usage {
		t.Errorf("%v", err)
	}
	if _, err := c.Answer(t.Context(), id[:4], types.ApprovalAnswer{Allow: true, By: strings.Repeat("x", 200)}); fault.Of(err).Kind != fault.Usage {
		t.Errorf("%v", err)
	}
	done, err := c.Answer(t.Context(), id[:4], types.ApprovalAnswer{Allow: true, Scope: types.ScopeRun})
	if err != nil || !done.Answer.Allow || done.Approval.ID != id {
		t.Errorf("%+v %v", done, err)
	}
	if a := <-got; !a.Allow || a.Scope != types.ScopeRun {
		t.Errorf("%+v", a)
	}
	if e := <-events; e.State != types.ApprovalAnswered || !e.Answer.Allow {
		t.Errorf("%+v", e)
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for { // the server hears of the end of a connection a moment later
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v.Busy == 0 {
			break
		}
	}
	if _, err := q.Ask(t.Context(), question); !errors.Is(err, approvals.ErrNobody) {
		t.Errorf("who watched is still there: %v", err)
	}
	if _, err := c.Answer(t.Context(), "", types.ApprovalAnswer{}); err == nil {
		t.Error("no id answers")
	}
}

func TestRules(t *testing.T) {
	socket, _, _, book := serveApprovals(t)
	c := client.New(socket)
	change := types.RuleChange{Agent: "web", Kind: "allow", Rule: "x.example.org", Scope: types.ScopeRun}
	if done, err := c.ChangeRules(t.Context(), change); err != nil || len(done.Runs) != 1 || len(book.changes) != 1 || book.changes[0] != change {
		t.Errorf("%+v %v", done, err)
	}
	if _, err := c.ChangeRules(t.Context(), types.RuleChange{Agent: "nobody"}); fault.Of(err).Kind != fault.NotFound {
		t.Errorf("%v", err)
	}
	if rules, err := c.Rules(t.Context(), "k3"); err != nil || len(rules) != 1 || rules[0].Rule != "k3" {
		t.Errorf("%+v %v", rules, err)
	}
	raw := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for _, path := range []string{types.PathRules, types.PathApprovals + "/x"} {
		for _, body := range []string{`{"agnet":"web"}`, `{} {}`, `[`, ``} {
			resp, err := raw.Post("http://handlerd"+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %s: %s", path, body, resp.Status)
			}
		}
	}
}

// TestVerdicts streams what the audit log says of the network, and what comes.
func TestVerdicts(t *testing.T) {
	socket, _, log, _ := serveApprovals(t)
	c := client.New(socket)
	add := func(kind, agent, run, subject string) {
		t.Helper()
		if err := log.Append(audit.Record{Kind: kind, Agent: agent, Run: run, Subject: subject, Hint: "allow it"}); err != nil {
			t.Fatal(err)
		}
	}
	add(audit.KindNetwork, "web", "k3f9", "a")
	add(audit.KindMessage, "web", "k3f9", "no")
	add(audit.KindApproval, "docs", "p0c2", "b")
	add(audit.KindRules, "web", "", "c")
	read := func(agent, run string, n int) (got []string) {
		t.Helper()
		if err := c.Verdicts(t.Context(), agent, run, n, false, func(v types.NetworkVerdict) error {
			got = append(got, v.Subject)
			if v.Hint == "" {
				t.Error("the remedy is not there")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		return got
	}
	got := [][]string{read("", "", 10), read("", "", 1), read("web", "", 10), read("", "p0", 10)}
	if diff := cmp.Diff([][]string{{"a", "b", "c"}, {"c"}, {"a", "c"}, {"b"}}, got); diff != "" {
		t.Error(diff)
	}
	if err := c.Verdicts(t.Context(), "", "", api.MaxVerdicts+1, false, nil); fault.Of(err).Kind != fault.Usage {
		t.Errorf("%v", err)
	}
	n := 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := c.Verdicts(ctx, "web", "", 10, true, func(v types.NetworkVerdict) error {
		if n++; n == 2 {
			add(audit.KindNetwork, "web", "k3f9", "later")
		}
		if v.Subject == "later" {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n != 3 {
		t.Errorf("%v after %d", err, n)
	}
}

// TestApprovalPicture gives the picture of a browser's question, and none where there is none.
func TestApprovalPicture(t *testing.T) {
	socket, q, _, _ := serveApprovals(t)
	c := client.New(socket)
	w, err := q.Watch("")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 20, 10))); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{picture.Bytes(), nil} {
		about := approvals.Browser{Run: "k3f9", Agent: "web", Tool: "browser_click", Action: "click", Pages: []string{"https://a.example/"}, Picture: data}
		allowed := make(chan bool, 1)
		go func() {
			a, err := q.Ask(t.Context(), about.Question())
			if err != nil {
				t.Error(err)
			}
			allowed <- a.Allow
		}()
		var e types.ApprovalEvent
		for e.State != types.ApprovalAsked {
			if e, err = w.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		id := e.Approval.ID
		a, err := c.Approval(t.Context(), id)
		if err != nil || a.Browser == nil || a.Browser.Pages[0].Site != "https://a.example" {
			t.Fatalf("%+v %v", a, err)
		}
		got, err := c.ApprovalPicture(t.Context(), id[:6])
		switch {
		case data == nil && fault.Of(err).Kind != fault.NotFound:
			t.Errorf("%d bytes, %v", len(got), err)
		case data != nil && (err != nil || len(got) != a.Browser.Picture.Bytes || !bytes.HasPrefix(got, []byte("\x89PNG"))):
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if _, err := c.Answer(t.Context(), id, types.ApprovalAnswer{Allow: true}); err != nil {
			t.Error(err)
		}
		if !<-allowed {
			t.Error("it was refused")
		}
		if _, err := c.ApprovalPicture(t.Context(), id); err == nil {
			t.Error("a question that is over still shows its picture")
		}
	}
}
