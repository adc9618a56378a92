package api

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// An Attached is something of a run's that waits for its client, which comes by an upgrade: a shell, a forward, a
// connection into a port. Exactly one of its methods is called.
type Attached interface {
	// Serve joins client until either or the run ends, and closes client.
	Serve(ctx context.Context, client net.Conn) error
	// Abort ends it without a client.
	Abort()
}

// attach opens something of a run first and upgrades after, so that what goes wrong is an ordinary answer.
func attach[T any](s *Server, protocol string, open func(ctx context.Context, id string, req T) (Attached, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), protocol) || open == nil {
			s.fail(w, fault.New(fault.Usage, "send Connection: Upgrade and Upgrade: "+protocol,
				"it lives as long as its connection, so it needs an upgrade"))
			return
		}
		var req T
		if err := readJSON(w, r, &req); err != nil {
			s.fail(w, err)
			return
		}
		opened, err := open(r.Context(), r.PathValue("id"), req)
		if err != nil {
			s.fail(w, err)
			return
		}
		client, err := s.upgrade(w, http.NewResponseController(w), protocol)
		if err != nil {
			opened.Abort()
			return
		}
		// It outlives the request: its context is the connection, and the server's end is the run's.
		if err := opened.Serve(context.WithoutCancel(r.Context()), client); err != nil {
			s.log.Info("ended", "what", protocol, "run", r.PathValue("id"), "error", err)
		}
	}
}

// routeAttached routes what needs an upgrade, a run's own connection aside.
func (s *Server) routeAttached(mux *http.ServeMux) {
	mux.HandleFunc("POST "+types.PathRuns+"/{id}/shell", attach(s, types.UpgradeShell, s.opts.Shell))
	mux.HandleFunc("POST "+types.PathRuns+"/{id}/forward", attach(s, types.UpgradeForward, s.opts.Forward))
	mux.HandleFunc("POST "+types.PathRuns+"/{id}/dial", attach(s, types.UpgradeDial, s.opts.Dial))
}
