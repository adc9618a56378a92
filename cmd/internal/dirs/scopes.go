package dirs

import (
	"path/filepath"

	"github.com/handlerd/handler/handlerd/scopes"
	"github.com/handlerd/handler/handlerd/settings"
)

// Settings is the path of what the person says of the machine.
func (d Dirs) Settings() string { return filepath.Join(d.Config, "handler.toml") }

// Scopes says what may be a scope here: the daemon asks it at every start, the command line when an agent is saved, so
// that none is saved which no run would take.
func (d Dirs) Scopes() (scopes.Config, error) {
	now, err := settings.Load(d.Settings())
	if err != nil {
		return scopes.Config{}, err
	}
	return scopes.Config{
		Home:    d.Home,
		Handler: []string{d.Config, d.State, d.Data, d.Cache, d.Run},
		Engine:  []string{filepath.Join(d.Home, ".local/share/containers"), filepath.Join(d.XDGRun, "containers")},
		Runtime: d.XDGRun, Protect: now.Protect.Paths, Allow: now.Protect.Allowed,
	}, nil
}
