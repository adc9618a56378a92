package sessions

import (
	"context"

	"github.com/handlerd/handler/sandbox"
)

// WatchSandbox keeps the limits of a sandbox that is no run's own, such as a browser's, where their Watched says that the
// kernel does not: it measures as for a run (A.4) until ctx ends, or until it has called stop with what was met. seen gets what it measured.
func WatchSandbox(ctx context.Context, d sandbox.Driver, id string, l sandbox.Limits, seen func(sandbox.Stats), stop func(error)) {
	w := &memoryWatch{
		memory: l.Memory, processes: l.Processes,
		glance: func(ctx context.Context) (sandbox.Stats, error) { return d.Glance(ctx, id) },
		stats:  func(ctx context.Context) (sandbox.Stats, error) { return d.Stats(ctx, id) },
		warn:   func(string) {}, seen: seen,
		stop: func(e *limitError) { stop(e) },
		hint: func(string, string) string { return "" },
	}
	w.run(ctx)
}

// Enforced says which limits the kernel keeps here. It asks the engine once in the daemon's life.
func (m *Manager) Enforced(ctx context.Context) (sandbox.Enforced, error) {
	info, err := m.info(ctx)
	return info.Enforced, err
}

// Owe notes a sandbox that the engine could not remove, so that the next start, or the end of the daemon, does.
func (m *Manager) Owe(sandbox string, err error) { m.owe(sandbox, err) }
