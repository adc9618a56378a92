package api

import (
	"net/http"

	"github.com/handlerd/handler/handlerd/api/types"
)

// listServers lists the MCP servers that are hosted for a run.
func (s *Server) listServers(w http.ResponseWriter, r *http.Request) {
	all, err := s.opts.Runs.Servers(r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, all)
}

// stopServers is the person's kill switch (F.9). It answers the names of those that it stopped.
func (s *Server) stopServers(w http.ResponseWriter, r *http.Request) {
	var req types.StopServer
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	done, err := s.opts.Runs.StopServers(r.PathValue("id"), req.Name)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, append([]string{}, done...))
}
