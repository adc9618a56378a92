package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/history"
)

// keepAlive is how often a stream of server-sent events says that it lives.
const keepAlive = 20 * time.Second

// maxSessionArg bounds what a query says of sessions.
const maxSessionArg = 4096

// routeSessions adds the reading paths of types/sessions.go; what a session is told is talk.go's.
func (s *Server) routeSessions(mux *http.ServeMux) {
	mux.HandleFunc("GET "+types.PathSessions, s.withHistory(s.listSessions))
	mux.HandleFunc("GET "+types.PathSessions+"/{id}", s.withHistory(s.findSession))
	mux.HandleFunc("DELETE "+types.PathSessions+"/{id}", s.withHistory(s.removeSession))
	mux.HandleFunc("GET "+types.PathSessions+"/{id}/events", s.withHistory(s.sessionEvents))
}

// withHistory answers why no sessions are kept, where none are; else it answers what next fails with.
func (s *Server) withHistory(next func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := error(fault.New(fault.Failed, "see: handler daemon logs; then: handler daemon stop", "no sessions are kept: their file cannot be used"))
		if s.opts.History != nil {
			err = next(w, r)
		}
		if err != nil {
			s.fail(w, err)
		}
	}
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	f := history.Filter{}
	for key, values := range query {
		if len(values) != 1 || len(values[0]) > maxSessionArg {
			return fault.New(fault.Usage, "", "the query's %.40q is not there once and short", key)
		}
		v := values[0]
		switch key {
		case "agent":
			f.Agent = v
		case "acp":
			f.ACP = v
		case "cwd":
			f.Cwd = v
		case "query":
			f.Query = v
		case "live":
			f.Live = v == "1"
		case "before":
			f.Before = v
		case "limit":
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > history.MaxList {
				return fault.New(fault.Usage, "", "limit=%.40q is no number from 1 to %d", v, history.MaxList)
			}
			f.Limit = n
		default:
			return fault.New(fault.Usage, "it takes agent, acp, cwd, query, live, before, limit", "the query's %.40q is not what %s takes", key, r.URL.Path)
		}
	}
	list, err := s.opts.History.List(r.Context(), f)
	if err != nil {
		return err
	}
	s.answer(w, list)
	return nil
}

func (s *Server) findSession(w http.ResponseWriter, r *http.Request) error {
	found, err := s.opts.History.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	s.answer(w, found)
	return nil
}

// removeSession removes a session with its events and what it made. A live one goes with its run where handlerd is its
// client; elsewhere somebody is in it.
func (s *Server) removeSession(w http.ResponseWriter, r *http.Request) error {
	found, err := s.opts.History.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if found.Run != "" {
		if !found.Ours {
			return fault.New(fault.Refused, "end its run first: handler kill "+found.Run, "refused: session %s is live in run %s", found.ID, found.Run)
		}
		if err := s.opts.Runs.Kill(r.Context(), found.Run); err != nil && fault.Of(err).Kind != fault.NotFound {
			return err
		}
	}
	// Its artifacts first: what fails can be tried again as long as the session is there.
	if s.opts.Artifacts != nil {
		list, err := s.opts.Artifacts.List(r.Context(), s.opts.Principal, artifacts.Filter{Agent: found.Agent, Session: found.ACP})
		if err == nil && len(list) > 0 {
			_, err = s.opts.Artifacts.RemoveSession(r.Context(), s.opts.Principal, found.Agent, found.ACP)
		}
		if err != nil {
			return artifactFault(err)
		}
	}
	if err := s.opts.History.Remove(r.Context(), found.ID); err != nil {
		return err
	}
	s.answer(w, struct{}{})
	return nil
}

// sessionEvents gives events, as lines or as server-sent events, and with follow=1 those that come.
func (s *Server) sessionEvents(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	for key, values := range query {
		if key != "after" && key != "follow" || len(values) != 1 {
			return fault.New(fault.Usage, "it takes after and follow, each once", "the query's %.40q is not what %s takes", key, r.URL.Path)
		}
	}
	after, err := eventNumber(query.Get("after"))
	if err != nil {
		return err
	}
	sse := acceptsEvents(r)
	if last := r.Header.Get("Last-Event-ID"); sse && last != "" {
		if after, err = eventNumber(last); err != nil {
			return err
		}
	}
	found, err := s.opts.History.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if after > found.Events {
		return fault.New(fault.Usage, "ask from the beginning", "session %s has %d events, and what comes after number %d was asked for", found.ID, found.Events, after)
	}
	out := newEvents(w, sse)
	if query.Get("follow") != "1" {
		return s.allEvents(r.Context(), out, found, after)
	}
	defer out.end()
	out.live()
	err = s.opts.History.Follow(r.Context(), found.ID, after, out.events)
	if err != nil && !out.begun {
		return err
	}
	return nil
}

// allEvents gives those that are there.
func (s *Server) allEvents(ctx context.Context, out *eventStream, found types.Session, after int64) error {
	for after < found.Events {
		events, err := s.opts.History.Events(ctx, found.ID, after, 0)
		if err != nil && !out.begun {
			return err
		}
		if err != nil || len(events) == 0 || out.events(events) != nil {
			return nil // cut off, which the reader sees by the missing numbers; or it is gone
		}
		after = events[len(events)-1].Seq
	}
	return out.begin()
}

func eventNumber(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.New(fault.Usage, "", "%.40q is no event's number", text)
	}
	return n, nil
}

// acceptsEvents tells whether a request asks for server-sent events.
func acceptsEvents(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// An eventStream writes values as they come: as server-sent events, or a line each.
type eventStream struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	rc    *http.ResponseController
	sse   bool
	begun bool
	buf   []byte // protected by mu

	stop    chan struct{} // ends ticking; nil while nothing ticks
	ticking sync.WaitGroup
}

func newEvents(w http.ResponseWriter, sse bool) *eventStream {
	return &eventStream{w: w, rc: http.NewResponseController(w), sse: sse}
}

// begin says that the stream is there, before there is anything in it.
func (s *eventStream) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head()
	return s.rc.Flush()
}

func (s *eventStream) head() {
	if s.begun {
		return
	}
	s.begun = true
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.Header().Set("Content-Type", "application/x-ndjson")
	if s.sse {
		s.w.Header().Set("Content-Type", "text/event-stream")
	}
}

// live begins the stream and has it say every now and then that it lives, until end. It may be called again.
func (s *eventStream) live() {
	_ = s.begin() // who is gone is noticed with the first event
	if !s.sse || s.stop != nil {
		return
	}
	stop := make(chan struct{})
	s.stop = stop
	s.ticking.Go(func() {
		tick := time.NewTicker(keepAlive)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = s.write([]byte(": live\n\n"))
			case <-stop:
				return
			}
		}
	})
}

// end ends what live began. It comes before the handler's return: a stream that is written to after it takes the whole
// daemon along.
func (s *eventStream) end() {
	if s.stop == nil {
		return
	}
	close(s.stop)
	s.ticking.Wait()
	s.stop = nil
}

func (s *eventStream) write(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head()
	if _, err := s.w.Write(data); err != nil {
		return err
	}
	return s.rc.Flush()
}

// events writes some events in one go.
func (s *eventStream) events(list []types.Event) error {
	return send(s, list, func(e types.Event) string { return strconv.FormatInt(e.Seq, 10) })
}

// send writes values, with an id where id gives one.
func send[T any](s *eventStream, values []T, id func(T) string) error {
	buf := s.buf[:0]
	for _, v := range values {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if s.sse {
			if id := id(v); id != "" {
				buf = append(append(append(buf, "id: "...), id...), '\n')
			}
			buf = append(buf, "data: "...)
		}
		buf = append(append(buf, data...), '\n')
		if s.sse {
			buf = append(buf, '\n')
		}
	}
	if cap(buf) <= 1<<20 {
		s.buf = buf
	}
	return s.write(buf)
}
