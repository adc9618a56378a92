package api

import (
	"context"
	"net/http"
	"sync"

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
		if key != "watch" {
			s.fail(w, fault.New(fault.Usage, "", "the query's %.40q is not what %s takes", key, r.URL.Path))
			return
		}
	}
	if r.URL.Query().Get("watch") == "1" {
		defer s.beThere(r.Context())()
	}
	out := newEvents(w, acceptsEvents(r))
	defer out.end()
	err := s.opts.Feed.Follow(r.Context(), func(changes []types.Change) error {
		if len(changes) == 0 {
			out.live()
			return nil
		}
		return send(out, changes, func(types.Change) string { return "" })
	})
	if err != nil && !out.begun {
		s.fail(w, err)
	}
}

// beThere makes whoever follows the feed count as somebody who is there to be asked, until what it gives is called. What
// it is asked comes with the feed. Where too many are there already, it is shown the questions all the same.
func (s *Server) beThere(ctx context.Context) (end func()) {
	if s.opts.Approvals == nil {
		return func() {}
	}
	watcher, err := s.opts.Approvals.Watch("")
	if err != nil {
		s.log.Debug("a page does not count as somebody who is there", "error", err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := watcher.Next(ctx); err != nil {
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		watcher.Close()
	}
}
