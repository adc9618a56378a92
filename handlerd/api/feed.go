package api

import (
	"net/http"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// routeFeed adds types.PathFeed.
func (s *Server) routeFeed(mux *http.ServeMux) {
	if s.opts.Feed != nil {
		mux.HandleFunc("GET "+types.PathFeed, s.feed)
	}
}

// feed tells what changes, as server-sent events or a line each, until who asked is gone or does not keep up. It begins
// when nothing will be missed: who shows lists asks for them then.
func (s *Server) feed(w http.ResponseWriter, r *http.Request) {
	for key := range r.URL.Query() {
		s.fail(w, fault.New(fault.Usage, "", "the query's %.40q is not what %s takes", key, r.URL.Path))
		return
	}
	out := newEvents(w, acceptsEvents(r))
	end := func() {}
	defer func() { end() }()
	err := s.opts.Feed.Follow(r.Context(), func(changes []types.Change) error {
		if len(changes) == 0 {
			end = out.live()
			return nil
		}
		return send(out, changes, func(types.Change) string { return "" })
	})
	if err != nil && !out.begun {
		s.fail(w, err)
	}
}
