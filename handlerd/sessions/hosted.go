package sessions

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/gateway"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox"
)

// A HostedRun is what a server that handlerd hosts must know of the run that uses it.
type HostedRun struct {
	ID, Agent string
	Plan      *render.Plan
	// Unattended says that nobody can be asked.
	Unattended, ReadOnly bool
	// Network gives the rules of a server that has a sandbox of its own as of when it is called: base, and what the person
	// changes while the run lives.
	Network func(server string, base policy.Network) func() policy.Network
	// Session gives the ACP session that a server's token stands for; "" where it is not known.
	Session func(token string) string
	// Secrets reads the files of secrets for a server's own sandbox, and writes down that it did.
	Secrets func(context.Context, []render.SecretFile) ([]sandbox.File, error)
	// Say writes a line into the run's log.
	Say func(who, text string)
}

// A HostedServer is one server of one run. Event tells it what happens in the run's sessions; Close ends it with the
// run, when no connection is left.
type HostedServer interface {
	gateway.Server
	Event(acp.Event)
	// Recheck cuts what the rules refuse by now.
	Recheck()
	// Stop is the person's: what the server runs elsewhere is gone when it returns, and it starts nothing more.
	Stop()
	Close() error
}

// hosted is the MCP servers of a run that handlerd hosts; the zero value is a run without any.
type hosted struct {
	gateway *gateway.Gateway
	run     HostedRun
	servers map[string]HostedServer // by name; not written once the run is running, and with mu before

	mu       sync.Mutex
	tokens   map[string]string       // the session of each token; protected by mu
	networks map[string]*liveNetwork // of servers with a sandbox of their own, by name; protected by mu
}

// maxTokens bounds the tokens of one run: each stands for a session that was opened.
const maxTokens = 4096

// openHosted makes the run's hosted servers and listens for the sandbox's connections to them.
func (r *Run) openHosted(ctx context.Context, req types.RunRequest, _ *sandbox.Spec) error {
	if len(r.plan.Hosted) == 0 {
		return nil
	}
	if r.m.opts.Hosted == nil {
		return fault.New(fault.Failed, "", "this handlerd hosts no MCP servers")
	}
	r.hosted.tokens, r.hosted.servers = map[string]string{}, map[string]HostedServer{}
	r.hosted.networks = map[string]*liveNetwork{}
	run := HostedRun{Network: r.hostedNetwork, Session: r.sessionOf, Secrets: r.boxSecrets, Say: r.log.add,
		ID: r.id, Agent: r.plan.Agent, Plan: r.plan, Unattended: req.Unattended || req.NeverAsk, ReadOnly: req.Answers == types.AnswersReads}
	r.hosted.run = run
	servers := map[string]gateway.Hosted{}
	for _, h := range r.plan.Hosted {
		filter := gateway.Filter{Allow: h.Allow, Deny: h.Deny}
		if err := filter.Check(); err != nil {
			return fault.Wrap(fault.Usage, err, "", "the tools of %s", h.Name)
		}
		if err := r.tryBox(ctx, h); err != nil {
			return err
		}
		s, err := r.m.opts.Hosted(run, h)
		if err != nil {
			return err
		}
		r.hosted.mu.Lock()
		r.hosted.servers[h.Name] = s
		r.hosted.mu.Unlock()
		servers[h.Name] = gateway.Hosted{Server: s, Filter: filter, Limits: gateway.Limits{Text: int(h.Limits.Results), Call: h.Limits.CallTime}}
	}
	var err error
	r.hosted.gateway, err = gateway.New(gateway.Options{
		Run: r.id, Agent: r.plan.Agent, Servers: servers, Session: r.sessionOf, Record: r.recordCall, Ended: r.callEnded, Admit: r.admitCall, Keep: r.keepOfResult,
		Version: r.m.opts.Version, Logger: r.m.log.With("part", "gateway"),
	})
	if err != nil {
		return fault.Wrap(fault.Failed, err, "", "the run's MCP servers")
	}
	l, err := r.dir.Listen(sandbox.SocketMCP)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "handler doctor", "the run's MCP servers")
	}
	go func() {
		// Serve ends with the gateway, which end closes before it is done.
		if err := r.hosted.gateway.Serve(l); err != nil {
			r.m.log.Error("the MCP servers of a run ended", "run", r.id, "error", err)
		}
	}()
	return nil
}

// sessionTokens is how the relay's rules tell which session a hosted server was given to.
func (r *Run) sessionTokens() acp.Sessions {
	if r.hosted.gateway == nil {
		return acp.Sessions{}
	}
	return acp.Sessions{Token: rand.Text, Opened: func(token, session string) {
		r.hosted.mu.Lock()
		defer r.hosted.mu.Unlock()
		if len(r.hosted.tokens) < maxTokens {
			r.hosted.tokens[token] = session
		}
	}}
}

func (r *Run) sessionOf(token string) string {
	r.hosted.mu.Lock()
	defer r.hosted.mu.Unlock()
	return r.hosted.tokens[token]
}

// tellHosted passes on what happens in the run's sessions.
func (r *Run) tellHosted(e acp.Event) {
	switch e.Kind {
	case acp.TurnStarted, acp.TurnEnded, acp.TurnCancelled, acp.SessionOpened, acp.SessionClosed:
	default:
		return
	}
	for _, s := range r.hosted.servers { // they know nothing of each other
		s.Event(e)
	}
}

// closeHosted ends the servers; what they still run elsewhere, such as a browser, is gone when it returns.
func (r *Run) closeHosted() {
	if r.hosted.gateway != nil {
		r.warn("the MCP servers were not closed", r.hosted.gateway.Close())
	}
	for _, s := range r.hosted.servers {
		r.warn("an MCP server was not closed", s.Close())
	}
}

// admitCall bounds how many tool calls there are, since each is written down: calls that lead to nothing are had for
// nothing, and would push all else out of the audit log.
func (r *Run) admitCall() error {
	ok, missed, _ := r.calls.take()
	r.tellMissed(missed)
	if !ok {
		return fmt.Errorf("too many tool calls: %d at once, then %d a second, and %d in one run; wait before the next one", verdictBurst, verdictRate, verdictsRun)
	}
	return nil
}

// keepOfResult keeps what was cut of a hosted server's result as an artifact.
func (r *Run) keepOfResult(ctx context.Context, k gateway.Kept) (string, error) {
	if r.m.opts.Artifacts == nil {
		return "", errors.New("this handlerd keeps no artifacts")
	}
	a, err := r.m.opts.Artifacts.Add(ctx, artifacts.Meta{Owner: r.m.opts.Principal, Run: r.id, Agent: r.plan.Agent, Session: k.Session,
		Name: k.Server + "-" + k.Name, Source: k.Tool}, bytes.NewReader(k.Content))
	if err != nil {
		return "", err
	}
	return a.ID, nil
}

// recordCall writes a tool call down; its result does not go out before.
func (r *Run) recordCall(c gateway.Record) error {
	rec := audit.Record{Kind: audit.KindTool, Run: r.id, Agent: r.plan.Agent, Session: c.Session, Subject: c.Server + " " + c.Tool,
		Reason: "arguments sha256:" + c.Digest}
	if c.Refused != "" {
		rec.Verdict = audit.Refused
		rec.Reason = cut(c.Refused, maxReason) + "; " + rec.Reason
	}
	return r.m.opts.Audit.Append(rec)
}

// callEnded tells the run's log how a tool call ended.
func (r *Run) callEnded(c gateway.Record) {
	text := c.Server + " " + c.Tool
	switch {
	case c.Refused != "":
		text += " refused: " + cut(c.Refused, maxReason)
	case c.Failed:
		text += " failed"
	}
	r.log.add("handlerd", fmt.Sprintf("%s in %v", text, c.Took.Round(time.Millisecond)))
}

// Servers lists the MCP servers that are hosted for the run whose id begins with id.
func (m *Manager) Servers(id string) ([]types.Server, error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	all := []types.Server{}
	if r.state.Load() != types.StateRunning || r.hosted.gateway == nil {
		return all, nil
	}
	for _, s := range r.hosted.gateway.Servers() {
		all = append(all, types.Server{Name: s.Name, Stopped: s.Stopped})
	}
	return all, nil
}

// StopServers is the person's kill switch (F.9): the hosted server name, or all where it is "", answers no call more
// in that run, and what it runs elsewhere, such as a browser, is gone. It gives the names of those that it stopped.
func (m *Manager) StopServers(id, name string) ([]string, error) {
	r, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if r.state.Load() != types.StateRunning || r.hosted.gateway == nil {
		return nil, fault.New(fault.NotFound, "see: handler gateway list", "no MCP server is hosted for the run %s", r.id)
	}
	done, err := r.hosted.gateway.Stop(name)
	if err != nil {
		return nil, fault.Wrap(fault.NotFound, err, "see: handler gateway list "+r.id, "the run %s", r.id)
	}
	for _, n := range done { // written down first: taking down a sandbox takes a while, and the run may end meanwhile
		rec := audit.Record{Kind: audit.KindTool, Run: r.id, Agent: r.plan.Agent, Subject: n, Verdict: audit.Refused, Reason: "the person stopped this server"}
		if err := m.opts.Audit.Append(rec); err != nil {
			m.log.Error("audit line not written", "run", r.id, "error", err)
		}
		r.log.add("handlerd", "you stopped the MCP server "+n)
	}
	for _, n := range done {
		r.hosted.servers[n].Stop()
	}
	return done, nil
}
