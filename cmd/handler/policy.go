package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/policy"
)

// checked is the answer of policy check.
type checked struct {
	Agent   string `json:"agent"`
	Host    string `json:"host"`
	Port    uint16 `json:"port"`
	Allowed bool   `json:"allowed"`
	Asked   bool   `json:"asked,omitempty"` // a person would be asked (unknown = "ask")
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Rules   []said `json:"rules"`
}

// said is what one rule says of the destination.
type said struct {
	Rule    string `json:"rule"`
	By      string `json:"by"`
	Note    string `json:"note"`
	Decided bool   `json:"decided"`
}

func newPolicy(u *ui) *cobra.Command {
	check := &cobra.Command{
		Use: "check AGENT URL", Short: "Say whether an agent may reach an address, rule by rule; exit code 3 if not, or not without asking you", Args: usageArgs(cobra.ExactArgs(2)),
		Long: `Judges an address by the agent's rules as its proxy would, before a name is looked up: a name that is allowed here
is still refused when it resolves to an address that is not public.`,
		Example: `  handler policy check web https://api.example.org/
  handler policy check web 10.0.0.5:8080`,
		RunE: func(_ *cobra.Command, args []string) error { return u.policyCheck(args[0], args[1]) },
	}
	return group("policy", "What the rules say", check)
}

func (u *ui) policyCheck(agent, url string) error {
	host, port, err := parseDestination(url)
	if err != nil {
		return fault.New(fault.Usage, "write it as https://HOST/ or HOST:PORT", "%v", err)
	}
	c, err := u.catalog()
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	plan, err := c.Plan(agent, cwd)
	if err != nil {
		return err
	}
	network, err := c.Network(plan)
	if err != nil {
		return err
	}
	v, steps := network.Explain(host, port)
	answer := checked{Agent: agent, Host: host, Port: port, Allowed: v.Action == policy.Allow, Asked: v.Action == policy.Ask, Rule: v.Rule, Reason: v.Reason, Hint: v.Hint, Rules: []said{}}
	for _, s := range steps {
		answer.Rules = append(answer.Rules, said{Rule: s.Rule.String(), By: s.Rule.By, Note: s.Note, Decided: s.Decided})
	}
	if err := u.result(answer, func(w io.Writer) error { return printChecked(w, answer) }); err != nil {
		return err
	}
	if !answer.Allowed {
		return errReported{fault.Refused.ExitCode()}
	}
	return nil
}

// parseDestination reads a URL, or HOST:PORT as a tunnel names it; without a port it is https's.
func parseDestination(text string) (host string, port uint16, err error) {
	if strings.Contains(text, "://") {
		return policy.ParseURL(text)
	}
	return policy.ParseAuthority(text, 443)
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
			fmt.Fprintf(w, "  %s\n", line)
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
		rows = append(rows, []string{"  " + mark + " " + r.Rule, r.Note, r.By})
	}
	return table(w, rows)
}
