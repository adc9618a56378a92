package sessions

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/render"
	"github.com/handlerd/handler/sandbox"
)

// override puts the limits of a request over those of the plan. Whoever may start a run may give it any limits, more
// than its agent has too: the socket is the person's own, and so is the agent's file.
func override(plan *render.Plan, asked types.Limits) error {
	limits := agents.Limits(asked)
	boxed, err := limits.Over(plan.Sandbox.Limits)
	if err == nil {
		plan.Limits, err = limits.RunOver(plan.Limits)
	}
	if err != nil {
		return fault.New(fault.Usage, "see: handler run --help", "%v", err)
	}
	plan.Sandbox.Limits = boxed
	return nil
}

// Who keeps a limit, as people are told.
const (
	byKernel   = "kernel"
	byAffinity = "kernel (affinity)"
	byHandlerd = "handlerd"
)

// settleLimits decides who keeps which limit: the kernel, where it does; the run's watchdog elsewhere (A.4).
func (r *Run) settleLimits(l *sandbox.Limits, enforced sandbox.Enforced) {
	l.Memory.Watched, l.Processes.Watched = !enforced.Memory, !enforced.Processes
	keeper := func(limit sandbox.Limit, kernel bool, other string) types.Limit {
		t := types.Limit{Value: limit.Value, Enforced: kernel, By: byKernel}
		if !kernel {
			t.By = other
		}
		return t
	}
	r.memoryLimit = keeper(l.Memory, enforced.Memory, byHandlerd)
	r.procLimit = keeper(l.Processes, enforced.Processes, byHandlerd)
	r.cpuLimit = keeper(l.CPU, enforced.CPU, byAffinity)
}

// watch starts the run's watchdog: from the moment that its sandbox runs, until the run ends.
func (r *Run) watch(limits sandbox.Limits, volumes []sandbox.Volume) {
	driver, id := r.m.opts.Driver, r.sandbox
	memory := &memoryWatch{
		memory: limits.Memory, processes: limits.Processes,
		glance: func(ctx context.Context) (sandbox.Stats, error) { return driver.Glance(ctx, id) },
		stats:  func(ctx context.Context) (sandbox.Stats, error) { return driver.Stats(ctx, id) },
		warn:   r.warnOfLimit, stop: r.stopAtLimit, hint: r.limitHint,
		seen: func(s sandbox.Stats) { r.memoryUsed.Store(s.MemoryBytes) },
	}
	var folders []string
	for _, v := range volumes {
		folders = append(folders, v.Source)
	}
	state := r.plan.Limits.State
	if len(folders) == 0 {
		state = 0
	}
	told := false
	times := &timeWatch{
		lifetime: r.plan.Limits.Lifetime, idle: r.plan.Limits.Idle, state: state, born: r.since, active: r.lastActive,
		measure: func(ctx context.Context, most int64) (stateUse, error) { return measureState(ctx, folders, most) },
		free: func() int64 {
			if free, _, err := diskLeft(folders[0]); err == nil {
				return free
			}
			return -1
		},
		machine: func() *limitError {
			end, warning := r.m.machine.check(func() bool { return r.m.biggest(r) })
			if warning != "" && !told {
				r.warnOfLimit(warning)
			}
			told = warning != ""
			return end
		},
		warn: r.warnOfLimit, stop: r.stopAtLimit, hint: r.limitHint,
		seen: func(n int64) { r.stateUsed.Store(n) },
	}
	r.watching.Go(func() { memory.run(r.ctx) })
	r.watching.Go(func() { times.run(r.ctx) })
}

// biggest tells whether no run uses more memory than r, browsers and hosted servers included, as far as is known.
func (m *Manager) biggest(r *Run) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	mine := m.using(r)
	for _, other := range m.runs {
		if other != r && m.using(other) > mine {
			return false
		}
	}
	return true
}

// warnOfLimit says that the run is near a limit: to whoever looks at the run, to the person at its end, to the audit.
func (r *Run) warnOfLimit(text string) {
	r.notice("%s", text)
	r.log.add(types.FromNotice, text)
	r.audit(audit.Record{Kind: audit.KindLimit, Subject: r.plan.Harness, Reason: text})
}

// stopAtLimit ends the run at a limit. What eats the machine is killed at once, and written down then: the audit waits
// for the disk, which may be what the agent keeps busy. What has only had its time is ended as any run is.
func (r *Run) stopAtLimit(err *limitError) {
	defer r.audit(audit.Record{Kind: audit.KindLimit, Verdict: audit.Refused, Subject: r.plan.Harness, Reason: err.Error()})
	r.cancel(&fault.Fault{Kind: fault.Failed, Text: err.Error(), Hint: err.Hint, Err: err})
	if err.Limit == "lifetime" || err.Limit == "idle" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), teardownLimit)
	defer cancel()
	r.warn("the sandbox was not stopped", r.m.opts.Driver.Stop(ctx, r.sandbox, 0))
}

// limitHint says how a person gives the run more of a limit.
func (r *Run) limitHint(limit, unlimited string) string {
	more := "MORE"
	if unlimited != "" {
		more += " (or " + unlimited + ")"
	}
	return "give it more: handler run " + r.plan.Agent + " --" + limit + " " + more + " …; for good: handler agent edit " + r.plan.Agent + " --" + limit + " MORE"
}

// Ended is what a client is told that waits for an answer when the run was ended at a limit (handlerd/acp).
func (e *limitError) Ended() (text string, data []byte) {
	data, err := json.Marshal(struct {
		Ended   string `json:"ended"`
		Reason  string `json:"reason"`
		Used    string `json:"used,omitempty"`
		Allowed string `json:"allowed,omitempty"`
		Hint    string `json:"hint,omitempty"`
	}{e.Limit, e.Error(), e.Used, e.Allowed, e.Hint})
	if err != nil {
		data = nil // a struct of strings always encodes
	}
	return e.Error(), data
}

// lastActive is when the last ACP byte went either way; now, while a turn is under way.
func (r *Run) lastActive() time.Time {
	if r.working.Load() > 0 {
		return time.Now()
	}
	return r.since.Add(time.Duration(r.touched.Load()))
}

func (r *Run) touch() { r.touched.Store(int64(time.Since(r.since))) }

// An activeConn tells the run of every byte that is read from it or written to it.
type activeConn struct {
	net.Conn
	touch func()
}

func (c *activeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}

func (c *activeConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// CloseWrite ends the output alone, where the connection can.
func (c *activeConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// usage is what a run has used of its limits, for people.
func (r *Run) usage(s *types.Run, stats sandbox.Stats) {
	s.MemoryBytes, s.Processes, s.CPUMillis = stats.MemoryBytes, stats.Processes, stats.CPUTime.Milliseconds()
	s.MemoryLimit, s.ProcLimit, s.CPULimit = r.memoryLimit, r.procLimit, r.cpuLimit
	s.StateBytes = r.stateUsed.Load()
	if n := r.plan.Limits.State; n > 0 && len(r.plan.Sandbox.Volumes) > 0 {
		s.StateLimit = types.Limit{Value: n, By: byHandlerd}
	}
	if d := r.plan.Limits.Lifetime; d > 0 {
		left := (d - time.Since(r.since)).Milliseconds()
		s.Lifetime, s.LifetimeLeft = d.Milliseconds(), &left
	}
	if d := r.plan.Limits.Idle; d > 0 {
		s.IdleLimit = d.Milliseconds()
	}
	s.Idle = max(0, time.Since(r.lastActive()).Milliseconds())
}
