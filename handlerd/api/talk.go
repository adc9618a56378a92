package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/talk"
)

// Talk is what the API needs of the sessions whose client is handlerd (handlerd/talk). Errors are *fault.Fault.
type Talk interface {
	Create(ctx context.Context, req types.NewSession) (types.Session, error)
	Continue(ctx context.Context, id string, req types.ContinueSession) (types.Session, error)
	Prompt(ctx context.Context, id string, p types.Prompt) (types.PromptTaken, error)
	Cancel(ctx context.Context, id string) error
	Answer(ctx context.Context, id string, a types.QuestionAnswer) error
	Option(ctx context.Context, id string, o types.SessionOption) error
	Title(ctx context.Context, id, title string) error
	End(ctx context.Context, id string) error
}

// maxDrained bounds what is read of a body that is too long. A client that is not read from to its end is cut off, and
// would learn nothing of why.
const maxDrained = 256 << 20

// routeTalk routes what a session's person says.
func (s *Server) routeTalk(mux *http.ServeMux) {
	route := func(path string, f http.HandlerFunc) {
		mux.HandleFunc("POST "+types.PathSessions+path, func(w http.ResponseWriter, r *http.Request) {
			if s.opts.Talk == nil {
				s.fail(w, fault.New(fault.NotFound, "", "this handlerd keeps no sessions"))
				return
			}
			f(w, r)
		})
	}
	route("", asked(s, func(ctx context.Context, _ string, req types.NewSession) (any, error) {
		return s.opts.Talk.Create(ctx, req)
	}))
	route("/{id}/prompt", s.prompt)
	route("/{id}/continue", asked(s, func(ctx context.Context, id string, req types.ContinueSession) (any, error) {
		return s.opts.Talk.Continue(ctx, id, req)
	}))
	route("/{id}/answer", asked(s, func(ctx context.Context, id string, req types.QuestionAnswer) (any, error) {
		return struct{}{}, s.opts.Talk.Answer(ctx, id, req)
	}))
	route("/{id}/option", asked(s, func(ctx context.Context, id string, req types.SessionOption) (any, error) {
		return struct{}{}, s.opts.Talk.Option(ctx, id, req)
	}))
	route("/{id}/title", asked(s, func(ctx context.Context, id string, req types.SessionTitle) (any, error) {
		return struct{}{}, s.opts.Talk.Title(ctx, id, req.Title)
	}))
	route("/{id}/cancel", s.told(func(ctx context.Context, id string) error { return s.opts.Talk.Cancel(ctx, id) }))
	route("/{id}/end", s.told(func(ctx context.Context, id string) error { return s.opts.Talk.End(ctx, id) }))
}

// asked answers a request that has a body with what do gives.
func asked[T any](s *Server, do func(ctx context.Context, id string, req T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req T
		err := readJSON(w, r, &req)
		var v any
		if err == nil {
			v, err = do(r.Context(), r.PathValue("id"), req)
		}
		if err != nil {
			s.fail(w, err)
			return
		}
		s.answer(w, v)
	}
}

// told answers a request that has none.
func (s *Server) told(do func(ctx context.Context, id string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(r.Context(), r.PathValue("id")); err != nil {
			s.fail(w, err)
			return
		}
		s.answer(w, struct{}{})
	}
}

// promptEnvelope is what a prompt's body has around its content.
const promptEnvelope = 4 << 10

// prompt takes a prompt, which is longer than other requests may be.
func (s *Server) prompt(w http.ResponseWriter, r *http.Request) {
	const most = talk.MaxPromptBytes + promptEnvelope
	var p types.Prompt
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	if over := (*http.MaxBytesError)(nil); errors.As(err, &over) {
		n, _ := io.Copy(io.Discard, io.LimitReader(r.Body, maxDrained)) // whether all came is no matter any more
		s.fail(w, talk.TooLong(max(r.ContentLength, most+n)))
		return
	}
	if err != nil {
		s.fail(w, fault.Wrap(fault.Usage, err, "send it again", "the message did not come whole"))
		return
	}
	if err := json.Unmarshal(body, &p); err != nil || len(p.Content) == 0 {
		s.fail(w, fault.New(fault.Usage, `send {"content":[{"type":"text","text":"…"}]}`, "the message is not what %s takes", r.URL.Path))
		return
	}
	taken, err := s.opts.Talk.Prompt(r.Context(), r.PathValue("id"), p)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, taken)
}
