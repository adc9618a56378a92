package api

import (
	"context"
	"net/http"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/view"
)

// Views is what the API needs to show displays (handlerd/sessions).
type Views interface {
	// View gives a ticket to a login, and Visit uses one up.
	View(ctx context.Context, id string, req types.ViewRequest, login string) (types.ViewTicket, error)
	Visit(ticket, login string) (*view.Visit, error)
	// Takeover gives the guarded browser to a login, or back.
	Takeover(ctx context.Context, id string, on bool, login string) (types.Takeover, error)
	// Still keeps a picture of a display.
	Still(ctx context.Context, id string, req types.ViewRequest) (types.Artifact, error)
}

// maxTicket bounds what a query says of a ticket.
const maxTicket = 64

// routeView adds the paths of types/view.go.
func (s *Server) routeView(mux *http.ServeMux) {
	if s.opts.Views == nil {
		return
	}
	mux.HandleFunc("POST "+types.PathRuns+"/{id}"+types.SubView, s.viewTicket)
	mux.HandleFunc("POST "+types.PathRuns+"/{id}"+types.SubStill, s.viewStill)
	mux.HandleFunc("POST "+types.PathRuns+"/{id}"+types.SubTakeover, s.viewTakeover)
	mux.HandleFunc("GET "+types.PathView, s.view)
}

func (s *Server) viewTicket(w http.ResponseWriter, r *http.Request) {
	var req types.ViewRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	t, err := s.opts.Views.View(r.Context(), r.PathValue("id"), req, view.LoginOf(r.Context()))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, t)
}

func (s *Server) viewTakeover(w http.ResponseWriter, r *http.Request) {
	var req types.TakeoverRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	t, err := s.opts.Views.Takeover(r.Context(), r.PathValue("id"), req.On, view.LoginOf(r.Context()))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, t)
}

func (s *Server) viewStill(w http.ResponseWriter, r *http.Request) {
	var req types.ViewRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	a, err := s.opts.Views.Still(r.Context(), r.PathValue("id"), req)
	if err != nil {
		s.fail(w, artifactFault(err))
		return
	}
	s.answer(w, a)
}

// view upgrades to a WebSocket, which the view's ticket must be good for.
func (s *Server) view(w http.ResponseWriter, r *http.Request) {
	ticket := r.URL.Query().Get("ticket")
	if ticket == "" || len(ticket) > maxTicket {
		s.fail(w, fault.New(fault.Usage, "POST "+types.PathRuns+"/{id}"+types.SubView, "a view needs a ticket"))
		return
	}
	visit, err := s.opts.Views.Visit(ticket, view.LoginOf(r.Context()))
	if err != nil {
		s.fail(w, err)
		return
	}
	if err := visit.Serve(w, r); err != nil {
		s.log.Info("a view ended", "error", err)
	}
}
