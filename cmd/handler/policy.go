package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
	"github.com/handlerd/handler/render"
)

// checked is the answer of policy check.
type checked struct {
	Agent    string `json:"agent"`
	Host     string `json:"host,omitempty"`
	Port     uint16 `json:"port,omitempty"`
	Method   string `json:"method,omitempty"` // where the proxy sees it
	Path     string `json:"path,omitempty"`
	Upstream string `json:"upstream,omitempty"`
	Allowed  bool   `json:"allowed"`
	Asked    bool   `json:"asked,omitempty"` // a person would be asked
	Rule     string `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Hint     string `json:"hint,omitempty"`
	Rules    []said `json:"rules"`
}

// said is what one rule says of the destination.
type said struct {
	Kind    string   `json:"kind"`
	Rule    string   `json:"rule"`
	By      []string `json:"by"`
	Note    string   `json:"note"`
	Decided bool     `json:"decided"`
}

func newPolicy(u *ui) *cobra.Command {
	return group("policy", "What the rules say", newPolicyCheck(u), newPolicyRules(u), newPolicyPresets(u),
		newPolicyLog(u), newPolicyChange(u, policy.KindAllow), newPolicyChange(u, policy.KindDeny), newPolicyLive(u))
}

func newPolicyCheck(u *ui) *cobra.Command {
	var method string
	check := &cobra.Command{
		Use: "check AGENT URL", Short: "Say whether an agent may reach an address, rule by rule; exit code 3 if not, or not without asking you", Args: usageArgs(cobra.ExactArgs(2)),
		Long: `Judges an address by the agent's rules as its proxy would, before a name is looked up: a name that is allowed here
is still refused when it resolves to an address that is not public. Of an http URL, and of an upstream's, the proxy
sees method and path; of everything else host and port.`,
		Example: `  handler policy check web https://api.example.org/
  handler policy check web 10.0.0.5:8080
  handler policy check web http://repo.example.org/debian/ --method HEAD
  handler policy check web http://127.0.0.1:3128/upstream/anthropic/v1/messages --method POST`,
		RunE: func(_ *cobra.Command, args []string) error { return u.policyCheck(args[0], args[1], method) },
	}
	check.Flags().StringVar(&method, "method", http.MethodGet, "the request's method, of an http or an upstream's URL")
	return check
}

// planned gives an agent's plan for a run started here, and its rules.
func (u *ui) planned(agent string) (*render.Plan, policy.Network, error) {
	c, err := u.catalog()
	if err != nil {
		return nil, policy.Network{}, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, policy.Network{}, err
	}
	plan, err := c.Plan(agent, cwd)
	if err != nil {
		return nil, policy.Network{}, err
	}
	network, err := c.Network(plan)
	return plan, network, err
}

func (u *ui) policyCheck(agent, address, method string) error {
	q, err := parseQuestion(address, method)
	if err != nil {
		return fault.New(fault.Usage, "write it as https://HOST/, http://HOST/PATH or HOST:PORT", "%v", err)
	}
	plan, network, err := u.planned(agent)
	if err != nil {
		return err
	}
	v, steps := q.ask(plan, network)
	answer := checked{Agent: agent, Host: q.host, Port: q.port, Upstream: q.upstream, Allowed: v.Action == policy.Allow,
		Asked: v.Action == policy.Ask, Rule: v.Rule, Reason: v.Reason, Hint: v.Hint, Rules: []said{}}
	if q.seen {
		answer.Method, answer.Path = q.method, q.path
	}
	for _, s := range steps {
		answer.Rules = append(answer.Rules, said{Kind: s.Rule.Kind, Rule: s.Rule.String(), By: s.By, Note: s.Note, Decided: s.Decided})
	}
	if err := u.result(answer, func(w io.Writer) error { return printChecked(w, answer) }); err != nil {
		return err
	}
	if !answer.Allowed {
		return errReported{fault.Refused.ExitCode()}
	}
	return nil
}

// A question is what policy check is asked about.
type question struct {
	host         string // "" for an upstream
	port         uint16
	upstream     string
	seen         bool // the proxy sees method and path
	method, path string
}

// parseQuestion reads a URL, or HOST:PORT as a tunnel names it; without a port it is https's.
func parseQuestion(text, method string) (q question, err error) {
	q.method = method
	if !strings.Contains(text, "://") {
		q.host, q.port, err = policy.ParseAuthority(text, 443)
		return q, err
	}
	if q.host, q.port, err = policy.ParseURL(text); err != nil {
		return q, err
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "http" {
		return q, err
	}
	q.seen, q.path = true, parsed.EscapedPath()
	if q.path == "" {
		q.path = "/"
	}
	rest, ok := strings.CutPrefix(q.path, "/upstream/")
	if ok && q.port == 3128 && (q.host == "127.0.0.1" || q.host == "localhost") {
		name, path, _ := strings.Cut(rest, "/")
		q.host, q.port, q.upstream, q.path = "", 0, name, "/"+path
	}
	return q, nil
}

// ask judges it as the run's proxy would.
func (q question) ask(plan *render.Plan, network policy.Network) (policy.Verdict, []policy.Step) {
	if q.upstream == "" && !q.seen {
		return network.Explain(q.host, q.port)
	}
	if q.upstream == "" {
		return network.ExplainRequest(policy.Request{Method: q.method, Host: q.host, Port: q.port, Path: q.path})
	}
	i := slices.IndexFunc(plan.Upstreams, func(up render.Upstream) bool { return up.Name == q.upstream })
	if i < 0 {
		return policy.Verdict{Action: policy.Refuse, Rule: "D.9", Reason: fmt.Sprintf("a run of agent %q has no upstream %s", plan.Agent, q.upstream),
			Hint: "an upstream is served once the agent has its key: handler agent edit " + plan.Agent + " --secret NAME=FILE"}, nil
	}
	up := plan.Upstreams[i]
	return network.ExplainUpstream(policy.Served{Name: up.Name, Methods: up.Methods, Paths: up.Paths}, q.method, q.path)
}

func printChecked(w io.Writer, a checked) error {
	verdict := "allowed"
	if !a.Allowed {
		verdict = "refused by " + a.Rule
	}
	if a.Asked {
		verdict = "you would be asked, and where nobody is there it is refused by " + a.Rule
	}
	fmt.Fprintln(w, verdict)
	for _, line := range []string{a.Reason, a.Hint} {
		if line != "" {
			fmt.Fprintf(w, "  %s\n", plain(line))
		}
	}
	if len(a.Rules) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	rows := [][]string{}
	for _, r := range a.Rules {
		mark := " "
		if r.Decided {
			mark = "→"
		}
		rows = append(rows, []string{"  " + mark + " " + r.Kind, r.Rule, r.Note, strings.Join(r.By, ", ")})
	}
	return table(w, rows)
}
