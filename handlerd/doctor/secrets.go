package doctor

import (
	"context"
	"fmt"
)

// A Secret is one that a saved agent names.
type Secret struct {
	Agent string
	Name  string
	Err   error // why it cannot be read, without a part of it; nil if it most likely can
}

// checkSecrets: a secret that is not there fails the start of its agent's runs.
func checkSecrets(ctx context.Context, m *machine) []Finding {
	const id = "secrets"
	if m.Secrets == nil {
		return nil
	}
	list, err := m.Secrets(ctx)
	if err != nil {
		return remark(id, fmt.Sprintf("the agents' secrets could not be looked for: %v", err), "")
	}
	var found []Finding
	for _, s := range list {
		if s.Err != nil {
			found = append(found, problem(id, fmt.Sprintf("a secret of agent %s cannot be read", s.Agent), fmt.Sprintf("%s: %v", s.Name, s.Err), "handler secret check "+s.Agent)...)
		}
	}
	if len(found) == 0 && len(list) > 0 {
		return ok(id, fmt.Sprintf("%d secrets of your agents are where they should be", len(list)))
	}
	return found
}
