package api

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// A Shell is a command of the person's in a run, which waits for its client.
type Shell interface {
	// Serve joins client to the command until either or the run ends, and closes client.
	Serve(ctx context.Context, client net.Conn) error
	// Abort ends the command without a client.
	Abort()
}

// startShell starts the command first and upgrades after, so that what goes wrong is an ordinary answer.
func (s *Server) startShell(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), types.UpgradeShell) || s.opts.Shell == nil {
		s.fail(w, fault.New(fault.Usage, "send Connection: Upgrade and Upgrade: "+types.UpgradeShell,
			"a shell lives as long as its connection, so it needs an upgrade"))
		return
	}
	var req types.ShellRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	shell, err := s.opts.Shell(r.Context(), r.PathValue("id"), req)
	if err != nil {
		s.fail(w, err)
		return
	}
	client, err := s.upgrade(w, http.NewResponseController(w), types.UpgradeShell)
	if err != nil {
		shell.Abort()
		return
	}
	// The shell outlives the request: its context is the connection, and the server's end is the run's.
	if err := shell.Serve(context.WithoutCancel(r.Context()), client); err != nil {
		s.log.Info("shell ended", "run", r.PathValue("id"), "error", err)
	}
}
