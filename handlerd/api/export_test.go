package api

import "net/http"

// Mux is the server's.
func Mux(s *Server) *http.ServeMux { return s.mux }
