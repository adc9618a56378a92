// Package sessions is the life of a run: from asked-for to gone. A Manager starts runs (one sandbox and one ACP
// connection each), joins them to their clients under the rules, and leaves nothing of them behind, whoever was
// killed and in whatever order (contract A.5).
package sessions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/approvals"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/history"
	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/handlerd/view"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/rundir"
)

// Times of a run's life.
const (
	ConnectTimeout = 30 * time.Second // from the sandbox's start to its agent's connection
	StopGrace      = 2 * time.Second  // between TERM and KILL (A.2)
	teardownLimit  = 60 * time.Second // for the engine to remove what is left of a run
)

// MaxRuns bounds the runs of one daemon.
const MaxRuns = 64

// MaxConnections bounds the connections of all runs' proxies together, so that descriptors are left for the rest.
const MaxConnections = 4096

// Options are what a Manager is made of. All are needed but Resolver, Artifacts and Logger.
type Options struct {
	Driver sandbox.Driver
	// Plan renders an agent for a run started in cwd.
	Plan func(agent, cwd string) (*render.Plan, error)
	// Network gives a plan's rules.
	Network func(*render.Plan) (policy.Network, error)
	// Display finds the Wayland socket for a run; it is asked at every start.
	Display func(ctx context.Context, env types.Wayland) (socket string, err error)
	// Scopes says what may be a scope and what is protected in one; it is asked at every start.
	Scopes func() (scopes.Config, error)
	Audit  *audit.Log
	// Approvals is where a person is asked; SaveRule adds a network rule to an agent's file, and says whether it made
	// that file.
	Approvals *approvals.Queue
	SaveRule  func(agent, server, kind, rule string) (file string, created bool, err error)
	// Hosted makes an MCP server of a run that handlerd hosts. If nil, none is hosted.
	Hosted func(HostedRun, render.Hosted) (HostedServer, error)
	// Browser has the windows of the guarded browser; nil where there is none.
	Browser Windows
	// Version of Handler, as hosted servers say it.
	Version string
	// Secrets reads what the agents' secrets name, each time anew.
	Secrets Secrets
	// Artifacts keep what agents make for their person, who is Principal (artifacts.Principal); nil keeps nothing.
	Artifacts *artifacts.Store
	Principal string
	// History keeps the sessions; nil keeps none. Feed is told of what the runs do; nil tells nobody.
	History *history.Store
	Feed    *history.Feed

	Owner    string // LabelOwner of what this daemon makes
	RunRoot  string // parent of the run directories; short, private
	StateDir string // the runs' logs
	// Listeners are where Handler listens besides the forwards, and no sandbox reaches (D.4); may be nil.
	Listeners func() []netip.AddrPort
	Guest     string // host path of handler-guest
	Resolver  egress.Resolver
	Logger    *slog.Logger
}

// A Manager holds the live runs.
type Manager struct {
	opts  Options
	log   *slog.Logger
	logs  string       // folder of the runs' logs
	pool  *egress.Pool // of the runs' proxies
	views *view.Desk

	machine *machineWatch

	pictures atomic.Int64 // bytes of messages whose pictures are still to be kept

	mu      sync.Mutex
	runs    map[string]*Run // protected by mu
	closing bool            // protected by mu

	sweepMu sync.Mutex
	swept   bool // protected by sweepMu

	boxes map[string]*box // browsers and hosted servers that live, by the engine's id; protected by mu

	owed map[string]bool // sandboxes that could not be removed; protected by mu

	saveMu sync.Mutex // one rule at a time is saved

	infoMu sync.Mutex
	known  *sandbox.Info // protected by infoMu; nil until the engine was asked
}

// New makes a Manager. It starts nothing.
func New(opts Options) *Manager {
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Manager{opts: opts, log: log, logs: filepath.Join(opts.StateDir, "runs"), runs: map[string]*Run{},
		pool: egress.NewPool(MaxConnections), views: view.NewDesk(log), machine: newMachineWatch(opts.StateDir)}
}

// Sweep removes what a predecessor left: sandboxes with our owner's label and run directories. No run starts before
// it has succeeded once; a Start tries it where it has not. No other daemon of this owner may run.
func (m *Manager) Sweep(ctx context.Context) error {
	m.sweepMu.Lock()
	defer m.sweepMu.Unlock()
	m.pay(ctx)
	if m.swept {
		return nil
	}
	left, err := m.opts.Driver.List(ctx, map[string]string{sandbox.LabelOwner: m.opts.Owner})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		m.log.Info("a predecessor left sandboxes", "sandboxes", sweptText(left))
	}
	for _, s := range left {
		m.log.Info("sweeping a sandbox that a predecessor left", "name", s.Name, "what", whatItWas(s))
		if err := m.opts.Driver.Remove(ctx, s.ID); err != nil {
			if ctx.Err() != nil {
				return err
			}
			// One that cannot be removed must not keep every run from starting.
			m.log.Warn("a sandbox that a predecessor left was not removed; each start tries again", "name", s.Name, "error", err)
			m.owe(s.ID, err)
		}
	}
	if err := m.sweepFolders(); err != nil {
		return err
	}
	m.swept = true
	return nil
}

func (m *Manager) sweepFolders() error {
	entries, err := os.ReadDir(m.opts.RunRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, rundir.Remove(m.opts.RunRoot, e.Name()))
	}
	pruneLogs(m.logs, nil) // nothing lives before the sweep
	return errors.Join(errs...)
}

// Start starts a run and returns when its sandbox stands and its agent is connected. When it fails nothing is left
// of it but its log. Errors are *fault.Fault.
func (m *Manager) Start(ctx context.Context, req types.RunRequest) (*Run, error) {
	if req.Display && req.VNC {
		return nil, fault.New(fault.Usage, "ask for one of display and vnc", "a run shows its windows on your screen or on one of its own, not on both")
	}
	plan, err := m.opts.Plan(req.Agent, req.Cwd)
	if err != nil {
		return nil, err
	}
	if err := override(plan, req.Limits); err != nil {
		return nil, err
	}
	if err := m.machine.refuse(); err != nil {
		return nil, err
	}
	if err := m.Sweep(ctx); err != nil {
		return nil, startFault(err, plan)
	}
	r, err := m.reserve(plan)
	if err != nil {
		return nil, err
	}
	if err := r.start(ctx, req); err != nil {
		r.log.add("handlerd", "did not start: "+fault.Of(err).Text)
		r.end(err)
		return nil, fault.Of(err)
	}
	r.announce()
	return r, nil
}

// reserve gives a run its id and its place in the table, so that two never share a name.
func (m *Manager) reserve(plan *render.Plan) (*Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return nil, fault.New(fault.Failed, "try again", "handlerd is ending")
	}
	if len(m.runs) >= MaxRuns {
		return nil, fault.New(fault.Refused, "end one: handler ps, handler kill RUN", "refused by P7: %d runs live already, the most of one daemon", len(m.runs))
	}
	for range 100 {
		id := newID()
		if m.runs[id] != nil || m.hasArtifacts(id) {
			continue
		}
		log, err := newRunLog(m.logs, id, time.Now)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fault.Wrap(fault.Failed, err, "free some space or mend the folder's rights", "the run's log")
		}
		r := newRun(m, id, plan, log)
		r.recorder.store = m.opts.History
		m.runs[id] = r
		pruneLogs(m.logs, m.runs)
		return r, nil
	}
	return nil, fault.New(fault.Failed, "rm "+m.logs+"/*", "no free run id was found")
}

// newID makes four characters that people can read out: no vowels, so no words.
func newID() string {
	const letters = "bcdfghjkmnpqrstvwxz0123456789"
	var b [4]byte
	for i := range b {
		for {
			var c [1]byte
			rand.Read(c[:]) // never fails (crypto/rand)
			if n := int(c[0]); n < 256/len(letters)*len(letters) {
				b[i] = letters[n%len(letters)]
				break
			}
		}
	}
	return string(b[:])
}

// forget takes an ended run out of the table.
func (m *Manager) forget(r *Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, r.id)
	if m.opts.Feed != nil {
		m.opts.Feed.Announce(types.Change{Ended: r.id})
	}
}

// List gives every live run, oldest first.
func (m *Manager) List(ctx context.Context) []types.Run {
	m.mu.Lock()
	runs := make([]*Run, 0, len(m.runs))
	for _, r := range m.runs {
		runs = append(runs, r)
	}
	m.mu.Unlock()
	slices.SortFunc(runs, func(a, b *Run) int { return a.since.Compare(b.since) })
	list := make([]types.Run, len(runs))
	var wg sync.WaitGroup
	for i, r := range runs {
		wg.Go(func() { list[i] = r.status(ctx) })
	}
	wg.Wait()
	return list
}

// Count gives how many runs live.
func (m *Manager) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.runs)
}

// Find gives the live run whose id begins with id.
func (m *Manager) Find(ctx context.Context, id string) (types.Run, error) {
	r, err := m.find(id)
	if err != nil {
		return types.Run{}, err
	}
	return r.status(ctx), nil
}

func (m *Manager) find(prefix string) (*Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[prefix]; r != nil {
		return r, nil
	}
	var found []string
	for id := range m.runs {
		if prefix != "" && strings.HasPrefix(id, prefix) {
			found = append(found, id)
		}
	}
	if len(found) != 1 {
		slices.Sort(found)
		return nil, noRun(prefix, found)
	}
	return m.runs[found[0]], nil
}

func noRun(prefix string, found []string) error {
	if len(found) > 1 {
		return fault.New(fault.Usage, "type more of it: "+strings.Join(found[:min(len(found), 8)], ", "), "%q is the beginning of several runs' ids", prefix)
	}
	return fault.New(fault.NotFound, "see: handler ps", "there is no run %q", prefix)
}

// Kill ends a run and returns when nothing of it is left, or ctx is done.
func (m *Manager) Kill(ctx context.Context, id string) error {
	r, err := m.find(id)
	if err != nil {
		return err
	}
	r.cancel(errKilled)
	select {
	case <-r.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Log calls line for each line of the log of the run whose id begins with id, live or not; with follow until the
// run ends.
func (m *Manager) Log(ctx context.Context, id string, follow bool, line func(types.LogLine) error) error {
	var live *runLog
	r, err := m.find(id)
	if err == nil {
		id = r.id
		if follow {
			live = r.log
		}
	} else if id, err = findLog(m.logs, id); err != nil {
		return err
	}
	return readLog(ctx, logPath(m.logs, id), live, line)
}

// Close ends every run and returns when nothing is left of them, or ctx is done. No run starts after it.
func (m *Manager) Close(ctx context.Context) error {
	defer m.views.Close()
	m.mu.Lock()
	m.closing = true
	runs := make([]*Run, 0, len(m.runs))
	for _, r := range m.runs {
		runs = append(runs, r)
	}
	m.mu.Unlock()
	for _, r := range runs {
		r.cancel(errDaemonEnds)
	}
	for _, r := range runs {
		select {
		case <-r.gone:
		case <-ctx.Done():
			return fmt.Errorf("runs are left: %w", ctx.Err())
		}
	}
	return nil
}
