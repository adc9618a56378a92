package api

import (
	"net/http"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// checkSecrets reads an agent's secrets and says how that went, never what they are. It is no GET: what it starts may
// ask the person for a passphrase.
func (s *Server) checkSecrets(w http.ResponseWriter, r *http.Request) {
	var req types.SecretsRequest
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	if s.opts.Secrets == nil {
		s.fail(w, fault.New(fault.NotFound, "", "this handlerd reads no secrets"))
		return
	}
	checks, err := s.opts.Secrets(r.Context(), req.Agent)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, append([]types.SecretCheck{}, checks...))
}
