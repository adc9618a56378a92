// Package approvals is the one queue of questions to a person (contract H): what the rules leave open waits here until
// somebody answers, for as long as a question lives. Nobody there means no at once: a question is asked only while a
// watcher is there to see it, which is a person at a terminal or a page that is open.
//
// A question is under a random id that its asker never learns, so that nobody but who was shown it can answer it. It is
// answered once. The audit log has the question before anybody sees it, and the answer before anybody acts on it.
package approvals

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
)

// Bounds of the queue. An agent causes questions, and a person's patience is what they use up.
const (
	NetworkExpiry = 60 * time.Second // how long a question about a destination lives
	BrowserExpiry = 2 * time.Minute  // how long one about the guarded browser lives, at most
	MaxPendingRun = 16               // questions of one run that wait at one time
	MaxPending    = 64               // questions that wait at one time, in all
	MaxWaiting    = 64               // who may wait for one question
	MaxWatchers   = 64

	askBurst  = 20              // questions of one run at once; then
	askEvery  = 3 * time.Second // one in this time
	maxEvents = 256             // that wait for a slow watcher before it is given up
	keepEnded = 100             // ended questions that are remembered, to say so to who answers late
	maxBy     = 100             // bytes of ApprovalAnswer.By
)

// Why a question was not answered.
var (
	ErrNobody    = errors.New("nobody is there to be asked")
	ErrExpired   = errors.New("nobody answered in time")
	ErrTooMany   = errors.New("too many questions wait already")
	ErrTooOften  = errors.New("the run asks too often")
	ErrUnwritten = errors.New("the question could not be written to the audit log")
)

// A Question is what is asked. Texts must be safe to show.
type Question struct {
	Kind    string // types.Approval*
	Run     string
	Agent   string
	Session string // of ACP; "" where it is not known
	Subject string
	Text    string
	Detail  string
	// Key joins questions: those of one run with the same kind and key are one question with one answer. "" joins none.
	Key    string
	Scopes []string      // how long an answer may hold; types.ScopeOnce is always one
	Expiry time.Duration // how long it lives; NetworkExpiry if 0

	// Browser and Picture are of types.ApprovalBrowser, made by [Browser.Question]. Such a question joins none, so that one
	// answer is for one use.
	Browser *types.BrowserApproval
	Picture []byte
	// Log is what the audit log has of the question; Text if "". A page's words are not for the log.
	Log string

	// Apply makes an answer true, before it is acknowledged and before anybody acts on it. If it fails, the question
	// goes on waiting and who answered is told why. It gives what the person should know. nil does nothing.
	Apply func(types.ApprovalAnswer) (note string, err error)
	// Moot says whether the question has been decided by other means since it was asked, and how (see Review). nil
	// never is.
	Moot func() (allow, decided bool)
}

// Options are what a Queue is made of.
type Options struct {
	Audit func(audit.Record) error // returns when the record is on the disk
	// Changed is told what happens to questions, in order, without counting as somebody who is there. It must be quick and
	// must not use the queue; nil for nobody.
	Changed func(types.ApprovalEvent)
	Logger  *slog.Logger // may be nil
}

// A Queue holds the questions that wait. It is safe for concurrent use and starts nothing of its own.
type Queue struct {
	opts Options
	log  *slog.Logger

	mu       sync.Mutex
	entries  map[string]*entry // protected by mu; by id
	keys     map[string]*entry // protected by mu; those that others may join
	watchers map[*Watcher]bool // protected by mu
	ended    []ending          // protected by mu; the youngest keepEnded
	paces    map[string]*pace  // protected by mu; by run
}

// New makes an empty queue.
func New(opts Options) *Queue {
	q := &Queue{opts: opts, log: opts.Logger, entries: map[string]*entry{}, keys: map[string]*entry{},
		watchers: map[*Watcher]bool{}, paces: map[string]*pace{}}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	return q
}

// Ask waits for the answer to a question. It fails at once with ErrNobody, ErrTooMany or ErrTooOften, with ErrExpired
// when the question's time is over, and with ctx's cause when ctx is done: who waits for nothing any more takes the
// question back.
func (q *Queue) Ask(ctx context.Context, question Question) (types.ApprovalAnswer, error) {
	e, first, err := q.join(question)
	if err != nil {
		return types.ApprovalAnswer{}, err
	}
	if first {
		q.open(e)
	}
	select {
	case <-e.done:
		return e.answer, e.err
	case <-ctx.Done():
		q.leave(e)
		return types.ApprovalAnswer{}, context.Cause(ctx)
	}
}

// List gives the questions that wait, oldest first; with run != "" that run's.
func (q *Queue) List(run string) []types.Approval {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.list(run)
}

func (q *Queue) list(run string) []types.Approval {
	list := []types.Approval{}
	for _, e := range q.entries {
		if e.shown() && (run == "" || e.q.Run == run) {
			list = append(list, e.view())
		}
	}
	slices.SortFunc(list, func(a, b types.Approval) int {
		if c := a.Asked.Compare(b.Asked); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Find gives the question that waits and whose id begins with prefix. Errors are *fault.Fault.
func (q *Queue) Find(prefix string) (types.Approval, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var found []types.Approval
	for _, e := range q.entries {
		if e.shown() && prefix != "" && strings.HasPrefix(e.id, prefix) {
			found = append(found, e.view())
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return types.Approval{}, q.gone(prefix)
	}
	return types.Approval{}, fault.New(fault.Usage, "type more of it: handler approvals", "%q is the beginning of several questions' ids", prefix)
}

// Picture gives the picture of the question that waits and whose id begins with prefix: a PNG, at most PictureBytes.
// Errors are *fault.Fault.
func (q *Queue) Picture(prefix string) ([]byte, error) {
	found, err := q.Find(prefix)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[found.ID]
	switch {
	case e == nil:
		return nil, q.gone(found.ID)
	case len(e.q.Picture) == 0:
		return nil, fault.New(fault.NotFound, "", "question %s has no picture", Short(found.ID))
	}
	return e.q.Picture, nil
}

// Answer answers a question by its whole id, once. It returns when the answer is true and in the audit log. Errors are
// *fault.Fault; after one the question goes on waiting, if it still does.
func (q *Queue) Answer(id string, a types.ApprovalAnswer) (types.ApprovalDone, error) {
	if a.Scope == "" {
		a.Scope = types.ScopeOnce
	}
	if len(a.By) > maxBy {
		return types.ApprovalDone{}, fault.New(fault.Usage, "", "where the answer was given is longer than %d bytes", maxBy)
	}
	e, err := q.claim(id, a)
	if err != nil {
		return types.ApprovalDone{}, err
	}
	note := ""
	if e.q.Apply != nil {
		note, err = e.q.Apply(a)
	}
	if err == nil {
		err = q.opts.Audit(e.record(verdictOf(a.Allow), says(a)))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.unclaim(e)
		f := fault.Of(err)
		return types.ApprovalDone{}, fault.Wrap(f.Kind, err, f.Hint, "the answer does not count")
	}
	view := e.view()
	q.finish(e, types.ApprovalAnswered, a, nil)
	return types.ApprovalDone{Approval: view, Answer: a, Note: note}, nil
}

func verdictOf(allow bool) string {
	if allow {
		return audit.Allowed
	}
	return audit.Refused
}

// says puts an answer in words: "you, once (handler approvals)".
func says(a types.ApprovalAnswer) string {
	text := map[string]string{
		types.ScopeOnce: "you, once", types.ScopeRun: "you, for this run", types.ScopeAlways: "you, always",
	}[a.Scope]
	if a.By != "" {
		text += " (" + a.By + ")"
	}
	return text
}

// Review settles the questions of a run that have been decided by other means, such as a rule that was added.
func (q *Queue) Review(run string) {
	q.mu.Lock()
	var all []*entry
	for _, e := range q.entries {
		if e.q.Run == run && e.state == pending && e.q.Moot != nil {
			all = append(all, e)
		}
	}
	q.mu.Unlock()
	for _, e := range all {
		allow, decided := e.q.Moot()
		if !decided {
			continue
		}
		a := types.ApprovalAnswer{Allow: allow, Scope: types.ScopeOnce, By: "a rule that was added"}
		q.settle(e, types.ApprovalAnswered, e.record(verdictOf(allow), a.By), a, nil)
	}
}

// join gives the question's entry: the one that is there already, or a new one, which the caller opens.
func (q *Queue) join(question Question) (e *entry, first bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e = &entry{q: question, waiting: 1, done: make(chan struct{})}
	if known := q.keys[e.key()]; known != nil {
		if known.waiting >= MaxWaiting {
			return nil, false, ErrTooMany
		}
		known.waiting++
		return known, false, nil
	}
	ofRun := 0
	for _, other := range q.entries {
		if other.q.Run == question.Run {
			ofRun++
		}
	}
	switch {
	case !q.watched(question.Run):
		return nil, false, ErrNobody
	case ofRun >= MaxPendingRun || len(q.entries) >= MaxPending:
		return nil, false, ErrTooMany
	case !q.pace(question.Run):
		return nil, false, ErrTooOften
	}
	if e.q.Expiry <= 0 {
		e.q.Expiry = NetworkExpiry
	}
	e.id = strings.ToLower(rand.Text())
	e.asked = time.Now()
	q.entries[e.id] = e
	if k := e.key(); k != "" {
		q.keys[k] = e
	}
	return e, true, nil
}

// open writes a new question down and shows it.
func (q *Queue) open(e *entry) {
	err := q.opts.Audit(e.record(audit.Asked, cmp.Or(e.q.Log, e.q.Text)))
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.log.Error("a question was not written to the audit log, and is refused", "run", e.q.Run, "error", err)
		q.finish(e, "", types.ApprovalAnswer{}, ErrUnwritten)
		return
	}
	e.state = pending
	e.timer = time.AfterFunc(time.Until(e.asked.Add(e.q.Expiry)), func() { q.expire(e) })
	q.tell(e, types.ApprovalEvent{State: types.ApprovalAsked})
}

func (q *Queue) expire(e *entry) {
	text := fmt.Sprintf("nobody answered within %s", e.q.Expiry)
	q.settle(e, types.ApprovalExpired, e.record(audit.Refused, text), types.ApprovalAnswer{}, ErrExpired)
}

// leave takes one who waited away; the last one takes the question along.
func (q *Queue) leave(e *entry) {
	q.mu.Lock()
	e.waiting--
	last := e.waiting == 0
	q.mu.Unlock()
	if last {
		q.settle(e, types.ApprovalWithdrawn, e.record("", "withdrawn: nobody waits for the answer any more"), types.ApprovalAnswer{}, context.Canceled)
	}
}

// settle ends a question that waits, by other means than a person's answer, and writes that down first. One that is
// being answered is left alone.
func (q *Queue) settle(e *entry, state string, rec audit.Record, a types.ApprovalAnswer, err error) {
	q.mu.Lock()
	if e.state != pending || state == types.ApprovalWithdrawn && e.waiting > 0 {
		q.mu.Unlock()
		return
	}
	e.state = closing
	q.unkey(e)
	q.mu.Unlock()
	if werr := q.opts.Audit(rec); werr != nil {
		q.log.Error("the end of a question was not written to the audit log", "run", e.q.Run, "error", werr)
		if err == nil && a.Allow {
			a, err = types.ApprovalAnswer{}, ErrUnwritten
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finish(e, state, a, err)
}

// claim takes a question for one who answers it.
func (q *Queue) claim(id string, a types.ApprovalAnswer) (*entry, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[id]
	switch {
	case e == nil:
		return nil, q.gone(id)
	case e.state != pending:
		return nil, fault.New(fault.Failed, "see: handler approvals", "question %s is being answered already", Short(id))
	case !slices.Contains(e.scopes(), a.Scope):
		return nil, fault.New(fault.Usage, "it takes: "+strings.Join(e.scopes(), ", "), "question %s takes no answer for %q", Short(id), a.Scope)
	}
	e.state = answering
	e.timer.Stop()
	return e, nil
}

// unclaim puts a question back that could not be answered. The caller holds mu.
func (q *Queue) unclaim(e *entry) {
	e.state = pending
	rest := max(time.Until(e.asked.Add(e.q.Expiry)), 0)
	end := func() { q.expire(e) }
	if e.waiting == 0 {
		rest, end = 0, func() {
			q.settle(e, types.ApprovalWithdrawn, e.record("", "withdrawn: nobody waits for the answer any more"), types.ApprovalAnswer{}, context.Canceled)
		}
	}
	e.timer = time.AfterFunc(rest, end)
}

// finish ends a question and lets those go who waited. The caller holds mu and has written it down.
func (q *Queue) finish(e *entry, state string, a types.ApprovalAnswer, err error) {
	if e.timer != nil {
		e.timer.Stop()
	}
	delete(q.entries, e.id)
	q.unkey(e)
	e.answer, e.err = a, err
	if state != "" { // it was shown
		event := types.ApprovalEvent{State: state}
		if state == types.ApprovalAnswered {
			event.Answer = &a
		}
		q.tell(e, event)
		q.ended = append(q.ended, ending{e.id, state})
		q.ended = q.ended[max(0, len(q.ended)-keepEnded):]
	}
	e.state = ended
	close(e.done)
}

func (q *Queue) unkey(e *entry) {
	if k := e.key(); q.keys[k] == e {
		delete(q.keys, k)
	}
}

// gone says why there is no question of an id. The caller holds mu.
func (q *Queue) gone(id string) error {
	for _, end := range slices.Backward(q.ended) {
		if id == "" || !strings.HasPrefix(end.id, id) {
			continue
		}
		why := map[string]string{
			types.ApprovalAnswered: "was answered already", types.ApprovalExpired: "has expired", types.ApprovalWithdrawn: "was withdrawn: nobody waits for it any more",
		}[end.state]
		return fault.New(fault.Failed, "see: handler approvals", "question %s %s", Short(end.id), why)
	}
	return fault.New(fault.NotFound, "see: handler approvals", "there is no question %q", Short(id))
}

// Short gives the part of an id that people are shown. The first characters of a random id tell the few questions that
// wait apart.
func Short(id string) string { return id[:min(6, len(id))] }
