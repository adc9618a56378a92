package sessions

import (
	"context"
	"maps"
	"slices"
)

// owe notes a sandbox that the engine could not remove, so that the next start, or the end of the daemon, does.
func (m *Manager) owe(sandbox string, err error) {
	if err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owed == nil {
		m.owed = map[string]bool{}
	}
	m.owed[sandbox] = true
}

// pay removes what is owed, as far as the engine can by now.
func (m *Manager) pay(ctx context.Context) {
	m.mu.Lock()
	owed := slices.Collect(maps.Keys(m.owed))
	m.mu.Unlock()
	for _, id := range owed {
		if err := m.opts.Driver.Remove(ctx, id); err != nil {
			m.log.Warn("a sandbox of an earlier run is still not removed", "id", id, "error", err)
			continue
		}
		m.mu.Lock()
		delete(m.owed, id)
		m.mu.Unlock()
	}
}
