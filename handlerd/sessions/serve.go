package sessions

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/harness"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/sandbox"
)

// relay carries ACP between client and agent under the rules until either ends.
func (r *Run) relay(client net.Conn) error {
	var asked sync.WaitGroup
	defer asked.Wait()
	ctx, leave := context.WithCancel(r.ctx)
	defer leave()
	rules := acp.NewRules(r.rules(), r.plan.SessionsPerRun)
	rules.Tell(r.sessionTokens())
	relay := acp.NewRelay(acp.Options{
		Client: &activeConn{client, r.touch}, Agent: r.agent.(io.ReadWriteCloser),
		Rules:   rules,
		Observe: r.observe,
		Carried: r.recorder.carried,
		AgentEnded: func(ctx context.Context) string {
			return r.agentEnded(ctx).Text
		},
		Log: r.m.log.With("run", r.id),
	})
	if r.desk != nil {
		asked.Go(func() { r.desk.serve(ctx, relay.Call) })
	}
	end := relay.Run(r.ctx)
	leave()
	switch {
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	case end.By == acp.Agent && r.failed():
		ctx, cancel := context.WithTimeout(context.Background(), settle)
		defer cancel()
		return r.agentEnded(ctx)
	case errors.Is(end.Err, net.ErrClosed):
		return nil
	}
	return end.Err
}

// failed tells whether the agent ended by itself and not well.
func (r *Run) failed() bool {
	select {
	case <-r.dir.Done():
	case <-time.After(settle):
		return true // its output has ended and it has not
	}
	res := r.dir.Result()
	return res.Failed != "" || !res.Exited || res.Code != 0
}

// rules are what the relay asks (contract C).
func (r *Run) rules() *policy.Config {
	var open []policy.Scope
	var paths []string
	for _, s := range r.scopes {
		open = append(open, policy.Scope{Path: s.path, RW: !s.readOnly})
		paths = append(paths, s.path)
	}
	config := &policy.Config{
		Agent: r.plan.Agent, Scopes: open, Resolve: scopes.Resolve, ReadOnly: r.rulesOfScopes.ReadOnly(paths),
		Reach:      func(host string, port uint16) policy.Verdict { return r.network.get().Decide(host, port) },
		Transports: r.plan.MCPTransports,
		HostFS:     r.plan.Policy.HostFS, HostTerminal: r.plan.Policy.HostTerminal, DenyClientMCP: r.plan.Policy.DenyClientMCP,
	}
	config.Answers = r.answers
	if r.plan.SessionMCP == harness.SessionMCPACP {
		config.Servers = r.servers()
	}
	return config
}

// readAnswers says how the agent's questions are answered without a person (P5): by what the request says, else by the
// agent's settings.
func (r *Run) readAnswers(_ context.Context, req types.RunRequest, _ *sandbox.Spec) error {
	r.answers = &policy.Answers{Unattended: req.Unattended, Agent: r.plan.Policy.Unattended, Rules: r.plan.Policy.Answers}
	if !req.NeverAsk {
		r.answers.UnattendedBy = policy.NoTerminal
	}
	switch req.Answers {
	case "":
	case types.AnswersAllow:
		r.answers.Run, r.answers.RunBy = policy.AnswerAllow, "--yes"
	case types.AnswersReads:
		r.answers.Run, r.answers.RunBy = policy.AnswerReads, "--read-only"
	default:
		return fault.New(fault.Usage, "send "+types.AnswersAllow+", "+types.AnswersReads+" or nothing", "answers are not %q", cut(req.Answers, maxSubject))
	}
	return nil
}

// servers are the plan's, with what only the engine knows.
func (r *Run) servers() []policy.MCPServer {
	list := make([]policy.MCPServer, 0, len(r.plan.SessionDefaults.MCPServers))
	for _, s := range r.plan.SessionDefaults.MCPServers {
		if s.Type == "" {
			s.Env = append(append([]policy.Pair{}, s.Env...), r.env...)
		}
		list = append(list, s)
	}
	return list
}

// observe keeps the counts of `handler ps`, the run's log and the audit.
func (r *Run) observe(e acp.Event) {
	r.tellHosted(e)
	r.pictures.observe(e)
	r.desk.saw(e)
	switch e.Kind {
	case acp.TurnStarted:
		r.working.Add(1)
		r.announce()
	case acp.TurnEnded:
		r.working.Add(-1)
		r.announce()
	case acp.ToolCalled:
		r.toolCalls.Add(1)
	case acp.LineDropped:
		// The agent can send any number of these, so they are charged to what it may say.
		r.log.charge("agent", "handlerd", "a line of the "+e.From.String()+" was no message and was dropped: "+e.Text)
	case acp.Answered:
		line := audit.Of(e.Verdict)
		line.Kind, line.Session, line.Subject = audit.KindAnswer, e.Session, e.Method
		if e.Verdict.Action == policy.Allow {
			r.allowedAnswer(line, e.Verdict.Reason)
		} else {
			r.verdict(line, e.Verdict.Reason)
		}
	case acp.Judged:
		line := audit.Of(e.Verdict)
		line.Kind, line.Session, line.Subject = audit.KindMessage, e.Session, e.Method
		if e.Verdict.Action == policy.Refuse {
			r.refused.Add(1)
		}
		r.verdict(line, line.Verdict+" by "+e.Verdict.Rule+": "+e.Verdict.Reason)
	}
}
