package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/fault"
)

// routeCatalog routes what a person and Handler have: agents, harnesses, addons, presets, screens, folders, and the
// audit log.
func (s *Server) routeCatalog(mux *http.ServeMux) {
	mux.HandleFunc("GET "+types.PathAudit, s.audit)
	mux.HandleFunc("GET "+types.PathPresets, given(s, func(*http.Request) (any, error) { return catalog.Presets(), nil }))
	for pattern, f := range map[string]http.HandlerFunc{
		"GET " + types.PathAgents: given(s, func(*http.Request) (any, error) { return s.opts.Agents.ListAgents() }),
		"POST " + types.PathAgentCheck: asked(s, func(ctx context.Context, _ string, e types.AgentEdit) (any, error) {
			return s.opts.Agents.CheckEdit(ctx, e)
		}),
		"GET " + types.PathAgents + "/{name}":    s.agent,
		"PUT " + types.PathAgents + "/{name}":    s.putAgent,
		"DELETE " + types.PathAgents + "/{name}": s.removeAgent,
		"GET " + types.PathHarnesses:             given(s, func(*http.Request) (any, error) { return s.opts.Agents.HarnessList() }),
		"GET " + types.PathAddons:                given(s, func(*http.Request) (any, error) { return s.opts.Agents.AddonList() }),
		"GET " + types.PathDisplay:               given(s, func(r *http.Request) (any, error) { return s.opts.Agents.Display(r.Context()), nil }),
		"GET " + types.PathFolders: given(s, func(r *http.Request) (any, error) {
			return s.opts.Agents.Folders(r.URL.Query().Get("under"))
		}),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if s.opts.Agents == nil {
				s.fail(w, fault.New(fault.NotFound, "", "this handlerd knows no agents"))
				return
			}
			f(w, r)
		})
	}
}

// given answers a request with what get gives.
func given(s *Server, get func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := get(r)
		if err != nil {
			s.fail(w, err)
			return
		}
		s.answer(w, v)
	}
}

// agent gives one agent.
func (s *Server) agent(w http.ResponseWriter, r *http.Request) {
	d, err := s.opts.Agents.Detail(r.PathValue("name"))
	s.answerAgent(w, d, err)
}

// answerAgent answers with an agent and its tag.
func (s *Server) answerAgent(w http.ResponseWriter, d types.AgentDetail, err error) {
	if err != nil {
		s.fail(w, err)
		return
	}
	if d.Etag != "" {
		w.Header().Set("ETag", d.Etag)
	}
	s.answer(w, d)
}

// putAgent saves an agent: a new one with If-None-Match: *, a changed one with the tag of what was changed.
func (s *Server) putAgent(w http.ResponseWriter, r *http.Request) {
	var edit types.AgentEdit
	if err := readJSON(w, r, &edit); err != nil {
		s.fail(w, err)
		return
	}
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if (match == "") == (none == "") || none != "" && none != "*" || match == "*" {
		s.fail(w, fault.New(fault.Usage, "send If-Match with the agent's etag to change it, or If-None-Match: * to make one",
			"saving an agent needs to know which one it replaces"))
		return
	}
	d, err := s.opts.Agents.Put(r.PathValue("name"), edit, match+none)
	if err == nil {
		s.agentsChanged()
	}
	s.answerAgent(w, d, err)
}

func (s *Server) removeAgent(w http.ResponseWriter, r *http.Request) {
	if err := s.opts.Agents.Remove(r.PathValue("name"), r.Header.Get("If-Match")); err != nil {
		s.fail(w, err)
		return
	}
	s.agentsChanged()
	s.answer(w, struct{}{})
}

// agentsChanged tells who follows the feed.
func (s *Server) agentsChanged() {
	if s.opts.Feed != nil {
		s.opts.Feed.Announce(types.Change{Agents: true})
	}
}

// Bounds of a request for the audit log.
const (
	MaxAudit     = 10_000 // records of the past
	defaultAudit = 200
)

// audit streams the audit log: the last records that a filter chooses, and with follow=1 those that come.
func (s *Server) audit(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	for key := range query {
		if !slices.Contains([]string{"last", "kind", "agent", "run", "session", "verdict", "follow"}, key) {
			s.fail(w, fault.New(fault.Usage, "it takes last, kind, agent, run, session, verdict and follow", "the query's %.40q is not what %s takes", key, r.URL.Path))
			return
		}
	}
	last := defaultAudit
	if text := query.Get("last"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxAudit {
			s.fail(w, fault.New(fault.Usage, "", "last=%.40q is no number from 1 to %d", text, MaxAudit))
			return
		}
		last = n
	}
	for _, kind := range query["kind"] {
		if !slices.Contains(audit.Kinds(), kind) {
			s.fail(w, fault.New(fault.Usage, "there are "+strings.Join(audit.Kinds(), ", "), "the audit log has no kind %.40q", kind))
			return
		}
	}
	out := newStream(w)
	err := audit.Stream(r.Context(), s.opts.AuditFile, last, query.Get("follow") == "1", auditFilter(query), func(rec audit.Record) error {
		return out.send(types.AuditRecord{
			N: rec.N, Time: rec.Time, Run: rec.Run, Session: rec.Session, Agent: rec.Agent, Kind: rec.Kind, Rule: rec.Rule, Verdict: rec.Verdict,
			Subject: rec.Subject, Reason: rec.Reason, Hint: rec.Hint,
		})
	})
	if err != nil && !errors.Is(err, context.Canceled) && !out.begun {
		s.fail(w, err)
	}
}

// auditFilter chooses records by a query.
func auditFilter(query map[string][]string) audit.Match {
	is := func(key, value string) bool {
		want := query[key]
		return len(want) == 0 || want[0] == "" || want[0] == value
	}
	return func(rec audit.Record) bool {
		if kinds := query["kind"]; len(kinds) > 0 && !slices.Contains(kinds, rec.Kind) || len(kinds) == 0 && rec.Kind == audit.KindChain {
			return false
		}
		run := query["run"]
		return is("agent", rec.Agent) && is("session", rec.Session) && is("verdict", rec.Verdict) &&
			(len(run) == 0 || strings.HasPrefix(rec.Run, run[0]))
	}
}
