package api

import (
	"context"
	"net/http"

	"github.com/handlerd/handler/handlerd/api/types"
)

// Web is the page's door (handlerd/web).
type Web interface {
	// Status says whether it is open, and who is logged in.
	Status() types.WebStatus
	// Link opens it where it is closed, on port or, with 0, the usual one, and gives a link that is good once.
	Link(port int) (types.WebLink, error)
	// Off closes it.
	Off() error
	// Logout logs out the browser whose id begins with id, or types.AllLogins.
	Logout(id string) error
	// Forward shows a port of a run in the page, or goes on showing it; Forwards lists those of
	// a run, and EndForward ends one.
	Forward(ctx context.Context, run string, port int) (types.Forwarded, error)
	Forwards(run string) []types.Forwarded
	EndForward(run, id string) error
}

// Handler is the whole API as Serve answers it, for another listener that knows who may come in (handlerd/web): it asks
// nobody who they are. Its requests count among those under way.
func (s *Server) Handler() http.Handler { return s.counted(s.mux) }

// routeWeb adds the paths of types/web.go, where there is a door.
func (s *Server) routeWeb(mux *http.ServeMux) {
	if s.opts.Web == nil {
		return
	}
	mux.HandleFunc("GET "+types.PathWeb, func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.opts.Web.Status()) })
	mux.HandleFunc("POST "+types.PathWebLink, s.webLink)
	mux.HandleFunc("POST "+types.PathWebOff, func(w http.ResponseWriter, _ *http.Request) { s.done(w, s.opts.Web.Off()) })
	mux.HandleFunc("DELETE "+types.PathWebLogins+"/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.done(w, s.opts.Web.Logout(r.PathValue("id")))
	})
	mux.HandleFunc("POST "+types.PathRuns+"/{id}"+types.SubForwards, s.webForward)
	mux.HandleFunc("GET "+types.PathRuns+"/{id}"+types.SubForwards, s.webForwards)
	mux.HandleFunc("DELETE "+types.PathRuns+"/{id}"+types.SubForwards+"/{forward}", s.endWebForward)
}

func (s *Server) webLink(w http.ResponseWriter, r *http.Request) {
	var req types.WebOpen
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	link, err := s.opts.Web.Link(req.Port)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, link)
}

func (s *Server) webForward(w http.ResponseWriter, r *http.Request) {
	var req types.PortRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	run, err := s.opts.Runs.Find(r.Context(), r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	done, err := s.opts.Web.Forward(r.Context(), run.ID, req.Port)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, done)
}

func (s *Server) webForwards(w http.ResponseWriter, r *http.Request) {
	run, err := s.opts.Runs.Find(r.Context(), r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, s.opts.Web.Forwards(run.ID))
}

func (s *Server) endWebForward(w http.ResponseWriter, r *http.Request) {
	run, err := s.opts.Runs.Find(r.Context(), r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.done(w, s.opts.Web.EndForward(run.ID, r.PathValue("forward")))
}

// done answers what gives nothing.
func (s *Server) done(w http.ResponseWriter, err error) {
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, struct{}{})
}
