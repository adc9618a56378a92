package sessions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/doctor"
	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/sandbox"
)

// A box is a sandbox of a run's besides the agent's: a guarded browser's, or a hosted server's.
type box struct {
	mcpbox.About
	used atomic.Int64 // bytes of memory, as its watch saw them last
}

// BoxLives counts a sandbox among those of its run, from its start until gone is called when it is removed:
// mcpbox.Options.Live.
func (m *Manager) BoxLives(a mcpbox.About) (gone func()) {
	m.mu.Lock()
	if m.boxes == nil {
		m.boxes = map[string]*box{}
	}
	m.boxes[a.Sandbox] = &box{About: a}
	r := m.runs[a.Run]
	m.mu.Unlock()
	if r != nil {
		r.announce()
	}
	return func() {
		m.mu.Lock()
		delete(m.boxes, a.Sandbox)
		m.mu.Unlock()
		if r != nil {
			r.tellTrafficOf("the "+a.What, a.Session, a.Traffic())
			r.announce()
		}
	}
}

// WatchBox keeps the limits of such a sandbox where the kernel does not, and knows from then on what it uses:
// mcpbox.Options.Watch.
func (m *Manager) WatchBox(ctx context.Context, id string, l sandbox.Limits, stop func(error)) {
	WatchSandbox(ctx, m.opts.Driver, id, l, func(s sandbox.Stats) {
		m.mu.Lock()
		b := m.boxes[id]
		m.mu.Unlock()
		if b != nil {
			b.used.Store(s.MemoryBytes)
		}
	}, stop)
}

// boxesOf gives a run's, the oldest first.
func (m *Manager) boxesOf(run string) []*box {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*box
	for _, b := range m.boxes {
		if b.Run == run {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *box) int {
		return 2*a.Since.Compare(b.Since) + strings.Compare(a.Sandbox, b.Sandbox)
	})
	return found
}

// using is the memory of a run and of all that is its own, as far as is known. It needs m.mu.
func (m *Manager) using(r *Run) int64 {
	n := r.memoryUsed.Load()
	for _, b := range m.boxes {
		if b.Run == r.id {
			n += b.used.Load()
		}
	}
	return n
}

// parts gives what a run is besides its agent's sandbox, without what that uses.
func (r *Run) parts() []types.Part {
	parts := []types.Part{}
	for _, b := range r.m.boxesOf(r.id) {
		keeper := func(l sandbox.Limit) types.Limit {
			if l.Watched {
				return types.Limit{Value: l.Value, By: byHandlerd}
			}
			return types.Limit{Value: l.Value, Enforced: true, By: byKernel}
		}
		net := b.Traffic()
		p := types.Part{Kind: b.Part, Name: b.Addon, Session: b.Session, Since: b.Since, Sandbox: b.Sandbox,
			MemoryLimit: keeper(b.Limits.Memory), ProcLimit: keeper(b.Limits.Processes), Allowed: net.Allowed, Refused: net.Refused, Failed: net.Failed}
		p.Traffic, _ = traffic(net, MaxTraffic)
		parts = append(parts, p)
	}
	return parts
}

// measureParts adds what they use; one that ends meanwhile uses nothing.
func (r *Run) measureParts(ctx context.Context, parts []types.Part) {
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() {
			s, err := r.m.opts.Driver.Stats(ctx, parts[i].Sandbox)
			if err != nil {
				return
			}
			parts[i].MemoryBytes, parts[i].Processes, parts[i].CPUMillis = s.MemoryBytes, s.Processes, s.CPUTime.Milliseconds()
		})
	}
	all.Wait()
}

// Census counts what lives in the daemon, for handler doctor.
func (m *Manager) Census() doctor.Live {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := doctor.Live{Runs: len(m.runs), Owed: len(m.owed)}
	for _, r := range m.runs {
		c.Memory += r.memoryUsed.Load()
	}
	for _, b := range m.boxes {
		c.Memory += b.used.Load()
		if b.Part == sandbox.PartBrowser {
			c.Browsers++
		} else {
			c.Servers++
		}
	}
	return c
}

// whatItWas names a sandbox of a predecessor by its labels: "the browser of run k3f9".
func whatItWas(s sandbox.Sandbox) string {
	what := "the sandbox"
	switch part := s.Labels[sandbox.LabelPart]; part {
	case "":
	case sandbox.PartBrowser, sandbox.PartServer:
		what = "the " + part
	default:
		what = "a part"
	}
	if run := s.Labels[sandbox.LabelRun]; run != "" {
		what += " of run " + run
	}
	return what
}

// sweptText says what was found of a predecessor: "2 of runs, 1 of browsers, 3 of hosted servers".
func sweptText(left []sandbox.Sandbox) string {
	n := map[string]int{}
	for _, s := range left {
		n[s.Labels[sandbox.LabelPart]]++
	}
	return fmt.Sprintf("%d of runs, %d of browsers, %d of hosted servers", n[""], n[sandbox.PartBrowser], n[sandbox.PartServer])
}
