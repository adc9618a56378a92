package acp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/policy"
)

// Options make a Relay. Client, Agent and Rules have to be there; everything else works when zero.
type Options struct {
	// Client and Agent are the two ends. Close has to end a Read and a Write that are under way; where there is a
	// CloseWrite() error, it ends the output alone. Run closes both.
	Client, Agent io.ReadWriteCloser
	Rules         Rules

	// Observe sees what happens, in order within a direction. It is called from the goroutines that carry the
	// messages, both directions at a time: it has to be quick and safe for concurrent use. Nil for none.
	Observe func(Event)

	// Carried sees every message just before it goes on, and what Handler answers in a side's place. It is called as
	// Observe is, and a message waits for it. Nil for none.
	Carried func(Carried)

	// AgentEnded gives the text that clients get for what is unanswered when the agent has ended, such as "the
	// agent ended with exit code 1: …". The context ends after five seconds. Nil gives a plain one.
	AgentEnded func(context.Context) string

	Log *slog.Logger // nil discards

	MaxLine    int // bytes of one line; DefaultMaxLine if 0
	MaxRequest int // bytes of a line that goes to the agent; DefaultMaxRequest if 0
	MaxPending int // unanswered requests of one side; DefaultMaxPending if 0
	MaxPrompts int // unanswered prompts of one session; DefaultMaxPrompts if 0
	Rate       int // messages a second of one side; DefaultRate if 0
	Burst      int // messages of one side at once; DefaultBurst if 0

	// CancelGrace is how long a client may take to answer the agent's questions of a turn that it has cancelled;
	// CancelGrace if 0.
	CancelGrace time.Duration

	// Drain is how long the other side may take to end after one has: to say what it still has to say, and to
	// read it. Five seconds if 0.
	Drain time.Duration
	// LastWord is how long a client that nothing was owed when the agent ended may take to send the request that is
	// then told of the end: an agent that dies at once is often gone before the client has said a word. Two
	// seconds if 0.
	LastWord time.Duration
}

// A Relay carries the messages between one client and one agent. See the package comment.
type Relay struct {
	o     Options
	sides [2]*side

	over func() error // of Run's context: whether somebody has ended it

	clientGone atomic.Bool   // the client says nothing more: its requests' answers still go to it
	told       chan struct{} // closed when a client's request was answered with the agent's end
	tellOnce   sync.Once     // of told

	mu    sync.Mutex
	turns map[string]int // unanswered prompts by session; protected by mu
	// cancels are the sessions whose turn the client has cancelled, true once their questions are answered for it;
	// protected by mu.
	cancels map[string]bool
	ended   string // what requests get once the agent is gone; protected by mu
	data    []byte // the data of that error; protected by mu
	noise   int    // lines dropped so far; protected by mu

	waits sync.WaitGroup // for cancelled turns; only pumps add to it
}

// A side is one end: what it says is read from conn, what it is told goes through out.
type side struct {
	conn    io.ReadWriteCloser
	out     *outbox
	pending *pending // its unanswered requests
	own     *own     // Handler's unanswered requests to it
	pace    *pace    // the bound on what it says; its pump's alone
}

// An End says how a relay ended.
type End struct {
	By  Side  // who ended first; not set where Err is the context's
	Err error // nil for a plain end of input; ErrHalfLine, an error of the connection, or the context's cause
}

// NewRelay makes a relay that [Relay.Run] starts.
func NewRelay(o Options) *Relay {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.MaxLine <= 0 {
		o.MaxLine = DefaultMaxLine
	}
	if o.MaxRequest <= 0 {
		o.MaxRequest = DefaultMaxRequest
	}
	if o.Drain <= 0 {
		o.Drain = 5 * time.Second
	}
	if o.LastWord <= 0 {
		o.LastWord = 2 * time.Second
	}
	if o.MaxPrompts <= 0 {
		o.MaxPrompts = DefaultMaxPrompts
	}
	if o.Rate <= 0 {
		o.Rate = DefaultRate
	}
	if o.Burst <= 0 {
		o.Burst = DefaultBurst
	}
	if o.CancelGrace <= 0 {
		o.CancelGrace = CancelGrace
	}
	r := &Relay{o: o, turns: make(map[string]int), cancels: make(map[string]bool), told: make(chan struct{})}
	for s, conn := range []io.ReadWriteCloser{Client: o.Client, Agent: o.Agent} {
		r.sides[s] = &side{conn: conn, out: newOutbox(conn), pending: newPending(o.MaxPending), own: newOwn(), pace: newPace(o.Rate, o.Burst)}
	}
	return r
}

// Run carries messages until one side has ended and the other has had its time to, or ctx ends; then both ends are
// closed, nothing of the relay runs any more, and the End says how it came. Run is called once.
//
// When the client is gone, its turns are cancelled, the agent's questions are answered as ACP says, and the agent's
// input ends. When the agent is gone, everything the client waits for gets an error, and then the client's input ends.
func (r *Relay) Run(ctx context.Context) End {
	r.over = ctx.Err
	work, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends when the relay is done, not when ctx is
	defer stop()
	var running sync.WaitGroup
	var pumps [2]chan error
	for s, end := range r.sides {
		pumps[s] = make(chan error, 1)
		running.Go(end.out.run)
		running.Go(func() { pumps[s] <- r.pump(work, Side(s)) })
	}
	end, by := r.firstEnd(ctx, pumps)
	switch by {
	case byClient:
		r.clientEnded(ctx, pumps[Agent])
	case byAgent:
		r.agentEnded(ctx, work, pumps[Client])
	case byContext:
		r.cancelled(work, end.Err)
	}
	stop()
	r.o.Client.Close()
	r.o.Agent.Close()
	for _, s := range r.sides {
		s.own.close()
	}
	for _, s := range r.sides { // an outbox that has nothing to write waits for its queue
		select {
		case s.out.queue <- parcel{last: true}:
		case <-s.out.done:
		}
	}
	running.Wait()
	r.waits.Wait()
	r.endTurns()
	return end
}

const (
	byClient = iota
	byAgent
	byContext
)

// firstEnd waits for what ends the relay first.
func (r *Relay) firstEnd(ctx context.Context, pumps [2]chan error) (End, int) {
	select {
	case err := <-pumps[Client]:
		return End{Client, err}, byClient
	case err := <-pumps[Agent]:
		return End{Agent, err}, byAgent
	case <-r.sides[Client].out.done: // it reads no more
		return End{Client, r.sides[Client].out.err}, byClient
	case <-r.sides[Agent].out.done:
		// It reads no more, and mostly is about to end: what it still says counts.
		select {
		case err := <-pumps[Agent]:
			return End{Agent, err}, byAgent
		case <-time.After(r.o.Drain):
			return End{Agent, r.sides[Agent].out.err}, byAgent
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	return End{Err: context.Cause(ctx)}, byContext
}

// clientEnded ends the agent in good order.
func (r *Relay) clientEnded(ctx context.Context, agentPump <-chan error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Drain)
	defer cancel()
	r.clientGone.Store(true)
	r.sides[Client].own.close()
	agent := r.sides[Agent]
	for _, c := range agent.pending.seal() {
		r.answerGone(ctx, c, "the client is gone")
	}
	for _, session := range r.liveTurns() {
		_ = agent.out.line(ctx, cancelLine(session))
	}
	agent.out.finish(ctx)
	select {
	case <-agentPump:
	case <-ctx.Done():
	}
	r.failClient(ctx, "the connection was closed")
	r.sides[Client].out.finish(ctx)
}

// agentEnded tells the client what became of what it waits for.
func (r *Relay) agentEnded(ctx, work context.Context, clientPump <-chan error) {
	r.sides[Agent].own.close()
	text := "the agent ended"
	if r.o.AgentEnded != nil {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		text = r.o.AgentEnded(asking)
		cancel()
	}
	given, cancel := context.WithTimeout(work, r.o.Drain)
	defer cancel()
	if r.failClient(given, text) == 0 {
		last := time.NewTimer(r.o.LastWord)
		defer last.Stop()
		select {
		case <-r.told:
		case <-clientPump:
		case <-last.C:
		case <-given.Done():
		case <-ctx.Done():
		}
	}
	r.sides[Client].out.finish(given)
}

// An EndError is a cause of a context's end that says itself what waiting requests are answered: the text, and the
// data of the error as JSON.
type EndError interface {
	error
	Ended() (text string, data []byte)
}

// cancelled is agentEnded for a run that somebody ended: it takes no long time.
func (r *Relay) cancelled(work context.Context, cause error) {
	ctx, cancel := context.WithTimeout(work, min(r.o.Drain, time.Second/2))
	defer cancel()
	r.o.Agent.Close()
	text := cause.Error()
	if e, ok := errors.AsType[EndError](cause); ok {
		var data []byte
		text, data = e.Ended()
		r.mu.Lock()
		r.data = data
		r.mu.Unlock()
	}
	r.failClient(ctx, "the run was ended: "+text)
	r.sides[Client].out.finish(ctx)
}

// failClient answers every unanswered request of the client with an error, and those to come. It gives how many there
// were.
func (r *Relay) failClient(ctx context.Context, text string) int {
	r.mu.Lock()
	r.ended = text
	data := r.data
	r.mu.Unlock()
	client := r.sides[Client]
	calls := client.pending.seal()
	for _, c := range calls {
		line := failLine(c.id, CodeInternal, text, data)
		r.inPlace(Agent, c, line, "the agent's end")
		_ = client.out.line(ctx, line)
		if c.method == "session/prompt" {
			r.turnEnded(c.session)
		}
	}
	return len(calls)
}

// goneAnswer is what an agent gets for its request when the client is gone.
func goneAnswer(id []byte, method string) []byte {
	switch method {
	case "session/request_permission":
		return resultLine(id, policy.PermissionCancelled())
	case "elicitation/create":
		return resultLine(id, []byte(`{"action":"cancel"}`))
	}
	return failLine(id, CodeInternal, "the client is gone", nil)
}

// turnStarted counts a prompt that is on its way.
func (r *Relay) turnStarted(session string) {
	r.mu.Lock()
	r.turns[session]++
	delete(r.cancels, session) // the cancel was about those before
	r.mu.Unlock()
	r.o.Observe(Event{Kind: TurnStarted, Session: session})
}

func (r *Relay) turnEnded(session string) {
	r.mu.Lock()
	if r.turns[session]--; r.turns[session] <= 0 {
		delete(r.turns, session)
		delete(r.cancels, session)
	}
	r.mu.Unlock()
	r.o.Observe(Event{Kind: TurnEnded, Session: session})
}

func (r *Relay) inTurn(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turns[session] > 0
}

func (r *Relay) liveTurns() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := make([]string, 0, len(r.turns))
	for session := range r.turns {
		live = append(live, session)
	}
	return live
}

// endTurns tells the observer of the turns that never got an answer.
func (r *Relay) endTurns() {
	for _, session := range r.liveTurns() {
		for r.inTurn(session) {
			r.turnEnded(session)
		}
	}
}

// Inject sends a notification to one side, in order with what is carried, such as a session/cancel of Handler's own.
// Requests go by [Relay.Call], which has somewhere for their answers to go.
func (r *Relay) Inject(ctx context.Context, to Side, line []byte) error {
	e, err := Scan(line)
	if err != nil {
		return err
	}
	if e.Kind != Notification {
		return &ScanError{CodeInvalidRequest, "only a notification can be injected; a request goes by Call"}
	}
	return r.sides[to].out.line(ctx, append([]byte(nil), line...))
}
