package sessions

import (
	"context"
	"net"
	"net/http"

	"github.com/handlerd/handler/handlerd/preview"
)

// Previews makes what a browser session of a live run sees of the run's own work (F.6): local answers the hosts of
// previews, and is nil for every other; done ends it, and comes when the browser is gone. A run that is not there any
// more, or whose scopes cannot be opened, has no previews: local is nil then.
func (m *Manager) Previews(run, _ string) (local func(host string) http.Handler, done func()) {
	m.mu.Lock()
	r := m.runs[run]
	m.mu.Unlock()
	if r == nil {
		return nil, func() {}
	}
	o := preview.Options{Dial: func(ctx context.Context, port int) (net.Conn, error) {
		c, err := r.dial(ctx, port)
		if err != nil {
			return nil, err // and no typed nil
		}
		return c, nil
	}}
	o.Scopes = scopePaths(r.scopes)
	s, err := preview.New(o)
	if err != nil {
		r.log.add("handlerd", "the browser shows no files of the workspace: "+printable(err.Error(), maxNotice))
		return nil, func() {}
	}
	return s.Handler, func() { r.warn("the previews of a browser session were not closed", s.Close()) }
}
