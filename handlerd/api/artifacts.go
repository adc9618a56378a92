package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/fault"
)

// Scopes says where artifacts may be saved, and when all that a run has shown is kept (handlerd/sessions).
type Scopes interface {
	// SaveTarget gives scope, folder and what is refused of a request to save something there.
	SaveTarget(ctx context.Context, dest types.Destination) (artifacts.SaveRequest, error)
	// SettleArtifacts returns when what a live run has shown so far is kept; with "" what all have.
	SettleArtifacts(ctx context.Context, run string)
}

// settleTime bounds how long a list waits for what was shown just before.
const settleTime = 10 * time.Second

// maxArtifactArg bounds what a query says of artifacts.
const maxArtifactArg = 4096

// routeArtifacts adds the paths of types/artifacts.go.
func (s *Server) routeArtifacts(mux *http.ServeMux) {
	if s.opts.Artifacts == nil {
		return
	}
	mux.HandleFunc("GET "+types.PathArtifacts, s.listArtifacts)
	mux.HandleFunc("DELETE "+types.PathArtifacts, s.removeArtifacts)
	mux.HandleFunc("GET "+types.PathArtifacts+"/{id}", s.getArtifact)
	mux.HandleFunc("GET "+types.PathArtifacts+"/{id}/info", s.artifactInfo)
	mux.HandleFunc("POST "+types.PathArtifacts+"/{id}", s.saveArtifact)
	mux.HandleFunc("DELETE "+types.PathArtifacts+"/{id}", s.removeArtifact)
}

func (s *Server) listArtifacts(w http.ResponseWriter, r *http.Request) {
	list, err := s.artifactList(r)
	if err != nil {
		s.fail(w, artifactFault(err))
		return
	}
	s.answer(w, list)
}

func (s *Server) artifactList(r *http.Request) (types.ArtifactList, error) {
	q, err := artifactQuery(r, "run", "session", "agent")
	if err != nil {
		return types.ArtifactList{}, err
	}
	run, err := s.artifactRun(r.Context(), q.Get("run"))
	if err != nil {
		return types.ArtifactList{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), settleTime)
	s.opts.Scopes.SettleArtifacts(ctx, run)
	cancel()
	all, err := s.opts.Artifacts.List(r.Context(), s.opts.Principal, artifacts.Filter{Run: run, Session: q.Get("session"), Agent: q.Get("agent")})
	if err != nil {
		return types.ArtifactList{}, err
	}
	usage, err := s.opts.Artifacts.Usage(r.Context(), s.opts.Principal)
	if err != nil {
		return types.ArtifactList{}, err
	}
	list := types.ArtifactList{Artifacts: make([]types.Artifact, 0, len(all)), Usage: types.ArtifactUsage{
		Count: usage.Count, MaxCount: usage.MaxCount, Bytes: usage.Bytes, MaxBytes: usage.Limit, PerRun: usage.PerRun,
		Largest: []types.ArtifactShare{},
	}}
	for _, a := range all {
		list.Artifacts = append(list.Artifacts, s.opts.Artifacts.Describe(a))
	}
	for _, share := range usage.Largest {
		list.Usage.Largest = append(list.Usage.Largest, types.ArtifactShare(share))
	}
	return list, nil
}

// artifactQuery reads a query that has only these keys, each once and within bounds.
func artifactQuery(r *http.Request, keys ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "", "the query")
	}
	for key, values := range q {
		if !slices.Contains(keys, key) || len(values) != 1 || len(values[0]) > maxArtifactArg {
			return nil, fault.New(fault.Usage, "it takes "+strings.Join(keys, ", ")+", each once", "the query's %.100q is not what %s takes", key, r.URL.Path)
		}
	}
	return q, nil
}

// artifactRun gives the run, live or with artifacts, whose id begins with prefix; prefix itself where there is none.
func (s *Server) artifactRun(ctx context.Context, prefix string) (string, error) {
	if prefix == "" {
		return "", nil
	}
	found, err := s.opts.Artifacts.Runs(ctx, s.opts.Principal, prefix)
	if err != nil {
		return "", err
	}
	if live, err := s.opts.Runs.Find(ctx, prefix); err == nil && !slices.Contains(found, live.ID) {
		found = append(found, live.ID)
	}
	switch {
	case len(found) == 0 || slices.Contains(found, prefix):
		return prefix, nil
	case len(found) > 1:
		return "", fault.New(fault.Usage, "type more of it: "+strings.Join(found, ", "), "%q is the beginning of several runs' ids", prefix)
	}
	return found[0], nil
}

// getArtifact also answers HEAD.
func (s *Server) getArtifact(w http.ResponseWriter, r *http.Request) {
	a, err := s.findArtifact(r)
	if err != nil {
		s.fail(w, artifactFault(err))
		return
	}
	s.opts.Artifacts.Serve(w, r, s.opts.Principal, a.ID)
}

func (s *Server) findArtifact(r *http.Request) (artifacts.Artifact, error) {
	if _, err := artifactQuery(r); err != nil {
		return artifacts.Artifact{}, err
	}
	return s.opts.Artifacts.Get(r.Context(), s.opts.Principal, r.PathValue("id"))
}

func (s *Server) artifactInfo(w http.ResponseWriter, r *http.Request) {
	a, err := s.findArtifact(r)
	if err != nil {
		s.fail(w, artifactFault(err))
		return
	}
	s.answer(w, s.opts.Artifacts.Describe(a))
}

func (s *Server) saveArtifact(w http.ResponseWriter, r *http.Request) {
	var save types.ArtifactSave
	if err := readJSON(w, r, &save); err != nil {
		s.fail(w, err)
		return
	}
	path, err := s.save(r, save)
	if err != nil {
		s.fail(w, artifactFault(err))
		return
	}
	s.answer(w, types.ArtifactSaved{Path: path})
}

func (s *Server) save(r *http.Request, save types.ArtifactSave) (string, error) {
	a, err := s.findArtifact(r)
	if err != nil {
		return "", err
	}
	req, err := s.opts.Scopes.SaveTarget(r.Context(), save.Destination)
	if err != nil {
		return "", err
	}
	req.Name, req.Conflict = save.Name, save.Conflict
	return s.opts.Artifacts.Save(r.Context(), s.opts.Principal, a.ID, req)
}

func (s *Server) removeArtifact(w http.ResponseWriter, r *http.Request) {
	a, err := s.findArtifact(r)
	if err == nil {
		_, err = s.opts.Artifacts.Remove(r.Context(), s.opts.Principal, a.ID)
	}
	if err != nil {
		s.fail(w, artifactFault(err))
		return
	}
	s.answer(w, types.ArtifactsRemoved{Removed: 1})
}

func (s *Server) removeArtifacts(w http.ResponseWriter, r *http.Request) {
	n, err := s.removeMany(r)
	if err != nil {
		s.fail(w, artifactFault(err))
		return
	}
	s.answer(w, types.ArtifactsRemoved{Removed: n})
}

// removeMany removes those of one run, or of one session of an agent: never all for want of a filter.
func (s *Server) removeMany(r *http.Request) (int, error) {
	q, err := artifactQuery(r, "run", "session", "agent")
	if err != nil {
		return 0, err
	}
	run, agent, session := q.Get("run"), q.Get("agent"), q.Get("session")
	switch {
	case run != "" && agent == "" && session == "":
		if run, err = s.artifactRun(r.Context(), run); err != nil {
			return 0, err
		}
		n, err := s.opts.Artifacts.RemoveRun(r.Context(), s.opts.Principal, run)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "see: handler artifacts list", "run %q has no artifacts", run)
		}
		return n, err
	case run == "" && agent != "" && session != "":
		return s.opts.Artifacts.RemoveSession(r.Context(), s.opts.Principal, agent, session)
	}
	return 0, fault.New(fault.Usage, "say run=, or agent= and session=", "which artifacts are to be removed is not said")
}

// artifactFault says what an error of the store means to the person.
func artifactFault(err error) error {
	var f *fault.Fault
	var none *artifacts.NotFoundError
	var several *artifacts.AmbiguousError
	var index *artifacts.IndexError
	var save *artifacts.SaveError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &none):
		return &fault.Fault{Kind: fault.NotFound, Text: fmt.Sprintf("there is no artifact %.40q", none.ID), Hint: "see: handler artifacts list", Err: err}
	case errors.As(err, &several):
		ids := make([]string, 0, len(several.Found))
		for _, a := range several.Found[:min(8, len(several.Found))] {
			ids = append(ids, a.ID)
		}
		return &fault.Fault{Kind: fault.Usage, Text: fmt.Sprintf("%q is the beginning of several artifacts' ids", several.ID), Hint: "type more of it: " + strings.Join(ids, ", "), Err: err}
	case errors.As(err, &index):
		return &fault.Fault{Kind: fault.Failed, Text: index.Error(), Hint: index.Hint(), Err: err}
	case errors.As(err, &save):
		kind := fault.Failed
		if save.Usage {
			kind = fault.Usage
		}
		return &fault.Fault{Kind: kind, Text: "not saved to " + save.Path + ": " + save.Reason, Hint: save.Hint, Err: err}
	}
	return err
}
