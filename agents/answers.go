package agents

import (
	"errors"
	"fmt"
	"strings"

	"github.com/handlerd/handler/configfile"
)

// Values of Policy.Unattended, and of an Answer's Answer.
const (
	AnswerRefuse = "refuse"
	AnswerReads  = "reads"
	AnswerAllow  = "allow"
	AnswerDeny   = "deny"
)

// MaxAnswers bounds the answers of one agent.
const MaxAnswers = 64

// An Answer answers the agent's permission requests that it fits (P5). Tool and Title are patterns in which "*" stands
// for any text; an empty field fits everything, and not all three are empty.
type Answer struct {
	Tool   string `toml:"tool"`   // the tool's name, or the call's title where the agent gives no name
	Kind   string `toml:"kind"`   // as ACP names it: "read", "edit", "execute", …
	Title  string `toml:"title"`  // of the call, as it is shown
	Answer string `toml:"answer"` // "allow", in unattended runs, or "deny", in all
}

func (a Answer) check() error {
	if a.Answer != AnswerAllow && a.Answer != AnswerDeny {
		return fmt.Errorf("answer = %q must be \"allow\" or \"deny\"", configfile.Clip(a.Answer))
	}
	if a.Tool == "" && a.Kind == "" && a.Title == "" {
		return errors.New("say what it answers: tool, kind or title; unattended says what holds for all the rest")
	}
	return errors.Join(oneLine("tool", a.Tool, maxLine), oneLine("kind", a.Kind, maxLine), oneLine("title", a.Title, maxLine))
}

// checkAnswers checks what answers in a person's place.
func (p Policy) checkAnswers() error {
	switch p.Unattended {
	case "", AnswerRefuse, AnswerReads, AnswerAllow:
	default:
		return fmt.Errorf("policy.unattended = %q must be \"refuse\", \"reads\" or \"allow\"", configfile.Clip(p.Unattended))
	}
	if err := atMost("policy.answers", len(p.Answers), MaxAnswers); err != nil {
		return err
	}
	for i, a := range p.Answers {
		if err := a.check(); err != nil {
			return fmt.Errorf("policy.answers[%d]: %w", i, err)
		}
	}
	return nil
}

// empty tells a Policy that says nothing.
func (p Policy) empty() bool {
	return !p.HostFS && !p.HostTerminal && p.ClientMCP == "" && len(p.Approvals) == 0 && p.Unattended == "" && len(p.Answers) == 0
}

// policy writes a Policy.
func (w *writer) policy(p Policy) {
	if p.empty() {
		return
	}
	w.table("[policy]")
	w.flag("host_fs", p.HostFS)
	w.flag("host_terminal", p.HostTerminal)
	w.text("client_mcp", p.ClientMCP)
	w.list("approvals", p.Approvals)
	w.text("unattended", p.Unattended)
	for _, a := range p.Answers {
		w.table("[[policy.answers]]")
		w.text("tool", a.Tool)
		w.text("kind", a.Kind)
		w.text("title", a.Title)
		w.text("answer", a.Answer)
	}
}

// AddAnswer adds an answer as the command line writes it: "deny:title=*deploy*" or "allow:kind=read,tool=fs_*".
func (a *Agent) AddAnswer(text string) error {
	answer, what, ok := strings.Cut(text, ":")
	rule := Answer{Answer: answer}
	for _, part := range strings.Split(what, ",") {
		key, value, equals := strings.Cut(part, "=")
		to := map[string]*string{"tool": &rule.Tool, "kind": &rule.Kind, "title": &rule.Title}[key]
		if !ok || !equals || to == nil || value == "" || *to != "" {
			return fmt.Errorf("%q is no answer: write it as deny:title=*deploy* or allow:kind=read,tool=NAME", configfile.Clip(text))
		}
		*to = value
	}
	if err := rule.check(); err != nil {
		return err
	}
	for _, old := range a.Policy.Answers {
		if old == rule {
			return nil
		}
	}
	a.Policy.Answers = append(a.Policy.Answers, rule)
	return atMost("policy.answers", len(a.Policy.Answers), MaxAnswers)
}
