package approvals

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A book is an audit log in memory.
type book struct {
	mu    sync.Mutex
	lines []string
	err   error
}

func (b *book) append(r audit.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.lines = append(b.lines, strings.TrimSpace(r.Run+" "+r.Subject+" "+r.Verdict+": "+r.Reason))
	return nil
}

func (b *book) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *book) has(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := strings.Join(b.lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the audit log has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func newQueue() (*Queue, *book) {
	b := &book{}
	return New(Options{Audit: b.append}), b
}

func question(run, subject string) Question {
	return Question{Kind: types.ApprovalNetwork, Run: run, Agent: "web", Subject: subject, Key: subject, Text: "may it",
		Scopes: []string{types.ScopeOnce, types.ScopeRun, types.ScopeAlways}}
}

// An outcome is what Ask gave.
type outcome struct {
	answer types.ApprovalAnswer
	err    error
}

// ask asks in the background; the outcome comes on the channel.
func ask(ctx context.Context, q *Queue, question Question) <-chan outcome {
	got := make(chan outcome, 1)
	go func() {
		a, err := q.Ask(ctx, question)
		got <- outcome{a, err}
	}()
	return got
}

func watch(t *testing.T, q *Queue, run string) *Watcher {
	t.Helper()
	w, err := q.Watch(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	next(t, w, types.ApprovalWatching)
	return w
}

func next(t *testing.T, w *Watcher, state string) types.ApprovalEvent {
	t.Helper()
	e, err := w.Next(t.Context())
	if err != nil || e.State != state {
		t.Fatalf("the watcher is told %+v, %v, want %s", e, err, state)
	}
	return e
}

func TestAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueue()
		w, other := watch(t, q, ""), watch(t, q, "p0c2")
		applied := []string{}
		ask1 := question("k3f9", "a.example.org:443")
		ask1.Apply = func(a types.ApprovalAnswer) (string, error) {
			applied = append(applied, a.Scope)
			return "saved", nil
		}
		first, second := ask(t.Context(), q, ask1), ask(t.Context(), q, ask1) // joined
		e := next(t, w, types.ApprovalAsked)
		synctest.Wait()
		list := q.List("")
		if len(list) != 1 || list[0].Waiting != 2 || list[0].ID != e.Approval.ID || len(list[0].ID) < 26 {
			t.Fatalf("%+v", list)
		}
		if len(q.List("p0c2")) != 0 || len(q.List("k3f9")) != 1 {
			t.Error("lists of runs")
		}
		found, err := q.Find(Short(e.Approval.ID))
		if err != nil || found.ID != e.Approval.ID {
			t.Errorf("%+v %v", found, err)
		}
		if _, err := q.Answer(Short(found.ID), types.ApprovalAnswer{Allow: true}); fault.Of(err).Kind != fault.NotFound && fault.Of(err).Kind != fault.Failed || err == nil {
			t.Errorf("a beginning answered: %v", err)
		}
		if _, err := q.Answer(found.ID, types.ApprovalAnswer{Allow: true, Scope: "for ever"}); fault.Of(err).Kind != fault.Usage {
			t.Errorf("a scope of no question: %v", err)
		}
		done, err := q.Answer(found.ID, types.ApprovalAnswer{Allow: true, Scope: types.ScopeRun, By: "test"})
		if err != nil || done.Note != "saved" || len(applied) != 1 {
			t.Fatalf("%+v %v %v", done, err, applied)
		}
		for _, got := range []outcome{<-first, <-second} {
			if got.err != nil || !got.answer.Allow || got.answer.Scope != types.ScopeRun {
				t.Errorf("%+v", got)
			}
		}
		if e := next(t, w, types.ApprovalAnswered); !e.Answer.Allow {
			t.Errorf("%+v", e.Answer)
		}
		_, err = q.Answer(found.ID, types.ApprovalAnswer{})
		if err == nil || !strings.Contains(err.Error(), "was answered already") {
			t.Errorf("a second answer: %v", err)
		}
		if _, ok, _ := other.pop(); ok {
			t.Error("who watches another run is told")
		}
		b.has(t, "k3f9 a.example.org:443 asked: may it", "k3f9 a.example.org:443 allowed: you, for this run (test)")
	})
}

func TestNobody(t *testing.T) {
	q, b := newQueue()
	w := watch(t, q, "k3f9")
	if _, err := q.Ask(t.Context(), question("p0c2", "x:443")); !errors.Is(err, ErrNobody) {
		t.Errorf("%v", err)
	}
	w.Close()
	w.Close()
	if _, err := q.Ask(t.Context(), question("k3f9", "x:443")); !errors.Is(err, ErrNobody) {
		t.Errorf("%v", err)
	}
	b.has(t) // the asker's refusal is what is written
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueue()
		w := watch(t, q, "")
		began := time.Now()
		got := ask(t.Context(), q, question("k3f9", "x:443"))
		id := next(t, w, types.ApprovalAsked).Approval.ID
		if got := <-got; !errors.Is(got.err, ErrExpired) || time.Since(began) != NetworkExpiry {
			t.Errorf("%v after %v", got.err, time.Since(began))
		}
		next(t, w, types.ApprovalExpired)
		if _, err := q.Answer(id, types.ApprovalAnswer{Allow: true}); err == nil || !strings.Contains(err.Error(), "has expired") {
			t.Errorf("%v", err)
		}
		b.has(t, "k3f9 x:443 asked: may it", "k3f9 x:443 refused: nobody answered within 1m0s")
	})
}

func TestWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueue()
		w := watch(t, q, "")
		ctx, cancel := context.WithCancel(t.Context())
		first, second := ask(ctx, q, question("k3f9", "x:443")), ask(t.Context(), q, question("k3f9", "x:443"))
		next(t, w, types.ApprovalAsked)
		synctest.Wait()
		cancel()
		if got := <-first; !errors.Is(got.err, context.Canceled) {
			t.Errorf("%v", got.err)
		}
		if list := q.List(""); len(list) != 1 || list[0].Waiting != 1 {
			t.Fatalf("%+v", list)
		}
		id := q.List("")[0].ID
		if _, err := q.Answer(id, types.ApprovalAnswer{}); err != nil {
			t.Fatal(err)
		}
		if got := <-second; got.err != nil || got.answer.Allow {
			t.Errorf("%+v", got)
		}
		next(t, w, types.ApprovalAnswered)
		ctx, cancel = context.WithCancel(t.Context())
		last := ask(ctx, q, question("k3f9", "y:443"))
		next(t, w, types.ApprovalAsked)
		cancel()
		<-last
		next(t, w, types.ApprovalWithdrawn)
		if len(q.List("")) > 0 || len(q.entries) > 0 || len(q.keys) > 0 {
			t.Error("a question is left")
		}
		b.has(t, "k3f9 x:443 asked: may it", "k3f9 x:443 refused: you, once",
			"k3f9 y:443 asked: may it", "k3f9 y:443 : withdrawn: nobody waits for the answer any more")
	})
}

// TestAnswerFails has an answer that cannot be made true, or written: it does not count, and the question waits on.
func TestAnswerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueue()
		w := watch(t, q, "")
		broken := fault.New(fault.Failed, "mend it", "the disk is full")
		var apply error = broken
		ask1 := question("k3f9", "x:443")
		ask1.Apply = func(types.ApprovalAnswer) (string, error) { return "", apply }
		got := ask(t.Context(), q, ask1)
		id := next(t, w, types.ApprovalAsked).Approval.ID
		if _, err := q.Answer(id, types.ApprovalAnswer{Allow: true}); !errors.Is(err, broken) || fault.Of(err).Hint != "mend it" {
			t.Errorf("%v", err)
		}
		apply = nil
		b.fail(errors.New("the disk is full"))
		if _, err := q.Answer(id, types.ApprovalAnswer{Allow: true}); err == nil {
			t.Error("an answer that is not written counts")
		}
		select {
		case got := <-got:
			t.Fatalf("the asker got %+v", got)
		default:
		}
		b.fail(nil)
		if _, err := q.Answer(id, types.ApprovalAnswer{Allow: true}); err != nil {
			t.Error(err)
		}
		if got := <-got; got.err != nil || !got.answer.Allow {
			t.Errorf("%+v", got)
		}
		b.fail(errors.New("the disk is full"))
		if _, err := q.Ask(t.Context(), question("k3f9", "y:443")); !errors.Is(err, ErrUnwritten) {
			t.Errorf("a question that is not written: %v", err)
		}
	})
}

// TestAnswerAfterLeave has the last asker go while its question is being answered, by an answer that then fails.
func TestAnswerAfterLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newQueue()
		w := watch(t, q, "")
		ctx, cancel := context.WithCancel(t.Context())
		var got <-chan outcome
		ask1 := question("k3f9", "x:443")
		ask1.Apply = func(types.ApprovalAnswer) (string, error) {
			cancel()
			<-got
			return "", errors.New("no")
		}
		got = ask(ctx, q, ask1)
		id := next(t, w, types.ApprovalAsked).Approval.ID
		if _, err := q.Answer(id, types.ApprovalAnswer{Allow: true}); err == nil {
			t.Error("it counts")
		}
		next(t, w, types.ApprovalWithdrawn)
	})
}

// TestBounds asks more than anybody may.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newQueue()
		watch(t, q, "")
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan outcome
		for run := range MaxPending / MaxPendingRun {
			for i := range MaxPendingRun {
				all = append(all, ask(ctx, q, question(fmt.Sprint("r", run), fmt.Sprint(i))))
			}
		}
		synctest.Wait()
		for _, run := range []string{"r0", "new"} {
			if _, err := q.Ask(t.Context(), question(run, "x")); !errors.Is(err, ErrTooMany) {
				t.Errorf("%s: %v", run, err)
			}
		}
		for range MaxWaiting - 1 {
			all = append(all, ask(ctx, q, question("r0", "0")))
		}
		synctest.Wait()
		if _, err := q.Ask(t.Context(), question("r0", "0")); !errors.Is(err, ErrTooMany) {
			t.Errorf("one more waits for a question: %v", err)
		}
		cancel()
		for _, got := range all {
			<-got
		}
		// A run that asks and gives up, again and again, runs out of questions; then it gets one back at a time.
		spam := func() (n int) {
			for range 2 * askBurst {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := q.Ask(ctx, question("r0", "y")); errors.Is(err, ErrTooOften) {
					break
				}
				n++
			}
			return n
		}
		if n := spam(); n != askBurst-MaxPendingRun {
			t.Errorf("%d questions more", n)
		}
		time.Sleep(2 * askEvery) // synctest's clock: no time passes
		if n := spam(); n != 2 {
			t.Errorf("%d questions after a while", n)
		}
		time.Sleep(time.Hour) // of the same clock
		if n := spam(); n != askBurst || len(q.paces) != 1 {
			t.Errorf("%d questions after an hour, %d paces", n, len(q.paces))
		}
		for range MaxWatchers - 1 {
			watch(t, q, "k3f9")
		}
		if _, err := q.Watch(""); err == nil {
			t.Error("any number may watch")
		}
	})
}

// TestSlowWatcher never reads: it is given up, and no longer counts as somebody who is there.
func TestSlowWatcher(t *testing.T) {
	q, _ := newQueue()
	w, err := q.Watch("")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := 0; ; i++ {
		_, err := q.Ask(ctx, question(fmt.Sprint("r", i), "x"))
		if errors.Is(err, ErrNobody) {
			break
		}
		if i > maxEvents {
			t.Fatal("it is still there")
		}
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrSlow) {
		t.Errorf("%v", err)
	}
}

// TestReview settles what a rule has decided meanwhile.
func TestReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueue()
		w := watch(t, q, "")
		decided := map[string]bool{}
		moot := func(run, subject string) Question {
			question := question(run, subject)
			question.Moot = func() (bool, bool) { allow, ok := decided[subject]; return allow, ok }
			return question
		}
		a, n := ask(t.Context(), q, moot("k3f9", "a")), ask(t.Context(), q, moot("k3f9", "n"))
		ctx, cancel := context.WithCancel(t.Context())
		o := ask(ctx, q, moot("k3f9", "o"))
		other := ask(ctx, q, moot("p0c2", "a"))
		synctest.Wait()
		decided["a"], decided["n"] = true, false
		q.Review("k3f9")
		if got := <-a; got.err != nil || !got.answer.Allow {
			t.Errorf("%+v", got)
		}
		if got := <-n; got.err != nil || got.answer.Allow {
			t.Errorf("%+v", got)
		}
		if len(q.List("")) != 2 {
			t.Errorf("%+v", q.List(""))
		}
		cancel()
		<-o
		<-other
		w.Close()
		if got := strings.Join(b.lines, "\n"); !strings.Contains(got, "k3f9 a allowed: a rule that was added") || !strings.Contains(got, "k3f9 n refused: ") {
			t.Error(got)
		}
	})
}

// TestLateWatcher is told what waits.
func TestLateWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newQueue()
		watch(t, q, "")
		ctx, cancel := context.WithCancel(t.Context())
		got := ask(ctx, q, question("k3f9", "x"))
		synctest.Wait()
		late := watch(t, q, "k3f9")
		next(t, late, types.ApprovalAsked)
		if _, err := q.Find("!"); fault.Of(err).Kind != fault.NotFound {
			t.Errorf("%v", err)
		}
		cancel()
		<-got
		synctest.Wait()
		stop, end := context.WithCancel(t.Context())
		end()
		next(t, late, types.ApprovalWithdrawn)
		if _, err := late.Next(stop); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
