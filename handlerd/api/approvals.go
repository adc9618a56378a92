package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
)

// Rules are the network rules of live runs (handlerd/sessions).
type Rules interface {
	// ChangeRules adds a rule.
	ChangeRules(types.RuleChange) (types.RuleChanged, error)
	// Rules gives the rules of the live run whose id begins with id.
	Rules(id string) ([]types.LiveRule, error)
}

// MaxVerdicts is how many records of the audit log one request gets from before it was made.
const MaxVerdicts = 10_000

// defaultVerdicts is how many it gets if it does not say.
const defaultVerdicts = 100

// routeApprovals adds the paths of types/approvals.go.
func (s *Server) routeApprovals(mux *http.ServeMux) {
	mux.HandleFunc("GET "+types.PathApprovals, s.listApprovals)
	mux.HandleFunc("GET "+types.PathApprovals+"/{id}", s.findApproval)
	mux.HandleFunc("GET "+types.PathApprovals+"/{id}/picture", s.approvalPicture)
	mux.HandleFunc("POST "+types.PathApprovals+"/{id}", s.answerApproval)
	mux.HandleFunc("POST "+types.PathRules, s.changeRules)
	mux.HandleFunc("GET "+types.PathRuns+"/{id}/rules", s.runRules)
	mux.HandleFunc("GET "+types.PathVerdicts, s.verdicts)
}

// listApprovals gives what waits, or with watch=1 a stream during which somebody is there.
func (s *Server) listApprovals(w http.ResponseWriter, r *http.Request) {
	run := r.URL.Query().Get("run")
	if run != "" {
		found, err := s.opts.Runs.Find(r.Context(), run)
		if err != nil {
			s.fail(w, err)
			return
		}
		run = found.ID
	}
	if r.URL.Query().Get("watch") != "1" {
		s.answer(w, s.opts.Approvals.List(run))
		return
	}
	watcher, err := s.opts.Approvals.Watch(run)
	if err != nil {
		s.fail(w, err)
		return
	}
	defer watcher.Close()
	out := newStream(w)
	for {
		event, err := watcher.Next(r.Context())
		if err != nil {
			return // who watches has gone, or does not read
		}
		if err := out.send(event); err != nil {
			return
		}
	}
}

func (s *Server) findApproval(w http.ResponseWriter, r *http.Request) {
	a, err := s.opts.Approvals.Find(r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, a)
}

// approvalPicture gives the picture of a question: a PNG that handlerd made itself.
func (s *Server) approvalPicture(w http.ResponseWriter, r *http.Request) {
	png, err := s.opts.Approvals.Picture(r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "image/png")
	h.Set("Content-Length", strconv.Itoa(len(png)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(png) // who asked may be gone
}

func (s *Server) answerApproval(w http.ResponseWriter, r *http.Request) {
	var a types.ApprovalAnswer
	if err := readJSON(w, r, &a); err != nil {
		s.fail(w, err)
		return
	}
	question, err := s.opts.Approvals.Find(r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	done, err := s.opts.Approvals.Answer(question.ID, a)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, done)
}

func (s *Server) changeRules(w http.ResponseWriter, r *http.Request) {
	var c types.RuleChange
	if err := readJSON(w, r, &c); err != nil {
		s.fail(w, err)
		return
	}
	done, err := s.opts.Rules.ChangeRules(c)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, done)
}

func (s *Server) runRules(w http.ResponseWriter, r *http.Request) {
	rules, err := s.opts.Rules.Rules(r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, rules)
}

// verdicts streams what the audit log says of the network: verdicts, questions with their answers, changes of rules.
func (s *Server) verdicts(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	last := defaultVerdicts
	if text := query.Get("last"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxVerdicts {
			s.fail(w, fault.New(fault.Usage, "", "last=%q is no number from 1 to %d", text, MaxVerdicts))
			return
		}
		last = n
	}
	match := func(rec audit.Record) bool {
		if rec.Kind != audit.KindNetwork && rec.Kind != audit.KindApproval && rec.Kind != audit.KindRules {
			return false
		}
		agent, run := query.Get("agent"), query.Get("run")
		return (agent == "" || rec.Agent == agent) && strings.HasPrefix(rec.Run, run)
	}
	out := newStream(w)
	err := audit.Stream(r.Context(), s.opts.AuditFile, last, query.Get("follow") == "1", match, func(rec audit.Record) error {
		return out.send(types.NetworkVerdict{
			Time: rec.Time, Run: rec.Run, Agent: rec.Agent, Kind: rec.Kind, Rule: rec.Rule, Verdict: rec.Verdict,
			Subject: rec.Subject, Reason: rec.Reason, Hint: rec.Hint,
		})
	})
	if err != nil && !errors.Is(err, context.Canceled) && !out.begun {
		s.fail(w, err)
	}
}
