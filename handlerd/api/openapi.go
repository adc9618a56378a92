package api

import (
	_ "embed"
	"net/http"

	"github.com/handlerd/handler/handlerd/api/types"
)

// openAPI describes the whole API. TestOpenAPI makes it from the routes and the types, and fails where it is not that.
//
//go:embed openapi.json
var openAPI []byte

// routeOpenAPI serves the API's description.
func (s *Server) routeOpenAPI(mux *http.ServeMux) {
	mux.HandleFunc("GET "+types.PathOpenAPI, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(openAPI); err != nil {
			s.log.Debug("answer not written", "error", err)
		}
	})
}
