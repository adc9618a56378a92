package browser

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/policy"
)

// Bounds of the guarded browser (F.8). Those that a person may change stand in Limits.
const (
	DefaultSessions = 2 // browsers at one time, of the whole daemon
	MaxSessions     = 8
	DefaultTabs     = 4 // tabs of one browser
	MaxTabs         = 16

	DefaultIdle = 30 * time.Minute // without a call, attended
	DefaultLife = 5 * time.Minute  // in all, unattended
	MaxLife     = 15 * time.Minute

	LaunchTime   = time.Minute      // for a worker to answer
	OpTime       = 30 * time.Second // for one operation of the browser
	StuckTime    = 10 * time.Second // for the browser to answer anything, after an operation that took too long
	AskTime      = 2 * time.Minute  // for a person to answer a question
	DownloadTime = 2 * time.Minute  // for one download
)

// Limits are the bounds that a person may change; zero fields are the defaults, and what is over a maximum is it.
type Limits struct {
	Sessions, Tabs int
	Idle           time.Duration
	Life           time.Duration
	Worker         WorkerLimits
}

func (l Limits) whole() Limits {
	or := func(n, normal, most int) int {
		if n <= 0 {
			return normal
		}
		return min(n, most)
	}
	l.Sessions, l.Tabs = or(l.Sessions, DefaultSessions, MaxSessions), or(l.Tabs, DefaultTabs, MaxTabs)
	if l.Idle <= 0 {
		l.Idle = DefaultIdle
	}
	if l.Life <= 0 {
		l.Life = DefaultLife
	}
	l.Life = min(l.Life, MaxLife)
	return l
}

// A Policy is what a run may do with its browser, as of now: it is asked for at every call (F.2).
type Policy struct {
	Agent      string
	Unattended bool // nobody is there: what would be asked is refused
	ReadOnly   bool // nothing is acted on
	// Window gives the browser a window that a person can watch (see Browser.Window).
	Window bool
	// Life is how long an unattended run's browser lives, at most MaxLife; 0 is Limits.Life.
	Life time.Duration
	// Idle is how long an attended browser lives without a call; 0 is Limits.Idle.
	Idle time.Duration
	// Worker bounds the sandbox of a browser that is started; zero fields are Limits.Worker's.
	Worker WorkerLimits
	// Search is the address of a result page with %s for the words; "" searches nowhere.
	Search string
	// Rules are the agent's own live network rules: a host that they allow is gone to without a question (F.4).
	Rules policy.Network
	// Network is what the worker reaches: every public host, or the agent's rules (browser.network = "rules").
	Network policy.Network
}

// A Question is what a person is asked before the browser acts (F.4, H). It is about exactly this: its answer counts
// once, and only while all of it still holds. Every text but Tool and Action comes from pages and agents: show it as
// theirs.
type Question struct {
	Run, Agent, Session string
	Tool                string   // browser_click
	Action              string   // what is to be done, in words: "click"
	Visit               bool     // whether to go to another origin, Targets[0]; else an interaction
	Pages               []string // the page's URL; several where it may be any of the tabs
	Says                string   // what the page says about it: the text of its dialog
	Title               string   // what the page calls itself
	Frame               string   // the URL of the frame that the element is in; "" for the page's own
	Targets             []string // where links and forms of the element lead
	Elements            []Element
	Values              []string // what is typed, selected or uploaded, secrets masked
	Digest              string   // SHA-256 over the exact arguments, hex: the gateway writes down the same
	Picture             []byte   // a small PNG of the element; nil for none
	Expiry              time.Duration
}

// An Element is what a page says that an element is.
type Element struct{ Role, Name string }

// Artifacts is what the browser needs of the artifacts' store.
type Artifacts interface {
	Add(ctx context.Context, m artifacts.Meta, r io.Reader) (artifacts.Artifact, error)
	Open(ctx context.Context, owner, id string) (artifacts.Artifact, *os.File, error)
}

// Options of a Browser. All functions may be called concurrently.
type Options struct {
	Launcher Launcher
	// Policy gives a run's policy; false where there is no such run any more.
	Policy func(run string) (Policy, bool)
	// Ask asks a person and waits for the answer until ctx ends. An error says why nobody answered.
	Ask func(ctx context.Context, q Question) (allow bool, err error)
	// Resolve looks a name up, for the landing check.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Hosts makes what handlerd itself answers for one session (F.6): local gives it by exact host, nil for none; done
	// is called when the session's browser is gone. nil is none.
	Hosts func(run, session string) (local func(host string) http.Handler, done func())
	// OpenFile opens a file of the run's workspace by its path there; OpenBeneath is one way. nil refuses uploads.
	OpenFile func(run, path string) (io.ReadCloser, error)
	// Artifacts and Owner are where files go and whose they are. Artifacts may be nil.
	Artifacts Artifacts
	Owner     string
	Limits    Limits
	Logger    *slog.Logger
}

// A Browser is the guarded browser of a daemon. It implements [gateway.Server].
type Browser struct {
	o   Options
	log *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex // protects what follows, and the fields of sessions that say so
	closed   bool
	sessions map[key]*session
	turns    map[key]int // turns under way
}

// A key is whose a browser is: an ACP session of a run, or the run where the session is not known.
type key struct{ run, session string }

// New makes a guarded browser. Nothing starts before a tool is called.
func New(o Options) (*Browser, error) {
	if o.Launcher == nil || o.Policy == nil || o.Ask == nil || o.Resolve == nil {
		return nil, errors.New("browser: Options.Launcher, Policy, Ask and Resolve are required")
	}
	b := &Browser{o: o, log: o.Logger, sessions: map[key]*session{}, turns: map[key]int{}}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.o.Limits = o.Limits.whole()
	// Nobody's request: it ends by Close.
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Open implements [gateway.Server].
func (b *Browser) Open(_ context.Context, c gateway.Caller) (gateway.Instance, error) {
	return &instance{b: b, caller: c}, nil
}

// An instance is one connection of an agent. The browser is its session's, not its own: a harness that connects again
// finds its pages.
type instance struct {
	b      *Browser
	caller gateway.Caller
}

// Tools implements [gateway.Instance].
func (i *instance) Tools(context.Context) ([]mcp.Tool, error) {
	var all []mcp.Tool
	for _, t := range tools() {
		all = append(all, t.definition())
	}
	return all, nil
}

// Close implements [gateway.Instance].
func (i *instance) Close() error { return nil }

// TurnStarted tells of a turn of an ACP session (F.2): until it ends, the session's calls are served.
func (b *Browser) TurnStarted(run, session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.turns[key{run, session}]++
	}
}

// TurnEnded tells of its end: calls under way are ended, the worker's connections are cut, and nothing is served until
// the next turn.
func (b *Browser) TurnEnded(run, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnOver(run, id, false)
}

// TurnCancelled is TurnEnded of a turn that was cancelled: its browser is closed. Authority and network are gone when it
// returns; who tells of it cannot wait for a browser's end, which comes meanwhile. A browser that its person has in hand
// stays theirs.
func (b *Browser) TurnCancelled(run, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ending := b.turnOver(run, id, true)
	if !b.closed {
		b.wg.Go(func() { b.closeAll(ending, "its turn was cancelled") })
	}
}

// turnOver takes a turn's authority and network away, and gives the sessions that it concerns. The caller holds mu.
func (b *Browser) turnOver(run, id string, cancelled bool) []*session {
	k := key{run, id}
	if b.turns[k]--; b.turns[k] <= 0 {
		delete(b.turns, k)
	}
	var ending []*session
	for _, s := range b.sessions {
		if s.key.run != run || s.key.session != "" && s.key.session != id || b.live(s.key) && !cancelled {
			continue
		}
		s.interrupt(errTurnOver)
		if s.hold != nil {
			continue // its person goes on; what the agent began is ended, and GiveBack cuts the network
		}
		if s.worker != nil {
			s.worker.CutNetwork()
		}
		ending = append(ending, s)
	}
	return ending
}

// SessionClosed ends the browser of an ACP session, for good.
func (b *Browser) SessionClosed(run, session string) {
	b.end(func(k key) bool { return k == key{run, session} })
}

// RunEnded ends every browser of a run, for good.
func (b *Browser) RunEnded(run string) { b.end(func(k key) bool { return k.run == run }) }

func (b *Browser) end(which func(key) bool) {
	b.mu.Lock()
	var ending []*session
	for k, s := range b.sessions {
		if which(k) {
			delete(b.sessions, k)
			s.interrupt(errSessionOver)
			ending = append(ending, s)
		}
	}
	for k := range b.turns {
		if which(k) {
			delete(b.turns, k)
		}
	}
	b.mu.Unlock()
	b.closeAll(ending, "its session is over")
}

func (b *Browser) closeAll(all []*session, why string) {
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() { s.closeWorker(why) })
	}
	wg.Wait()
}

// Close ends every browser and returns when nothing is left. It is idempotent.
func (b *Browser) Close() error {
	b.cancel()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end(func(key) bool { return true })
	b.wg.Wait()
	return nil
}

// live says whether a turn is under way. The caller holds mu.
func (b *Browser) live(k key) bool {
	if k.session != "" {
		return b.turns[k] > 0
	}
	for other := range b.turns {
		if other.run == k.run {
			return true
		}
	}
	return false
}

// A holder is a browser that is there, for the error when there is room for no more.
type holder struct {
	Run, Agent, Session string
	Since               time.Time
	Idle                time.Duration // since its last call ended; 0 while one is under way
}
